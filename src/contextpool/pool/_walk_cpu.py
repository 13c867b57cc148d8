"""Algorithm 2 on the CPU: one query after another, compiled, blocks of queries in threads."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable
from typing import NamedTuple, TypeVar

import numba
import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from contextpool.context.counts import available_threads
from contextpool.graph.graph import Graph
from contextpool.pool._backend import SCRATCH_BYTES
from contextpool.pool._bitmap import mark, new_bitmap, take_all
from contextpool.pool._threads import in_threads
from contextpool.pool.answers import BatchAnswers
from contextpool.pool.edge_set import EdgeSet
from contextpool.pool.hidden import HiddenEdges
from contextpool.pool.incidence import Incidence, incidence_of

Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]
Result = TypeVar("Result")
BLOCKS_PER_THREAD = 8
LEAST_WORK = 2**18
"""Edges a hop, about a millisecond: below this, starting threads takes longer than it saves."""


class _Walk(NamedTuple):
    """Everything that compiled code reads; shapes as in Incidence, HiddenEdges and BatchAnswers."""

    entity_start: Int64s
    pair_entity: Int32s
    pair_relation: Int32s
    pair_start: Int64s
    edge_arrival: Int32s
    hidden_start: Int64s
    hidden_edge: Int32s
    rows: Int64s
    pair_row: Int32s
    query_head: Int32s
    query_row: Int32s
    changed_start: Int64s
    changed_pair: Int32s
    changed_row: Int32s


def walk(
    graph: Graph,
    query_head: Tensor,
    answers: BatchAnswers,
    hidden: HiddenEdges,
    num_hops: int,
    scratch_bytes: int,
) -> tuple[EdgeSet, ...]:
    """All hops of all queries. Scratch: 4.3 bytes per (entity, relation) pair and thread, beside twice the result."""
    incidence = incidence_of(graph)
    arrays = _arrays(incidence, query_head, answers, hidden)
    num_threads = threads_within(scratch_bytes, 4.3 * incidence.num_pairs, len(query_head) * graph.num_edges)
    blocks = in_blocks(
        lambda first, last: _walk_block(first, last, num_hops, arrays), len(query_head), num_threads
    )
    hops = _assemble([sizes for sizes, _ in blocks], [edges for _, edges in blocks], num_hops, num_threads)
    return tuple(
        EdgeSet(query.to(graph.device), edge.to(graph.device), len(query_head)) for query, edge in hops
    )


def union(a: EdgeSet, b: EdgeSet) -> EdgeSet:
    """Edges that a query has in either set, both on the CPU. Scratch: 1/8 byte per edge of the graph and thread."""
    edges = (a.query_start.numpy(), a.edge.numpy(), b.query_start.numpy(), b.edge.numpy())
    num_edges = 1 + max((int(part.edge.max()) for part in (a, b) if len(part)), default=0)
    num_threads = threads_within(SCRATCH_BYTES, num_edges / 8, len(a) + len(b))
    blocks = in_blocks(
        lambda first, last: _union_block(first, last, num_edges, *edges), a.num_queries, num_threads
    )
    ((query, edge),) = _assemble([sizes for sizes, _ in blocks], [part for _, part in blocks], 1, num_threads)
    return EdgeSet(query, edge, a.num_queries)


def threads_within(scratch_bytes: int, bytes_per_thread: float, most_work: int) -> int:
    """As many threads as numba may use and the budget allows; one where the work can't be worth more."""
    available = available_threads() if most_work > LEAST_WORK else 1
    return max(1, min(available, int(scratch_bytes / max(bytes_per_thread, 1))))


def in_blocks(task: Callable[[int, int], Result], num_queries: int, num_threads: int) -> list[Result]:
    """task(first, last) for consecutive blocks of queries, in order. The task has to release the interpreter's lock."""
    size = -(-num_queries // (BLOCKS_PER_THREAD * num_threads)) if num_threads > 1 else num_queries
    firsts = range(0, num_queries, max(size, 1))
    rest = iter(firsts)  # whoever is free takes the next

    def take_blocks() -> list[tuple[int, Result]]:
        return [(first, task(first, min(first + size, num_queries))) for first in rest]

    done = itertools.chain.from_iterable(in_threads(take_blocks, min(num_threads, len(firsts))))
    return [result for _, result in sorted(done, key=operator.itemgetter(0))]


def _arrays(incidence: Incidence, query_head: Tensor, answers: BatchAnswers, hidden: HiddenEdges) -> _Walk:
    tensors = (
        incidence.entity_start,
        incidence.pair_entity,
        incidence.pair_relation,
        incidence.pair_start,
        incidence.edge_arrival,
        hidden.start,
        hidden.edge,
        answers.rows,
        answers.pair_row,
        query_head.int(),
        answers.query_row,
        answers.changed_start,
        answers.changed_pair,
        answers.changed_row,
    )
    return _Walk(*(tensor.contiguous().cpu().numpy() for tensor in tensors))


def _assemble(
    sizes: list[Int64s], edges: list[Int32s], num_hops: int, num_threads: int
) -> list[tuple[Tensor, Tensor]]:
    """Blocks hold [query, hop] runs of edges; the result holds [hop, query] runs: (query, edge) for each hop."""
    size = np.concatenate([np.zeros((0, num_hops), dtype=np.int64), *sizes])  # [B, L]
    ends = np.cumsum(size.T.reshape(-1)).reshape(num_hops, -1)  # [L, B]
    starts = np.ascontiguousarray((ends - size.T).T)  # [B, L] where each run goes
    total = int(size.sum())
    query, edge = np.empty(total, dtype=np.int32), np.empty(total, dtype=np.int32)
    firsts = np.cumsum([0, *(len(block) for block in sizes)])

    def place(first: int, last: int) -> None:
        for block in range(first, last):
            _place_block(int(firsts[block]), sizes[block], starts, edges[block], query, edge)

    in_blocks(place, len(edges), num_threads)
    bounds = np.cumsum([0, *size.sum(axis=0)])
    return [
        (
            torch.from_numpy(query[bounds[hop] : bounds[hop + 1]]),
            torch.from_numpy(edge[bounds[hop] : bounds[hop + 1]]),
        )
        for hop in range(num_hops)
    ]


@numba.njit(cache=True, nogil=True)
def _walk_block(first, last, num_hops, walk):  # type: ignore[no-untyped-def]
    """The sizes [last - first, L] and the edges of all (query, hop) runs, one after another."""
    bits, summary = new_bitmap(len(walk.pair_row))  # pairs that the current hop arrives at
    pairs = np.empty(len(walk.pair_row), dtype=np.int32)
    allowed = np.zeros(walk.rows.shape[1], dtype=np.int64)
    sizes = np.zeros((last - first, num_hops), dtype=np.int64)
    out, used = np.empty(1024, dtype=np.int32), np.int64(0)
    for query in range(first, last):
        for hop in range(num_hops):
            before, asked = used, np.int64(0)
            count = take_all(bits, summary, pairs) if hop > 0 else np.int64(1)
            while asked < count:
                entity, asked = _ask(query, hop, pairs, asked, count, walk, allowed)
                out = with_room(out, used, _degree(entity, walk))
                used = _leave(query, entity, walk, allowed, out, used)
            if hop + 1 < num_hops:
                for k in range(before, used):
                    mark(bits, summary, walk.edge_arrival[out[k]])
            sizes[query - first, hop] = used - before
    return sizes, out[:used]


@numba.njit(cache=True, nogil=True, forceinline=True)
def _ask(query, hop, pairs, asked, count, walk, allowed):  # type: ignore[no-untyped-def]
    """The next entity, what may leave it (into `allowed`), and how many of the pairs have been asked then.

    Hop 1 asks the head with the query relation; later an entity is asked with every relation it was arrived
    at by, and the answers are joined.
    """
    for word in range(len(allowed)):
        allowed[word] = walk.rows[walk.query_row[query], word] if hop == 0 else 0
    if hop == 0:
        return walk.query_head[query], asked + 1
    entity = walk.pair_entity[pairs[asked]]
    while asked < count and walk.pair_entity[pairs[asked]] == entity:
        row = _row_of_pair(query, pairs[asked], walk)
        for word in range(len(allowed)):
            allowed[word] |= walk.rows[row, word]
        asked += 1
    return entity, asked


@numba.njit(cache=True, nogil=True, forceinline=True)
def _row_of_pair(query, pair, walk):  # type: ignore[no-untyped-def]
    end = walk.changed_start[query + 1]
    place = first_at_least(walk.changed_pair, walk.changed_start[query], end, pair)
    if place < end and walk.changed_pair[place] == pair:
        return walk.changed_row[place]
    return walk.pair_row[pair]


@numba.njit(cache=True, nogil=True, forceinline=True)
def _degree(entity, walk):  # type: ignore[no-untyped-def]
    return walk.pair_start[walk.entity_start[entity + 1]] - walk.pair_start[walk.entity_start[entity]]


@numba.njit(cache=True, nogil=True, forceinline=True)
def _leave(query, entity, walk, allowed, out, used):  # type: ignore[no-untyped-def]
    """Append the edges of the entity whose relation is allowed, except hidden ones, ascending; the new length."""
    pair, end_pair = walk.entity_start[entity], walk.entity_start[entity + 1]
    hidden_end = walk.hidden_start[query + 1]
    hidden = first_at_least(walk.hidden_edge, walk.hidden_start[query], hidden_end, walk.pair_start[pair])
    while pair < end_pair:
        first_allowed = pair  # neighbouring pairs that are allowed make one range of edges
        while pair < end_pair and _is_allowed(allowed, walk.pair_relation[pair]):
            pair += 1
        edge, end = walk.pair_start[first_allowed], walk.pair_start[pair]
        while hidden < hidden_end and walk.hidden_edge[hidden] < end:
            skipped = np.int64(walk.hidden_edge[hidden])
            if skipped >= edge:
                used = _append_range(edge, skipped, out, used)
                edge = skipped + 1
            hidden += 1
        used = _append_range(edge, end, out, used)
        pair += 1  # this one is not allowed
    return used


@numba.njit(cache=True, nogil=True, forceinline=True)
def _is_allowed(allowed, relation):  # type: ignore[no-untyped-def]
    return (allowed[relation >> 6] >> (relation & 63)) & 1 != 0


@numba.njit(cache=True, nogil=True, forceinline=True)
def _append_range(start, end, out, used):  # type: ignore[no-untyped-def]
    for k in range(end - start):
        out[used + k] = start + k
    return used + end - start


@numba.njit(cache=True, nogil=True, forceinline=True)
def first_at_least(ascending, start, end, value):  # type: ignore[no-untyped-def]
    """The first position in [start, end) whose value is not below `value`; `end` where there is none."""
    while start < end:
        middle = (start + end) >> 1
        if ascending[middle] < value:
            start = middle + 1
        else:
            end = middle
    return start


@numba.njit(cache=True, nogil=True)
def with_room(out, used, more):  # type: ignore[no-untyped-def]
    """`out`, or a longer copy of its first `used` items, that has room for `more`."""
    if used + more <= len(out):
        return out
    longer = np.empty(max(2 * len(out), used + more), dtype=out.dtype)
    for k in range(used):
        longer[k] = out[k]
    return longer


@numba.njit(cache=True, nogil=True)
def _place_block(first, sizes, starts, block, query, edge):  # type: ignore[no-untyped-def]
    """Copy each (query, hop) run of a block to its place in the result."""
    read = 0
    for row in range(sizes.shape[0]):
        for hop in range(sizes.shape[1]):
            write = starts[first + row, hop]
            for k in range(sizes[row, hop]):
                edge[write + k] = block[read + k]
                query[write + k] = first + row
            read += sizes[row, hop]


@numba.njit(cache=True, nogil=True)
def _union_block(first, last, num_edges, start_a, edge_a, start_b, edge_b):  # type: ignore[no-untyped-def]
    """The sizes [last - first, 1] and the edges that each query has in a or in b."""
    bits, summary = new_bitmap(num_edges)
    sizes = np.zeros((last - first, 1), dtype=np.int64)
    out, used = np.empty(1024, dtype=np.int32), np.int64(0)
    for query in range(first, last):
        for k in range(start_a[query], start_a[query + 1]):
            mark(bits, summary, edge_a[k])
        for k in range(start_b[query], start_b[query + 1]):
            mark(bits, summary, edge_b[k])
        most = start_a[query + 1] - start_a[query] + start_b[query + 1] - start_b[query]
        out = with_room(out, used, most)
        sizes[query - first, 0] = take_all(bits, summary, out[used:])
        used += sizes[query - first, 0]
    return sizes, out[:used]
