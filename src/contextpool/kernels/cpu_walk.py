"""Walks out from the heads of queries on the CPU: compiled, one query after another, blocks of queries in threads.

`pooled_hops` is Algorithm 2, along relevant relations alone; `reach` goes breadth first along every edge.
(numba's cache watches the file of the caller alone: after a change here, remove __pycache__ where others use it.)
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numba
import numpy as np
import numpy.typing as npt
import torch
from numba.core import types
from numba.extending import intrinsic
from torch import Tensor

from contextpool.graph.graph import Graph
from contextpool.kernels.threads import in_blocks, threads_within

Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]


class PooledWalk(NamedTuple):
    """What Algorithm 2 reads, as tensors; shapes as in `Incidence`, `HiddenEdges` and `BatchAnswers`."""

    entity_start: Tensor
    pair_entity: Tensor
    pair_relation: Tensor
    pair_start: Tensor
    edge_arrival: Tensor
    hidden_start: Tensor
    hidden_edge: Tensor
    rows: Tensor
    pair_row: Tensor
    query_head: Tensor  # [B] int32
    query_row: Tensor
    changed_start: Tensor
    changed_pair: Tensor
    changed_row: Tensor


def pooled_hops(walk: PooledWalk, num_hops: int) -> list[tuple[Tensor, Tensor]]:
    """Algorithm 2 for all queries: for each hop (query, edge) [K] int32, sorted.

    Scratch: 4.3 bytes per (entity, relation) pair and thread, beside twice the result.
    """
    arrays = PooledWalk._make(array_of(tensor) for tensor in walk)
    num_queries, num_pairs, num_edges = len(walk.query_head), len(walk.pair_entity), len(walk.edge_arrival)
    num_threads = threads_within(4.3 * num_pairs, num_queries * num_edges)
    blocks = in_blocks(
        lambda first, last: _walk_block(first, last, num_hops, arrays), num_queries, num_threads
    )
    return _assemble([sizes for sizes, _ in blocks], [edges for _, edges in blocks], num_hops, num_threads)


def reach(
    graph: Graph, query_head: Tensor, num_hops: int, hidden_start: Tensor, hidden_edge: Tensor
) -> tuple[Int32s, Int32s, Int32s]:
    """Query, entity, first hop [M] of every node within `num_hops` of the heads [B], sorted by (query, entity).

    Edges hidden_edge[hidden_start[b]:hidden_start[b + 1]] do not exist for query b. O(edges leaving the nodes within
    num_hops - 1) time. Scratch: 8.2 bytes per entity and thread.
    """
    tensors = (query_head.int(), graph.row_start, graph.edge_tail, hidden_start, hidden_edge)
    arrays = [array_of(tensor) for tensor in tensors]
    num_threads = threads_within(8.2 * graph.num_entities, len(query_head) * graph.num_edges)
    blocks = in_blocks(
        lambda first, last: _reach_block(first, last, num_hops, *arrays), len(query_head), num_threads
    )
    empty = np.zeros(0, dtype=np.int32)
    size, entity, hop = (np.concatenate([empty, *(block[column] for block in blocks)]) for column in range(3))
    return np.repeat(np.arange(len(query_head), dtype=np.int32), size), entity, hop


def walk_step(start: Tensor, other: Tensor, count: Tensor, sent: Tensor) -> Tensor:
    """[N, B] what arrives at each entity: the sum of count times what its others send (row start[e]:start[e + 1])."""
    arrays = [array_of(one) for one in (start, other, count, sent)]
    arrived = torch.empty_like(sent)
    out = array_of(arrived)
    in_blocks(
        lambda first, last: _step_block(first, last, *arrays, out),
        len(sent),
        threads_within(0, other.numel() * sent.size(1)),
    )
    return arrived


def array_of(tensor: Tensor) -> npt.NDArray[Any]:
    """The numbers of a tensor, one after the other in main memory."""
    array: npt.NDArray[Any] = tensor.contiguous().cpu().numpy()
    return array


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
def _step_block(first, last, start, other, count, sent, out):  # type: ignore[no-untyped-def]
    for row in range(first, last):
        out[row] = 0.0
        for place in range(start[row], start[row + 1]):
            for query in range(sent.shape[1]):
                out[row, query] += count[place] * sent[other[place], query]


@numba.njit(cache=True, nogil=True)
def _reach_block(  # type: ignore[no-untyped-def]
    first, last, num_hops, query_head, row_start, edge_tail, hidden_start, hidden_edge
):
    """Nodes per query [last - first], then the entity and the first hop of each, one query after another."""
    num_entities = len(row_start) - 1
    bits, summary = new_bitmap(num_entities)
    first_hop = np.full(num_entities, -1, dtype=np.int32)
    order = np.empty(num_entities, dtype=np.int32)  # entities as they are reached, hop by hop
    sizes = np.zeros(last - first, dtype=np.int32)
    entities, hops, used = np.empty(1024, dtype=np.int32), np.empty(1024, dtype=np.int32), np.int64(0)
    for query in range(first, last):
        hidden = hidden_edge[hidden_start[query] : hidden_start[query + 1]]
        count = _reach_from(query_head[query], num_hops, row_start, edge_tail, hidden, first_hop, order)
        for k in range(count):
            mark(bits, summary, order[k])
        entities, hops = with_room(entities, used, count), with_room(hops, used, count)
        take_all(bits, summary, entities[used:])
        for k in range(used, used + count):
            hops[k] = first_hop[entities[k]]
            first_hop[entities[k]] = -1
        sizes[query - first] = count
        used += count
    return sizes, entities[:used], hops[:used]


@numba.njit(cache=True, nogil=True)
def _reach_from(head, num_hops, row_start, edge_tail, hidden, first_hop, order):  # type: ignore[no-untyped-def]
    """Fill first_hop and order from one head; how many entities were reached."""
    first_hop[head], order[0] = 0, head
    count, begin = np.int64(1), np.int64(0)
    for hop in range(1, num_hops + 1):
        end = count
        for k in range(begin, end):
            start, stop = row_start[order[k]], row_start[order[k] + 1]
            next_hidden = first_at_least(hidden, 0, len(hidden), start)
            for edge in range(start, stop):
                if next_hidden < len(hidden) and hidden[next_hidden] == edge:
                    next_hidden += 1
                elif first_hop[edge_tail[edge]] < 0:
                    first_hop[edge_tail[edge]] = hop
                    order[count] = edge_tail[edge]
                    count += 1
        begin = end
    return count


# Sets of small integers as two levels of bits: marking a member costs O(1), taking all of them out in order costs
# O(members + capacity / 4096).


@intrinsic
def lowest_bit(typing_context: Any, word: Any) -> Any:
    """The position of the lowest bit that is set in a word that is not 0."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], context.get_constant(types.boolean, True))

    return types.int64(types.int64), generate


@numba.njit(cache=True, nogil=True, inline="always")
def new_bitmap(capacity):  # type: ignore[no-untyped-def]
    """An empty set: bits [capacity / 64] and summary [capacity / 4096]; summary bit w says that bits[w] is not 0."""
    num_words = (capacity >> 6) + 1
    return np.zeros(num_words, dtype=np.int64), np.zeros((num_words >> 6) + 1, dtype=np.int64)


@numba.njit(cache=True, nogil=True, forceinline=True)
def mark(bits, summary, member):  # type: ignore[no-untyped-def]
    word = member >> 6
    if bits[word] == 0:
        summary[word >> 6] |= np.int64(1) << (word & 63)
    bits[word] |= np.int64(1) << (member & 63)


@numba.njit(cache=True, nogil=True, forceinline=True)
def take_all(bits, summary, members):  # type: ignore[no-untyped-def]
    """Move the members, ascending, to the front of `members`; how many there were. The bitmap is empty afterwards."""
    count = 0
    for s in range(len(summary)):
        group = summary[s]
        summary[s] = 0
        while group != 0:
            word = (s << 6) + lowest_bit(group)
            group &= group - 1
            rest = bits[word]
            bits[word] = 0
            while rest != 0:
                members[count] = (word << 6) + lowest_bit(rest)
                rest &= rest - 1
                count += 1
    return count
