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

from contextpool.graph.graph import Graph
from contextpool.kernels.cpu_walk import array_of, first_at_least, reach
from contextpool.kernels.threads import in_blocks, threads_within

Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]


class Walked(NamedTuple):
    """Nodes and edges; fields as those of `Propagation`, in main memory."""

    layer_sizes: tuple[int, ...]
    node_query: Tensor
    node_entity: Tensor
    row_start: Tensor
    edge_source: Tensor
    edge_relation: Tensor
    edge_back: Tensor
    edge_views: Tensor

    def columns(self, device: torch.device) -> dict[str, Any]:
        """All but the sizes, on a device."""
        return {name: getattr(self, name).to(device) for name in self._fields[1:]}


class ViewEdges(NamedTuple):
    """Edges of a view: those of query b are edge[start[b]:start[b + 1]]."""

    view: int
    start: Tensor  # [B + 1] int64
    edge: Tensor  # int32


def propagate(
    graph: Graph,
    query_head: Tensor,
    num_layers: int,
    hidden_start: Tensor,
    hidden_edge: Tensor,
    views: Sequence[ViewEdges],
) -> Walked:
    """Nodes and edges as `build_propagation` describes them. O(edges reached) time and memory.

    Edges hidden_edge[hidden_start[b]:hidden_start[b + 1]] do not exist for query b. Scratch: 4 bytes per entity and 1
    per edge of the graph, for each thread.
    """
    num_queries = len(query_head)
    query, entity, hop = reach(graph, query_head, num_layers, hidden_start, hidden_edge)
    layer_sizes, number, node_query, node_entity = _numbered(query, entity, hop, num_layers)
    node_start = np.searchsorted(query, np.arange(num_queries + 1))
    tensors = graph.row_start, graph.edge_tail, hidden_start, hidden_edge
    rows = node_start, entity, number, layer_sizes[-2], *(array_of(tensor) for tensor in tensors)
    num_threads = threads_within(4 * graph.num_entities + graph.num_edges, num_queries * graph.num_edges)

    row_start = np.zeros(len(number) + 1, dtype=np.int64)
    in_blocks(lambda *block: _count(*block, *rows, row_start), num_queries, num_threads)
    np.cumsum(row_start, out=row_start)

    marks = _Marks.of(views, num_queries)
    num_edges = int(row_start[-1])
    source, relation, back = (np.empty(num_edges, dtype=np.int32) for _ in range(3))
    bits = np.empty(num_edges, dtype=np.uint8)
    relations = array_of(graph.edge_relation), array_of(graph.edge_inverse), graph.num_relations
    in_blocks(
        lambda *block: _fill(*block, *rows, row_start, *relations, *marks, source, relation, back, bits),
        num_queries,
        num_threads,
    )
    arrays = (node_query, node_entity, row_start, source, relation, back, bits)
    return Walked(tuple(layer_sizes.tolist()), *(torch.from_numpy(array) for array in arrays))


class _Marks(NamedTuple):
    """The (query, edge) pairs of all views: set s marks bit[s] for edge[start[s, b]:start[s, b + 1]]."""

    start: Int64s  # [sets, B + 1]
    edge: Int32s
    bit: Int64s  # [sets]

    @classmethod
    def of(cls, views: Sequence[ViewEdges], num_queries: int) -> _Marks:
        offset = np.cumsum([0, *(len(one.edge) for one in views)])
        starts = [array_of(one.start) + first for one, first in zip(views, offset, strict=False)]
        return cls(
            np.stack([np.zeros(num_queries + 1, dtype=np.int64), *starts])[1:],
            np.concatenate([np.zeros(0, dtype=np.int32), *(array_of(one.edge) for one in views)]),
            np.array([one.view for one in views], dtype=np.int64),
        )


@numba.njit(cache=True, nogil=True)
def _numbered(query, entity, hop, num_layers):  # type: ignore[no-untyped-def]
    """Nodes sorted by (query, entity), numbered by (hop, query, entity): nodes within 0..L hops, the number of each,
    and the query and the entity of each number.
    """
    ends = np.zeros(num_layers + 1, dtype=np.int64)
    for k in range(len(hop)):
        ends[hop[k]] += 1
    place = np.zeros(num_layers + 1, dtype=np.int64)
    for layer in range(num_layers):  # in loops: numba takes two seconds to compile slices that are assigned
        place[layer + 1] = ends[layer]
        ends[layer + 1] += ends[layer]
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
