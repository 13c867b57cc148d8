"""Links that a graph lacks: what asking each question gives, from any number of attempts and of workers."""

from __future__ import annotations

import csv
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from conftest import REPOSITORY
from contextpool.context.map_graph import map_graph
from contextpool.context.more import MoreAnswers
from contextpool.errors import (
    CheckpointWriteError,
    ConfigError,
    DataError,
    LostProcessError,
    UnknownNameError,
)
from contextpool.graph.graph import Graph
from contextpool.graph.mapped import open_graph
from contextpool.predict import Predictor, read_names, shards, workers
from contextpool.predict.complete import complete
from contextpool.predict.links import triple_line
from contextpool.predict.workers import Workers
from contextpool.triples.files import write_triples
from learning_worlds import families
from learning_worlds import one_thread as one_thread
from predict.killed_bulk import family_bulk
from predict.killed_complete import family_predictor, small_parts
from predict.test_bulk import Stopped, random_questions, stopping_after, write_questions


@pytest.fixture(scope="module")
def asked() -> tuple[Predictor, Graph]:
    return family_predictor()


@pytest.fixture(scope="module")
def whole(asked: tuple[Predictor, Graph], tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The file that an uninterrupted call writes."""
    output = tmp_path_factory.mktemp("whole") / "links.parquet"
    complete(*asked, output, small_parts())
    return output.read_bytes()


def rows_of(path: Path) -> list[dict[str, object]]:
    return pq.read_table(path).to_pylist()  # type: ignore[no-any-return]


def one_by_one(
    predictor: Predictor, graph: Graph, least: float, relations: list[str]
) -> list[tuple[str, ...]]:
    """The slow twin: every entity and relation, if it is likely enough to have one more answer."""
    more = MoreAnswers(graph, predictor.counts_with(graph))
    found: list[tuple[str, ...]] = []
    for entity in graph.entities:
        for relation in relations:
            chance = more.chance(graph.entity_id(entity), graph.relation_id(relation))
            if chance < least:
                continue
            for answer in predictor.predict(graph, entity, relation):
                assert answer.probability is not None
                if answer.probability >= least:
                    forward = not relation.endswith("^-1")
                    pair = (entity, answer.entity) if forward else (answer.entity, entity)
                    found.append((pair[0], relation.removesuffix("^-1"), pair[1]))
    return found


def test_links_are_the_likely_answers_to_likely_questions(asked: tuple[Predictor, Graph]) -> None:
    predictor, graph = asked
    for relations in (None, ["sibling of"], ["parent of^-1"]):
        links = predictor.complete(graph, min_probability=0.1, relations=relations)
        expected = one_by_one(predictor, graph, 0.1, relations or list(graph.relations))
        assert [tuple(link)[:3] for link in links] == expected
        assert len(links) == len(expected) > 0
        assert set(links.table["asked"].to_pylist()) == {"head" if relations == ["parent of^-1"] else "tail"}
    assert not set(expected) & set(families(3))


def test_the_likeliest_come_first_with_top_and_all_are_above_the_cut(asked: tuple[Predictor, Graph]) -> None:
    predictor, graph = asked
    every = predictor.complete(graph, min_probability=0.2).table
    assert min(every["probability"].to_pylist()) >= 0.2
    top = predictor.complete(graph, top=7, min_probability=0.2).table
    order = sorted(range(every.num_rows), key=lambda row: -every["probability"][row].as_py())[:7]
    assert top.to_pylist() == every.take(order).to_pylist()
    links = predictor.complete(graph, top=7)
    assert links.best == tuple(links.table.to_pylist())
    assert repr(links) == "Links(7 of 46 questions)"
    assert links._repr_html_().count("<tr>") == 8
    pytest.importorskip("pandas")
    assert list(links.to_frame()["tail"]) == [link.tail for link in links]


def test_every_path_is_the_first_of_an_explanation(asked: tuple[Predictor, Graph]) -> None:
    predictor, graph = asked
    links = predictor.complete(graph, top=8, paths=True, relations=["sibling of", "grandparent of^-1"])
    for row in links.table.to_pylist():
        why = predictor.explain(graph, row["head"], row["relation"], row["tail"], asked=row["asked"], paths=1)
        lines = why.text().splitlines()
        assert row["path"] == (lines[2].split("%")[1].strip() if why.paths else None)
    assert any(links.table["path"].to_pylist())


def test_entities_names_and_a_budget(asked: tuple[Predictor, Graph], tmp_path: Path) -> None:
    predictor, graph = asked
    few = predictor.complete(graph, min_probability=0.1, entities=["f0.0", "f1.0"]).table
    assert set(few["head"].to_pylist()) <= {"f0.0", "f1.0"}
    assert predictor.complete(graph, min_probability=0.1, max_questions=3).questions == 3
    (tmp_path / "names.tsv").write_text("f0.0\tAda\nparent of\tis a parent of\n")
    names = read_names(tmp_path / "names.tsv")
    named = predictor.complete(graph, min_probability=0.1, entities=["Ada"], names=names, paths=True).table
    assert set(named["head_name"].to_pylist()) == {"Ada"}
    assert all(path is None or path.startswith("Ada ") for path in named["path"].to_pylist())


@pytest.mark.parametrize("writes", [1, 4, 11, 12, 14, 20, 25])
def test_a_call_that_is_cut_off_at_any_write_is_finished_to_the_same_bytes(
    asked: tuple[Predictor, Graph], whole: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writes: int
) -> None:
    output = tmp_path / "links.parquet"
    with monkeypatch.context() as patched:
        stopping_after(patched, writes)
        with pytest.raises(Stopped):
            complete(*asked, output, small_parts())
    links = complete(*asked, output, small_parts())
    assert output.read_bytes() == whole
    assert links.asked_now == max(0, links.questions - 8 * (writes // 2))
    assert [path.name for path in tmp_path.iterdir()] == ["links.parquet"]


def test_killed_three_times_and_resumed_equals_uninterrupted(whole: bytes, tmp_path: Path) -> None:
    paths = f"{REPOSITORY / 'src'}:{REPOSITORY / 'tests'}"
    command = [
        sys.executable,
        str(Path(__file__).parent / "killed_complete.py"),
        str(tmp_path / "l.parquet"),
        "3",
    ]
    done = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": paths}, check=True
    )
    assert done.stdout.split("\n") == ["killed", "killed", "killed", "ended 0", ""], done.stderr
    assert (tmp_path / "l.parquet").read_bytes() == whole


def test_processes_write_the_same_and_one_that_is_killed_costs_nothing(
    asked: tuple[Predictor, Graph], whole: bytes, tmp_path: Path
) -> None:
    killed: list[int] = []

    def kill_one(stage: str, done: int, total: int) -> None:
        children = multiprocessing.active_children()
        if children and not killed:
            killed.append(children[0].pid or 0)
            os.kill(killed[0], signal.SIGKILL)

    several = Workers(2, worth_starting=0.0)
    complete(*asked, tmp_path / "links.parquet", small_parts(), workers=several, progress=kill_one)
    assert killed
    assert (tmp_path / "links.parquet").read_bytes() == whole
    assert not multiprocessing.active_children()


class Deadly:
    """A job that nobody survives."""

    def work(self, piece: object) -> bytes:
        os._exit(9)


def test_workers_that_always_die_end_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "MOST_LOSSES", 0)
    pool = workers._Pool(Deadly(), 1)
    with pytest.raises(LostProcessError, match="What is done is kept"):
        list(pool.do([(0, None), (1, None)]))


def test_ray_writes_the_same(asked: tuple[Predictor, Graph], whole: bytes, tmp_path: Path) -> None:
    pytest.importorskip("ray")
    program = (
        "import sys; from pathlib import Path; from contextpool.predict.complete import complete; "
        "from contextpool.predict.workers import Workers; "
        "from predict.killed_complete import family_predictor, small_parts; "
        "complete(*family_predictor(), Path(sys.argv[1]), small_parts(), workers=Workers(2, 'ray'))"
    )
    environment = {**os.environ, "PYTHONPATH": f"{REPOSITORY / 'src'}:{REPOSITORY / 'tests'}"}
    output = tmp_path / "links.parquet"
    subprocess.run([sys.executable, "-c", program, str(output)], env=environment, check=True, timeout=300)
    assert output.read_bytes() == whole


def test_a_file_of_questions_is_answered_by_processes_alike(tmp_path: Path) -> None:
    questions = write_questions(tmp_path / "q.jsonl", random_questions(20))
    family_bulk().write(questions, tmp_path / "here")
    family_bulk().write(questions, tmp_path / "there", workers=Workers(1))
    shown = {path.name: path.read_bytes() for path in (tmp_path / "here").iterdir()}
    assert shown == {path.name: path.read_bytes() for path in (tmp_path / "there").iterdir()}


@pytest.mark.parametrize("suffix", ["csv", "tsv", "nt"])
def test_the_same_links_in_every_form(
    asked: tuple[Predictor, Graph], whole: bytes, tmp_path: Path, suffix: str
) -> None:
    (tmp_path / "whole.parquet").write_bytes(whole)
    expected = rows_of(tmp_path / "whole.parquet")
    output = tmp_path / f"links.{suffix}"
    complete(*asked, output, small_parts())
    if suffix == "nt":
        assert output.read_text() == "".join(map(triple_line, expected))
        pytest.importorskip("pyoxigraph")
        back = {(head, relation, tail) for head, relation, tail in Graph.from_triples(read(output)).triples}
        assert len(back) == len(expected)
        return
    with output.open(newline="") as stream:
        rows = list(csv.DictReader(stream, delimiter="," if suffix == "csv" else "\t"))
    assert [{key: str(value or "") for key, value in row.items()} for row in expected] == rows


def read(path: Path):  # type: ignore[no-untyped-def]
    from contextpool.triples.reader import read_triples

    return read_triples(path)


@pytest.mark.parametrize(
    ("label", "written"),
    [
        ("http://e.org/a", "<http://e.org/a>"),
        ("wd:Q1", "<wd:Q1>"),
        ("_:b0", "_:b0"),
        ("San José", "<urn:contextpool:San%20Jos%C3%A9>"),
        ("a: b>", "<urn:contextpool:a%3A%20b%3E>"),
        ('"7"^^http://e.org/int', '"7"^^<http://e.org/int>'),
        ('"so"@en', '"so"@en'),
    ],
)
def test_labels_in_ntriples(label: str, written: str) -> None:
    row = {"head": "h:a", "relation": "r:b", "tail": label, "probability": 0.5}
    assert triple_line(row) == f"<h:a> <r:b> {written} . # 0.5\n"


def test_what_is_wrong_is_said_before_anything_is_asked(
    asked: tuple[Predictor, Graph], tmp_path: Path
) -> None:
    predictor, graph = asked
    wrong = {
        "links are written as": {"output": tmp_path / "links.xlsx"},
        "min_probability is 2": {"min_probability": 2.0},
        "top is 0": {"top": 0},
        "processes is 0": {"workers": 0},
        "the list is empty": {"relations": []},
        "is one string": {"relations": "sibling of"},
        "the whole graph is needed": {"paths": True, "cap": 5},
    }
    for message, arguments in wrong.items():
        with pytest.raises(ConfigError, match=message):
            predictor.complete(graph, **{"output": tmp_path / "l.csv", **arguments})  # type: ignore[arg-type]
    with pytest.raises(UnknownNameError, match=r"'sibling off' is unknown.*closest 'sibling of'"):
        predictor.complete(graph, tmp_path / "l.csv", relations=["sibling off"])
    with pytest.raises(DataError, match="nothing is asked"):
        predictor.complete(graph, tmp_path / "l.csv", min_probability=1.0)
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(ConfigError, match="is a folder"):
        predictor.complete(graph, tmp_path / "folder.csv")
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="cannot be written"):
        predictor.complete(graph, tmp_path / "file" / "l.csv")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder.csv"]


def test_links_that_are_there_and_parts_of_another_call_are_kept(
    asked: tuple[Predictor, Graph], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    predictor, graph = asked
    output = tmp_path / "links.csv"
    output.write_text("mine")
    with pytest.raises(ConfigError, match=r"there already, and complete\. Choose another name"):
        predictor.complete(graph, output, min_probability=0.1)
    output.unlink()
    with monkeypatch.context() as patched:
        stopping_after(patched, 6)
        with pytest.raises(Stopped):
            complete(predictor, graph, output, small_parts())
    smaller = Graph.from_triples(families(3)[1:])
    with pytest.raises(ConfigError, match="answers of another call: graph differ"):
        complete(predictor, predictor.prepared(smaller)[0], output, small_parts())
    with pytest.raises(ConfigError, match="settings differ"):
        complete(predictor, graph, output, small_parts(k=2))
    from contextpool.train.files import FolderLock

    lock = FolderLock(tmp_path / "links.csv.parts")
    with pytest.raises(CheckpointWriteError, match=r"is writing these links\. Wait"):
        complete(predictor, graph, output, small_parts())
    lock.release()
    complete(predictor, graph, output, small_parts(k=2), overwrite=True)
    assert [path.name for path in tmp_path.iterdir()] == ["links.csv"]


def test_a_run_without_calibration_is_refused(asked: tuple[Predictor, Graph], tmp_path: Path) -> None:
    predictor, graph = asked
    bare = Predictor(predictor.model, predictor.relations, predictor.context, predictor.statistics)
    with pytest.raises(ConfigError, match="no calibration"):
        bare.complete(graph)


def test_parts_hold_a_hundred_thousand_and_more(tmp_path: Path) -> None:
    manifest = shards.Manifest(tmp_path, {}, "csv", None)
    manifest.shards = {"part-100000.csv": "", "part-99999.csv": ""}
    assert [path.name for path in manifest.paths] == ["part-99999.csv", "part-100000.csv"]


def test_a_mapped_graph_is_completed_from_its_files(asked: tuple[Predictor, Graph], tmp_path: Path) -> None:
    predictor, _ = asked
    write_triples(tmp_path / "facts.tsv", families(3))
    map_graph([tmp_path / "facts.tsv"], tmp_path / "mapped")
    graph = open_graph(tmp_path / "mapped")
    links = predictor.complete(graph, min_probability=0.3, k=1)
    frontier = predictor.frontier(graph, None)
    expected = []
    for entity, label in enumerate(graph.entities):
        for number, relation in enumerate(graph.relations):
            if frontier.more.chance(entity, number) >= 0.3:
                (best,) = predictor.predict(graph, label, relation, 1)
                expected += [(label, relation, best.entity)] if (best.probability or 0) >= 0.3 else []
    assert [tuple(link)[:3] for link in links] == expected
    assert expected
    assert pickle.loads(pickle.dumps(graph)).folder == graph.folder  # noqa: S301
