"""The walk without a filter on the CPU: breadth first from each head, compiled, blocks of queries in threads."""

from __future__ import annotations

import numba
import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from contextpool.graph.graph import Graph
from contextpool.pool._bitmap import mark, new_bitmap, take_all
from contextpool.pool._walk_cpu import first_at_least, in_blocks, threads_within, with_room
from contextpool.pool.hidden import HiddenEdges

Int32s = npt.NDArray[np.int32]


def reach(
    graph: Graph, query_head: Tensor, hidden: HiddenEdges, num_hops: int, scratch_bytes: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Query, entity, first hop [M] of every node reached, sorted. Scratch: 8.2 bytes per entity and thread."""
    tensors = (query_head.int(), graph.row_start, graph.edge_tail, hidden.start, hidden.edge)
    arrays = [tensor.contiguous().cpu().numpy() for tensor in tensors]
    num_threads = threads_within(scratch_bytes, 8.2 * graph.num_entities, len(query_head) * graph.num_edges)
    blocks = in_blocks(
        lambda first, last: _reach_block(first, last, num_hops, *arrays), len(query_head), num_threads
    )
    size, entity, hop = (_joined([block[column] for block in blocks]) for column in range(3))
    query = np.repeat(np.arange(len(query_head), dtype=np.int32), size)
    nodes = [torch.from_numpy(column).to(graph.device) for column in (query, entity, hop)]
    return nodes[0], nodes[1], nodes[2]


def _joined(parts: list[Int32s]) -> Int32s:
    return np.concatenate([np.zeros(0, dtype=np.int32), *parts])


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
