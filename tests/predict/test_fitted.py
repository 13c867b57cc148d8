"""What is fitted on the graph at hand: how many facts it rests on, and that it is fitted once."""

from __future__ import annotations

from pathlib import Path

import pytest

import contextpool as cp
from contextpool.evaluate.calibration import Calibration
from contextpool.graph.graph import Graph
from contextpool.predict import Predictor, fitted
from contextpool.predict.fitted import PLAIN, facts_at_first
from learning_worlds import families
from learning_worlds import one_thread as one_thread

FAMILIES = families(30)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CONTEXTPOOL_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def graph() -> Graph:
    return Graph.from_triples(FAMILIES)


def no_fitting(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object) -> None:
        raise AssertionError("it is fitted again")

    monkeypatch.setattr(fitted, "calibrate_on_facts", refuse)


def test_probabilities_rest_on_facts_of_the_graph(home: Path, graph: Graph) -> None:
    predictor = cp.load()
    answers = predictor.predict(graph, "f0", "parent of", k=3)
    assert all(answer.probability is not None and 0 <= answer.probability <= 1 for answer in answers)
    assert answers.calibrated_on == answers.to_dict()["calibrated_on"] == 100
    assert predictor.calibration_for(graph).facts == 100
    assert predictor.calibrate(graph, 250).facts == 250
    assert predictor.calibration_for(graph).facts == 250


def test_a_fit_is_kept_on_disk_by_graph_and_model(
    home: Path, graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = cp.load().calibration_for(graph)
    no_fitting(monkeypatch)
    assert cp.load().calibration_for(Graph.from_triples(FAMILIES)) == first
    with pytest.raises(AssertionError, match="fitted again"):
        cp.load().calibration_for(Graph.from_triples(FAMILIES[1:]))
    with pytest.raises(AssertionError, match="fitted again"):
        cp.load().calibrate(graph, 200)


@pytest.mark.parametrize("content", ["", "{", "[]", '{"asked": 100}', "null"])
def test_a_damaged_file_is_fitted_anew(home: Path, graph: Graph, content: str) -> None:
    predictor = cp.load()
    predictor.calibrate(graph, 30)
    (path,) = (home / "fits").iterdir()
    whole = path.read_text()
    path.write_text(content)
    cp.load().calibrate(graph, 30)
    assert path.read_text() == whole


def test_values_that_no_calibration_has_are_fitted_anew(home: Path, graph: Graph) -> None:
    first = cp.load().calibrate(graph, 30)
    (path,) = (home / "fits").iterdir()
    path.write_text(path.read_text().replace(f'"temperature": {first.temperature}', '"temperature": -1.0'))
    assert cp.load().calibrate(graph, 30) == first


def test_a_folder_that_cannot_be_written_costs_nothing_else(
    tmp_path: Path, graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("CONTEXTPOOL_HOME", str(tmp_path / "file" / "home"))
    predictor = cp.load()
    first = predictor.calibration_for(graph)
    no_fitting(monkeypatch)
    assert predictor.calibration_for(graph) is first


def test_few_facts_leave_the_softmax_as_it_is(home: Path) -> None:
    graph = Graph.from_triples(FAMILIES[:10])
    assert cp.load().calibration_for(graph) == PLAIN


def test_a_run_keeps_its_own_calibration(home: Path, graph: Graph) -> None:
    shipped, own = cp.load(), Calibration(2.0, (0.0, 1.0), (0.0, 1.0))
    run = Predictor(shipped.model, graph.relation_vocabulary, shipped.context, None, own)
    assert run.calibration_for(graph) is run.calibrate(graph) is own


def test_large_graphs_are_asked_fewer_facts_before_an_answer(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert facts_at_first(graph) == 100
    monkeypatch.setattr(fitted, "EDGES_AT_FIRST", 2 * (graph.num_edges + 4) * 40)  # and 36 pairs of relations
    assert facts_at_first(graph) == 40
    monkeypatch.setattr(fitted, "EDGES_AT_FIRST", 2 * graph.num_edges * 10)
    assert facts_at_first(graph) == 0
