"""Neo4j by Cypher: the real driver against a bolt server of our own, with answers written beforehand."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from command_line import run
from contextpool.errors import ConfigError, DataError, MissingExtraError
from contextpool.triples.reader import read_triples
from triples.sources.bolt_server import Answer, BoltServer, Structure

pytest.importorskip("neo4j", reason="the neo4j extra is not installed")

QUERY = "MATCH (a)-[r]->(b) WHERE a.x <> '?&=' RETURN a.name, type(r), b.name"
COLUMNS = ["a.name", "type(r)", "b.name"]
FILM = [["Keanu", "ACTED_IN", "The Matrix"], ["Lana", "DIRECTED", "The Matrix"], ["Keanu", "BORN", 1964]]
FACTS = {("Keanu", "ACTED_IN", "The Matrix"), ("Lana", "DIRECTED", "The Matrix"), ("Keanu", "BORN", "1964")}
NODE = Structure(0x4E, (1, ["Person"], {"name": "Keanu"}, "4:x:1"))


@pytest.fixture
def server() -> Iterator[BoltServer]:
    answers = {
        QUERY: Answer(COLUMNS, FILM),
        "many": Answer(COLUMNS, [[f"e{number}", "r", "hub"] for number in range(2_500)]),
        "two": Answer(["a", "b"], [["x", "y"]]),
        "none": Answer(COLUMNS, []),
        "nodes": Answer(COLUMNS, [FILM[0], [NODE, "r", NODE]]),
        "null": Answer(COLUMNS, [FILM[0], ["Keanu", None, "x"]]),
        "float": Answer(COLUMNS, [["Keanu", "r", 0.5]]),
        "tab": Answer(COLUMNS, [["a\tb", "r", "c"]]),
    }
    with BoltServer(answers).running() as running:
        yield running


@pytest.mark.parametrize("scheme", ["bolt", "neo4j"])
def test_rows_become_facts(server: BoltServer, scheme: str):
    assert set(read_triples(f"{scheme}://127.0.0.1:{server.port}?query={QUERY}")) == FACTS
    ((query, beside),) = [asked for asked in server.asked if asked[0] == QUERY]
    assert (query, beside["mode"]) == (QUERY, "r")


def test_the_database_is_the_path(server: BoltServer):
    assert set(read_triples(f"bolt://127.0.0.1:{server.port}/movies", query=QUERY)) == FACTS
    assert server.asked[-1][1]["db"] == "movies"


def test_records_come_in_portions(server: BoltServer):
    assert len(read_triples(f"bolt://127.0.0.1:{server.port}?query=many")) == 2_500
    assert server.pulls == 3


def test_the_password_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch):
    with BoltServer({QUERY: Answer(COLUMNS, FILM)}, password="open sesame").running() as guarded:
        place = f"bolt://me@127.0.0.1:{guarded.port}"
        monkeypatch.setenv("NEO4J_PASSWORD", "open sesame")
        assert set(read_triples(f"{place}?query={QUERY}")) == FACTS
        monkeypatch.setenv("NEO4J_PASSWORD", "wrong words")
        with pytest.raises(DataError, match=r"refuses the user 'me'.*NEO4J_PASSWORD") as refused:
            read_triples(f"{place}?query={QUERY}")
        assert "wrong words" not in str(refused.value)


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("MATCH nonsense", "the server says: "),
        ("two", r"gives 2 columns \(a, b\)"),
        ("none", "gives no rows"),
        ("nodes", r"row 2 of the query: the head is <Node.*a Node; labels are text.*Return properties"),
        ("null", "row 2 of the query: the relation is missing"),
        ("float", "the tail is 0.5, a float"),
        ("tab", "holds a tab"),
    ],
)
def test_what_cannot_be_taken_is_named(server: BoltServer, query: str, said: str):
    with pytest.raises(DataError, match=rf"127\.0\.0\.1:{server.port}: .*{said}"):
        read_triples(f"bolt://127.0.0.1:{server.port}?query={query}")


def test_a_server_that_is_not_there(server: BoltServer):
    with BoltServer({}).running() as gone:
        pass
    with pytest.raises(DataError, match="does not answer"):
        read_triples(f"bolt://127.0.0.1:{gone.port}?query={QUERY}")


def test_addresses_that_say_too_little(server: BoltServer):
    with pytest.raises(ConfigError, match="which server"):
        read_triples(f"neo4j:?query={QUERY}")
    with pytest.raises(ConfigError, match=r"which facts\?.*\?query=MATCH"):
        read_triples(f"bolt://127.0.0.1:{server.port}")


def test_the_extra_is_named_where_it_is_missing(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(__import__("sys").modules, "neo4j", None)
    with pytest.raises(MissingExtraError, match=r"contextpool\[neo4j\]"):
        read_triples("bolt://127.0.0.1:1?query=q")


def test_the_command_line_takes_it(
    server: BoltServer, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
):
    source, target = f"bolt://127.0.0.1:{server.port}?query={QUERY}", tmp_path / "film.tsv"
    assert run(["data", "convert", source, str(target)], capsys, monkeypatch).code == 0
    assert set(read_triples(target)) == FACTS
