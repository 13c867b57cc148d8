"""`contextpool mine` with engines, as a user runs it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from command_line import Ran, run
from context.mining.graph_files import write_csv, write_parquet, write_tsv
from contextpool.cli.inputs import parse_bytes
from contextpool.errors import ConfigError
from support import Triple

WORLD: list[Triple] = [
    ("Paris", "capital_of", "France"),
    ("Paris", "located_in", "France"),
    ("Lyon", "located_in", "France"),
    ("Bern", "capital_of", "Switzerland"),
    ("Bern", "located_in", "Switzerland"),
]


@pytest.fixture
def mine(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    def call(*arguments: object) -> Ran:
        return run(["mine", *map(str, arguments)], capsys, monkeypatch)

    return call


def test_every_engine_prints_the_same_json(mine: Any, tmp_path: Path):
    graph = write_tsv(tmp_path / "g.tsv", WORLD)
    printed = {mine(graph, "--engine", engine, "--json").out for engine in ("memory", "disk", "duckdb")}
    assert len(printed) == 1
    assert printed == {mine(graph, "--json").out}
    assert len(json.loads(printed.pop())) == 4


def test_csv_and_parquet_need_no_engine_named(mine: Any, tmp_path: Path):
    for path in (write_csv(tmp_path / "g.csv", WORLD), write_parquet(tmp_path / "g.parquet", WORLD)):
        rows = json.loads(mine(path, "-r", "capital_of", "--json").out)
        assert rows["by_precision"][0]["relation"] == "located_in"
        assert rows["by_precision"][0]["precision"] == 2 / 3


BAD: list[tuple[list[str], str]] = [
    (["bad.tsv", "--engine", "disk"], "bad.tsv:2:"),
    (["bad.tsv", "--engine", "duckdb"], "bad.tsv:2:"),
    (["nothing.tsv", "--engine", "disk"], "none of this name"),
    (["g.tsv", "--engine", "disk", "--memory", "lots"], "--memory is 'lots'"),
    (["g.tsv", "--engine", "disk", "--memory", "1k"], "128 MiB at least"),
    (["g.tsv", "--engine", "disk", "--algorithm", "1"], "algorithm 3"),
    (["g.tsv", "--engine", "memory", "--master", "spark://x"], "--engine spark"),
]


@pytest.mark.parametrize(("arguments", "told"), BAD)
def test_bad_input_exits_with_2_and_says_why(
    arguments: list[str], told: str, mine: Any, tmp_path: Path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    write_tsv(tmp_path / "g.tsv", WORLD)
    (tmp_path / "bad.tsv").write_text("a\tr\tb\na\tr\n")
    ran = mine(*arguments)
    assert ran.code == 2
    assert told in ran.err
    assert "Traceback" not in ran.err


@pytest.mark.parametrize(
    ("text", "size"), [("123", 123), ("1GiB", 2**30), ("1.5 GB", 1_500_000_000), ("2g", 2 * 10**9)]
)
def test_sizes_in_bytes(text: str, size: int):
    assert parse_bytes(text) == size


@pytest.mark.parametrize("text", ["", "GB", "-1GB", "1XB", "1ib"])
def test_what_is_no_size_is_refused(text: str):
    with pytest.raises(ConfigError, match="--memory"):
        parse_bytes(text)
