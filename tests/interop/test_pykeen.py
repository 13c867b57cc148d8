"""PyKEEN's factories and datasets to ours and back; its evaluator and ours agree on what was carried over."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pykeen", reason="the pykeen extra is not installed")
from pykeen.datasets import EagerDataset, Nations
from pykeen.datasets.inductive import EagerInductiveDataset
from pykeen.evaluation import RankBasedEvaluator
from pykeen.triples import CoreTriplesFactory, TriplesFactory

import contextpool as cp
from contextpool.errors import DataError
from contextpool.evaluate.metrics import HITS_AT
from contextpool.evaluate.report import EvaluationReport, evaluate_scorer
from contextpool.interop.pykeen import from_pykeen, metrics_to_pykeen, results_to_pykeen, to_pykeen
from contextpool.triples.store import Triples
from learning_worlds import family_dataset
from support import random_triples


@given(seed=st.integers(0, 10_000), inverses=st.booleans())
def test_factories_there_and_back(seed: int, inverses: bool) -> None:
    facts = random_triples(seed)
    ours = Triples.from_labels(facts)
    factory = to_pykeen(ours, create_inverse_triples=inverses)
    assert {tuple(row) for row in factory.triples.tolist()} == set(facts)
    assert factory.num_relations == (2 if inverses else 1) * len(ours.relations)
    back = from_pykeen(factory)
    assert back == ours
    assert np.array_equal(back.ids, ours.ids)
    assert (back.entities, back.relations) == (ours.entities, ours.relations)


@given(seed=st.integers(0, 10_000))
def test_any_numbering_of_pykeens_gives_the_same_triples(seed: int) -> None:
    facts = random_triples(seed)
    rng = random.Random(seed)
    names = sorted({label for head, _, tail in facts for label in (head, tail)} | {"lonely"})
    kinds = sorted({relation for _, relation, _ in facts} | {"unused"})
    entity_to_id = dict(zip(rng.sample(names, len(names)), range(len(names)), strict=True))
    relation_to_id = dict(zip(rng.sample(kinds, len(kinds)), range(len(kinds)), strict=True))
    rows = [(entity_to_id[h], relation_to_id[r], entity_to_id[t]) for h, r, t in facts]
    found = from_pykeen(TriplesFactory(torch.tensor(rows), entity_to_id, relation_to_id))
    assert set(found) == set(facts)
    assert (found.entities.labels, found.relations.labels) == (tuple(names), tuple(kinds))


def test_a_factory_without_labels_gets_numbers() -> None:
    found = from_pykeen(CoreTriplesFactory.create(torch.tensor([[0, 1, 11], [11, 0, 2]])))
    assert list(found) == [("e00", "r1", "e11"), ("e11", "r0", "e02")]


def test_a_graph_becomes_a_factory_with_the_same_numbers() -> None:
    graph = cp.Graph.from_triples([("b", "s", "a"), ("a", "r", "b")])
    factory = to_pykeen(graph)
    assert factory.mapped_triples.tolist() == [[0, 0, 1], [1, 1, 0]]
    assert factory.entity_to_id == {"a": 0, "b": 1}


def test_a_transductive_dataset_there_and_back() -> None:
    data = family_dataset()
    theirs = to_pykeen(data)
    assert isinstance(theirs, EagerDataset)
    back = from_pykeen(theirs, name="families")
    for part in ("training_graph", "validation_queries", "inference_test"):
        assert getattr(back, part) == getattr(data, part)
    assert not back.inductive
    assert back.name == "families"


def test_an_inductive_dataset_there_and_back() -> None:
    data = family_dataset(inductive=True, count=30)
    theirs = to_pykeen(data, create_inverse_triples=True)
    assert isinstance(theirs, EagerInductiveDataset)
    with pytest.raises(DataError, match="validation="):
        from_pykeen(theirs)
    back = from_pykeen(theirs, validation=to_pykeen(data.validation_queries))
    for part in (
        "training_graph",
        "validation_queries",
        "inference_graph",
        "inference_valid",
        "inference_test",
    ):
        assert getattr(back, part) == getattr(data, part)
    assert back.inductive


def test_what_cannot_be_carried_over_is_refused_by_name() -> None:
    facts = to_pykeen(Triples.from_labels([("a", "r", "b")]))
    with pytest.raises(DataError, match="no validation triples"):
        from_pykeen(EagerDataset(facts, facts))
    with pytest.raises(DataError, match="names the inverse"):
        from_pykeen(TriplesFactory(torch.tensor([[0, 0, 1]]), {"a": 0, "b": 1}, {"r^-1": 0}))
    with pytest.raises(DataError, match="from_pykeen got a dict"):
        from_pykeen({})  # type: ignore[call-overload]


@pytest.fixture(scope="module")
def nations() -> tuple[EvaluationReport, Any]:
    """PyKEEN's own dataset, scored by one random table, through both evaluators: different numbers, one answer."""
    theirs = Nations()
    ours = from_pykeen(theirs)
    factory = theirs.training
    generator = torch.Generator().manual_seed(3)
    table = torch.randint(
        0, 6, (factory.num_entities, 2 * factory.num_relations, factory.num_entities), generator=generator
    ).float()
    evaluator = RankBasedEvaluator(
        metrics=["inverse_harmonic_mean_rank", "arithmetic_mean_rank", *["hits_at_k"] * len(HITS_AT)],
        metrics_kwargs=[None, None, *({"k": k} for k in HITS_AT)],
        add_defaults=False,
    )
    results = evaluator.evaluate(
        _Table(table), theirs.testing.mapped_triples, batch_size=256, use_tqdm=False,
        additional_filter_triples=[factory.mapped_triples, theirs.validation.mapped_triples],
    )  # fmt: skip
    entity = torch.tensor([factory.entity_to_id[label] for label in ours.inference_entities.labels])
    relation = [factory.relation_to_id[label] for label in ours.relations.labels]
    directed = torch.tensor(relation + [number + factory.num_relations for number in relation])
    report = evaluate_scorer(
        lambda head, asked: table[entity[head], directed[asked]][:, entity],
        ours.inference_test,
        ours.evaluation_filter,
    )
    return report, results


class _Table(torch.nn.Module):
    """What PyKEEN's evaluator asks of a model, answered from a table [N, 2R, N]."""

    device = torch.device("cpu")

    def __init__(self, table: torch.Tensor) -> None:
        super().__init__()
        self.table = table
        self.num_entities, self.num_relations = table.size(0), table.size(1) // 2

    def predict(self, hrt_batch: torch.Tensor, target: str, **_: object) -> torch.Tensor:
        head, relation, tail = hrt_batch.T
        asked = (head, relation) if target == "tail" else (tail, relation + self.num_relations)
        return self.table[asked].clone()


def test_a_dataset_of_pykeens_evaluates_alike_on_both_sides(nations: tuple[EvaluationReport, Any]) -> None:
    report, results = nations
    figures = metrics_to_pykeen(report)
    assert len(figures) == 3 * 3 * 5
    assert 0 < figures["both.realistic.inverse_harmonic_mean_rank"] < 1
    assert figures["both.pessimistic.arithmetic_mean_rank"] > figures["both.optimistic.arithmetic_mean_rank"]
    for name, figure in figures.items():
        assert figure == pytest.approx(results.get_metric(name), abs=1e-6), name


def test_results_are_pykeens_own_object(nations: tuple[EvaluationReport, Any]) -> None:
    report, results = nations
    ours = results_to_pykeen(report)
    assert ours.get_metric("mrr") == pytest.approx(report.mrr)
    assert ours.get_metric("both.realistic.hits_at_10") == pytest.approx(report.hits[10])
    assert set(ours.to_df()["Metric"]) == set(results.to_df()["Metric"])
