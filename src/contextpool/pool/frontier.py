"""Which nodes and edges a layer can possibly need: the same walk without a filter.

A node is a (query, entity) pair, and only those that the walk has reached exist. Layer l of a model computes
nodes within l hops of the head from nodes within l - 1 hops, along every edge that leaves the latter.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from contextpool.errors import ConfigError
from contextpool.graph.graph import Graph
from contextpool.pool import _frontier_torch
from contextpool.pool._backend import SCRATCH_BYTES, Backend, check_choice, runs_on_cpu
from contextpool.pool._checks import check_ids
from contextpool.pool._rows import entries_of_rows, pieces, without
from contextpool.pool.edge_set import EdgeSet, joined
from contextpool.pool.hidden import HiddenEdges, hidden_or_none


@dataclass(frozen=True, eq=False)
class Frontier:
    """The M nodes within `num_hops` of the heads of B queries, sorted by (query, entity)."""

    graph: Graph
    hidden: HiddenEdges
    num_hops: int
    node_query: Tensor  # [M] int32
    node_entity: Tensor  # [M] int32
    node_hop: Tensor  # [M] int32, the fewest hops that reach the node; 0 for the head itself

    @property
    def num_queries(self) -> int:
        return self.hidden.num_queries

    @property
    def num_nodes(self) -> int:
        return len(self.node_entity)

    @property
    def node_keys(self) -> Tensor:
        """[M] int64 query * N + entity, ascending."""
        return self.node_query.long() * self.graph.num_entities + self.node_entity

    def find_nodes(self, query: Tensor, entity: Tensor) -> Tensor:
        """[K] int64 the node of each (query [K], entity [K]), -1 where it was not reached. O(K log M)."""
        keys, wanted = self.node_keys, query.long() * self.graph.num_entities + entity
        place = torch.searchsorted(keys, wanted)
        found = keys[place.clamp(max=max(len(keys) - 1, 0))] == wanted
        return torch.where(found, place, -1)

    def nodes(self, hops: int) -> Tensor:
        """Ids of the nodes within `hops` of their head, ascending."""
        return torch.nonzero(self.node_hop <= hops).squeeze(1)

    def edges(self, layer: int, scratch_bytes: int = SCRATCH_BYTES) -> EdgeSet:
        """What layer `layer` in 1..num_hops + 1 can need: edges leaving nodes within layer - 1 hops, not hidden."""
        if not 1 <= layer <= self.num_hops + 1:
            raise ConfigError(f"layer is {layer}; this frontier knows the layers 1 to {self.num_hops + 1}.")
        nodes, hidden_keys = self.nodes(layer - 1), self.hidden.keys
        query, entity = self.node_query[nodes].long(), self.node_entity[nodes].long()
        first = self.graph.row_start.index_select(0, entity)
        size = self.graph.row_start.index_select(0, entity + 1) - first
        parts = []
        for start, end in pieces(size, max(1, scratch_bytes // _frontier_torch.BYTES_PER_EDGE)):
            row, edge = entries_of_rows(first[start:end], size[start:end])
            edge_query = query[start:end].index_select(0, row)
            keep = without(edge_query * self.graph.num_edges + edge, hidden_keys)
            part = (edge_query, edge) if keep is None else (edge_query[keep], edge[keep])
            parts.append((part[0].int(), part[1].int()))
        return joined(parts, self.num_queries, self.graph.device)


def frontier(
    graph: Graph,
    query_head: Tensor,
    num_hops: int,
    hidden: HiddenEdges | None = None,
    *,
    backend: Backend = "auto",
    scratch_bytes: int = SCRATCH_BYTES,
) -> Frontier:
    """Everything within `num_hops` of the heads [B], without the edges hidden from each query.

    O(edges leaving the nodes within num_hops - 1) time. Backends and scratch as in `expand`.
    """
    check_choice(backend, num_hops, scratch_bytes)
    check_ids("query_head", query_head, graph.num_entities)
    query_head = query_head.to(graph.device)
    hidden = hidden_or_none(hidden, graph, len(query_head))
    if runs_on_cpu(backend, graph):
        from contextpool.pool import _frontier_cpu  # numba is loaded where it is needed

        nodes = _frontier_cpu.reach(graph, query_head, hidden, num_hops, scratch_bytes)
    else:
        nodes = _frontier_torch.reach(graph, query_head, hidden, num_hops, scratch_bytes)
    return Frontier(graph, hidden, num_hops, *nodes)
