"""From queries to everything a model reads: nodes and edges, view bits, relevance; nothing of it is trained."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Literal, get_args

import torch
from torch import Tensor

from contextpool.context.controls import Control, RelevanceControl, fixed_control, shuffled_neighbors
from contextpool.context.families import ContextFamilies
from contextpool.context.leave_one_out import CountsOf, QueryCounts
from contextpool.context.neighbors import ContextNeighbors, SelfPolicy
from contextpool.context.relevance import neighborhood_precision
from contextpool.context.selection import MaskSelector, RelationSelector
from contextpool.context.statistics import Statistics
from contextpool.errors import ConfigError
from contextpool.graph.graph import Graph
from contextpool.graph.relations import inverse
from contextpool.pool._backend import has_triton
from contextpool.pool.answers import BatchAnswers, batch_answers
from contextpool.pool.candidates import best_precision, features_of, raw_features
from contextpool.pool.dropout import EdgeDropout
from contextpool.pool.edge_set import EdgeSet
from contextpool.pool.expand import expand
from contextpool.pool.hidden import HiddenEdges
from contextpool.pool.left_out import answers_left_out, complement_of
from contextpool.pool.propagation import Propagation, build_propagation
from contextpool.pool.query_batch import QueryBatch
from contextpool.pool.walk_mass import walk_mass

if TYPE_CHECKING:
    from contextpool.pool._triton_build import DeviceBuilder

Algorithm = Literal["neighbors", "families-precision", "families-recall"]


@dataclass(frozen=True)
class ViewConfig:
    """One context view: which relations a pooled stream may walk."""

    min_precision: float = 0.1
    """Precision a neighbor has to exceed."""
    min_recall: float = 0.0
    """Recall a neighbor has to exceed."""
    algorithm: Algorithm = "neighbors"
    """Algorithm 3 ("neighbors", both thresholds at once) or Algorithm 1 by one measure. Algorithm 1 is trained only
    where no training query is a fact of the graph, as with train.queries = "train".
    """
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
    gate_bias: bool = False
    """With gate: every query relation learns offsets of its own, for all messages and for those along itself."""
    arrive: bool = False
    """Score candidates by how much they look like something the query relation points to."""
    arrive_features: bool = False
    """With arrive: also by more of what is known of them, through a small network."""
    arrive_walk: bool = False
    """Score candidates by how often a random walk from the head comes to them, too."""
    shrinkage: float = 0.0
    """Entities of the base rate that are added to the counts behind precision and recall: rare relations are pulled
    towards it. Of single relations; the sets of Algorithm 1 are taken as they are counted.
    """
    control: Control = "none"
    """A context without meaning in the place of the views, to compare them with; see `context.controls`."""
    relevance_control: RelevanceControl = "none"
    """For gate and arrive, to compare them with: "shuffled" gives every neighbor the relevance of another one."""
    control_seed: int = 0
    """Of the random and the shuffled controls."""
    leave_one_out: bool = True
    """Correct the counts for the hidden fact of each training query."""

    def __post_init__(self) -> None:
        if self.hops < 1:
            raise ConfigError(f"context.hops is {self.hops}; a walk has at least one hop.")
        if not 0 <= self.shrinkage < float("inf"):
            raise ConfigError(
                f"context.shrinkage is {self.shrinkage}; it is a number of entities, 0 for none."
            )
        if self.control not in get_args(Control):
            raise ConfigError(
                f"context.control is {self.control!r}; it is one of {', '.join(get_args(Control))}."
            )

        if self.relevance_control not in get_args(RelevanceControl):
            raise ConfigError(
                f"context.relevance_control is {self.relevance_control!r}; it is one of "
                f"{', '.join(get_args(RelevanceControl))}."
            )

    @property
    def num_views(self) -> int:
        return len(self.views)

    @property
    def has_families(self) -> bool:
        """Whether a view is one of Algorithm 1."""
        return any(view.algorithm != "neighbors" for view in self.views)

    def check_training(self, num_own_facts: int, where: str) -> None:
        """Refuse Algorithm 1 where training queries are facts of the graph that the families are mined on.

        A query's own fact would count in its families, and which of them it falls into would tell the answer.
        """
        if num_own_facts and self.has_families:
            raise ConfigError(
                f"{where}: context.views has a view of Algorithm 1 (families), and {num_own_facts:,} training queries "
                "are facts of the training graph. Each would be counted in the families that it is answered with, "
                "which gives its answer away. Train on queries that are no facts of the graph "
                '(train.queries = "train" where the dataset has facts.txt and train.txt, or "valid"), or use '
                'algorithm = "neighbors" (Algorithm 3), which is corrected for the hidden fact.'
            )


@dataclass(eq=False)
class BatchBuilder:
    """Makes batches over one graph. `statistics` are what to pool with, by default the graph's own."""

    graph: Graph
    num_layers: int
    context: ContextConfig | None = None
    statistics: Statistics | None = None
    backend: Literal["auto", "torch", "triton"] = "auto"
    """Which code builds: Triton where the graph is on CUDA and the views are Algorithm 3's, or the general one."""
    relation_graph: bool = False
    """Whether batches hold the relevance of all relations to one another."""
    selectors: tuple[RelationSelector, ...] = field(init=False, default=())
    """What is walked by; of the complement, what it is the complement of. A duplicate walks by nothing."""

    def __post_init__(self) -> None:
        if self.context is not None:
            self.selectors = self._selectors(self.context)
        self._device_builder = self._fast_builder()

    def _selectors(self, context: ContextConfig) -> tuple[RelationSelector, ...]:
        mined = tuple(_selector(view, context, self._statistics) for view in context.views)
        if context.control not in ("random", "shuffled"):
            return mined
        return tuple(
            fixed_control(selector, context.control, context.control_seed, view)
            for view, selector in enumerate(mined)
        )

    @cached_property
    def _statistics(self) -> Statistics:
        return self.statistics or Statistics.of(self.graph)

    @cached_property
    def _counts(self) -> CountsOf:
        shrinkage = 0.0 if self.context is None else self.context.shrinkage
        return CountsOf(self.graph, self._statistics.counts, shrinkage)

    @cached_property
    def _relation_precision(self) -> Tensor:
        """[2R, 2R] float32"""
        shrinkage = 0.0 if self.context is None else self.context.shrinkage
        precision = neighborhood_precision(self._statistics.counts, shrinkage)
        table = torch.from_numpy(precision).float().to(self.graph.device)
        return table if self._neighbors is None else table[:, self._neighbors]

    @cached_property
    def _neighbors(self) -> Tensor | None:
        """[2R] whose relevance every neighbor has, None for its own."""
        if self.context is None or self.context.relevance_control == "none":
            return None
        drawn = shuffled_neighbors(self.graph.relation_vocabulary.num_directed, self.context.control_seed)
        return torch.from_numpy(drawn).to(self.graph.device)

    def _counts_for(self, asked: _Asked) -> QueryCounts:
        counts = self._counts.for_queries(asked.relation, asked.left_out)
        return counts if self._neighbors is None else counts.with_neighbors(self._neighbors)

    @property
    def _control(self) -> Control:
        return "none" if self.context is None else self.context.control

    def _fast_builder(self) -> DeviceBuilder | None:
        wanted = self.backend == "triton" or (self.backend == "auto" and self.graph.device.type == "cuda")
        if not (wanted and has_triton()):
            return None
        simple = all(isinstance(one, ContextNeighbors | MaskSelector) for one in self.selectors)
        if not simple and self._control != "duplicate":
            return None
        from contextpool.pool._triton_build import DeviceBuilder  # loaded where it is needed

        if self.context is None and not self.relation_graph:
            return DeviceBuilder.plain(self.graph, self.num_layers)
        config = self.context or ContextConfig(views=())
        walked = self.selectors if simple else ()
        return DeviceBuilder.with_context(
            self.graph,
            self.num_layers,
            self._counts,
            tuple(one for one in walked if isinstance(one, ContextNeighbors | MaskSelector)),
            num_views=config.num_views,
            num_hops=config.hops,
            layered=config.layered,
            keep_self=config.self_policy == "keep",
            control=config.control,
            neighbors=self._neighbors,
        )

    @cached_property
    def _counting_builder(self) -> DeviceBuilder | None:
        """One that knows the counts, whether there is context or not."""
        if self._device_builder is None or self._device_builder.counts is not None:
            return self._device_builder
        return replace(self._device_builder, counts=self._counts)

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
        leaves_out = hidden_edge is not None and (self.context is None or self.context.leave_one_out)
        if hidden_edge is None:
            hidden_edge = torch.full_like(query_head, -1)
        hidden_edge = self._asked_for(hidden_edge)
        left_out = hidden_edge if leaves_out else torch.full_like(hidden_edge, -1)
        asked = _Asked(query_head, query_relation, hidden_edge, left_out, leaves_out)
        by_relevance = dropout is not None and dropout.by == "relevance"
        fast = self._counting_builder if by_relevance else self._device_builder
        if fast is not None and removed is None:
            return self._with_mass(self._build_on_device(fast, asked, dropout), asked)
        own = HiddenEdges.one_per_query(self.graph, hidden_edge) if removed is None else removed
        hidden = own if dropout is None else self._dropped(dropout, asked, own)
        return self._with_mass(self._with_relevance(self._propagation(asked, hidden, own), asked), asked)

    def _asked_for(self, column: Tensor) -> Tensor:
        """[B] where the graph is, one after the other in memory: kernels see no strides."""
        return column.to(self.graph.device).long().contiguous()

    def _with_mass(self, batch: QueryBatch, asked: _Asked) -> QueryBatch:
        if self.context is None or not self.context.arrive_walk:
            return batch
        return replace(batch, candidate_mass=walk_mass(self.graph, asked.head, asked.hidden_edge))

    def over(self, graph: Graph) -> BatchBuilder:
        """The same over another graph of the same relations, with the same statistics: nothing is mined again."""
        other = copy(self)
        other.graph = graph
        other.__dict__.pop("_counts", None)
        other._device_builder = other._fast_builder()
        other.__dict__.pop("_counting_builder", None)
        return other

    def _build_on_device(
        self, builder: DeviceBuilder, asked: _Asked, dropout: EdgeDropout | None
    ) -> QueryBatch:
        context = self.context or ContextConfig(views=())
        batch = builder.build(
            asked.head, asked.relation, asked.hidden_edge, asked.left_out, dropout,
            gate=context.gate, arrive=context.arrive, features=context.arrive and context.arrive_features,
            own=self.relation_graph and asked.leaves_out,
        )  # fmt: skip
        return replace(batch, relation_precision=self._relation_precision) if self.relation_graph else batch

    def _dropped(self, dropout: EdgeDropout, asked: _Asked, own: HiddenEdges) -> HiddenEdges:
        """What is hidden anyway, and what is dropped."""
        relevance = None
        if dropout.by == "relevance":
            relevance = self._counts_for(asked).relevance()[:, :2]
        rule = dropout.rule(self.graph, len(asked.head), relevance, asked.left_out)
        return rule.hidden_edges(self.graph, own)

    def _propagation(self, asked: _Asked, hidden: HiddenEdges, own: HiddenEdges) -> Propagation:
        """Walks that use no hidden edge; relation sets lack what is hidden as `own`."""
        layered = self.context is not None and self.context.layered
        views = [] if self._control == "duplicate" else self._pooled(asked, hidden, own)
        walk = build_propagation(
            self.graph, asked.head, asked.relation, self.num_layers, hidden, views, layered
        )
        if self.context is None or self._control != "duplicate":
            return walk
        everything = torch.full_like(walk.layer_views[0], (1 << self.context.num_views) - 1)
        return replace(walk, layer_views=(everything,) * self.num_layers)

    def _pooled(self, asked: _Asked, hidden: HiddenEdges, own: HiddenEdges) -> list[tuple[EdgeSet, ...]]:
        """The hops of each view."""
        if self.context is None:
            return []
        hops = []
        for selector in self.selectors:
            answers = self._answers(selector, asked, own)
            if self._control == "complement":
                answers = complement_of(self.graph, answers, asked.relation)
            pooled = expand(
                self.graph, selector, asked.head, asked.relation, self.context.hops, hidden, answers=answers
            )
            hops.append(pooled.hops)
        return hops

    def _answers(self, selector: RelationSelector, asked: _Asked, own: HiddenEdges) -> BatchAnswers:
        """What may be walked; Algorithm 3 is mined without each query's own fact, families are as they are given."""
        if isinstance(selector, ContextNeighbors):
            return answers_left_out(self.graph, selector, self._counts, asked.relation, asked.left_out)
        return batch_answers(self.graph, selector, asked.head, asked.relation, own)

    def _with_relevance(self, walk: Propagation, asked: _Asked) -> QueryBatch:
        context = self.context or ContextConfig(views=())
        precision = self._relation_precision if self.relation_graph else None
        if not (context.gate or context.arrive or precision is not None):
            return QueryBatch(walk)
        counts = self._counts_for(asked)
        features, best = None, None
        if context.arrive and context.arrive_features:
            back = inverse(asked.relation, self.graph.num_relations)
            raw = raw_features(self.graph, self._counts, counts, back, asked.left_out)
            features = features_of(raw, self.graph, asked.hidden_edge, self._counts.num_entities)
            best = raw[:, 0]
        elif context.arrive:
            best = best_precision(self.graph, self._counts, counts, asked.left_out)
        return QueryBatch(
            walk,
            neighbor_relevance=counts.relevance()[:, :2].transpose(1, 2) if context.gate else None,
            candidate_relevance=best,
            candidate_features=features,
            relation_precision=precision,
            own_relevance=counts.relevance() if precision is not None and asked.leaves_out else None,
        )


@dataclass(frozen=True, eq=False)
class _Asked:
    """B queries, on the graph's device."""

    head: Tensor  # [B] int64
    relation: Tensor  # [B] int64
    hidden_edge: Tensor
    """[B] int64 what a query must not see; -1 for nothing."""
    left_out: Tensor
    """[B] int64 what the counts are corrected for; -1 for nothing."""
    leaves_out: bool
    """Whether any of them may be corrected."""


def _selector(view: ViewConfig, context: ContextConfig, statistics: Statistics) -> RelationSelector:
    if view.algorithm == "neighbors":
        return ContextNeighbors(
            statistics.counts, view.min_precision, view.min_recall, context.self_policy, context.shrinkage
        )
    measure: Literal["precision", "recall"] = "recall" if view.algorithm == "families-recall" else "precision"
    threshold = view.min_recall if measure == "recall" else view.min_precision
    return ContextFamilies(statistics.relations, statistics.sets, measure, threshold, view.sizes)
