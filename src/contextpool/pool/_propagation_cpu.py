"""What a GNN propagates over, on the CPU: compiled, blocks of queries in threads.

The nodes of a query look along their own rows of the graph for those that can send to them, twice: once to count,
once to write to the places that follow from all counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numba
import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from contextpool.pool._backend import SCRATCH_BYTES
from contextpool.pool._walk_cpu import first_at_least, in_blocks, threads_within
from contextpool.pool.edge_set import EdgeSet
from contextpool.pool.frontier import Frontier
from contextpool.pool.propagation import Walked

Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]


def propagate(reached: Frontier, views: Sequence[Sequence[EdgeSet]]) -> Walked:
    """Nodes and edges as `build_propagation` describes them, for what a frontier reached.

    Scratch: 4 bytes per entity and 1 per edge of the graph, for each thread.
    """
    graph, num_queries = reached.graph, reached.num_queries
    query, entity, hop = (
        column.cpu().numpy() for column in (reached.node_query, reached.node_entity, reached.node_hop)
    )
    layer_sizes, number, node_query, node_entity = _numbered(query, entity, hop, reached.num_hops)
    node_start = np.searchsorted(query, np.arange(num_queries + 1))
    tensors = graph.row_start, graph.edge_tail, reached.hidden.start, reached.hidden.edge
    rows = node_start, entity, number, layer_sizes[-2], *(_array(tensor) for tensor in tensors)
    scratch = 4 * graph.num_entities + graph.num_edges
    num_threads = threads_within(SCRATCH_BYTES, scratch, num_queries * graph.num_edges)

    row_start = np.zeros(len(number) + 1, dtype=np.int64)
    in_blocks(lambda *block: _count(*block, *rows, row_start), num_queries, num_threads)
    np.cumsum(row_start, out=row_start)

    marks = _Marks.of(views, num_queries)
    edges = _new_edges(int(row_start[-1]))
    relations = _array(graph.edge_relation), _array(graph.edge_inverse), graph.num_relations
    in_blocks(
        lambda *block: _fill(*block, *rows, row_start, *relations, *marks, *edges),
        num_queries,
        num_threads,
    )
    source, relation, back, bits = (torch.from_numpy(array).to(graph.device) for array in edges)
    return Walked(
        layer_sizes=tuple(layer_sizes.tolist()),
        node_query=torch.from_numpy(node_query).to(graph.device),
        node_entity=torch.from_numpy(node_entity).to(graph.device),
        row_start=torch.from_numpy(row_start).to(graph.device),
        edge_source=source,
        edge_relation=relation,
        edge_back=back,
        edge_views=bits,
    )


def _array(tensor: Tensor) -> npt.NDArray[Any]:
    array: npt.NDArray[Any] = tensor.contiguous().cpu().numpy()
    return array


def _new_edges(count: int) -> tuple[npt.NDArray[Any], ...]:
    """Room for source, relation, back and views of so many edges."""
    return *(np.empty(count, dtype=np.int32) for _ in range(3)), np.empty(count, dtype=np.uint8)


class _Marks(NamedTuple):
    """The (query, edge) pairs of all views: set s marks bit[s] for edge[start[s, b]:start[s, b + 1]]."""

    start: Int64s  # [sets, B + 1]
    edge: Int32s
    bit: Int64s  # [sets]

    @classmethod
    def of(cls, views: Sequence[Sequence[EdgeSet]], num_queries: int) -> _Marks:
        sets = [(view, edges) for view, hops in enumerate(views) for edges in hops]
        offset = np.cumsum([0, *(len(edges) for _, edges in sets)])
        starts = [_array(edges.query_start) + first for (_, edges), first in zip(sets, offset, strict=False)]
        return cls(
            np.stack([np.zeros(num_queries + 1, dtype=np.int64), *starts])[1:],
            np.concatenate([np.zeros(0, dtype=np.int32), *(_array(edges.edge) for _, edges in sets)]),
            np.array([view for view, _ in sets], dtype=np.int64),
        )


@numba.njit(cache=True, nogil=True)
def _numbered(query, entity, hop, num_layers):  # type: ignore[no-untyped-def]
    """Nodes sorted by (query, entity), numbered by (hop, query, entity): nodes within 0..L hops, the number of each,
    and the query and the entity of each number.
    """
    ends = np.zeros(num_layers + 1, dtype=np.int64)
    for k in range(len(hop)):
        ends[hop[k]] += 1
    ends = np.cumsum(ends)
    place = np.zeros(num_layers + 1, dtype=np.int64)
    place[1:] = ends[:-1]
    number = np.empty(len(hop), dtype=np.int32)
    node_query, node_entity = np.empty(len(hop), dtype=np.int64), np.empty(len(hop), dtype=np.int64)
    for k in range(len(hop)):
        at = place[hop[k]]
        place[hop[k]] = at + 1
        number[k], node_query[at], node_entity[at] = at, query[k], entity[k]
    return ends, number, node_query, node_entity


@numba.njit(cache=True, nogil=True)
def _count(  # type: ignore[no-untyped-def]
    first, last, node_start, node_entity, node_number, num_senders, row_start, edge_tail, hidden_start,
    hidden_edge, degree,
):  # fmt: skip
    """How many edges lead into each node of the queries first..last - 1, to degree[node + 1]."""
    number = np.full(len(row_start) - 1, -1, dtype=np.int32)  # [N] of the current query's nodes
    for query in range(first, last):
        nodes = range(node_start[query], node_start[query + 1])
        for node in nodes:
            number[node_entity[node]] = node_number[node]
        hidden = hidden_edge[hidden_start[query] : hidden_start[query + 1]]
        for node in nodes:
            start, stop = row_start[node_entity[node]], row_start[node_entity[node] + 1]
            count = 0
            for edge in range(start, stop):
                sender = number[edge_tail[edge]]
                count += (sender >= 0) & (sender < num_senders)
            for k in range(first_at_least(hidden, 0, len(hidden), start), len(hidden)):
                if hidden[k] >= stop:
                    break
                sender = number[edge_tail[hidden[k]]]
                count -= (sender >= 0) & (sender < num_senders)
            degree[node_number[node] + 1] = count
        for node in nodes:
            number[node_entity[node]] = -1


@numba.njit(cache=True, nogil=True)
def _fill(  # type: ignore[no-untyped-def]
    first, last, node_start, node_entity, node_number, num_senders, row_start, edge_tail, hidden_start,
    hidden_edge, place, relation_of, inverse_of, num_relations, mark_start, mark_edge, mark_bit,
    source, relation, back, views,
):  # fmt: skip
    """The edges into the nodes of the queries first..last - 1, from place[node] on."""
    number = np.full(len(row_start) - 1, -1, dtype=np.int32)
    marked = np.zeros(
        len(edge_tail), dtype=np.uint8
    )  # [2T] view bits of the current query's edges, by way back
    for query in range(first, last):
        nodes = range(node_start[query], node_start[query + 1])
        for node in nodes:
            number[node_entity[node]] = node_number[node]
        hidden = hidden_edge[hidden_start[query] : hidden_start[query + 1]]
        for node in nodes:
            start, stop = row_start[node_entity[node]], row_start[node_entity[node] + 1]
            next_hidden, at = first_at_least(hidden, 0, len(hidden), start), place[node_number[node]]
            for edge in range(start, stop):
                if next_hidden < len(hidden) and hidden[next_hidden] == edge:
                    next_hidden += 1
                    continue
                sender = number[edge_tail[edge]]
                if sender >= 0 and sender < num_senders:
                    forward = relation_of[edge] < num_relations
                    source[at], back[at] = sender, edge
                    relation[at] = relation_of[edge] + (num_relations if forward else -num_relations)
                    at += 1
        _mark(query, True, marked, inverse_of, mark_start, mark_edge, mark_bit)
        for node in nodes:
            for at in range(place[node_number[node]], place[node_number[node] + 1]):
                views[at] = marked[back[at]]
        _mark(query, False, marked, inverse_of, mark_start, mark_edge, mark_bit)
        for node in nodes:
            number[node_entity[node]] = -1


@numba.njit(cache=True, nogil=True)
def _mark(query, setting, marked, inverse_of, mark_start, mark_edge, mark_bit):  # type: ignore[no-untyped-def]
    """Set the view bits of a query's edges, or clear them all."""
    for part in range(len(mark_bit)):
        for k in range(mark_start[part, query], mark_start[part, query + 1]):
            way_back = inverse_of[mark_edge[k]]
            marked[way_back] = marked[way_back] | (1 << mark_bit[part]) if setting else 0
