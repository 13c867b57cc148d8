"""`cp.evaluate(predictor, graph, queries, known)` and `evaluate GRAPH --queries FILE`: triples on any graph."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import contextpool as cp
from command_line import run
from contextpool.errors import ConfigError, DataError
from contextpool.triples.dataset import Dataset
from contextpool.triples.files import write_triples
from learning_worlds import family_dataset
from learning_worlds import one_thread as one_thread


@pytest.fixture(scope="module")
def shipped() -> cp.Predictor:
    return cp.load()


@pytest.fixture(scope="module")
def data() -> Dataset:
    return family_dataset(inductive=False)


def test_the_ranks_are_those_of_the_dataset_with_these_parts(shipped: cp.Predictor, data: Dataset) -> None:
    graph = cp.Graph.from_triples(data.inference_graph)
    queries, known = list(data.inference_test), list(data.validation_queries)
    found = cp.evaluate(shipped, graph, queries=queries, known=known)
    expected = cp.evaluate(shipped, data)
    assert list(found.queries) == list(expected.queries)
    assert np.array_equal(found.ranks, expected.ranks)
    unfiltered = cp.evaluate(shipped, graph, queries)
    assert (unfiltered.ranks >= found.ranks).all()
    assert unfiltered.table.candidates.sum() > found.table.candidates.sum()


def test_a_trained_model_is_asked_the_same_way(data: Dataset) -> None:
    trained = cp.train(data, "nbfnet", settings={"dim": 4, "layers": 2}, train={"epochs": 1})
    queries, known = data.inference_test, data.validation_queries
    found = cp.evaluate(trained, cp.Graph.from_triples(data.inference_graph), queries, known)
    assert np.array_equal(found.ranks, cp.evaluate(trained, data).ranks)


def test_files_will_do_also_on_the_command_line(
    shipped: cp.Predictor,
    data: Dataset,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("inference_graph", "inference_test", "validation_queries"):
        write_triples(tmp_path / f"{name}.tsv", getattr(data, name))
    graph, queries, known = (
        tmp_path / f"{name}.tsv" for name in ("inference_graph", "inference_test", "validation_queries")
    )
    expected = cp.evaluate(shipped, data)
    found = cp.evaluate(shipped, str(graph), queries=queries, known=known)
    assert np.array_equal(found.ranks, expected.ranks)
    ran = run(
        ["evaluate", str(graph), "--queries", str(queries), "--known", str(known), "--json"],
        capsys,
        monkeypatch,
    )
    told = json.loads(ran.out)
    assert (told["run"], told["model"]["mrr"]) == ("anygraph-1", expected.mrr)
    assert set(told) > {"walk x relevance", "constant"}
    assert (
        "walk x relevance"
        in run(["evaluate", str(graph), "--queries", str(queries)], capsys, monkeypatch).out
    )


FACTS = [("a", "r", "b"), ("b", "r", "c"), ("c", "s", "a")]


def test_what_the_graph_lacks_is_ranked_without_facts(shipped: cp.Predictor) -> None:
    """Neither the stranger nor the relation has a fact; known triples of another world change nothing."""
    graph = cp.Graph.from_triples(FACTS)
    report = cp.evaluate(shipped, graph, [("a", "r", "c"), ("a", "new", "stranger")], [("x", "y", "z")])
    assert report.num_queries == 4
    assert report.table.candidates.max() == 4


def test_queries_that_cannot_be_asked_say_why(shipped: cp.Predictor) -> None:
    graph = cp.Graph.from_triples(FACTS)
    with pytest.raises(DataError, match="1 of 2 are facts of the graph"):
        cp.evaluate(shipped, graph, [("a", "r", "b"), ("a", "r", "c")])
    with pytest.raises(DataError, match="Are they of another graph"):
        cp.evaluate(shipped, graph, [("x", "r", "y")])
    with pytest.raises(DataError, match="no queries to ask"):
        cp.evaluate(shipped, graph, [])
    with pytest.raises(ConfigError, match="a graph alone asks nothing"):
        cp.evaluate(shipped, graph)
    with pytest.raises(ConfigError, match="has queries of its own"):
        cp.evaluate(shipped, family_dataset(inductive=True), [("a", "r", "c")])


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--queries", "q.tsv"], "name the graph to ask"),
        (["world", "--known", "k.tsv"], "beside --queries, which is missing"),
        (["world", "--queries", "gone.tsv"], "gone.tsv"),
    ],
)
def test_the_command_line_says_what_is_missing(
    arguments: list[str], told: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = run(["evaluate", *arguments], capsys, monkeypatch)
    assert ran.code == 2
    assert told in ran.err
