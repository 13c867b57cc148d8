"""One SELECT on SQLite or DuckDB: three columns, read only, everything else a named error."""

from __future__ import annotations

import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextpool.errors import ConfigError, DataError, MissingExtraError
from contextpool.triples.reader import read_triples
from support import Triple, random_triples

FACTS = {("alice", "follows", "bob"), ("bob", "follows", "carol"), ("alice", "likes", "7")}
SELECT = "SELECT who, how, whom FROM facts WHERE who != '?&='"


def database(path: Path, facts: Any = FACTS) -> Path:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE facts (who TEXT, how TEXT, whom)")
        connection.executemany("INSERT INTO facts VALUES (?, ?, ?)", facts)
    return path


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    return database(tmp_path / "a shop's.db")


def test_sqlite(shop: Path):
    assert set(read_triples(f"sqlite:{shop}?query={SELECT}")) == FACTS
    assert set(read_triples(f"sqlite:{shop}", query=f"{SELECT};")) == FACTS


def test_integers_are_labels_in_decimals(tmp_path: Path):
    path = database(tmp_path / "x.db", [("1", "r", 2), ("2", "r", 1)])
    assert set(read_triples(f"sqlite:{path}?query=SELECT CAST(who AS INTEGER), how, whom FROM facts")) == {
        ("1", "r", "2"),
        ("2", "r", "1"),
    }


@given(st.integers(0, 10_000))
def test_sqlite_gives_back_what_was_stored(tmp_path_factory: pytest.TempPathFactory, seed: int):
    facts: list[Triple] = random_triples(seed)
    path = database(tmp_path_factory.mktemp("db") / "x.db", facts)
    assert set(read_triples(f"sqlite:{path}?query=SELECT * FROM facts")) == set(facts)


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("SELECT who, whom FROM facts", r"2 columns \(who, whom\)"),
        ("SELECT who, how, whom FROM fact", "SQLite says: no such table: fact. The query was: SELECT"),
        ("SELECT who, how, NULL FROM facts", "row 1 of the query: the tail is missing.*WHERE x IS NOT NULL"),
        ("SELECT who, how, 0.5 FROM facts", "the tail is 0.5, a float.*CAST"),
        ("SELECT who, how, x'00' FROM facts", "a bytes"),
        ("SELECT who, how || '^-1', whom FROM facts", "ends in"),
        ("SELECT who, how, whom FROM facts WHERE 0", "gives no rows"),
        ("DELETE FROM facts", "readonly|gives 0 columns"),
        ("SELECT 1; SELECT 2", "SQLite says"),
    ],
)
def test_sqlite_refuses(shop: Path, query: str, said: str):
    before = shop.read_bytes()
    with pytest.raises(DataError, match=said):
        read_triples(f"sqlite:{shop}?query={query}")
    assert shop.read_bytes() == before


def test_without_a_query_the_address_is_completed(shop: Path):
    with pytest.raises(ConfigError, match=r"sqlite:.*\?query=SELECT head, relation, tail FROM facts"):
        read_triples(f"sqlite:{shop}")


def test_a_file_that_is_no_database(tmp_path: Path):
    (tmp_path / "x.db").write_text("certainly not a database, although long enough to be one" * 20)
    with pytest.raises(DataError, match="SQLite says: file is not a database"):
        read_triples(f"sqlite:{tmp_path / 'x.db'}?query=SELECT * FROM facts")
    with pytest.raises(DataError, match="no such file"):
        read_triples(f"sqlite:{tmp_path / 'y.db'}?query=SELECT * FROM facts")


def test_duckdb_on_its_own_files_and_on_others(tmp_path: Path):
    duckdb = pytest.importorskip("duckdb", reason="the sql extra is not installed")
    with duckdb.connect(str(tmp_path / "x.duckdb")) as connection:
        connection.execute(
            "CREATE TABLE facts AS SELECT 'a' AS h, 'r' AS r, 7 AS t UNION ALL SELECT 'b', 'r', 8"
        )
        connection.execute(f"COPY facts TO '{tmp_path / 'facts.parquet'}'")
    for source in (
        f"duckdb:{tmp_path / 'x.duckdb'}?query=SELECT * FROM facts",
        f"duckdb:?query=SELECT * FROM '{tmp_path / 'facts.parquet'}'",
    ):
        assert set(read_triples(source)) == {("a", "r", "7"), ("b", "r", "8")}


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("SELECT 1, 2", "2 columns"),
        ("SELECT 'a', 'r', NULL::VARCHAR", "the tail is missing"),
        ("SELECT 'a', 'r', 0.5::DOUBLE", "the tail is 0.5, a float"),
        ("SELECT 'a', 'r', 'b' WHERE false", "no rows"),
        ("SELECT * FROM nowhere", "DuckDB says: Catalog Error.*The query was"),
        ("CREATE TABLE x (y INT)", "one SELECT"),
        ("SELECT 1, 2, 3; SELECT 4, 5, 6", "one SELECT"),
        ("SET threads = 1", "one SELECT"),
        ("WITH x AS (COPY (SELECT 1) TO 'written') SELECT 1, 2, 3 FROM x", "holds COPY"),
        ("WITH x AS (INSERT INTO t VALUES (1) RETURNING *) SELECT 1, 2, 3 FROM x", "holds INSERT"),
        ("SELECT * FROM (WITH x AS (COPY (SELECT 1) TO 'written') SELECT 1, 2, 3 FROM x)", "holds COPY"),
        ("SELECT * FROM query('COPY (SELECT 1) TO ''written'' ')", "holds query"),
        ("SELECT content, filename, size FROM read_text(concat('/etc/', 'passwd'))", "Permission Error"),
        ("SELECT * FROM 'https://example.org/facts.csv'", "DuckDB says"),
        ("SELECT * FROM sqlite", "Catalog Error"),
    ],
)
def test_duckdb_refuses(query: str, said: str):
    pytest.importorskip("duckdb", reason="the sql extra is not installed")
    with pytest.raises(DataError, match=said):
        read_triples(f"duckdb:?query={query}")
    assert not list(Path.cwd().glob("written*"))


def test_duckdb_reads_the_files_that_the_query_names_and_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    pytest.importorskip("duckdb", reason="the sql extra is not installed")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "parts").mkdir()
    for name in ("parts/one.csv", "parts/two.csv", "other.csv"):
        (tmp_path / name).write_text(f"h,r,t\n{name[:-4]},r,x\n")
    one, two, other = ((name, "r", "x") for name in ("parts/one", "parts/two", "other"))
    named = {
        "FROM 'parts/one.csv'": {one},
        f"FROM '{tmp_path}/parts/*.csv'": {one, two},
        "SELECT * FROM read_csv(['parts/two.csv', 'other.csv'])": {two, other},
        "FROM '*.csv' UNION ALL FROM read_csv('parts/t?o.csv')": {two, other},
        "WITH x AS (FROM '~/other.csv') SELECT * FROM x": {other},
    }
    for query, facts in named.items():
        assert set(read_triples(f"duckdb:?query={query}")) == facts, query
    with pytest.raises(DataError, match="Permission Error"):
        read_triples("duckdb:?query=FROM read_csv(concat('other', '.csv')) UNION ALL FROM 'parts/*.csv'")


def test_the_extra_is_named_where_it_is_missing(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "duckdb", None)
    with pytest.raises(MissingExtraError, match=r"contextpool\[sql\]"):
        read_triples("duckdb:?query=SELECT 1, 2, 3")
    monkeypatch.setitem(sys.modules, "adbc_driver_postgresql", None)
    monkeypatch.setitem(sys.modules, "adbc_driver_postgresql.dbapi", None)
    with pytest.raises(MissingExtraError, match=r"contextpool\[postgres\]"):
        read_triples("postgresql://me@db.example/shop?query=SELECT 1, 2, 3")
