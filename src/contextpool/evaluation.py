"""How a predictor ranks what is held out, beside what needs no training; and what there is to ask."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sized
from pathlib import Path
from typing import Any

import torch

from contextpool.context.counts import Statistics
from contextpool.errors import ConfigError, DataError
from contextpool.evaluate.ranks import Scorer, batch_size_for
from contextpool.evaluate.references import constant_scorer, frequency_scorer
from contextpool.evaluate.report import EvaluationReport, evaluate_scorer
from contextpool.graph.graph import Graph
from contextpool.graph.mapped import MappedGraph
from contextpool.graph.relations import RelationVocabulary
from contextpool.models.walk import Walk
from contextpool.predict import Predictor
from contextpool.predict.inputs import GraphLike, as_graph
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
) -> EvaluationReport:
    """How the predictor's answers rank among all entities; realistic ties, filtered.

    What is asked is the dataset's evaluation queries, or over a graph the triples `queries`, in both directions; facts
    of the graph, of `queries` and of `known` are no wrong answers then. Each of them is whatever holds a graph, such as
    a list of (head, relation, tail) or the path of a file.
    """
    data = evaluated_on(dataset, queries, known, any_relation=predictor.relations is None)
    scorer, device = _scorer_of(predictor, data), predictor.device
    return _evaluated(scorer, data, protocol, batch_size=batch_size, device=device, seed=seed)


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
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, EvaluationReport]:
    """The model beside what needs no training: a constant, the most frequent answer, the walk with relevance.

    Asks so many of the `facts` held out, the same ones every time; 0 for all. `progress` hears how many questions of
    how many a scorer has answered.
    """
    data = evaluated_on(dataset, None, any_relation=predictor.relations is None)
    graph = Graph.from_triples(data.inference_graph).to(predictor.device)
    size = min(64, batch_size_for(graph.num_entities, memory_bytes, 16))
    scorers = {
        "model": _scorer_of(predictor, data),
        "walk x relevance": _scorer_of(training_free(data, device=predictor.device), data),
        "most frequent answer": frequency_scorer(graph),
        "constant": constant_scorer(graph.num_entities),
    }
    options: dict[str, Any] = {"batch_size": size, "device": predictor.device, "seed": seed}
    return {
        name: _evaluated(scorer, data, protocol, facts, progress=progress, **options)
        for name, scorer in scorers.items()
    }


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


def _evaluated(
    scorer: Scorer, data: Dataset, protocol: Protocol, facts: int = 0, **options: Any
) -> EvaluationReport:
    queries, known = data.evaluation_queries(protocol), data.evaluation_filter
    queries = queries.sample(facts) if facts else queries
    return evaluate_scorer(scorer, queries, known, processes=current(), **options)


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
