"""What a GNN propagates over: (query, entity) nodes in the order they are reached, and the edges between them.

A node exists once the unfiltered walk from the query's head has reached it. Nodes are numbered by (first hop,
query, entity), so the nodes within l hops are the first M_l of them, node b < B is the head of query b, and a
layer's states are a prefix of the next layer's. Every edge carries one bit per context view.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from contextpool.errors import ConfigError
from contextpool.graph.graph import Graph
from contextpool.kernels.hop import Hop, LaunchPlan, numbers_of_rows
from contextpool.pool.expand import EdgeSet
from contextpool.pool.hide import HiddenEdges, check_ids, hidden_or_none
from contextpool.pool.incidence import in_main_memory

MAX_VIEWS = 8


@dataclass(frozen=True, eq=False)
class Propagation:
    """Nodes and edges for a batch of queries and L layers."""

    query_head: Tensor  # [B] int64
    query_relation: Tensor  # [B] int64
    graph: Graph
    layer_sizes: tuple[int, ...]
    """M_0 .. M_L: nodes reached within 0, 1, .. L hops."""
    layer_edges: tuple[int, ...]
    """Edges into the first M_0 .. M_L nodes."""
    node_query: Tensor  # [M] int64
    node_entity: Tensor  # [M] int64
    row_start: Tensor  # [M + 1] int64, edges sorted by target
    edge_source: Tensor
    """[K] int32; where an edge leads from no node that any layer walks from, M or more."""
    edge_relation: Tensor  # [K] int32
    edge_back: Tensor
    """[K] int32 the edge of the graph that leads from the target back to the source."""
    edge_views: Tensor  # [K] uint8, bit v is set where the edge belongs to view v
    edge_scale: Tensor | None = None
    """[K] what every layer multiplies the messages of an edge with; None for nothing."""
    plan: LaunchPlan | None = None
    """What kernels on the device know beside, where the batch was built there."""

    @property
    def num_queries(self) -> int:
        return len(self.query_head)

    @property
    def num_entities(self) -> int:
        return self.graph.num_entities

    @property
    def num_layers(self) -> int:
        return len(self.layer_sizes) - 1

    @cached_property
    def edge_target(self) -> Tensor:
        """[K] int64 node"""
        return numbers_of_rows(self.row_start.diff(), len(self.edge_source))

    @cached_property
    def edge_id(self) -> Tensor:
        """[K] int64 the edge of the graph that is walked."""
        return self.graph.edge_inverse[self.edge_back.long()].long()

    @property
    def walked(self) -> Propagation:
        """The same with no other edges than those that a layer walks; as it is where there are no others."""
        kept = torch.nonzero(self.edge_source < self.layer_sizes[-2]).squeeze(1)
        if len(kept) == len(self.edge_source):
            return self
        nodes = torch.arange(len(self.row_start), device=kept.device)
        row_start = torch.searchsorted(self.edge_target[kept], nodes)
        return replace(
            self,
            row_start=row_start,
            layer_edges=tuple(row_start[list(self.layer_sizes)].tolist()),
            edge_source=self.edge_source[kept],
            edge_relation=self.edge_relation[kept],
            edge_back=self.edge_back[kept],
            edge_views=self.edge_views[kept],
            edge_scale=None if self.edge_scale is None else self.edge_scale[kept],
            plan=None if self.plan is None else self.plan.without_rows(),
        )

    def hop(self, layer: int) -> Hop:
        """Layer 1..L: edges from nodes reached within layer - 1 hops to nodes reached within layer hops."""
        return self.hops[layer - 1]

    @cached_property
    def hops(self) -> tuple[Hop, ...]:
        return tuple(self._hop(layer) for layer in range(1, self.num_layers + 1))

    def _hop(self, layer: int) -> Hop:
        num_targets, num_edges = self.layer_sizes[layer], self.layer_edges[layer]
        return Hop(
            num_sources=self.layer_sizes[layer - 1],
            num_targets=num_targets,
            row_start=self.row_start[: num_targets + 1],
            edge_source=self.edge_source[:num_edges],
            edge_relation=self.edge_relation[:num_edges],
            edge_views=self.edge_views[:num_edges],
            node_query=self.node_query[:num_targets],
            edge_scale=None if self.edge_scale is None else self.edge_scale[:num_edges],
            plan=None if self.plan is None else self.plan.of_layer(layer),
        )


def build_propagation(
    graph: Graph,
    query_head: Tensor,
    query_relation: Tensor,
    num_layers: int,
    hidden: HiddenEdges | None = None,
    views: Sequence[Sequence[EdgeSet]] = (),
) -> Propagation:
    """Nodes and edges for the queries (head [B], relation [B]); `views` are the pooled hops of each view.

    Every layer sees the union of a view's hops; an edge of a view that no layer can need is left out. Built on the
    CPU, in O(edges reached) time and memory; the result is on the graph's device.
    """
    if num_layers < 1:
        raise ConfigError(f"num_layers is {num_layers}; a walk has at least one hop.")
    if len(views) > MAX_VIEWS:
        raise ConfigError(f"there are {len(views)} context views; an edge has bits for {MAX_VIEWS}.")
    check_ids("query_head", query_head, graph.num_entities)
    hidden = hidden_or_none(hidden, graph, len(query_head))
    from contextpool.kernels.cpu_propagation import ViewEdges, propagate  # numba is loaded where it is needed

    sets = [ViewEdges(v, edges.query_start, edges.edge) for v, hops in enumerate(views) for edges in hops]
    walked = propagate(in_main_memory(graph), query_head, num_layers, hidden.start, hidden.edge, sets)
    return Propagation(
        query_head=query_head.to(graph.device).long(),
        query_relation=query_relation.to(graph.device).long(),
        graph=graph,
        layer_sizes=walked.layer_sizes,
        layer_edges=tuple(walked.row_start[list(walked.layer_sizes)].tolist()),
        **walked.columns(graph.device),
    )
