"""What is asked or fetched writes where it was told to, and nowhere else."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from command_line import run
from contextpool.triples.catalog import find
from loopback import serving


@pytest.fixture
def cli(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: run([str(one) for one in arguments], capsys, monkeypatch)


@pytest.mark.parametrize("query", ["ATTACH 'made.db' AS other", "VACUUM INTO 'made.db'"])
def test_a_query_to_sqlite_makes_no_file(cli: Any, query: str) -> None:
    with closing(sqlite3.connect("facts.db")) as connection, connection:
        connection.execute("CREATE TABLE facts (head TEXT, relation TEXT, tail TEXT)")
    refused = cli("data", "info", f"sqlite:facts.db?query={query}")
    assert refused.code == 2
    assert "SQLite says: " in refused.err
    assert "authoriz" in refused.err
    assert [path.name for path in Path().iterdir()] == ["facts.db"]


def test_a_query_to_sqlite_reads_tables_that_are_computed(cli: Any) -> None:
    with closing(sqlite3.connect("facts.db")) as connection, connection:
        connection.execute("CREATE TABLE facts (head TEXT, tails TEXT)")
        connection.execute("""INSERT INTO facts VALUES ('a', '["b", "c"]')""")
    query = "SELECT head, 'r', value FROM facts, json_each(facts.tails)"
    assert cli("data", "convert", f"sqlite:facts.db?query={query}", "facts.tsv").code == 0
    assert set(Path("facts.tsv").read_text().splitlines()) == {"a\tr\tb", "a\tr\tc"}


@pytest.mark.parametrize("planted", ["part", "lock"])
def test_fetching_writes_through_no_planted_link(
    cli: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, planted: str
) -> None:
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.delenv("CONTEXTPOOL_OFFLINE", raising=False)
    entry = find("grail/fb237_v1")
    place = tmp_path / "data" / (f"{entry.files[0].path}.part" if planted == "part" else ".fetch.lock")
    place.parent.mkdir(parents=True)
    (tmp_path / "victim").write_bytes(b"precious")
    place.symlink_to(tmp_path / "victim")
    with serving({file.path: b"something else" for file in entry.files}) as server:
        fetched = cli("data", "fetch", entry.name, "--folder", tmp_path / "data", "--mirror", server.url)
    assert fetched.code != 0
    assert "Traceback" not in fetched.err
    assert (tmp_path / "victim").read_bytes() == b"precious"
    assert "precious" not in fetched.err
