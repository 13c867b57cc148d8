"""Pleasant Python: short reprs, tables in notebooks and of pandas, real signatures, errors in the caller's words."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import contextpool as cp
from command_line import run
from contextpool.context.counts import Statistics
from contextpool.errors import ConfigError, MissingExtraError, setting, speaking_options
from contextpool.graph.relation_sets import relation_sets
from contextpool.notebook import MOST_ROWS, frame_of, html_table
from contextpool.predict import Predictor

SPY = "<b onmouseover=alert(1)>"
FACTS = [
    (f"person {number}", relation, f"{SPY} town {number % 3}")
    for number in range(12)
    for relation in ("lives_in", "works_in")
    if (number, relation) != (7, "lives_in")
]


@pytest.fixture(scope="module")
def predictor() -> Predictor:
    return cp.load()


@pytest.fixture(scope="module")
def answers(predictor: Predictor) -> Any:
    return predictor.predict(FACTS, head="person 7", relation="lives_in", k=3)


def test_answers_are_short_and_a_table(answers: Any) -> None:
    assert len(repr(answers)) < 200
    assert repr(answers).startswith("<3 answers to (person 7, lives_in, ?): ")
    shown = answers._repr_html_()
    assert SPY not in shown
    assert shown.count("<tr>") == 4
    pytest.importorskip("pandas")
    frame = answers.to_frame()
    assert list(frame.columns) == ["rank", "answer", "name", "score", "probability", "share", "known"]
    assert frame["answer"].tolist() == [one.entity for one in answers]
    assert frame["share"].sum() <= 1 + 1e-9


def test_an_explanation_is_short_and_drawn(predictor: Predictor) -> None:
    why = predictor.explain(FACTS, head="person 7", relation="lives_in", tail=f"{SPY} town 1")
    assert len(repr(why)) < 200
    shown = why._repr_html_()
    assert SPY not in shown
    assert "because" in shown
    pytest.importorskip("matplotlib")
    assert "<img " in shown
    assert "data:image/svg+xml;base64," in shown


def test_an_explanation_without_matplotlib_is_its_text(
    predictor: Predictor, monkeypatch: pytest.MonkeyPatch
) -> None:
    why = predictor.explain(FACTS, head="person 7", relation="lives_in", tail=f"{SPY} town 1")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert "<img" not in why._repr_html_()
    assert "because" in why._repr_html_()


def test_datasets_and_reports_are_short_and_tables(predictor: Predictor) -> None:
    dataset = cp.split(cp.Graph.from_triples(FACTS), inductive=False, seed=0)
    assert len(repr(dataset)) < 250
    assert "relations" in dataset._repr_html_()
    audit = dataset.audit()
    assert len(repr(audit)) < 150
    assert audit._repr_html_().startswith("<pre>Audit of")
    report = cp.evaluate(predictor, dataset)
    assert len(repr(report)) < 150
    assert SPY not in report._repr_html_() + dataset._repr_html_() + audit._repr_html_()
    pytest.importorskip("pandas")
    frame = report.to_frame()
    assert len(frame) == report.num_queries
    assert (1 / frame["rank"]).mean() == pytest.approx(report.mrr)
    asked = frame[frame["asked"] == "tail"]
    facts = set(zip(asked["head"], asked["relation"], asked["tail"], strict=True))
    assert facts == set(report.queries)
    assert set(audit.to_frame()["severity"]) <= {"ok", "note", "warning", "problem"}


def test_a_predictor_says_what_it_is(predictor: Predictor) -> None:
    assert repr(predictor).startswith("<Predictor: anygraph, ")
    assert "any relation" in repr(predictor)


def test_what_holds_labels_or_arrays_says_how_many(predictor: Predictor, tmp_path: Path) -> None:
    dataset = cp.load_dataset("world")
    graph = cp.Graph.from_triples(dataset.inference_graph)
    context = cp.mine_context(graph)
    asked = next(iter(dataset.inference_test))
    pooled = cp.pool(graph, context, head=asked[0], relation=asked[1], hops=2)
    report = cp.evaluate(predictor, graph, queries=[asked])
    named = tmp_path / "names.tsv"
    named.write_text("".join(f"{label}\tname {label}\n" for label in graph.entities))
    size = "30 directed relations, 689 entities"
    told = [
        (dataset.inference_graph, "Triples(2,653 triples, 689 entities, 15 relations)"),
        (dataset.training_graph, "Triples(2,961 triples, 771 entities, 15 relations)"),
        (graph.entity_vocabulary, "Vocabulary(689 entities)"),
        (dataset.relations, "Vocabulary(15 relations)"),
        (graph.relation_vocabulary, "RelationVocabulary(15 relations)"),
        (context, f"ContextNeighbors(precision > 0.1, recall > 0, self='exclude', {size})"),
        (context.counts, f"Cooccurrence({size})"),
        (relation_sets(graph), f"RelationSets(151 distinct sets, {size})"),
        (pooled.batch.hops[0], f"EdgeSet({len(pooled.hops[0])} edges, number of queries 1)"),
        (report.table, "RankTable(2 ranks)"),
        (cp.read_names(named), "Names(689 names)"),
    ]
    for one, short in told:
        assert repr(one) == short
    assert repr(dataset.evaluation_filter).startswith("KnownAnswers(3,")
    assert repr(report.realistic).startswith(f"RankMetrics(mrr {report.mrr:.4f}, hits@1 ")
    assert repr(predictor.calibration_for(graph)).startswith("Calibration(temperature ")
    assert len(repr(Statistics.of(graph))) < 250
    assert len(repr(predictor.calibration_for(graph))) < 100


def test_a_part_of_a_dataset_has_its_triples_as_a_graph_has_them() -> None:
    part = cp.load_dataset("world").inference_graph
    graph = cp.Graph.from_triples(part)
    assert part.triples == graph.triples == set(part)
    assert graph.triples == part.triples
    assert list(part.triples) == list(graph.triples)
    assert part.triples[7] == graph.triples[7]
    assert part.triples[-1] == graph.triples[-1]
    assert part.triples[3:9:2] == graph.triples[3:9:2]
    assert part.triples != set(part[1:])
    assert graph.triples[7] in part.triples
    assert ("nobody", "borders", "nowhere") not in part.triples
    with pytest.raises(IndexError):
        part[len(part)]


def test_a_long_table_is_cut_and_says_so() -> None:
    shown = html_table(("a",), [(number,) for number in range(MOST_ROWS + 7)], above="x < y")
    assert shown.count("<tr>") == MOST_ROWS + 1
    assert "7 more rows" in shown
    assert "x &lt; y" in shown


def test_without_pandas_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingExtraError, match=r"contextpool\[frame\]"):
        frame_of([], ("a",))


@pytest.mark.parametrize(
    ("name", "first"), [("train", "dataset"), ("evaluate", "predictor"), ("pool", "graph")]
)
def test_what_is_a_package_and_a_function_shows_the_function(name: str, first: str) -> None:
    called = getattr(cp, name)
    signature = inspect.signature(called)
    assert next(iter(signature.parameters)) == first
    assert len(signature.parameters) > 3
    told = inspect.getdoc(called)
    assert told is not None
    assert told.startswith(f"{name}({first}")
    assert len(told.splitlines()) > 3
    assert "also a package" in repr(called)


def test_a_package_that_can_be_called_is_imported_without_its_function() -> None:
    code = "import contextpool.pool, sys; assert 'contextpool.pool.pooled' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_errors_speak_of_arguments_in_python_and_of_options_on_the_command_line(
    predictor: Predictor, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigError, match=r"^k is 0; "):
        predictor.predict(FACTS, head="person 7", relation="lives_in", k=0)
    ran = run(["ask", "world", "--head", "x", "--relation", "y", "-k", "0"], capsys, monkeypatch)
    assert "error: -k is 0; " in ran.err
    assert (setting("on_unknown", "skip"), setting("shard_size")) == ("on_unknown='skip'", "shard_size")
    with speaking_options():
        assert (setting("on_unknown", "skip"), setting("shard_size")) == ("--on-unknown skip", "--shard-size")
        assert setting("overwrite", True) == "--overwrite"
    assert setting("k") == "k"


def test_json_of_answers_is_plain(answers: Any) -> None:
    told = json.loads(json.dumps(answers.to_dict(), allow_nan=False))
    assert set(told) >= {"question", "known", "num_known", "bet", "answers"}
    assert told["answers"][0]["entity"] == answers[0].entity
