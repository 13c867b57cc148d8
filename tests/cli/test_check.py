"""`contextpool check`: one fact, a table of them, the graph's own; tables out; mistakes as one message with code 2."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from learning_worlds import families
from learning_worlds import one_thread as one_thread

WRONG = ("f3.0", "parent of", "f7.1.0")
ONE = ["--head", WRONG[0], "--relation", WRONG[1], "--tail", WRONG[2]]


def written(path: Path, facts: list[tuple[str, str, str]], between: str = "\t") -> str:
    path.write_text("".join(between.join(fact) + "\n" for fact in facts))
    return str(path)


@pytest.fixture
def graph(tmp_path: Path) -> str:
    return written(tmp_path / "mine.tsv", [*families(12), WRONG])


def test_one_fact_with_what_speaks_for_and_against(cli, graph, tmp_path, monkeypatch):
    monkeypatch.setenv("CONTEXTPOOL_HOME", str(tmp_path / "home"))  # nothing fitted before
    ran = cli("check", graph, *ONE)
    assert ran.code == 0
    assert "f7.1.0" in ran.out
    assert (
        ran.out.count("Probability: if claims were as often true as false; ask picks from all candidates")
        == 1
    )
    assert "against: (f3.0, parent of, ?):" in ran.out
    assert "one end swapped; probabilities rest on 100 facts of this graph" in ran.err
    told = json.loads(cli("check", graph, *ONE, "--json").out)
    assert told["fitted_on"] == 100
    assert told["claims"][0]["known"] is True
    assert 0 <= told["claims"][0]["probability"] <= 1


def test_the_graphs_own_facts_least_supported_first(cli, graph):
    ran = cli("check", graph, "--top", "5", "--json")
    told = json.loads(ran.out)
    assert WRONG in [(one["head"], one["relation"], one["tail"]) for one in told["claims"]]
    assert len(told["claims"]) == 5
    assert told["checked"] == len(families(12)) + 1
    assert "each hidden from itself" in ran.err


@pytest.mark.parametrize("kind", ["tsv", "csv"])
@pytest.mark.parametrize("out", ["tsv", "csv", "parquet", "jsonl", "json"])
def test_a_table_in_and_a_table_out(cli, graph, tmp_path, kind, out):
    between = "\t" if kind == "tsv" else ","
    claims = [WRONG, ("f0", "parent of", "f0.0"), WRONG]
    header = [("head", "relation", "tail")] if kind == "csv" else []
    file = written(tmp_path / f"claims.{kind}", header + claims, between)
    target = tmp_path / f"out.{out}"
    ran = cli("check", graph, file, "-o", str(target), "--evidence", "1")
    assert ran.code == 0
    assert f"wrote 3 rows to {target}" in ran.err
    rows = read(target)
    assert [(row["head"], row["relation"], row["tail"]) for row in rows] == claims
    assert [str(row["known"]).lower() for row in rows] == ["true"] * 3
    assert float(rows[0]["probability"]) == float(rows[2]["probability"]) < float(rows[1]["probability"])
    assert len(rows[0]["against"]) > 0
    assert not rows[1]["against"]


def read(path: Path) -> list[dict]:
    if path.suffix == ".parquet":
        return pq.read_table(path).to_pylist()
    if path.suffix == ".json":
        return json.loads(path.read_text())
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in path.read_text().splitlines()]
    with path.open(newline="") as stream:
        return list(csv.DictReader(stream, delimiter="," if path.suffix == ".csv" else "\t"))


def test_rows_with_unknown_names_are_told_or_carried(cli, graph, tmp_path):
    file = written(tmp_path / "claims.tsv", [WRONG, ("f0", "parent of", "nobody")])
    ran = cli("check", graph, file)
    assert ran.code == 2
    assert "claim 2: entity 'nobody'" in ran.err
    assert "To check the others: --on-unknown skip" in " ".join(ran.err.split())
    ran = cli("check", graph, file, "--on-unknown", "skip", "--json")
    assert ran.code == 0
    assert "nobody" in json.loads(ran.out)["claims"][1]["error"]


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (["--head", "f0"], "one fact takes --head, --relation and --tail; given: --head"),
        (["claims.tsv", *ONE], "leave out --head and --relation and --tail"),
        (["-o", "out.xlsx"], "out.xlsx: a table is written as .tsv"),
        (["--top", "0"], "top"),
        (["missing.tsv"], "missing.tsv"),
    ],
)
def test_mistakes_are_one_message(cli, graph, tmp_path, monkeypatch, more, told):
    monkeypatch.chdir(tmp_path)
    ran = cli("check", graph, *more)
    assert ran.code == 2
    assert told in ran.err
