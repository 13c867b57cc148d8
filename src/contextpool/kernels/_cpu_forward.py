"""The compiled forward: one pass over targets; a target's messages are reduced in registers and never stored."""

from __future__ import annotations

import numba
import numpy as np

from contextpool.kernels._cpu_rows import (
    MAX,
    MEAN,
    MIN,
    ROTATE,
    STD,
    boundary_of,
    choose,
    composed,
    longest_row,
    turned,
    weighted,
)
from contextpool.kernels._cpu_vectors import claim, int64_at, lanes_of, larger, root, smaller, splat, store
from contextpool.kernels.reference import STD_EPSILON


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
    place, half = target * walk.num_reductions * walk.dim, walk.dim // 2
    if walk.message == ROTATE:
        for column in range(0, half, lanes_of(walk.zero)):
            real, imaginary = _start(walk, target, column), _start(walk, target, column + half)
            for k in range(count):
                one, other = turned(walk, weight, chosen, k, column)
                real = _joined(walk, real, weighted(walk, one, chosen, k), k)
                imaginary = _joined(walk, imaginary, weighted(walk, other, chosen, k), k)
            _write(walk, real, count, result, place + column)
            _write(walk, imaginary, count, result, place + column + half)
        return
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
