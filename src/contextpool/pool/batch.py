"""From queries to everything a model reads: nodes and edges, view bits, relevance; nothing of it is trained."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
from torch import Tensor

from contextpool.context.config import NO_CONTEXT, ContextConfig, ViewConfig
from contextpool.context.counts import CountsOf, Statistics
from contextpool.context.families import ContextFamilies
from contextpool.context.neighbors import ContextNeighbors, RelationSelector
from contextpool.context.parallel import PairNumbers, ParallelCounts, Parallels
from contextpool.context.relevance import shuffled_neighbors
from contextpool.graph.graph import Graph
from contextpool.graph.relations import inverse
from contextpool.kernels.backend import has_triton
from contextpool.pool.answers import BatchAnswers, answers_left_out, batch_answers
from contextpool.pool.candidates import answer_uses, best_precision, features_of, raw_features, walk_mass
from contextpool.pool.expand import EdgeSet, expand
from contextpool.pool.hide import EdgeDropout, HiddenEdges
from contextpool.pool.incidence import is_part
from contextpool.pool.propagation import Propagation, build_propagation

if TYPE_CHECKING:
    from contextpool.pool.device import DeviceBuilder


@dataclass(frozen=True, eq=False)
class QueryBatch:
    """B queries, ready for a model."""

    propagation: Propagation
    neighbor_relevance: Tensor | None = None
    """[B, 2R, 2] precision and recall of each relation for the query relation; None without gate."""
    candidate_relevance: Tensor | None = None
    """[B, N] how much each entity looks like an answer, in [0, 1]; None without arrive."""
    candidate_features: Tensor | None = None
    """[B, N, F] more that is known of each entity, see `candidates.FEATURES`; None without arrive_features."""
    candidate_mass: Tensor | None = None
    """[B, N] expected visits of a random walk from the head, see `walk_mass`; None without arrive_walk."""
    relation_precision: Tensor | None = None
    """[2R, 2R] precision[query, neighbor] of all relations, the same for all queries; None unless it is read."""
    own_relevance: Tensor | None = None
    """[B, 4, 2R] precision and recall for the query relation and for its inverse without the query's own fact: what
    takes the place of their rows and columns. None where nothing is left out.
    """
    pair_numbers: Tensor | None = None
    """[B, NUMBERS, 2R] what pairs of entities say of each relation (`context.parallel`), without the query's own fact;
    None unless it is read.
    """
    candidate_uses: Tensor | None = None
    """[B, 2, N] how many facts of the query relation lead to each candidate (`answer_uses`); None unless it is read."""
    neighbors: Tensor | None = None
    """[2R] in the shuffled control, whose numbers every neighbor has in the relation graph; None for its own."""

    @property
    def query_relation(self) -> Tensor:
        return self.propagation.query_relation


OF_QUERIES = (
    "neighbor_relevance",
    "candidate_relevance",
    "candidate_features",
    "candidate_mass",
    "own_relevance",
    "pair_numbers",
    "candidate_uses",
)
"""Fields with a row for each query."""


SayPairs = Callable[[Tensor, Tensor, Tensor | None], PairNumbers]
"""`Parallels.numbers`: head, relation, hidden edge of B queries (None: nothing is hidden) -> [B, NUMBERS, 2R]"""


@dataclass(eq=False)
class BatchBuilder:
    """Makes batches over one graph. `statistics` are what to pool with, by default the graph's own."""

    graph: Graph
    num_layers: int
    context: ContextConfig | None = None
    statistics: Statistics | None = None
    backend: Literal["auto", "general", "triton"] = "auto"
    """Which code builds: Triton where the graph is on CUDA and the views are Algorithm 3's, or the general one."""
    relation_graph: bool = False
    """Whether batches hold the relevance of all relations to one another."""
    pairs: bool = False
    """Whether batches hold what pairs of entities say of relations, in the graph itself, whatever `statistics` are."""
    selectors: tuple[RelationSelector, ...] = field(init=False, default=())
    """What each view is walked by."""

    def __post_init__(self) -> None:
        if self.context is not None:
            views, context = self.context.views, self.context
            self.selectors = tuple(_selector(view, context, self._statistics) for view in views)
        self._device_builder = self._fast_builder()

    @cached_property
    def _statistics(self) -> Statistics:
        return self.statistics or Statistics.of(self.graph)

    @cached_property
    def _counts(self) -> CountsOf:
        return CountsOf(self.graph, self._statistics.counts)

    @cached_property
    def _relation_precision(self) -> Tensor:
        """[2R, 2R] float32"""
        counts = self._statistics.counts
        precision = np.empty(counts.both.shape, dtype=np.float32)
        np.divide(counts.both, np.maximum(counts.support, 1), out=precision, casting="same_kind")
        return torch.from_numpy(precision).to(self.graph.device)

    @cached_property
    def _neighbors(self) -> Tensor | None:
        """[2R] whose relevance every neighbor has, None for its own."""
        if self.context is None or self.context.relevance_control == "none":
            return None
        drawn = shuffled_neighbors(self.graph.relation_vocabulary.num_directed, self.context.control_seed)
        return torch.from_numpy(drawn).to(self.graph.device)

    @cached_property
    def _pair_numbers(self) -> SayPairs:
        assert not is_part(self.graph), "numbers over pairs are those of the whole graph, see over()"
        return Parallels(self.graph, ParallelCounts.of(self.graph)).numbers

    def _fast_builder(self) -> DeviceBuilder | None:
        wanted = self.backend == "triton" or (self.backend == "auto" and self.graph.device.type == "cuda")
        if not (wanted and has_triton()) or is_part(self.graph):  # kernels read what the graph itself knows
            return None
        views = tuple(one for one in self.selectors if isinstance(one, ContextNeighbors))
        if len(views) < len(self.selectors):
            return None
        from contextpool.pool.device import DeviceBuilder  # loaded where it is needed

        if self.context is None and not self.relation_graph:
            return DeviceBuilder(self.graph, self.num_layers, None)
        config = self.context or NO_CONTEXT
        return DeviceBuilder(self.graph, self.num_layers, self._counts, views, config, self._neighbors)

    def build(
        self,
        query_head: Tensor,
        query_relation: Tensor,
        hidden_edge: Tensor | None = None,
        *,
        removed: HiddenEdges | None = None,
        dropout: EdgeDropout | None = None,
    ) -> QueryBatch:
        """A batch for queries (head [B], relation [B]); the edge hidden from each [B], -1 or None for nothing.

        `removed` takes its place as what the walks may not use, `dropout` adds to it; the counts are corrected for
        `hidden_edge` alone.
        """
        query_head, query_relation = self._asked_for(query_head), self._asked_for(query_relation)
        hides = hidden_edge is not None
        hidden_edge = torch.full_like(query_head, -1) if hidden_edge is None else self._asked_for(hidden_edge)
        asked = _Asked(query_head, query_relation, hidden_edge, hides)
        if self._device_builder is not None and removed is None:
            return self._completed(self._build_on_device(self._device_builder, asked, dropout), asked)
        own = HiddenEdges.one_per_query(self.graph, hidden_edge) if removed is None else removed
        hidden = own if dropout is None else dropout.hidden_edges(self.graph, own)
        return self._completed(self._with_relevance(self._propagation(asked, hidden, own), asked), asked)

    def _asked_for(self, column: Tensor) -> Tensor:
        """[B] where the graph is, one after the other in memory: kernels see no strides."""
        return column.to(self.graph.device).long().contiguous()

    def _completed(self, batch: QueryBatch, asked: _Asked) -> QueryBatch:
        """With what is made alike everywhere."""
        if self.pairs:
            hidden = asked.hidden_edge if asked.hides else None
            batch = self._with_pairs(batch, asked, self._pair_numbers(asked.head, asked.relation, hidden))
        if self.context is None or not self.context.arrive_walk:
            return batch
        return replace(batch, candidate_mass=walk_mass(self.graph, asked.head, asked.hidden_edge))

    def _with_pairs(self, batch: QueryBatch, asked: _Asked, said: PairNumbers) -> QueryBatch:
        uses = None
        if self.context is not None and self.context.arrive and self.context.arrive_features:
            back = inverse(asked.relation, self.graph.num_relations)
            uses = answer_uses(self.graph, back, asked.hidden_edge, said.num_facts)
        return replace(batch, pair_numbers=said.of_relations, candidate_uses=uses)

    def over(self, graph: Graph, pair_numbers: SayPairs | None = None) -> BatchBuilder:
        """The same over another graph of the same relations, with the same statistics: nothing is mined again.

        `pair_numbers` are those of the larger graph that it is part of, for queries by its own numbers.
        """
        if self.relation_graph:
            assert self._relation_precision is not None  # made once, for all copies
        other = copy(self)
        other.graph = graph
        for made in ("_counts", "_pair_numbers"):
            other.__dict__.pop(made, None)
        if pair_numbers is not None:
            other._pair_numbers = pair_numbers
        other._device_builder = other._fast_builder()
        return other

    def _build_on_device(
        self, builder: DeviceBuilder, asked: _Asked, dropout: EdgeDropout | None
    ) -> QueryBatch:
        own = self.relation_graph and asked.hides
        batch = builder.build(asked.head, asked.relation, asked.hidden_edge, dropout, own=own)
        if not self.relation_graph:
            return batch
        return replace(batch, relation_precision=self._relation_precision, neighbors=self._neighbors)

    def _propagation(self, asked: _Asked, hidden: HiddenEdges, own: HiddenEdges) -> Propagation:
        """Walks that use no hidden edge; relation sets lack what is hidden as `own`."""
        views = self._pooled(asked, hidden, own)
        return build_propagation(self.graph, asked.head, asked.relation, self.num_layers, hidden, views)

    def _pooled(self, asked: _Asked, hidden: HiddenEdges, own: HiddenEdges) -> list[tuple[EdgeSet, ...]]:
        """The hops of each view."""
        if self.context is None:
            return []
        hops = []
        for selector in self.selectors:
            answers = self._answers(selector, asked, own)
            pooled = expand(
                self.graph, selector, asked.head, asked.relation, self.context.hops, hidden, answers=answers
            )
            hops.append(pooled.hops)
        return hops

    def _answers(self, selector: RelationSelector, asked: _Asked, own: HiddenEdges) -> BatchAnswers:
        """What may be walked; Algorithm 3 is mined without each query's own fact, families are as they are given."""
        if isinstance(selector, ContextNeighbors):
            return answers_left_out(self.graph, selector, self._counts, asked.relation, asked.hidden_edge)
        return batch_answers(self.graph, selector, asked.head, asked.relation, own)

    def _with_relevance(self, walk: Propagation, asked: _Asked) -> QueryBatch:
        context = self.context or NO_CONTEXT
        precision = self._relation_precision if self.relation_graph else None
        if not (context.gate or context.arrive or precision is not None):
            return QueryBatch(walk)
        own = self._counts.for_queries(asked.relation, asked.hidden_edge)
        counts = own if self._neighbors is None else own.with_neighbors(self._neighbors)
        features, best = None, None
        if context.arrive and context.arrive_features:
            back = inverse(asked.relation, self.graph.num_relations)
            raw = raw_features(self.graph, self._counts, counts, back, asked.hidden_edge)
            features = features_of(raw, self.graph, asked.hidden_edge, self._counts.num_entities)
            best = raw[:, 0]
        elif context.arrive:
            best = best_precision(self.graph, self._counts, counts, asked.hidden_edge)
        return QueryBatch(
            walk,
            neighbor_relevance=counts.relevance()[:, :2].transpose(1, 2) if context.gate else None,
            candidate_relevance=best,
            candidate_features=features,
            relation_precision=precision,
            own_relevance=own.relevance() if precision is not None and asked.hides else None,
            neighbors=self._neighbors if precision is not None else None,
        )


@dataclass(frozen=True, eq=False)
class _Asked:
    """B queries, on the graph's device."""

    head: Tensor  # [B] int64
    relation: Tensor  # [B] int64
    hidden_edge: Tensor
    """[B] int64 the query's own fact, which neither walks nor counts know; -1 for nothing."""
    hides: bool
    """Whether any of them may have one."""


def _selector(view: ViewConfig, context: ContextConfig, statistics: Statistics) -> RelationSelector:
    if view.algorithm == "neighbors":
        return ContextNeighbors(statistics.counts, view.min_precision, view.min_recall, context.self_policy)
    measure: Literal["precision", "recall"] = "recall" if view.algorithm == "families-recall" else "precision"
    threshold = view.min_recall if measure == "recall" else view.min_precision
    return ContextFamilies(statistics.relations, statistics.sets, measure, threshold, view.sizes)
