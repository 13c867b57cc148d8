"""Answers from what a capped walk reaches: the cost of a question is that of its frontier, not of the graph.

A question's neighborhood (`pool.capped_walk`) becomes a small graph of its own that knows the degrees and relation sets
its entities have in the whole one, and the model answers there as it would on any other. Candidates are the entities
that were reached. With no cap, these score as they do on the whole graph.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from contextpool.context.counts import Cooccurrence, Statistics, count_cooccurrence
from contextpool.context.more import MoreAnswers
from contextpool.context.parallel import PairNumbers, ParallelCounts, Parallels
from contextpool.errors import ConfigError, DataError, setting, shortened
from contextpool.evaluate.calibration import FEWEST_QUERIES, Calibration, fit_on_answers
from contextpool.evaluate.ranks import ScoredAnswers
from contextpool.explain.explainer import PartKnown
from contextpool.graph.graph import Graph
from contextpool.graph.mapped import MappedGraph
from contextpool.graph.relation_sets import RelationSets, num_words
from contextpool.graph.relations import DirectedQueries, RelationVocabulary
from contextpool.models.nbfnet import mean_log_degree, set_mean_log_degree
from contextpool.pool.batch import BatchBuilder, SayPairs
from contextpool.pool.candidates import STEPS
from contextpool.pool.frontier import Choose, Floats, Neighborhood, arrival_relevance, best_first, capped_walk
from contextpool.pool.incidence import Whole, set_whole
from contextpool.predict.asking import Choice, Scored
from contextpool.triples.labels import Vocabulary
from contextpool.triples.store import Triples

if TYPE_CHECKING:
    from contextpool.predict.predictor import Predictor

Integers = npt.NDArray[np.int64]
DEFAULT_CAP = 10_000
"""Edges a hop on a mapped graph, unless said."""
REACH_FACTS = 20
"""So many facts that were reached count beside those of a fit, when it is told how many a walk reaches."""


class SelectedLabels(Sequence[str]):
    """Some labels of a long list, read when they are asked for."""

    def __init__(self, labels: Sequence[str], places: Integers) -> None:
        self._labels, self._places = labels, places

    def __len__(self) -> int:
        return len(self._places)

    def __getitem__(self, place: int) -> str:  # type: ignore[override]
        return self._labels[int(self._places[place])]


@dataclass(frozen=True, eq=False)
class Nearby:
    """A question's neighborhood as a graph."""

    graph: Graph
    """Over the entities that were reached, in the order of their labels, and the model's relations."""
    found: Neighborhood
    head: int
    """Place in `graph`."""
    relation: int
    builder: BatchBuilder
    """Over `graph`, with the counts of the whole graph, but for a fact that was hidden from the walk."""

    def place_of(self, entity: int) -> int:
        """The place in `graph` of an entity of the whole graph; -1 where it was not reached."""
        place = int(np.searchsorted(self.found.entities, entity))
        reached = place < len(self.found.entities) and self.found.entities[place] == entity
        return place if reached else -1


class Frontier:
    """One graph, mapped or not, and a model that asks it."""

    choose: Choose = staticmethod(best_first)
    """Which edges a hop keeps; the benchmark compares others."""

    def __init__(self, predictor: Predictor, graph: Graph, cap: int) -> None:
        """`graph` is prepared; a mapped one keeps its own numbers of relations. A cap of 0 is for all edges."""
        if cap < 0:
            raise ConfigError(f"{setting('cap')} is {cap}; a hop keeps at least one edge, and 0 is for all.")
        self.predictor, self.cap = predictor, cap
        self.graph = graph.to("cpu")
        self.relations = predictor.relations_for(graph)
        self.model_relation = np.array(  # [2R of the graph] the model's number, -1 where it has none
            [self.relations.index.get(label, -1) for label in graph.relation_vocabulary.directed],
            dtype=np.int64,
        )
        numbers = {label: number for number, label in enumerate(graph.relation_vocabulary.directed)}
        self.graph_relation = torch.tensor(  # [2R of the model] the graph's number, -1 where it has none
            [numbers.get(label, -1) for label in self.relations.directed], dtype=torch.int64
        )
        self.statistics = statistics = self._new_statistics()
        self.counts = count_cooccurrence(self.graph) if statistics is None else statistics.counts
        if statistics is None and isinstance(graph, MappedGraph):
            self.counts = _counts_of(graph, self.relations, self.model_relation)
        self._builder = self._new_builder(statistics)
        self.more = MoreAnswers(self.graph, self.counts, self.model_relation)
        self._relevance = lru_cache(maxsize=256)(lambda relation: self._relevance_by(self.counts, relation))

    @property
    def num_hops(self) -> int:
        """As far as the model or the walk whose mass it reads."""
        context, layers = self.predictor.context, self.predictor.model.num_layers
        return max(layers, STEPS) if context is not None and context.arrive_walk else layers

    @property
    def _counts_graph(self) -> bool:
        """Whether the counts are those of the graph, too, and not of a training graph alone."""
        return self.predictor.statistics is None or self.predictor.use_statistics == "sum"

    def _new_statistics(self) -> Statistics | None:
        """The statistics the model pools with; for a mapped graph only counts, which is all that Algorithm 3 reads."""
        own = self.predictor.statistics
        own = None if own is None else own.over(self.relations)
        if not isinstance(self.graph, MappedGraph):
            return self.predictor.statistics_for(self.graph)
        if own is None and self.predictor.relations is not None:
            return None
        context = self.predictor.context
        if context is not None and any(view.algorithm != "neighbors" for view in context.views):
            raise ConfigError(
                "this model walks by Algorithm 1, which needs every entity's relation set; a mapped graph stores "
                "counts alone. Use a model with Algorithm 3, or a graph in memory."
            )
        if own is not None and self.predictor.use_statistics == "train":
            return own
        here = _only(_counts_of(self.graph, self.relations, self.model_relation))
        return here if own is None else own + here

    def _new_builder(self, statistics: Statistics | None) -> BatchBuilder:
        """Mines what has to be mined, once; `over` takes it to each neighborhood."""
        nothing = Graph.from_triples(
            Triples(
                Vocabulary(()), Vocabulary(self.relations.forward, "relation"), np.empty((0, 3), np.int32)
            )
        )
        predictor = self.predictor
        return predictor.model.builder(nothing.to(predictor.device), predictor.context, statistics)

    def _relevance_by(self, counts: Cooccurrence, relation: int) -> Floats:
        """[2R of the graph] relevance for a query relation of the model; -1 for those it does not know."""
        relevance = arrival_relevance(counts, relation)
        return np.where(self.model_relation >= 0, relevance[self.model_relation.clip(min=0)], -1.0)

    def nearby(self, entity: int, relation: int, hidden: int = -1) -> Nearby:
        """The neighborhood of (entity, relation, ?); the entity by the graph's number, the relation by the model's.

        The fact of the edge `hidden` is as if it had never been in the graph.
        """
        relevance, builder = self._relevance(relation), self._builder
        if hidden >= 0 and self._counts_graph:
            counts = self._counts_without(hidden)
            relevance = self._relevance_by(counts, relation)
            if self.statistics is not None:
                builder = self._new_builder(replace(self.statistics, counts=counts))
        found = capped_walk(
            self.graph, entity, relevance, self.num_hops, self.cap or None, hidden=hidden, choose=self.choose
        )
        local, device = self._local(found), self.predictor.device
        if self.predictor.relations is None:
            set_mean_log_degree(local, mean_log_degree(self.graph))
        pairs = found.pair_entity, self.model_relation[found.pair_relation], found.pair_size
        columns = (*pairs, found.degree)
        set_whole(local, Whole(*(torch.from_numpy(column).to(device) for column in columns)))
        place = int(np.searchsorted(found.entities, entity))
        return Nearby(local, found, place, relation, builder.over(local, self._pair_numbers(found, hidden)))

    @cached_property
    def _parallels(self) -> Parallels:
        return Parallels(self.graph, ParallelCounts.of(self.graph))

    def _pair_numbers(self, found: Neighborhood, hidden: int) -> SayPairs:
        """What pairs of the whole graph say, without the fact of the edge `hidden`, to questions of a neighborhood that
        has never held it; relations by the model's numbers. Of those that the graph lacks no pair says anything.
        """

        def numbers(head: Tensor, relation: Tensor, _: Tensor | None) -> PairNumbers:
            entity, asked = torch.from_numpy(found.entities)[head.cpu()], self.graph_relation[relation.cpu()]
            edge = torch.full_like(entity, hidden)
            by_graph, num_facts = self._parallels.numbers(entity, asked.clamp(min=0), edge)
            num_facts[asked < 0] = 0
            by_graph[asked < 0, :2] = 0  # precision and recall for a relation without facts
            by_model = by_graph[:, :, self.graph_relation.clamp(min=0)]
            by_model[:, :, self.graph_relation < 0] = 0
            return PairNumbers(by_model.to(self.predictor.device), num_facts.to(self.predictor.device))

        return numbers

    def _local(self, found: Neighborhood) -> Graph:
        """The kept facts as a graph. Edges, entities and relations keep their order, so nothing is sorted."""
        whole, edges, entities = self.graph, found.edges, found.entities
        head, tail = (
            np.searchsorted(entities, column.numpy()[edges]) for column in (whole.edge_head, whole.edge_tail)
        )
        relation = self.model_relation[whole.edge_relation.numpy()[edges]]
        twin = np.searchsorted(edges, whole.edge_inverse.numpy()[edges])
        start = np.searchsorted(head, np.arange(len(entities) + 1))
        columns = (torch.from_numpy(column).int() for column in (head, relation, tail, twin))
        labels = Vocabulary(SelectedLabels(whole.entities, entities))  # type: ignore[arg-type]
        return Graph(labels, self.relations, torch.from_numpy(start), *columns).to(self.predictor.device)

    def _counts_without(self, edge: int) -> Cooccurrence:
        """The counts if the fact of this edge were not in the graph: only what its two ends have can change."""
        graph, size = self.graph, self.relations.num_directed
        both = self.counts.both.copy()
        ends = {int(graph.edge_head[one]) for one in (edge, int(graph.edge_inverse[edge]))}
        for entity in ends:
            row = slice(int(graph.row_start[entity]), int(graph.row_start[entity + 1]))
            kinds = self.model_relation[graph.edge_relation[row].numpy()]
            count = np.bincount(kinds[kinds >= 0], minlength=size)
            had = count > 0
            for one in {edge, int(graph.edge_inverse[edge])}:
                if int(graph.edge_head[one]) == entity:
                    count[self.model_relation[int(graph.edge_relation[one])]] -= 1
            both[np.ix_(had, had)] -= 1
            both[np.ix_(count > 0, count > 0)] += 1
        return replace(self.counts, both=both)

    def scores(self, near: Nearby) -> Tensor:
        """[1, n] of the reached entities."""
        asked = (torch.tensor([one], device=self.predictor.device) for one in (near.head, near.relation))
        with torch.no_grad():
            scores: Tensor = self.predictor.model(near.builder.build(*asked))
        return scores

    def scored(self, entity: int, relation: int, choice: Choice) -> tuple[Scored, Tensor | None]:
        """The scored candidates of a walk from (entity, relation, ?), and [n] which may be answers; None for all."""
        near, device = self.nearby(entity, relation), self.predictor.device
        known = torch.from_numpy(self.known(near))[None].to(device)
        allowed = self._allowed(near, choice)
        more = torch.tensor([self.more.chance(entity, relation)], dtype=torch.float64, device=device)
        scored = Scored(near.graph, self.scores(near), known, more)
        return scored, None if allowed is None else torch.from_numpy(allowed).to(device)

    def held(self, entity: int, relation: int) -> Tensor:
        """Sorted ids of what the whole graph holds as answers; the relation by the model's number."""
        begin, end = int(self.graph.row_start[entity]), int(self.graph.row_start[entity + 1])
        places = np.flatnonzero(self.model_relation == relation)
        if len(places) == 0:
            return self.graph.edge_tail[begin:begin]
        row = self.graph.edge_relation[begin:end].numpy()
        low, high = np.searchsorted(row, [places[0], places[0] + 1])
        return self.graph.edge_tail[begin + int(low) : begin + int(high)]

    def known(self, near: Nearby) -> npt.NDArray[np.bool_]:
        """[n] what the whole graph holds as answers, kept by the walk or not."""
        reached = near.found.entities
        tails = self.held(int(reached[near.head]), near.relation).numpy()  # both are sorted
        return np.searchsorted(tails, reached, "right") > np.searchsorted(tails, reached, "left")

    def _allowed(self, near: Nearby, choice: Choice) -> npt.NDArray[np.bool_] | None:
        reached = near.found.entities
        masks = [] if choice.candidates is None else [np.isin(reached, choice.candidates)]
        for relation in choice.having:
            masks.append(np.zeros(len(reached), dtype=bool))
            has = self.model_relation[near.found.pair_relation] == relation
            masks[-1][near.found.pair_entity[has]] = True
        return np.logical_and.reduce(masks) if masks else None

    def explained(
        self, ids: tuple[int, int, int], asked: Literal["tail", "head"]
    ) -> tuple[Nearby, tuple[int, int, int], PartKnown, float]:
        """For a fact (head, relation, tail): the neighborhood of its question, which does not have it, the ids there,
        what is known of the answer, and the chance of one more answer.
        """
        head, relation, tail = ids
        start, toward, answer = ids if asked == "tail" else (tail, self.relations.inverse(relation), head)
        places = np.flatnonzero(self.model_relation == toward)
        edge = self.graph.find_edge(start, int(places[0]), answer) if len(places) else None
        near = self.nearby(start, toward, -1 if edge is None else edge)
        if near.builder.statistics is None:  # a model without context reads none; the explanation does
            near.builder.statistics = _only(self.counts)
        place = near.place_of(answer)
        if place < 0:
            raise DataError(
                f"{shortened(self.graph.entities[answer])} is not among the {len(near.found.entities):,} entities "
                f"that a walk of {self.cap:,} edges a hop reaches from {shortened(self.graph.entities[start])}, so "
                f"there is nothing to explain it by. Try a larger {setting('cap')}."
            )
        known = self.known(near)
        known[place] = False
        candidate = torch.from_numpy(~known).to(self.predictor.device)
        found = (near.head, relation, place) if asked == "tail" else (place, relation, near.head)
        more = self.more.chance(start, toward, edge is not None)
        return near, found, PartKnown(candidate, edge is not None), more

    # calibration

    def fit(self, facts: int) -> Calibration | None:
        """For a model that has none: on facts of the graph, asked both ways by walks that do not see them.

        None on too few. A probability is also that of being reached: the curve ends at the share of the facts that
        their walks reached.
        """
        edges = self.graph.num_edges
        drawn = np.random.default_rng(0).choice(edges, min(facts, edges), replace=False)
        inverse = self.graph.edge_inverse.numpy()
        drawn = np.unique(np.minimum(drawn, inverse[drawn]))  # some may have been drawn both ways
        drawn = np.concatenate([drawn, inverse[drawn].astype(np.int64)])
        if len(drawn) < FEWEST_QUERIES:
            return None
        asked = list(self._hidden_facts(drawn))
        if not asked:
            return None
        queries, directed = self._described(drawn)
        fit = fit_on_answers(iter(asked), queries, directed, len(drawn), len(drawn) // 2, pulled=True)
        if fit.calibration is None:
            return None
        reach = (len(asked) + REACH_FACTS) / (len(drawn) + REACH_FACTS)
        values = tuple(value * reach for value in fit.calibration.values)
        return replace(fit.calibration, values=values)

    def _hidden_facts(self, edges: Integers) -> Iterator[ScoredAnswers]:
        """The questions that these edges [Q] answer, with the scores of what was reached; where the answer was."""
        graph = self.graph
        for number, edge in enumerate(edges.tolist()):
            entity, answer = int(graph.edge_head[edge]), int(graph.edge_tail[edge])
            near = self.nearby(entity, int(self.model_relation[int(graph.edge_relation[edge])]), edge)
            place = near.place_of(answer)
            if place < 0:
                continue
            known = self.known(near)
            known[place] = False
            held = torch.from_numpy(np.flatnonzero(known)).to(self.predictor.device)
            at = np.array([number])
            own = torch.tensor([place], device=held.device)
            yield ScoredAnswers(at, at, self.scores(near), own, torch.zeros_like(held), held)

    def _described(self, edges: Integers) -> tuple[Triples, DirectedQueries]:
        """The facts of these edges, which name a question in errors."""
        graph = self.graph
        head, relation, tail = (
            column.numpy()[edges].astype(np.int64)
            for column in (graph.edge_head, graph.edge_relation, graph.edge_tail)
        )
        relations = Vocabulary(graph.relations, "relation")
        rows = np.stack([head, relation % graph.num_relations, tail], axis=1).astype(np.int32)
        return Triples(graph.entity_vocabulary, relations, rows), DirectedQueries(head, relation, tail)


def _counts_of(graph: MappedGraph, relations: RelationVocabulary, model_relation: Integers) -> Cooccurrence:
    """The stored counts by the model's numbers."""
    both = np.zeros((relations.num_directed, relations.num_directed), dtype=np.int64)
    known = np.flatnonzero(model_relation >= 0)
    both[np.ix_(model_relation[known], model_relation[known])] = graph.both[np.ix_(known, known)]
    return Cooccurrence(relations, both, graph.num_entities)


def _only(counts: Cooccurrence) -> Statistics:
    """Counts without relation sets, which Algorithm 1 alone reads."""
    size = counts.relations.num_directed
    nobody = RelationSets(
        size,
        np.empty((0, num_words(size)), dtype=np.uint64),
        np.empty(0, dtype=np.int64),
        np.empty(0, dtype=np.int32),
    )
    return Statistics(counts, nobody)
