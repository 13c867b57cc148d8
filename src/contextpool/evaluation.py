"""How a predictor ranks what is held out, beside what needs no training; and what there is to ask."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence, Sized
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from contextpool.context.counts import Statistics
from contextpool.errors import ConfigError, DataError
from contextpool.evaluate.metrics import RankTable
from contextpool.evaluate.ranks import Scorer, batch_size_for
from contextpool.evaluate.references import constant_scorer, frequency_scorer
from contextpool.evaluate.report import EvaluationReport, Ranking, evaluate_scorer
from contextpool.graph.graph import Graph
from contextpool.graph.mapped import MappedGraph
from contextpool.graph.relations import RelationVocabulary
from contextpool.models.walk import Walk
from contextpool.predict import Predictor
from contextpool.predict.inputs import GraphLike, as_graph
from contextpool.predict.workers import Doing, Workers
from contextpool.processes import current
from contextpool.provenance import facts_fingerprint
from contextpool.triples.catalog import load_dataset, whole_graph
from contextpool.triples.dataset import Dataset, Protocol
from contextpool.triples.reader import Tell
from contextpool.triples.sources.address import with_options
from contextpool.triples.store import Triples


def evaluate(
    predictor: Predictor,
    dataset: Dataset | GraphLike,
    queries: GraphLike | None = None,
    known: GraphLike = (),
    *,
    protocol: Protocol = "P1",
    batch_size: int = 64,
    seed: int = 0,
    workers: Workers | None = None,
) -> EvaluationReport:
    """How the predictor's answers rank among all entities; realistic ties, filtered.

    What is asked is the dataset's evaluation queries, or over a graph the triples `queries`, in both directions; facts
    of the graph, of `queries` and of `known` are no wrong answers then. Each of them is whatever holds a graph, such as
    a list of (head, relation, tail) or the path of a file. `workers` are processes of this machine or of Ray's that
    share the queries out; the ranks are the same.
    """
    data = evaluated_on(dataset, queries, known, any_relation=predictor.relations is None)
    job = Evaluating(predictor, data, protocol, batch_size=batch_size, names=("model",))
    return job.reports(workers, seed)["model"]


def evaluated_on(
    dataset: Dataset | GraphLike,
    queries: GraphLike | None,
    known: GraphLike = (),
    tell: Tell | None = None,
    any_relation: bool = False,
) -> Dataset:
    """What `evaluate` asks, as a dataset; `tell` hears what readers left out.

    With `any_relation` the inference graph may have relations that the training graph does not have.
    """
    if queries is not None:
        if isinstance(dataset, Dataset):
            raise ConfigError(
                f"{dataset.name}: a dataset has queries of its own; give a graph, or no queries."
            )
        graph = as_graph(dataset, tell=tell)
        if isinstance(graph, MappedGraph):
            raise ConfigError(
                "queries are ranked among all entities, for which a mapped graph is too large. Give the graph's file."
            )
        asked, others = (_triples(one, tell) for one in (queries, known))
        return Dataset.of_queries(graph.as_triples(), asked, others)
    if not isinstance(dataset, Dataset | str | Path):
        raise ConfigError(
            "a graph alone asks nothing: give queries, the triples to rank, or cp.split(graph)."
        )
    if isinstance(dataset, Dataset):
        return dataset
    return load_dataset(dataset, on_unknown="keep" if any_relation else "error", tell=tell)


def _triples(facts: GraphLike, tell: Tell | None) -> Triples:
    if isinstance(facts, Triples):
        return facts
    if isinstance(facts, Sized) and len(facts) == 0:
        return Triples.from_labels([])
    return as_graph(facts, tell=tell).as_triples()


def compare_with_references(
    predictor: Predictor,
    dataset: Dataset | str | Path,
    *,
    protocol: Protocol = "P1",
    facts: int = 0,
    memory_bytes: int = 10**9,
    seed: int = 0,
    workers: Workers | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, EvaluationReport]:
    """The model beside what needs no training: a constant, the most frequent answer, the walk with relevance.

    Asks so many of the `facts` held out, the same ones every time; 0 for all. `progress` hears how many questions of
    how many a scorer has answered.
    """
    data = evaluated_on(dataset, None, any_relation=predictor.relations is None)
    size = min(64, batch_size_for(len(data.inference_graph.entities), memory_bytes, 16))
    return Evaluating(predictor, data, protocol, facts, size).reports(workers, seed, progress)


SCORERS = ("model", "walk x relevance", "most frequent answer", "constant")
"""What is evaluated: the predictor, and what needs no training."""
BATCHES_A_PIECE = 4
"""What a worker ranks at a time, and what its end costs."""


class Evaluating:
    """Evaluation queries and who ranks their answers; a worker is sent this and ranks some batches of them."""

    def __init__(
        self,
        predictor: Predictor,
        data: Dataset,
        protocol: Protocol = "P1",
        facts: int = 0,
        batch_size: int = 64,
        names: Sequence[str] = SCORERS,
    ) -> None:
        """Of so many `facts` held out; 0 for all."""
        self._given = predictor, data, protocol, facts, batch_size, tuple(names)
        self.predictor, self.data, self.names = predictor, data, names
        queries = data.evaluation_queries(protocol)
        queries = queries.sample(facts) if facts else queries
        self.ranking = Ranking.of(queries, data.evaluation_filter, batch_size)

    def __reduce__(self) -> tuple[Any, ...]:
        return Evaluating, self._given

    @cached_property
    def _scorers(self) -> dict[str, Scorer]:
        graph = Graph.from_triples(self.data.inference_graph).to(self.predictor.device)
        make: dict[str, Callable[[], Scorer]] = {
            "model": lambda: _scorer_of(self.predictor, self.data),
            "walk x relevance": lambda: _scorer_of(
                training_free(self.data, device=self.predictor.device), self.data
            ),
            "most frequent answer": lambda: frequency_scorer(graph),
            "constant": lambda: constant_scorer(graph.num_entities),
        }
        return {name: make[name]() for name in self.names}

    def work(self, piece: tuple[str, int, int]) -> bytes:
        """A scorer's ranks in the batches of numbers low to high: [4, ranks] float64, the first row their places."""
        name, low, high = piece
        table = self.ranking.table(self._scorers[name], range(low, high), self.predictor.device)
        places = np.flatnonzero(table.candidates)
        columns = table.optimistic, table.pessimistic, table.candidates
        return np.stack([places, *(column[places] for column in columns)]).astype(np.float64).tobytes()

    def reports(
        self,
        workers: Workers | None = None,
        seed: int = 0,
        progress: Callable[[int, int], None] | None = None,
    ) -> dict[str, EvaluationReport]:
        """Of each scorer. Without workers by this process, and by those that it was joined with (`processes`)."""
        asked = self._scorers  # what cannot be asked is refused before anybody starts
        if workers is None:
            queries, known = self.ranking.queries, self.ranking.known
            options: dict[str, Any] = {"device": self.predictor.device, "seed": seed, "progress": progress}
            options |= {"batch_size": self.ranking.batch_size, "processes": current()}
            return {
                name: evaluate_scorer(scorer, queries, known, **options) for name, scorer in asked.items()
            }
        with workers.for_device(self.predictor.device).at(self) as doing:
            return {name: self._shared_out(name, doing, seed, progress) for name in asked}

    def _shared_out(
        self, name: str, doing: Doing, seed: int, progress: Callable[[int, int], None] | None
    ) -> EvaluationReport:
        began, size = time.perf_counter(), len(self.ranking.asked)
        table = RankTable(np.zeros(size), np.zeros(size), np.zeros(size, dtype=np.int64))
        lows = range(0, self.ranking.num_batches, BATCHES_A_PIECE)
        ends = [(low, min(low + BATCHES_A_PIECE, self.ranking.num_batches)) for low in lows]
        for _, found in doing(enumerate((name, *end) for end in ends), len(ends)):
            place, *columns = np.frombuffer(found).reshape(4, -1)
            for whole, part in zip(
                (table.optimistic, table.pessimistic, table.candidates), columns, strict=True
            ):
                whole[place.astype(np.int64)] = part
            if progress is not None:
                progress(int(np.count_nonzero(table.candidates)), size)
        return EvaluationReport(self.ranking.queries, table, seed, time.perf_counter() - began)


def training_free(dataset: Dataset, *, device: torch.device | str = "cpu") -> Predictor:
    """The walk with candidate relevance; all it takes from the training graph is counts."""
    graph = Graph.from_triples(dataset.training_graph)
    model = Walk(graph.num_relations, None, Walk.own_context)
    return Predictor(model, graph.relation_vocabulary, Walk.own_context, Statistics.of(graph), device=device)


def _scorer_of(predictor: Predictor, data: Dataset) -> Scorer:
    """Over the inference graph, for relations as the dataset numbers them: it may have fewer than the model."""
    if was_fitted_on(predictor, data):
        raise DataError(
            f"{data.name}: the model was fitted on all of these facts after it was evaluated, and would be asked what "
            "it has learned by heart. The figures from before are in its metrics.json and in Predictor.evaluation; to "
            "evaluate it again, train it without the refit (--no-refit, refit=False)."
        )
    graph, _ = predictor.prepared(Graph.from_triples(data.inference_graph))
    scorer, labels = predictor.scorer(graph), RelationVocabulary.of(data.relations).directed
    relations = predictor.relations_for(graph)
    model_id = torch.tensor([relations.id_of(label) for label in labels], device=predictor.device)
    return lambda query_head, query_relation: scorer(query_head, model_id[query_relation])


def was_fitted_on(predictor: Predictor, data: Dataset) -> bool:
    """Whether a refit has shown the predictor every fact of the dataset, what is held out included."""
    if predictor.fitted_on is None or data.whole is None:
        return False
    return predictor.fitted_on == facts_fingerprint(data.whole)


def split_alike(
    config: Mapping[str, Any], given: str, tell: Tell | None = None, any_relation: bool = False
) -> Dataset:
    """A dataset that the caller gives; one graph is split as it was for the run, unless the address says how."""
    split = config.get("split")
    if isinstance(split, Mapping) and whole_graph(given) is not None:
        by, seed = split.get("split"), split.get("seed")
        if by in ("facts", "entities") and type(seed) is int:  # a run folder may come from anybody
            given = with_options(given, {"split": by, "seed": seed})
    return evaluated_on(given, None, tell=tell, any_relation=any_relation)
