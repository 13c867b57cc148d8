"""What a GNN propagates over: (query, entity) nodes in the order they are reached, and the edges between them.

A node exists once the unfiltered walk from the query's head has reached it. Nodes are numbered by (first hop,
query, entity), so the nodes within l hops are the first M_l of them, node b < B is the head of query b, and a
layer's states are a prefix of the next layer's. Every edge carries one bit per context view.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from contextpool.errors import ConfigError
from contextpool.graph.graph import Graph
from contextpool.pool._backend import Backend, runs_on_cpu
from contextpool.pool._rows import entries_of_rows, numbers_of_rows
from contextpool.pool.edge_set import EdgeSet
from contextpool.pool.frontier import Frontier, frontier
from contextpool.pool.hidden import HiddenEdges, hidden_or_none

MAX_VIEWS = 8
HUB_EDGES = 64
"""Entities with more edges than this are hubs: one warp would be at their rows long after all others are done."""


@dataclass(frozen=True, eq=False)
class Hop:
    """The K edges that one layer may walk, sorted by target: those into target j are row_start[j]:row_start[j + 1].

    An edge is walked where its source is one of the first `num_sources` nodes, those that have a state by now;
    the others wait for a later layer. Layers share their edges, so a hop costs nothing. `walked` leaves them out.
    Where the device alone knows the sizes, another batch may come to lie in the same tensors: nothing is remembered
    that depends on their values.
    """

    num_sources: int
    num_targets: int
    row_start: Tensor  # [num_targets + 1] int64
    edge_source: Tensor  # [K] node
    edge_relation: Tensor  # [K] in [0, 2R)
    edge_views: Tensor  # [K] uint8, bit v is set where the edge belongs to view v
    node_query: Tensor  # [num_targets] int64
    complete: bool = False
    """Whether every edge is known to be walked."""
    edge_scale: Tensor | None = None
    """[K] what to multiply messages with, None for nothing; explanations differentiate by it."""
    sizes: Tensor | None = None
    """[2] int64, on the device: the numbers of sources and targets."""
    roomy: bool = False
    """Whether the numbers that the host has are only bounds, and tensors hold more rows than count."""
    hubs: Tensor | None = None
    """[H] int32 every target with more than HUB_EDGES edges, perhaps others; those past the targets don't count."""
    order: Tensor | None = None
    """[num_targets or more] int32: first every target, those with rows of like length side by side."""

    @property
    def num_edges(self) -> int:
        return len(self.edge_source)

    @cached_property
    def edge_target(self) -> Tensor:
        """[K] int64 node"""
        return numbers_of_rows(self.row_start.diff(), self.num_edges)

    @property
    def sender(self) -> Tensor:
        """[K] the source of each edge, and where it is not walked any node that has a state: to index states with."""
        return self.edge_source if self.complete else self.edge_source.clamp(max=self.num_sources - 1)

    @property
    def edge_query(self) -> Tensor:
        """[K] the query that each edge is walked for."""
        return self.node_query[self.sender]

    def in_view(self, view: int) -> Tensor:
        """[K] whether each edge belongs to a view."""
        return (self.edge_views >> view) & 1 != 0

    @cached_property
    def device_sizes(self) -> Tensor:
        """[2] int64 on the device of the edges."""
        if self.sizes is not None:
            return self.sizes
        return torch.tensor([self.num_sources, self.num_targets], device=self.edge_source.device)

    @property
    def compact(self) -> Hop:
        """`walked`; the same hop where the device alone knows what that is, and the host shall not wait for it."""
        return self if self.roomy else self.walked

    @property
    def is_source(self) -> Tensor | None:
        """[num_sources, 1] which of the sources there really are, None for all."""
        return _first(self.device_sizes[0], self.num_sources) if self.roomy else None

    @property
    def is_target(self) -> Tensor | None:
        """[num_targets, 1] which of the targets there really are, None for all."""
        return _first(self.device_sizes[1], self.num_targets) if self.roomy else None

    @cached_property
    def walked(self) -> Hop:
        """The same hop with no other edges than the walked ones, its columns int64 as torch indexes with."""
        if self.complete:
            return self
        kept = torch.nonzero(self.edge_source < self.num_sources).squeeze(1)
        target = self.edge_target[kept]
        nodes = torch.arange(self.num_targets + 1, device=target.device)
        return replace(
            self,
            row_start=torch.searchsorted(target, nodes),
            edge_source=self.edge_source[kept].long(),
            edge_relation=self.edge_relation[kept].long(),
            edge_views=self.edge_views[kept],
            complete=True,
            hubs=None,
            order=None,
            edge_scale=None if self.edge_scale is None else self.edge_scale[kept],
        )


def _first(count: Tensor, size: int) -> Tensor:
    """[size, 1] bool"""
    return (torch.arange(size, device=count.device) < count)[:, None]


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
    sizes: Tensor | None = None
    """[L + 1] int64 `layer_sizes` on the device, where they were counted there."""
    roomy: bool = False
    """Whether the sizes that the host has are only bounds, and tensors hold more rows than count."""
    hubs: Tensor | None = None
    """[H] int32 every node with more than HUB_EDGES edges, and unreached ones past them; where they are at hand."""
    order: Tensor | None = None
    """[B * N] int32 the nodes by (first hop, query, how many edges), then what was not reached; where it is at hand."""
    place: Tensor | None = None
    """[B * N] int64 query * N + entity of the nodes, then of all that was not reached; where it is at hand."""

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
            hubs=None,
            order=None,
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
            sizes=None if self.sizes is None else self.sizes[layer - 1 : layer + 1],
            roomy=self.roomy,
            hubs=self.hubs,
            order=self.order,
        )


def build_propagation(
    graph: Graph,
    query_head: Tensor,
    query_relation: Tensor,
    num_layers: int,
    hidden: HiddenEdges | None = None,
    views: Sequence[Sequence[EdgeSet]] = (),
    *,
    backend: Backend = "auto",
) -> Propagation:
    """Nodes and edges for the queries (head [B], relation [B]); `views` are the pooled hops of each view.

    O(edges reached) time and memory on the CPU, O(B N + edges reached) elsewhere, all on the graph's device. An
    edge of a view that no layer can need is left out. Every layer sees the union of a view's hops. Backends as in
    `expand`.
    """
    if len(views) > MAX_VIEWS:
        raise ConfigError(f"there are {len(views)} context views; an edge has bits for {MAX_VIEWS}.")
    hidden = hidden_or_none(hidden, graph, len(query_head))
    query_head, query_relation = query_head.to(graph.device).long(), query_relation.to(graph.device).long()
    reached = frontier(graph, query_head, num_layers, hidden, backend=backend)
    if runs_on_cpu(backend, graph):
        from contextpool.pool import _propagation_cpu  # numba is loaded where it is needed

        walked = _propagation_cpu.propagate(reached, views)
    else:
        walked = _propagate(reached, views)
    ends = walked.row_start[torch.tensor(walked.layer_sizes, device=graph.device)]
    return Propagation(
        query_head=query_head,
        query_relation=query_relation,
        graph=graph,
        layer_edges=tuple(ends.tolist()),
        **walked._asdict(),
    )


class Walked(NamedTuple):
    """What of a propagation has to be walked for; fields as there."""

    layer_sizes: tuple[int, ...]
    node_query: Tensor
    node_entity: Tensor
    row_start: Tensor
    edge_source: Tensor
    edge_relation: Tensor
    edge_back: Tensor
    edge_views: Tensor


def _propagate(reached: Frontier, views: Sequence[Sequence[EdgeSet]]) -> Walked:
    """With torch operations, on any device."""
    graph, nodes = reached.graph, _Nodes.of(reached)
    pulled = _pull(graph, nodes, reached.hidden)
    return Walked(
        layer_sizes=nodes.layer_sizes,
        node_query=nodes.query,
        node_entity=nodes.entity,
        row_start=torch.searchsorted(pulled.target, torch.arange(len(nodes.query) + 1, device=graph.device)),
        edge_source=pulled.source.int(),
        edge_relation=graph.edge_relation[graph.edge_inverse[pulled.back].long()],
        edge_back=pulled.back.int(),
        edge_views=_bits_of(graph, nodes, pulled, views),
    )


@dataclass(frozen=True, eq=False)
class _Nodes:
    query: Tensor  # [M] int64, sorted by (first hop, query, entity)
    entity: Tensor  # [M] int64
    layer_sizes: tuple[int, ...]
    number: Tensor  # [B, N] int64 node, -1 where unreached

    @classmethod
    def of(cls, reached: Frontier) -> _Nodes:
        order = torch.argsort(reached.node_hop, stable=True)  # a frontier is sorted by (query, entity)
        query, entity = reached.node_query[order].long(), reached.node_entity[order].long()
        counts = torch.bincount(reached.node_hop, minlength=reached.num_hops + 1)
        shape = (reached.num_queries, reached.graph.num_entities)
        number = torch.full(shape, -1, dtype=torch.int64, device=query.device)
        number[query, entity] = torch.arange(len(query), device=query.device)
        return cls(query, entity, tuple(counts.cumsum(0).tolist()), number)


@dataclass(frozen=True, eq=False)
class _Pulled:
    """Edges found from their targets: target j looks along its own row for nodes that can send to it."""

    source: Tensor  # [K] node
    target: Tensor  # [K] node
    back: Tensor  # [K] edge of the graph, from target to source
    row_offset: Tensor
    """[M] where the row of each target starts among the candidates."""
    kept: Tensor  # [candidates] bool


def _pull(graph: Graph, nodes: _Nodes, hidden: HiddenEdges) -> _Pulled:
    first = graph.row_start[nodes.entity]
    degree = graph.row_start[nodes.entity + 1] - first
    target, back = entries_of_rows(first, degree)  # `back` leads from the target to a possible source
    row_offset = degree.cumsum(0) - degree
    source = nodes.number.view(-1)[nodes.query[target] * graph.num_entities + graph.edge_tail[back]]
    kept = (source >= 0) & (source < nodes.layer_sizes[-2])
    kept[_places(graph, nodes, row_offset, hidden.edge_query, hidden.edge.long())] = False
    return _Pulled(source[kept], target[kept], back[kept], row_offset, kept)


def _places(graph: Graph, nodes: _Nodes, row_offset: Tensor, query: Tensor, edge: Tensor) -> Tensor:
    """Where (query, edge) pairs stand among the candidates; those into a node that was not reached are left out."""
    back = graph.edge_inverse[edge].long()
    entity = graph.edge_head[back].long()
    target = nodes.number.view(-1)[query * graph.num_entities + entity]
    place = row_offset[target] + back - graph.row_start[entity]
    return place[target >= 0]


def _bits_of(graph: Graph, nodes: _Nodes, pulled: _Pulled, views: Sequence[Sequence[EdgeSet]]) -> Tensor:
    """[K] one bit per view, set where an edge is in any of the view's hops."""
    candidates = torch.zeros(len(pulled.kept), dtype=torch.uint8, device=graph.device)
    for view, hops in enumerate(views):
        member = torch.zeros(len(pulled.kept), dtype=torch.bool, device=graph.device)
        for edges in hops:
            member[_places(graph, nodes, pulled.row_offset, edges.edge_query.long(), edges.edge.long())] = (
                True
            )
        candidates |= member.to(torch.uint8) << view
    return candidates[pulled.kept]
