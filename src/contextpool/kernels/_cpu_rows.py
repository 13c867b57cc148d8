"""What the compiled forward and backward share: what they read, which edges take part, how a message is made."""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np

from contextpool.kernels._cpu_vectors import int32_at, int64_at, load, splat, splat_at, uint8_at

DISTMULT, TRANSE, ROTATE = range(3)
MESSAGE_NUMBER = {"distmult": DISTMULT, "transe": TRANSE, "rotate": ROTATE}
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
    """Numbers in a row of any of the inputs. A multiple of a vector's lanes; for rotate, its half is."""
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
    """Columns of the message of edge k before its edge weight (distmult, transe)."""
    state = load(walk.zero, walk.state, chosen[STATE_AT, k] + column)
    other = load(walk.zero, weight, chosen[WEIGHT_AT, k] + column)
    if walk.message == DISTMULT:
        return state * other
    return state + other


@numba.njit(cache=True, nogil=True, forceinline=True)
def turned(walk, weight, chosen, k, column):  # type: ignore[no-untyped-def]
    """The same for rotate: columns of the real half and of the imaginary one."""
    real, imaginary = halves(walk, walk.state, chosen[STATE_AT, k] + column)
    weight_real, weight_imaginary = halves(walk, weight, chosen[WEIGHT_AT, k] + column)
    return (
        real * weight_real - imaginary * weight_imaginary,
        real * weight_imaginary + imaginary * weight_real,
    )


@numba.njit(cache=True, nogil=True, forceinline=True)
def halves(walk, address, place):  # type: ignore[no-untyped-def]
    """Columns of both halves of a row."""
    return load(walk.zero, address, place), load(walk.zero, address, place + walk.dim // 2)


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
