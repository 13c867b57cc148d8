"""`data map`, `ask --cap` and `ask --every-pair`: a graph that stays in its files, asked one question and all."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import contextpool as cp
from contextpool.graph.graph import Graph
from contextpool.graph.mapped import open_graph
from contextpool.triples.files import write_triples
from learning_worlds import one_thread as one_thread
from world_model import world_run as world_run

BELARUS = ["--head", "Belarus", "--relation", "currency"]


@pytest.fixture
def facts(tmp_path: Path) -> Path:
    """The inference graph of world as a file."""
    path = tmp_path / "facts.tsv"
    write_triples(path, cp.load_dataset("world").inference_graph)
    return path


@pytest.fixture
def graph(cli, facts: Path) -> Path:
    ran = cli("data", "map", str(facts), "-o", str(facts.parent / "graph"), "--memory", "256MiB", "--json")
    assert ran.code == 0, ran.err
    told = json.loads(ran.out)
    expected = Graph.from_triples(cp.load_dataset("world").inference_graph)
    assert (told["triples"], told["relations"]) == (expected.num_triples, len(set(expected.relations)))
    return facts.parent / "graph"


def test_a_mapped_graph_is_asked_like_its_file(cli, world_run, facts: Path, graph: Path):
    def asked(*arguments: str) -> list[dict]:
        ran = cli("ask", *arguments, "--run", str(world_run), *BELARUS, "-k", "5", "--json")
        assert ran.code == 0, ran.err
        return json.loads(ran.out)["answers"]

    mapped = asked(str(graph))
    assert mapped == asked(str(graph), "--cap", "0") == asked(str(facts), "--cap", "100000")
    whole = {answer["entity"]: answer["score"] for answer in asked(str(facts))}
    assert {answer["entity"]: answer["score"] for answer in mapped} == whole
    assert asked(str(graph), "--cap", "3") != mapped


def test_the_model_in_the_package_answers_and_says_how_many_it_considered(cli, graph: Path):
    ran = cli("ask", str(graph), *BELARUS, "--cap", "3", "--all")
    assert ran.code == 0, ran.err
    assert re.search(r"considered \d+ of \d+ entities", ran.out)
    told = json.loads(cli("ask", str(graph), *BELARUS, "--cap", "3", "--explain", "--json").out)
    assert 0 < told["considered"] < told["num_entities"] == len(open_graph(graph).entities)
    best = told["answers"][0]["entity"]
    assert told["explanation"]["answer"] == best
    ran = cli("explain", str(graph), *BELARUS, "--tail", best, "--cap", "3")
    assert (ran.code, "context" in ran.out) == (0, True), ran.err
    refused = cli("check", str(graph))
    assert (refused.code, "mapped graph" in refused.err) == (2, True)


def test_what_was_fitted_once_is_what_later_answers_rest_on(
    cli, graph: Path, monkeypatch: pytest.MonkeyPatch
):
    """A graph on which no facts are asked before a first answer."""
    monkeypatch.setattr("contextpool.predict.fitted.EDGES_AT_FIRST", 0)
    call = ["ask", str(graph), *BELARUS, "--json"]
    assert json.loads(cli(*call).out)["calibrated_on"] == 0
    fitted = cp.load().calibrate(str(graph), 30)
    assert fitted is not None
    assert json.loads(cli(*call).out)["calibrated_on"] == fitted.facts
    assert fitted.facts in range(25, 31)  # one may have been drawn both ways


def test_all_pairs_go_into_shards_that_can_be_resumed(cli, world_run, tmp_path: Path):
    """Of the first facts: there are more pairs than fit two shards, and each is asked once."""
    facts = list(cp.load_dataset("world").inference_graph)[:120]
    write_triples(tmp_path / "some.tsv", facts)
    assert cli("data", "map", str(tmp_path / "some.tsv"), "-o", str(tmp_path / "some")).code == 0
    output, pairs = tmp_path / "answers", {(head, relation) for head, relation, _ in facts}
    call = [
        "ask",
        str(tmp_path / "some"),
        "--run",
        str(world_run),
        "--every-pair",
        "-o",
        str(output),
        "-k",
        "2",
        "--json",
    ]
    call += ["--shard-size", "20", "--cap"]
    first = cli(*call, "30")
    assert first.code == 0, first.err
    told = json.loads(first.out)
    assert told["questions"] == told["answered_now"] == len(pairs) > 40
    shards = sorted(output.glob("part-*.jsonl"))
    rows = [json.loads(line) for shard in shards for line in shard.read_text("utf-8").splitlines()]
    assert [(row["head"], row["relation"]) for row in rows] == sorted(pairs)
    before = {path.name: path.read_bytes() for path in output.iterdir()}
    shards[1].unlink()
    assert json.loads(cli(*call, "30").out)["answered_now"] == 20
    assert {path.name: path.read_bytes() for path in output.iterdir()} == before
    other = cli(*call, "31")
    assert (other.code, "settings differ" in other.err) == (2, True)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--every-pair", *BELARUS], "--every-pair asks them all; leave out --head"),
        (["--every-pair", "--questions", "x.tsv"], "give one of them"),
        (["--head", "Minsk", "--tail", "Belarus", "--cap", "5"], "asks for a relation"),
    ],
)
def test_what_does_not_go_together_is_told(cli, world_run, options: list[str], told: str):
    ran = cli("ask", "world", "--run", str(world_run), *options)
    assert ran.code == 2
    assert told in ran.err


def test_a_name_that_a_mapped_graph_lacks_is_told(cli, world_run, graph: Path):
    ran = cli("ask", str(graph), "--run", str(world_run), "--head", "Belarrus", "--relation", "currency")
    assert ran.code == 2
    assert "closest 'Belarus'" in ran.err
