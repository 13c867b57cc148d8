"""The compiled backward: messages are made again, and what each of them is due goes to its inputs.

Columns are independent of one another, so threads share the columns: no two of them ever write to one place,
and everything is added in the order of the edges, however many there are.
"""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np

from contextpool.kernels._cpu_rows import (
    DISTMULT,
    EDGE,
    MAX,
    MEAN,
    MIN,
    ROTATE,
    STATE_AT,
    SUM,
    WEIGHT_AT,
    boundary_of,
    choose,
    composed,
    halves,
    longest_row,
    turned,
    weighted,
)
from contextpool.kernels._cpu_vectors import (
    add_number,
    claim,
    int64_at,
    lanes_of,
    load,
    root,
    splat,
    store,
    sum_of_lanes,
    where_above,
    where_equal,
)
from contextpool.kernels.reference import STD_EPSILON


class Gradients(NamedTuple):
    """Addresses: what is known of the results, and the gradients that are added to."""

    result: int
    """[streams] addresses"""
    due: int
    """[streams] addresses of the gradients of the results."""
    weight: int
    """[streams] addresses"""
    state: int
    boundary: int
    edge_weight: int
    """[vectors in a row, num_edges], to be summed."""
    num_edges: int
    """0 where nobody asks for the gradient of the edge weight."""


@numba.njit(cache=True, nogil=True)
def push_blocks(block_start, next_block, walk, gradients, degree):  # type: ignore[no-untyped-def]
    """Take blocks of columns until none is left: all streams of all targets; degree [streams, num_targets]."""
    lanes = lanes_of(walk.zero)
    chosen = np.empty((3, longest_row(walk, 0, walk.num_targets) + 1), dtype=np.int64)
    block = claim(next_block)
    while block < len(block_start) - 1:
        for target in range(walk.num_targets):
            for stream in range(walk.num_streams):
                if degree[stream, target] > 0:
                    count = choose(walk, target, stream, chosen)
                    for column in range(block_start[block], block_start[block + 1], lanes):
                        if walk.message == ROTATE:
                            _push_turned(walk, gradients, target, stream, chosen, count, column)
                        else:
                            _push(walk, gradients, target, stream, chosen, count, column)
        block = claim(next_block)


@numba.njit(cache=True, nogil=True, forceinline=True)
def _push(walk, gradients, target, stream, chosen, count, column):  # type: ignore[no-untyped-def]
    """One stream into one target (distmult, transe), as many columns as a vector has."""
    weight, to_weight = int64_at(walk.weight, stream), int64_at(gradients.weight, stream)
    due = _due(walk, gradients, stream, target, count, column)
    if walk.wants_max or walk.wants_min or walk.wants_std:
        tally = _tally_of_boundary(walk, target, column, due)
        for k in range(count):
            message = weighted(walk, composed(walk, weight, chosen, k, column), chosen, k)
            tally = _tallied(walk, tally, message, due)
        due = _settled(walk, due, tally, count)
    _push_boundary(walk, gradients, target, column, due)
    for k in range(count):
        state_at, weight_at = chosen[STATE_AT, k] + column, chosen[WEIGHT_AT, k] + column
        plain = composed(walk, weight, chosen, k, column)
        gradient = _gradient(walk, due, weighted(walk, plain, chosen, k))
        _push_edge_weight(walk, gradients, chosen[EDGE, k], column, gradient * plain)
        gradient = weighted(walk, gradient, chosen, k)
        if walk.message == DISTMULT:
            state, other = load(walk.zero, walk.state, state_at), load(walk.zero, weight, weight_at)
            _add(walk, to_weight, weight_at, gradient * state)
            _add(walk, gradients.state, state_at, gradient * other)
        else:
            _add(walk, to_weight, weight_at, gradient)
            _add(walk, gradients.state, state_at, gradient)


@numba.njit(cache=True, nogil=True, forceinline=True)
def _push_turned(walk, gradients, target, stream, chosen, count, column):  # type: ignore[no-untyped-def]
    """The same for rotate: columns of the real half, and those of the imaginary one."""
    half, weight, to_weight = (
        walk.dim // 2,
        int64_at(walk.weight, stream),
        int64_at(gradients.weight, stream),
    )
    due = _due(walk, gradients, stream, target, count, column)
    due_too = _due(walk, gradients, stream, target, count, column + half)
    if walk.wants_max or walk.wants_min or walk.wants_std:
        tally = _tally_of_boundary(walk, target, column, due)
        tally_too = _tally_of_boundary(walk, target, column + half, due_too)
        for k in range(count):
            real, imaginary = turned(walk, weight, chosen, k, column)
            tally = _tallied(walk, tally, weighted(walk, real, chosen, k), due)
            tally_too = _tallied(walk, tally_too, weighted(walk, imaginary, chosen, k), due_too)
        due, due_too = _settled(walk, due, tally, count), _settled(walk, due_too, tally_too, count)
    _push_boundary(walk, gradients, target, column, due)
    _push_boundary(walk, gradients, target, column + half, due_too)
    for k in range(count):
        state_at, weight_at = chosen[STATE_AT, k] + column, chosen[WEIGHT_AT, k] + column
        real, imaginary = turned(walk, weight, chosen, k, column)
        one = _gradient(walk, due, weighted(walk, real, chosen, k))
        other = _gradient(walk, due_too, weighted(walk, imaginary, chosen, k))
        _push_edge_weight(walk, gradients, chosen[EDGE, k], column, one * real + other * imaginary)
        one, other = weighted(walk, one, chosen, k), weighted(walk, other, chosen, k)
        _add_turned_back(walk, to_weight, weight_at, one, other, walk.state, state_at)
        _add_turned_back(walk, gradients.state, state_at, one, other, weight, weight_at)


@numba.njit(cache=True, nogil=True, forceinline=True)
def _due(walk, gradients, stream, target, count, column):  # type: ignore[no-untyped-def]
    """What each message is due: base, slope times (message - mean), and a share for the largest and smallest.

    The mean is still missing, and the shares still have to be divided among those that tie.
    """
    result, due = int64_at(gradients.result, stream), int64_at(gradients.due, stream)
    base = slope = mean = top = top_share = bottom = bottom_share = splat(walk.zero, 0)
    degree = splat(walk.zero, count + walk.has_boundary)
    for number in range(walk.num_reductions):
        reduction = int64_at(walk.reductions, number)
        place = (target * walk.num_reductions + number) * walk.dim + column
        if reduction == SUM:
            base = base + load(walk.zero, due, place)
        elif reduction == MEAN:
            base = base + load(walk.zero, due, place) / degree
        elif reduction == MAX:
            top, top_share = load(walk.zero, result, place), top_share + load(walk.zero, due, place)
        elif reduction == MIN:
            bottom, bottom_share = load(walk.zero, result, place), bottom_share + load(walk.zero, due, place)
        else:
            deviation, least = load(walk.zero, result, place), root(splat(walk.zero, STD_EPSILON))
            slope = slope + where_above(deviation, least, load(walk.zero, due, place) / (degree * deviation))
    return base, slope, mean, top, top_share, bottom, bottom_share


@numba.njit(cache=True, nogil=True, forceinline=True)
def _tally_of_boundary(walk, target, column, due):  # type: ignore[no-untyped-def]
    """Sum of the messages, how many are the largest, how many the smallest: of the boundary alone."""
    nothing = splat(walk.zero, 0)
    tally = nothing, nothing, nothing
    if walk.has_boundary:
        tally = _tallied(walk, tally, boundary_of(walk, target, column), due)
    return tally


@numba.njit(cache=True, nogil=True, forceinline=True)
def _tallied(walk, tally, message, due):  # type: ignore[no-untyped-def]
    total, at_top, at_bottom = tally
    one = splat(walk.zero, 1)
    at_top = at_top + where_equal(message, due[3], one)
    at_bottom = at_bottom + where_equal(message, due[5], one)
    return total + message, at_top, at_bottom


@numba.njit(cache=True, nogil=True, forceinline=True)
def _settled(walk, due, tally, count):  # type: ignore[no-untyped-def]
    """`due` with its mean and divided shares. Nothing equals a NaN: then there is none to share, and it stays NaN."""
    base, slope, mean, top, top_share, bottom, bottom_share = due
    total, at_top, at_bottom = tally
    nothing = splat(walk.zero, 0)
    mean = total / splat(walk.zero, count + walk.has_boundary)
    if walk.wants_max:
        top_share = top_share / at_top
        base = base + top_share * nothing
    if walk.wants_min:
        bottom_share = bottom_share / at_bottom
        base = base + bottom_share * nothing
    return base, slope, mean, top, top_share, bottom, bottom_share


@numba.njit(cache=True, nogil=True, forceinline=True)
def _gradient(walk, due, message):  # type: ignore[no-untyped-def]
    """What one message is due."""
    base, slope, mean, top, top_share, bottom, bottom_share = due
    if walk.wants_std:
        base = base + slope * (message - mean)
    if walk.wants_max:
        base = base + where_equal(message, top, top_share)
    if walk.wants_min:
        base = base + where_equal(message, bottom, bottom_share)
    return base


@numba.njit(cache=True, nogil=True, forceinline=True)
def _push_boundary(walk, gradients, target, column, due):  # type: ignore[no-untyped-def]
    if target < walk.boundary_rows:
        gradient = _gradient(walk, due, boundary_of(walk, target, column))
        _add(walk, gradients.boundary, target * walk.dim + column, gradient)


@numba.njit(cache=True, nogil=True, forceinline=True)
def _push_edge_weight(walk, gradients, edge, column, product):  # type: ignore[no-untyped-def]
    if gradients.num_edges > 0:
        place = column // lanes_of(walk.zero) * gradients.num_edges + edge
        add_number(gradients.edge_weight, place, sum_of_lanes(product))


@numba.njit(cache=True, nogil=True, forceinline=True)
def _add(walk, address, place, vector):  # type: ignore[no-untyped-def]
    store(address, place, load(walk.zero, address, place) + vector)


@numba.njit(cache=True, nogil=True, forceinline=True)
def _add_turned_back(walk, address, place, real, imaginary, factor, factor_at):  # type: ignore[no-untyped-def]
    """Add (real + i imaginary) times the conjugate of the product's other factor."""
    factor_real, factor_imaginary = halves(walk, factor, factor_at)
    _add(walk, address, place, real * factor_real + imaginary * factor_imaginary)
    _add(walk, address, place + walk.dim // 2, imaginary * factor_real - real * factor_imaginary)
