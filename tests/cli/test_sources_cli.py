"""Every verb takes a graph from any source in one line: here SQLite, CSV and RDF, as a user would type it."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import contextpool as cp
from command_line import Ran, run
from contextpool.cli import serve as serve_module
from contextpool.cli.train import _default_folder
from contextpool.errors import ConfigError
from contextpool.recipe import Recipe
from contextpool.train.run_folder import RunFolder
from contextpool.triples.reader import read_triples
from learning_worlds import one_thread as one_thread

FACTS = [
    fact
    for n in range(30)
    for fact in (
        (f"eve{n}", "married", f"adam{n}"),
        (f"eve{n}", "mother_of", f"cain{n}"),
        (f"eve{n}", "mother_of", f"abel{n}"),
        (f"adam{n}", "father_of", f"cain{n}"),
        (f"adam{n}", "father_of", f"abel{n}"),
        (f"cain{n}", "sibling_of", f"abel{n}"),
    )
]
SMALL = [
    "--set",
    "model.dim=4",
    "--set",
    "model.layers=2",
    "--set",
    "train.epochs=1",
    "--set",
    "train.batch_size=32",
]
QUERY = "?query=SELECT h, r, t FROM facts"


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    monkeypatch.chdir(tmp_path)
    with closing(sqlite3.connect("family.db")) as connection, connection:
        connection.execute("CREATE TABLE facts (h, r, t)")
        connection.executemany("INSERT INTO facts VALUES (?, ?, ?)", FACTS)
    Path("family.csv").write_text("".join(f"{';'.join(fact)}\n" for fact in FACTS))

    def call(*arguments: object) -> Ran:
        return run([str(argument) for argument in arguments], capsys, monkeypatch)

    return call


CSV = "family.csv?header=no&delimiter=;"


def test_trained_evaluated_and_asked_through_one_line_of_sql(cli: Any):
    trained = cli("train", f"sqlite:family.db{QUERY}", "--model", "redgnn", "--context", *SMALL, "--json")
    assert trained.code == 0, trained.err
    assert "left to learn from: 4 of 4 relations, 144 of 180 facts. 18 are held out to select" in trained.err
    told = json.loads(trained.out)
    run_folder = Path(told["run"])
    assert run_folder == Path("runs/family/redgnn+cp-seed0")
    assert RunFolder.open(run_folder).config["recipe"]["dataset"] == "family"
    again = json.loads(cli("evaluate", f"sqlite:family.db{QUERY}", "--run", run_folder, "--json").out)
    assert [again["model"][key] == told["model"][key] for key in ("mrr", "hits@10", "num_queries")] == [
        True
    ] * 3
    for source in (f"sqlite:family.db{QUERY}", CSV):
        question = ("--head", "eve3", "--relation", "mother_of", "--json")
        answers = json.loads(cli("ask", source, "--run", run_folder, *question, "--known", "-k", "2").out)
        assert len(answers["answers"]) == 2
        explained = cli("explain", source, "--run", run_folder, *question, "--tail", "cain3")
        assert explained.code == 0, explained.err


def test_a_source_and_its_facts_in_a_file_train_alike(cli: Any):
    assert cli("data", "convert", f"sqlite:family.db{QUERY}", "family.tsv").code == 0
    assert set(read_triples("family.tsv")) == set(FACTS)
    one, other = (cp.load_dataset(source) for source in (f"sqlite:family.db{QUERY}", "family.tsv"))
    assert (one.training_graph, one.inference_test) == (other.training_graph, other.inference_test)
    assert set(one.training_graph) | set(one.inference_graph) <= set(FACTS)


def test_how_it_is_split_stands_in_the_address(cli: Any):
    told = json.loads(cli("data", "info", f"{CSV}&split=transductive&seed=3", "--json").out)
    assert (told["inductive"], told["training_entities"]) == (False, 120)
    splits = {
        tuple(cp.load_dataset(f"{CSV}&split=transductive&seed={seed}").inference_test) for seed in range(3)
    }
    assert len(splits) == 3
    for wrong in ("split=half", "seed=-1"):
        assert cli("data", "info", f"{CSV}&{wrong}").code == 2


def test_mine_pool_audit_and_split_take_it(cli: Any):
    mined = json.loads(cli("mine", CSV, "--relation", "mother_of", "--json").out)
    assert mined["support"] == 30
    assert cli("mine", f"sqlite:family.db{QUERY}", "--json").out == cli("mine", CSV, "--json").out
    assert cli("pool", CSV, "--head", "eve0", "--relation", "mother_of").code == 0
    assert "worst finding" in cli("data", "audit", CSV).out
    assert cli("data", "split", CSV, "parts").code == 0
    assert cp.load_dataset("parts").inductive


def test_a_split_address_names_one_of_its_halves(cli: Any):
    ran = cli("mine", f"{CSV}&split=inductive", "--relation", "mother_of", "--json")
    assert "using the training graph of" in ran.err
    assert json.loads(ran.out)["support"] < 30


def test_engines_read_what_the_reader_reads_as_long_as_it_is_a_file(cli: Any):
    for source in (f"sqlite:family.db{QUERY}", CSV):
        assert cli("mine", source, "--engine", "disk", "--json").out == cli("mine", source, "--json").out
    ran = cli("mine", "world", "--engine", "disk")
    assert ran.code == 2
    assert "data convert" in ran.err


def test_served_graphs_are_named_after_their_source(cli: Any):
    given = [f"sqlite:family.db{QUERY}", f"other=sqlite:family.db{QUERY}", f"third={CSV}", "world"]
    sources = serve_module.graph_sources(given, [])
    assert [source.name for source in sources] == ["family", "other", "third", "world"]
    assert set(sources[1].read().triples) == set(sources[2].read().triples) == set(FACTS)
    with pytest.raises(ConfigError, match="the same name"):
        serve_module.graph_sources([f"sqlite:family.db{QUERY}", "family.csv"], [])


def test_a_run_is_called_after_the_file_and_not_after_the_query():
    assert _default_folder(Recipe("sqlite:a/shop.db?query=SELECT '/', r, t"), 1) == Path(
        "runs/shop/nbfnet-seed1"
    )
    assert _default_folder(Recipe("grail/fb237_v1"), 0) == Path("runs/grail_fb237_v1/nbfnet-seed0")


def test_a_bad_source_is_one_line_and_exit_code_2(cli: Any):
    for source in ("family.db", "sqlite:family.db", "sqlite:family.db?query=SELECT 1", "nothing.ttl"):
        ran = cli("mine", source)
        assert (ran.code, len(ran.err.strip().splitlines())) == (2, 1), source


def test_a_name_of_the_catalog_wins_over_a_file(cli: Any):
    Path("world").write_text("a\tr\tb\n")
    assert cp.load_dataset("world").name == "world"


def test_a_query_may_be_longer_than_a_file_name(cli: Any):
    long = f"sqlite:family.db{QUERY} WHERE h != '{'x' * 400}'"
    ran = cli("train", long, "--model", "walk", "-o", "run")
    assert ran.code == 0, ran.err
    for verb in (
        ("mine", long),
        ("data", "info", long),
        ("data", "audit", long),
        ("evaluate", long, "--run", "run"),
    ):
        assert cli(*verb).code == 0
    assert cli("ask", long, "--run", "run", "--head", "eve0", "--relation", "mother_of").code == 0
    (source,) = serve_module.graph_sources([f"one={long}"], [])
    assert set(source.read().triples) == set(FACTS)
