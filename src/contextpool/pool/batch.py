"""From queries to everything a model reads: nodes and edges, view bits, relevance; nothing of it is trained."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from contextpool.context.families import ContextFamilies
from contextpool.context.leave_one_out import CountsOf, QueryCounts
from contextpool.context.neighbors import ContextNeighbors, SelfPolicy
from contextpool.context.selection import RelationSelector
from contextpool.context.statistics import Statistics
from contextpool.errors import ConfigError
from contextpool.graph.graph import Graph
from contextpool.pool.edge_set import EdgeSet
from contextpool.pool.expand import expand
from contextpool.pool.hidden import HiddenEdges
from contextpool.pool.incidence import incidence_of
from contextpool.pool.left_out import answers_left_out
from contextpool.pool.propagation import Propagation, build_propagation

Algorithm = Literal["neighbors", "families-precision", "families-recall"]


@dataclass(frozen=True)
class ViewConfig:
    """One context view: which relations a pooled stream may walk."""

    min_precision: float = 0.1
    """Precision a neighbor has to exceed."""
    min_recall: float = 0.0
    """Recall a neighbor has to exceed."""
    algorithm: Algorithm = "neighbors"
    """Algorithm 3 ("neighbors", both thresholds at once) or Algorithm 1 by one measure."""
    sizes: tuple[int, ...] = (1, 2, 3, 4, 5)
    """Sizes of the relation sets of Algorithm 1."""

    def __post_init__(self) -> None:
        if self.algorithm not in ("neighbors", "families-precision", "families-recall"):
            raise ConfigError(
                f"context.views.algorithm is {self.algorithm!r}; see ViewConfig for the choices."
            )
        for key in ("min_precision", "min_recall"):
            if not 0 <= getattr(self, key) < 1:
                raise ConfigError(f"context.views.{key} is {getattr(self, key)}; it has to lie in [0, 1).")


@dataclass(frozen=True)
class ContextConfig:
    """How context is used: walk (pooled streams), gate (soft message weights), arrive (candidate relevance)."""

    views: tuple[ViewConfig, ...] = (
        ViewConfig(min_precision=0.1),
        ViewConfig(min_precision=0.0, min_recall=0.1),
    )
    """One pooled stream each; by default one by precision and one by recall."""
    hops: int = 3
    """How far the pooled graph reaches."""
    layered: bool = False
    """Layer l sees hop l alone, instead of the union over hops."""
    self_policy: SelfPolicy = "exclude"
    """Whether a relation may be its own neighbor."""
    gate: bool = False
    """Weigh messages by the relevance of their relation to the query relation."""
    arrive: bool = False
    """Score candidates by how much they look like something the query relation points to."""
    leave_one_out: bool = True
    """Correct the counts for the hidden fact of each training query."""

    def __post_init__(self) -> None:
        if self.hops < 1:
            raise ConfigError(f"context.hops is {self.hops}; a walk has at least one hop.")

    @property
    def num_views(self) -> int:
        return len(self.views)


@dataclass(frozen=True, eq=False)
class QueryBatch:
    """B queries, ready for a model."""

    propagation: Propagation
    neighbor_relevance: Tensor | None = None
    """[B, 2R, 2] precision and recall of each relation for the query relation; None without gate."""
    candidate_relevance: Tensor | None = None
    """[B, N] how much each entity looks like an answer, in [0, 1]; None without arrive."""

    @property
    def query_relation(self) -> Tensor:
        return self.propagation.query_relation


@dataclass(eq=False)
class BatchBuilder:
    """Makes batches over one graph. `statistics` are what to pool with, by default the graph's own."""

    graph: Graph
    num_layers: int
    context: ContextConfig | None = None
    statistics: Statistics | None = None
    selectors: tuple[RelationSelector, ...] = field(init=False, default=())

    def __post_init__(self) -> None:
        if self.context is None:
            return
        statistics = self.statistics or Statistics.of(self.graph)
        self._counts = CountsOf(self.graph, statistics.counts)
        self.selectors = tuple(_selector(view, self.context, statistics) for view in self.context.views)

    def build(
        self, query_head: Tensor, query_relation: Tensor, hidden_edge: Tensor | None = None
    ) -> QueryBatch:
        """A batch for queries (head [B], relation [B]); the edge hidden from each [B], -1 or None for nothing."""
        device = self.graph.device
        query_head, query_relation = query_head.to(device).long(), query_relation.to(device).long()
        if hidden_edge is None:
            hidden_edge = torch.full_like(query_head, -1)
        hidden_edge = hidden_edge.to(device).long()
        hidden = HiddenEdges.one_per_query(self.graph, hidden_edge)
        left_out = hidden_edge
        if self.context is not None and not self.context.leave_one_out:
            left_out = torch.full_like(hidden_edge, -1)
        views = self._pooled(query_head, query_relation, hidden, left_out)
        layered = self.context is not None and self.context.layered
        propagation = build_propagation(
            self.graph, query_head, query_relation, self.num_layers, hidden, views, layered
        )
        if self.context is None or not (self.context.gate or self.context.arrive):
            return QueryBatch(propagation)
        counts = self._counts.for_queries(query_relation, left_out)
        return QueryBatch(
            propagation,
            _neighbor_relevance(counts, query_relation) if self.context.gate else None,
            self._candidate_relevance(counts, left_out) if self.context.arrive else None,
        )

    def _pooled(
        self, head: Tensor, relation: Tensor, hidden: HiddenEdges, left_out: Tensor
    ) -> list[tuple[EdgeSet, ...]]:
        """The hops of each view. Algorithm 3 is mined without each query's own fact; Algorithm 1 is not."""
        if self.context is None:
            return []
        hops = []
        for selector in self.selectors:
            answers = None
            if isinstance(selector, ContextNeighbors):
                answers = answers_left_out(self.graph, selector, self._counts, relation, left_out)
            pooled = expand(self.graph, selector, head, relation, self.context.hops, hidden, answers=answers)
            hops.append(pooled.hops)
        return hops

    def _candidate_relevance(self, counts: QueryCounts, hidden_edge: Tensor) -> Tensor:
        """[B, N] max over y in NR_c of precision[inverse(query relation), y], without the hidden edge."""
        relevance = counts.precision(1).float()  # [B, 2R]
        incidence = incidence_of(self.graph)
        of_pair = relevance[:, incidence.pair_relation.long()]  # [B, P]
        result = relevance.new_zeros(len(relevance), self.graph.num_entities)
        place = incidence.pair_entity.long().expand(len(relevance), -1)
        result.scatter_reduce_(1, place, of_pair, "amax", include_self=True)
        hiding = torch.nonzero(hidden_edge >= 0).squeeze(1)
        if len(hiding):
            head, head_set, tail, tail_set = self._counts.sets_without(hidden_edge[hiding])
            for entity, has in ((head, head_set), (tail, tail_set)):
                result[hiding, entity] = (relevance[hiding] * has).amax(dim=1)
        return result


def _selector(view: ViewConfig, context: ContextConfig, statistics: Statistics) -> RelationSelector:
    if view.algorithm == "neighbors":
        return ContextNeighbors(statistics.counts, view.min_precision, view.min_recall, context.self_policy)
    measure: Literal["precision", "recall"] = "recall" if view.algorithm == "families-recall" else "precision"
    threshold = view.min_recall if measure == "recall" else view.min_precision
    return ContextFamilies(statistics.relations, statistics.sets, measure, threshold, view.sizes)


def _neighbor_relevance(counts: QueryCounts, query_relation: Tensor) -> Tensor:
    return torch.stack([counts.precision(0), counts.recall(0, query_relation)], dim=2).float()
