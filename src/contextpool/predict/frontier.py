"""Answers from what a capped walk reaches: the cost of a question is that of its frontier, not of the graph.

A question's neighborhood (`pool.capped`) becomes a small graph of its own, and the model answers there as it would on
any other. Candidates are the entities that were reached; a probability is that among them. With no cap, reached
candidates score as they do on the whole graph.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from contextpool.context.counts import Cooccurrence, Statistics, count_cooccurrence
from contextpool.context.more import MoreAnswers
from contextpool.errors import ConfigError, setting
from contextpool.graph.graph import Graph
from contextpool.graph.mapped import MappedGraph
from contextpool.graph.relation_sets import RelationSets, num_words
from contextpool.graph.relations import RelationVocabulary
from contextpool.models.nbfnet import mean_log_degree, set_mean_log_degree
from contextpool.pool.batch import BatchBuilder
from contextpool.pool.frontier import Neighborhood, capped_walk, relation_groups, relation_order
from contextpool.pool.incidence import set_candidate_pairs
from contextpool.predict.asking import Choice, Scored
from contextpool.triples.labels import Vocabulary
from contextpool.triples.store import Triples

if TYPE_CHECKING:
    from contextpool.predict.predictor import Predictor

Integers = npt.NDArray[np.int64]
DEFAULT_CAP = 10_000
"""Edges a hop on a mapped graph, unless said."""


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
    pairs: tuple[Integers, Integers]
    """Place of the entity in `graph` and relation of all pairs (e, r) with r in NR_e, in the whole graph."""


class Frontier:
    """One graph, mapped or not, and a model that asks it."""

    def __init__(self, predictor: Predictor, graph: Graph, cap: int | None) -> None:
        """`graph` is prepared; a mapped one keeps its own numbers of relations."""
        if cap is not None and cap < 1:
            raise ConfigError(
                f"{setting('cap')} is {cap}; a hop keeps at least one edge. Leave it out for all."
            )
        self.predictor, self.cap = predictor, cap
        self.graph = graph.to("cpu")
        self.relations = predictor.relations_for(graph)
        self.model_relation = np.array(  # [2R of the graph] the model's number, -1 where it has none
            [self.relations.index.get(label, -1) for label in graph.relation_vocabulary.directed],
            dtype=np.int64,
        )
        statistics = self._statistics()
        self.counts = count_cooccurrence(self.graph) if statistics is None else statistics.counts
        if statistics is None and isinstance(graph, MappedGraph):
            self.counts = _counts_of(graph, self.relations, self.model_relation)
        self._builder = self._new_builder(statistics)
        self.more = MoreAnswers(self.graph, self.counts, self.model_relation)
        self._order = lru_cache(maxsize=256)(self._new_order)

    def _statistics(self) -> Statistics | None:
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
        counts = _counts_of(self.graph, self.relations, self.model_relation)
        width = num_words(counts.relations.num_directed)
        nobody = RelationSets(
            counts.relations.num_directed,
            np.empty((0, width), dtype=np.uint64),
            np.empty(0, dtype=np.int64),
            np.empty(0, dtype=np.int32),
        )
        here = Statistics(counts, nobody)
        return here if own is None else own + here

    def _new_builder(self, statistics: Statistics | None) -> BatchBuilder:
        """Mines what has to be mined, once; `over` takes it to each neighborhood."""
        predictor, context = self.predictor, self.predictor.context
        if context is not None and (context.arrive_walk or (context.arrive and context.arrive_features)):
            read = "arrive_walk" if context.arrive_walk else "arrive_features"
            raise ConfigError(
                f"this model reads what is known of candidates over the whole graph (context.{read}), which a walk "
                "with a cap, as on a mapped graph, does not see. Ask the graph's own file without "
                f"{setting('cap')}, or train with a context in which arrive_walk and arrive_features are false."
            )
        nothing = _graph_of(Vocabulary(()), self.relations, np.empty((0, 3), dtype=np.int64))
        return predictor.model.builder(nothing.to(predictor.device), context, statistics)

    def _new_order(self, relation: int) -> Integers:
        """[2R of the graph] places of relations for a query relation of the model; -1 for those it does not know."""
        place = relation_order(self.counts, relation)
        return np.where(self.model_relation >= 0, place[self.model_relation.clip(min=0)], -1)

    def nearby(self, entity: int, relation: int) -> Nearby:
        """The neighborhood of (entity, relation, ?); the entity by the graph's number, the relation by the model's."""
        order = self._order(relation)
        found = capped_walk(self.graph, entity, order, self.predictor.model.num_layers, self.cap)
        facts = found.facts.copy()
        facts[:, 0], facts[:, 2] = (np.searchsorted(found.entities, facts[:, side]) for side in (0, 2))
        facts[:, 1] = self.model_relation[facts[:, 1]]
        labels = Vocabulary(SelectedLabels(self.graph.entities, found.entities))  # type: ignore[arg-type]
        local = _graph_of(labels, self.relations, facts).to(self.predictor.device)
        if self.predictor.relations is None:
            set_mean_log_degree(local, mean_log_degree(self.graph))
        head, directed = relation_groups(self.graph, found.entities, order)
        pairs = np.searchsorted(found.entities, head), self.model_relation[directed]
        set_candidate_pairs(local, *(torch.from_numpy(column) for column in pairs))
        return Nearby(local, found, pairs)

    def scores(self, near: Nearby, entity: int, relation: int) -> Tensor:
        """[1, n] of the reached entities."""
        place = int(np.searchsorted(near.found.entities, entity))
        asked = (torch.tensor([one], device=self.predictor.device) for one in (place, relation))
        with torch.no_grad():
            scores: Tensor = self.predictor.model(self._builder.over(near.graph).build(*asked))
        return scores

    def scored(self, entity: int, relation: int, choice: Choice) -> tuple[Scored, Tensor | None]:
        """The scored candidates of a walk from (entity, relation, ?), and [n] which may be answers; None for all."""
        near, device = self.nearby(entity, relation), self.predictor.device
        known = torch.from_numpy(self._known(near, entity, relation))[None].to(device)
        allowed = self._allowed(near, choice)
        more = torch.tensor([self.more.chance(entity, relation)], dtype=torch.float64, device=device)
        scored = Scored(near.graph, self.scores(near, entity, relation), known, more)
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

    def _known(self, near: Nearby, entity: int, relation: int) -> npt.NDArray[np.bool_]:
        """[n] what the whole graph holds as answers, kept by the walk or not."""
        tails = self.held(entity, relation).numpy()
        reached = near.found.entities  # both are sorted
        return np.searchsorted(tails, reached, "right") > np.searchsorted(tails, reached, "left")

    def _allowed(self, near: Nearby, choice: Choice) -> npt.NDArray[np.bool_] | None:
        reached = near.found.entities
        masks = [] if choice.candidates is None else [np.isin(reached, choice.candidates)]
        for relation in choice.having:
            masks.append(np.zeros(len(reached), dtype=bool))
            masks[-1][near.pairs[0][near.pairs[1] == relation]] = True
        return np.logical_and.reduce(masks) if masks else None


def _counts_of(graph: MappedGraph, relations: RelationVocabulary, model_relation: Integers) -> Cooccurrence:
    """The stored counts by the model's numbers."""
    both = np.zeros((relations.num_directed, relations.num_directed), dtype=np.int64)
    known = np.flatnonzero(model_relation >= 0)
    both[np.ix_(model_relation[known], model_relation[known])] = graph.both[np.ix_(known, known)]
    return Cooccurrence(relations, both, graph.num_entities)


def _graph_of(entities: Vocabulary, relations: RelationVocabulary, facts: Integers) -> Graph:
    return Graph.from_triples(
        Triples(entities, Vocabulary(relations.forward, "relation"), facts.astype(np.int32))
    )
