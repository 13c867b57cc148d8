"""Batches built on the device with Triton: what `build_propagation`, `expand` and `answers_left_out` do elsewhere.

It takes 20 to 40 launches, and the host waits once a batch, for the sizes of the layers. Views of Algorithm 3 alone;
Algorithm 1, and edges hidden in other ways than one a query and by dropout, take the general path.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor
from triton import cdiv

from contextpool.context.config import NO_CONTEXT, ContextConfig
from contextpool.context.counts import CountsOf
from contextpool.context.neighbors import ContextNeighbors
from contextpool.graph.graph import Graph
from contextpool.kernels import triton_relevance, triton_walk
from contextpool.kernels.hop import HUB_EDGES, LaunchPlan
from contextpool.pool.batch import QueryBatch
from contextpool.pool.candidates import RAW, features_of
from contextpool.pool.hide import EdgeDropout
from contextpool.pool.incidence import cached_per_graph, incidence_of
from contextpool.pool.propagation import Propagation

BLOCK = 256
UNREACHED = 255


@dataclass(frozen=True, eq=False)
class DeviceBuilder:
    """Builds batches over one graph."""

    graph: Graph
    num_layers: int
    counts: CountsOf | None
    """None where nothing of context is read."""
    views: tuple[ContextNeighbors, ...] = ()
    context: ContextConfig = NO_CONTEXT
    neighbors: Tensor | None = None
    """[2R] int64 whose relevance every neighbor has, None for its own."""

    def build(
        self,
        query_head: Tensor,
        query_relation: Tensor,
        hidden: Tensor,
        dropout: EdgeDropout | None = None,
        *,
        own: bool = False,
    ) -> QueryBatch:
        """A batch with what the context reads of neighbors and candidates, and own relevance; all inputs [B] int64."""
        walk = Walkers(self.graph, query_head, query_relation, hidden, dropout)
        if self.counts is None:
            return QueryBatch(propagate(walk, self.num_layers, None))
        decisions = self.decide(self.counts, query_relation, hidden)
        pooled = pooled_flags(walk, decisions, self.context.hops) if self.views else None
        table, best = None, None
        if self.context.arrive:
            raw = raw_features(self.graph, self.counts, decisions, query_relation, hidden)
            best = raw[:, 0]
            if self.context.arrive_features:
                table = features_of(raw, self.graph, hidden, self.counts.num_entities)
        relevance = decisions.relevance
        return QueryBatch(
            propagate(walk, self.num_layers, pooled),
            neighbor_relevance=relevance[:, :2].transpose(1, 2) if self.context.gate else None,
            candidate_relevance=best,
            candidate_features=table,
            own_relevance=self._own_relevance(relevance) if own else None,
        )

    def decide(self, counts: CountsOf, query_relation: Tensor, left_out: Tensor) -> Decisions:
        """Decisions for queries [B] whose facts left_out [B] (-1: none) count nowhere."""
        graph, num_queries, num_directed = self.graph, len(query_relation), 2 * self.graph.num_relations
        own_row = torch.empty(num_queries, 2, num_directed, dtype=torch.uint8, device=graph.device)
        own_column = torch.empty_like(own_row)
        relevance = torch.empty(num_queries, 5, num_directed, dtype=torch.float32, device=graph.device)
        if num_queries and num_directed:
            triton_relevance.decide_kernel[(num_queries, cdiv(num_directed, BLOCK))](
                query_relation, left_out, graph.edge_head, graph.edge_tail, graph.edge_inverse, counts.only_one,
                counts.words, counts.both, self._thresholds, own_row, own_column, relevance,
                graph.num_relations, counts.words.size(1),
                NUM_VIEWS=len(self.views), KEEP_SELF=self.context.self_policy == "keep", BLOCK=BLOCK,
            )  # fmt: skip
        if self.neighbors is not None:
            relevance = relevance[:, :, self.neighbors]
        return Decisions(self._mask, own_row, own_column, relevance)

    @cached_property
    def _mask(self) -> Tensor:
        """[2R, 2R] uint8 with one bit a view."""
        size = 2 * self.graph.num_relations
        mask = torch.zeros(size, size, dtype=torch.uint8)
        for view, selector in enumerate(self.views):
            mask |= torch.from_numpy(selector.mask).to(torch.uint8) << view
        return mask.to(self.graph.device)

    @cached_property
    def _thresholds(self) -> Tensor:
        """[V, 2] float64: precision and recall that a neighbor has to exceed."""
        values = [[view.min_precision, view.min_recall] for view in self.views]
        return torch.tensor(values or [[0.0, 0.0]], dtype=torch.float64, device=self.graph.device)

    def _own_relevance(self, relevance: Tensor) -> Tensor:
        """[B, 4, 2R] of every neighbor itself, whatever the control gives to gate and arrive."""
        own = relevance[:, :4]
        return own if self.neighbors is None else own[:, :, self.neighbors.argsort()]


@dataclass(frozen=True, eq=False)
class Walkers:
    """B queries with what they may not walk along."""

    graph: Graph
    head: Tensor  # [B] int64
    relation: Tensor  # [B] int64
    hidden: Tensor  # [B] int64, -1 for nothing
    dropout: EdgeDropout | None

    @cached_property
    def drops(self) -> tuple[Tensor, int]:
        """Salt [B] and threshold, as kernels read them; without meaning where nothing is dropped."""
        if self.dropout is None:
            return self.hidden, 0
        return self.dropout.salts(len(self.head), self.graph.device), self.dropout.threshold


@dataclass(frozen=True, eq=False)
class Decisions:
    """What context says to each of B queries, its own fact left out of the counts."""

    mask: Tensor  # [2R, 2R] uint8, bit v: view v allows the neighbor, whoever asks
    own_row: Tensor  # [B, 2, 2R] uint8, instead of the rows of (query relation, its inverse)
    own_column: Tensor  # [B, 2, 2R] uint8, instead of their columns
    relevance: Tensor
    """[B, 5, 2R] float32: precision and recall for the query relation and for its inverse, support."""


def pooled_flags(walk: Walkers, decisions: Decisions, num_hops: int) -> Tensor:
    """[B, P] uint8: bit v where view v may leave by the pair at any hop."""
    graph, num_queries = walk.graph, len(walk.head)
    incidence = incidence_of(graph)
    shape = (num_queries, incidence.num_pairs)
    leaving = torch.zeros(shape, dtype=torch.int32, device=graph.device)
    pooled = torch.zeros(shape, dtype=torch.uint8, device=graph.device)
    if not leaving.numel():
        return pooled
    answers = (decisions.mask, decisions.own_row, decisions.own_column)
    triton_walk.first_leave_kernel[(num_queries,)](
        walk.head, walk.relation, *answers, incidence.entity_start, incidence.pair_relation, leaving, pooled,
        graph.num_relations, incidence.num_pairs, BLOCK=64,
    )  # fmt: skip
    for _ in range(1, num_hops):
        arriving = torch.zeros(shape, dtype=torch.int32, device=graph.device)
        triton_walk.arrive_kernel[(cdiv(graph.num_edges, BLOCK), num_queries)](
            leaving, incidence.edge_pair, incidence.edge_arrival, graph.edge_inverse, walk.hidden, *walk.drops,
            arriving, graph.num_edges, incidence.num_pairs, DROPS=walk.dropout is not None, BLOCK=BLOCK,
        )  # fmt: skip
        triton_walk.leave_kernel[(cdiv(incidence.num_pairs, BLOCK), num_queries)](
            walk.relation, *answers, incidence.entity_start, incidence.pair_entity, incidence.pair_relation,
            arriving, leaving, pooled, graph.num_relations, incidence.num_pairs, BLOCK=BLOCK,
        )  # fmt: skip
    return pooled


def propagate(walkers: Walkers, num_layers: int, pooled: Tensor | None) -> Propagation:
    """See `build_propagation`; `pooled` as `pooled_flags` gives it, None without views."""
    graph, num_queries = walkers.graph, len(walkers.head)
    num_entities, device = graph.num_entities, graph.device
    first_hop = _first_hops(walkers, num_layers)
    by_hop, order = torch.sort(first_hop.view(-1), stable=True)
    hops = torch.arange(num_layers + 1, dtype=torch.uint8, device=device)
    sizes = torch.searchsorted(by_hop, hops, right=True)  # [L + 1]
    number = torch.empty(len(order), dtype=torch.int32, device=device)
    number[order] = torch.arange(len(order), dtype=torch.int32, device=device)
    row_start = torch.zeros(len(order) + 1, dtype=torch.int64, device=device)
    degree = torch.zeros(len(order), dtype=torch.int64, device=device)
    if len(order) and graph.num_edges:
        triton_walk.degree_kernel[(cdiv(len(order), BLOCK),)](
            order, graph.row_start, sizes, degree, len(order), num_entities, num_layers, BLOCK=BLOCK
        )
    torch.cumsum(degree, 0, out=row_start[1:])
    both = torch.cat([sizes, row_start[sizes]]).tolist()  # the one place where the host waits
    layer_sizes, layer_edges = tuple(both[: num_layers + 1]), tuple(both[num_layers + 1 :])
    num_nodes, num_edges = layer_sizes[-1], layer_edges[-1]
    columns = [torch.empty(num_edges, dtype=torch.int32, device=device) for _ in range(3)]
    incidence = incidence_of(graph)
    views = torch.zeros(num_edges, dtype=torch.uint8, device=device)
    if num_nodes and num_edges:
        triton_walk.fill_kernel[(cdiv(graph.num_edges, BLOCK), num_queries)](
            number, graph.row_start, graph.edge_head, graph.edge_tail, graph.edge_relation, graph.edge_inverse,
            incidence.edge_arrival, views if pooled is None else pooled, walkers.hidden, *walkers.drops, row_start,
            *columns, views, num_nodes, layer_sizes[-2], graph.num_edges, num_entities, incidence.num_pairs,
            HAS_VIEWS=pooled is not None, DROPS=walkers.dropout is not None, BLOCK=BLOCK,
        )  # fmt: skip
    node_query = torch.div(order[:num_nodes], max(num_entities, 1), rounding_mode="floor")
    return Propagation(
        query_head=walkers.head,
        query_relation=walkers.relation,
        graph=graph,
        layer_sizes=layer_sizes,
        layer_edges=layer_edges,
        node_query=node_query,
        node_entity=order[:num_nodes] - node_query * num_entities,
        row_start=row_start[: num_nodes + 1],
        edge_source=columns[0],
        edge_relation=columns[1],
        edge_back=columns[2],
        edge_views=views,
        plan=LaunchPlan(
            sizes=sizes,
            order=_by_length(graph, first_hop, number),
            hubs=number.view(num_queries, num_entities)[:, _hub_entities(graph)].reshape(-1),
            place=order,
        ),
    )


@cached_per_graph
def _hub_entities(graph: Graph) -> Tensor:
    """[H] int64"""
    return torch.nonzero(graph.row_start.diff() > HUB_EDGES).squeeze(1)


def _by_length(graph: Graph, first_hop: Tensor, number: Tensor) -> Tensor:
    """[B * N] int32 nodes by (first hop, query, descending number of edges), from their numbers [B * N]."""
    entities = _by_degree(graph)
    order = torch.sort(first_hop[:, entities].view(-1), stable=True).indices
    return number.view(first_hop.shape)[:, entities].view(-1)[order]


@cached_per_graph
def _by_degree(graph: Graph) -> Tensor:
    """[N] int64 entities, those with most edges first."""
    return torch.sort(graph.row_start.diff(), descending=True, stable=True).indices


def _first_hops(walk: Walkers, num_layers: int) -> Tensor:
    """[B, N] uint8"""
    graph, num_queries, device = walk.graph, len(walk.head), walk.graph.device
    first_hop = torch.full((num_queries, graph.num_entities), UNREACHED, dtype=torch.uint8, device=device)
    first_hop.scatter_(1, walk.head[:, None], 0)
    if num_queries and graph.num_edges:
        for hop in range(1, num_layers + 1):
            triton_walk.reach_kernel[(cdiv(graph.num_edges, BLOCK), num_queries)](
                first_hop, graph.edge_head, graph.edge_tail, graph.edge_inverse, walk.hidden, *walk.drops,
                hop, graph.num_entities, graph.num_edges, DROPS=walk.dropout is not None, BLOCK=BLOCK,
            )  # fmt: skip
    return first_hop


def raw_features(
    graph: Graph, counts: CountsOf, decisions: Decisions, query_relation: Tensor, left_out: Tensor
) -> Tensor:
    """[B, RAW, N] float32, see `candidates.raw_features`."""
    incidence, num_queries = incidence_of(graph), len(left_out)
    result = torch.zeros(num_queries, RAW, graph.num_entities, dtype=torch.float32, device=graph.device)
    if result.numel() and graph.num_edges:
        triton_relevance.features_kernel[(cdiv(graph.num_entities, 128), num_queries)](
            query_relation, decisions.relevance, left_out, incidence.edge_pair, graph.edge_inverse, counts.only_one,
            incidence.entity_start, incidence.pair_relation, result, graph.num_relations, graph.num_entities,
            BLOCK=128,
        )  # fmt: skip
    return result
