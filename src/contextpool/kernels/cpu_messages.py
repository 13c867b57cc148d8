"""`aggregate` on the CPU, compiled: which edges take part, how messages are made, reduced and differentiated.

Forward is one pass over targets: a target's messages are reduced in registers and never stored. Backward makes them
again and adds what each is due to its inputs. Columns are independent of one another, so threads of the backward pass
share the columns: no two of them ever write to one place, and everything is added in the order of the edges, however
many threads there are.
"""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np

from contextpool.kernels.cpu_vectors import (
    add_number,
    claim,
    int32_at,
    int64_at,
    lanes_of,
    larger,
    load,
    root,
    smaller,
    splat,
    splat_at,
    store,
    sum_of_lanes,
    uint8_at,
    where_above,
    where_equal,
)
from contextpool.kernels.reference import STD_EPSILON

DISTMULT, TRANSE = range(2)
MESSAGE_NUMBER = {"distmult": DISTMULT, "transe": TRANSE}
SUM, MEAN, MAX, MIN, STD = range(5)
REDUCTION_NUMBER = {"sum": SUM, "mean": MEAN, "max": MAX, "min": MIN, "std": STD}
STATE_AT, WEIGHT_AT, EDGE = range(3)
"""The rows of `chosen`: where the source's state starts, where the relation's weight starts, which edge."""


class Walk(NamedTuple):
    """A hop, its inputs, and what is asked for. Numbers alone: arrays are addresses, of int64 unless said.

    (numba counts the references to an array whenever one is taken out of a tuple, which costs more than what is
    computed here.) Whoever makes a walk keeps its arrays alive.
    """

    row_start: int
    edge_source: int
    """int32"""
    edge_relation: int
    """int32"""
    edge_views: int
    """uint8"""
    node_query: int
    num_sources: int
    num_targets: int
    num_streams: int
    view_bit: int
    """[streams] the bit that an edge of the stream has; ANY_VIEW for the stream over all edges."""
    weight: int
    """[streams] addresses of the relation weights."""
    num_directed: int
    """[streams] relations that the weights have rows for."""
    num_queries: int
    """[streams] queries that the weights have rows for; 0 where all share them."""
    zero: np.float32 | np.float64
    """Its type is that of all numbers."""
    state: int
    dim: int
    """Numbers in a row of any of the inputs. A multiple of a vector's lanes."""
    boundary: int
    boundary_rows: int
    has_boundary: bool
    edge_weight: int
    weighted: bool
    message: int
    """As in MESSAGE_NUMBER."""
    reductions: int
    """As in REDUCTION_NUMBER."""
    num_reductions: int
    wants_max: bool
    wants_min: bool
    wants_std: bool


ANY_VIEW = 8
"""The bit that every edge has."""


@numba.njit(cache=True, nogil=True)
def longest_row(walk, first, last):  # type: ignore[no-untyped-def]
    """The most edges into any of the targets first..last - 1."""
    most = np.int64(0)
    for target in range(first, last):
        most = max(most, int64_at(walk.row_start, target + 1) - int64_at(walk.row_start, target))
    return most


@numba.njit(cache=True, nogil=True, forceinline=True)
def choose(walk, target, stream, chosen):  # type: ignore[no-untyped-def]
    """The edges into a target that take part in a stream, to `chosen`; how many, -1 where a weight is missing.

    Every edge is written and the next one overwrites it unless it counts: whether it does is hard to predict.
    """
    num_directed, num_queries = int64_at(walk.num_directed, stream), int64_at(walk.num_queries, stream)
    view_bit, first_row = int64_at(walk.view_bit, stream), np.int64(0)
    if num_queries > 0:
        query = int64_at(walk.node_query, target)
        if query < 0 or query >= num_queries:
            return np.int64(-1)
        first_row = query * num_directed
    count, highest = np.int64(0), np.uint32(0)
    for edge in range(int64_at(walk.row_start, target), int64_at(walk.row_start, target + 1)):
        source, relation = int32_at(walk.edge_source, edge), np.uint32(int32_at(walk.edge_relation, edge))
        chosen[STATE_AT, count] = np.int64(source) * walk.dim
        chosen[WEIGHT_AT, count] = (first_row + np.int64(relation)) * walk.dim
        chosen[EDGE, count] = edge
        views = np.int64(uint8_at(walk.edge_views, edge)) | (1 << ANY_VIEW)
        count += (views >> view_bit) & np.int64(source < walk.num_sources)
        highest = max(highest, relation + np.uint32(1))
    return count if highest <= num_directed else np.int64(-1)


@numba.njit(cache=True, nogil=True, forceinline=True)
def composed(walk, weight, chosen, k, column):  # type: ignore[no-untyped-def]
    """Columns of the message of edge k before its edge weight."""
    state = load(walk.zero, walk.state, chosen[STATE_AT, k] + column)
    other = load(walk.zero, weight, chosen[WEIGHT_AT, k] + column)
    if walk.message == DISTMULT:
        return state * other
    return state + other


@numba.njit(cache=True, nogil=True, forceinline=True)
def weighted(walk, message, chosen, k):  # type: ignore[no-untyped-def]
    """The message of edge k, times its edge weight where there is one."""
    if walk.weighted:
        return message * splat_at(walk.zero, walk.edge_weight, chosen[EDGE, k])
    return message


@numba.njit(cache=True, nogil=True, forceinline=True)
def boundary_of(walk, target, column):  # type: ignore[no-untyped-def]
    """Columns of what joins the messages at a target: a row of the boundary, zeros past its last."""
    if target < walk.boundary_rows:
        return load(walk.zero, walk.boundary, target * walk.dim + column)
    return splat(walk.zero, 0)


@numba.njit(cache=True, nogil=True)
def reduce_blocks(block_start, next_block, walk, results, degree):  # type: ignore[no-untyped-def]
    """Take blocks of targets until none is left; the first target that lacks a weight, -1 for none.

    results [streams] addresses, each of [num_targets, reductions, dim]; degree [streams, num_targets].
    """
    block = claim(next_block)
    while block < len(block_start) - 1:
        first, last = block_start[block], block_start[block + 1]
        chosen = np.empty((3, longest_row(walk, first, last) + 1), dtype=np.int64)
        for target in range(first, last):
            for stream in range(walk.num_streams):
                count = choose(walk, target, stream, chosen)
                if count < 0:
                    return target
                degree[stream, target] = count + walk.has_boundary
                _reduce(walk, target, int64_at(walk.weight, stream), chosen, count, results[stream])
        block = claim(next_block)
    return -1


@numba.njit(cache=True, nogil=True, forceinline=True)
def _reduce(walk, target, weight, chosen, count, result):  # type: ignore[no-untyped-def]
    """One stream into one target."""
    place = target * walk.num_reductions * walk.dim
    for column in range(0, walk.dim, lanes_of(walk.zero)):
        found = _start(walk, target, column)
        for k in range(count):
            message = weighted(walk, composed(walk, weight, chosen, k, column), chosen, k)
            found = _joined(walk, found, message, k)
        _write(walk, found, count, result, place + column)


@numba.njit(cache=True, nogil=True, forceinline=True)
def _start(walk, target, column):  # type: ignore[no-untyped-def]
    """What is known before the first message, of the boundary or of nothing.

    Total, largest, smallest; and one of the messages with the sums of the others' distances from it and of their
    squares: a deviation is small beside its messages, but not beside these.
    """
    nothing = splat(walk.zero, 0)
    if walk.has_boundary:
        message = boundary_of(walk, target, column)
        return message, message, message, message, nothing, nothing
    return nothing, splat(walk.zero, -np.inf), splat(walk.zero, np.inf), nothing, nothing, nothing


@numba.njit(cache=True, nogil=True, forceinline=True)
def _joined(walk, found, message, k):  # type: ignore[no-untyped-def]
    """`found` with the k-th message."""
    total, largest, smallest, one, distance, square = found
    if walk.wants_max or walk.wants_min:
        largest, smallest = larger(largest, message), smaller(smallest, message)
    if walk.wants_std:
        if k == 0 and not walk.has_boundary:
            one = message
        from_one = message - one
        distance, square = distance + from_one, square + from_one * from_one
    return total + message, largest, smallest, one, distance, square


@numba.njit(cache=True, nogil=True, forceinline=True)
def _write(walk, found, count, result, place):  # type: ignore[no-untyped-def]
    """Every reduction that is asked for, from `place` on, `dim` apart; zeros where there was no message."""
    total, largest, smallest, _, distance, square = found
    degree = splat(walk.zero, max(count + walk.has_boundary, 1))
    for number in range(walk.num_reductions):
        reduction, value = int64_at(walk.reductions, number), total
        if count + walk.has_boundary == 0:
            value = splat(walk.zero, 0)
        elif reduction == MEAN:
            value = total / degree
        elif reduction == MAX:
            value = largest
        elif reduction == MIN:
            value = smallest
        elif reduction == STD:
            mean_distance = distance / degree
            variance = square / degree - mean_distance * mean_distance
            value = root(larger(splat(walk.zero, STD_EPSILON), variance))
        store(result, place + number * walk.dim, value)


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
                        _push(walk, gradients, target, stream, chosen, count, column)
        block = claim(next_block)


@numba.njit(cache=True, nogil=True, forceinline=True)
def _push(walk, gradients, target, stream, chosen, count, column):  # type: ignore[no-untyped-def]
    """One stream into one target, as many columns as a vector has."""
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
