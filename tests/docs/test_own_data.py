"""docs/own-data.md: every block of it runs, top to bottom, in an empty folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from conftest import REPOSITORY
from docs.snippets import RUN, blocks, run_page
from learning_worlds import one_thread as one_thread
from triples.sources.bolt_server import Answer, BoltServer

PAGE = REPOSITORY / "docs" / "own-data.md"
CYPHER = "MATCH (a)-[r]->(b) RETURN a.name, type(r), b.name"


def test_the_page_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for package in ("pyoxigraph", "duckdb", "neo4j", "networkx", "pandas"):
        pytest.importorskip(package, reason="the rdf, sql and neo4j extras are not all installed")
    rows = [["eve0", "mother_of", "cain0"], ["eve0", "married", "adam0"]]
    with BoltServer({CYPHER: Answer(["a", "r", "b"], rows)}).running() as server:
        ran = run_page(PAGE, tmp_path, monkeypatch, {"localhost:7687": f"127.0.0.1:{server.port}"})
    assert ran == sum(block.language in RUN for block in blocks(PAGE))
    assert [query for query, _ in server.asked] == [CYPHER]
    assert "Graph(160 entities, 4 relations, 320 triples, cpu)" in capsys.readouterr().out


def test_blocks_that_are_not_run_are_marked_as_text() -> None:
    assert {block.language for block in blocks(PAGE)} <= {*RUN, "text"}


def test_every_kind_of_source_is_told() -> None:
    from contextpool.triples.sources.address import SCHEMES, SUFFIXES

    page = PAGE.read_text("utf-8")
    assert all(
        suffix in page or suffix in (".pq", ".ipc", ".arrows", ".arrow", ".feather", ".npy")
        for suffix in SUFFIXES
    )
    assert all(word in page for word in ("Arrow", "Feather", "npy", *set(SCHEMES.values())))
