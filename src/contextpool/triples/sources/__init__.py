"""One function for every source of triples: files of many formats, databases, and what other libraries hold.

| source | is |
|---|---|
| `facts.tsv`, `.txt` (`.gz`, `.zst`) | head TAB relation TAB tail, the strict reader |
| `.nt .ttl .nq .trig .rdf .owl` (`.gz`, `.zst`) | RDF; extra `rdf` |
| `.csv` (`.gz`, `.zst`), `.parquet`, `.arrow`, `.feather`, `.npy` | a table |
| `sqlite:FILE?query=SELECT ...` | SQLite |
| `duckdb:FILE?query=SELECT ...`, `postgres:...?query=SELECT ...` | DuckDB, PostgreSQL; extra `sql` |
| `neo4j://USER@HOST/DATABASE?query=MATCH ...`, `bolt://...` | Neo4j; extra `neo4j` |
| a pandas or polars DataFrame, a pyarrow Table, a NetworkX graph | from Python |

`docs/own-data.md` is the guide; every option of a reader is told there.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from contextpool.errors import ConfigError, DataError
from contextpool.triples.reader import read_triples
from contextpool.triples.sources.address import (
    SPLIT_KEYS,
    Address,
    check_options,
    find_address,
    parse_address,
)
from contextpool.triples.store import Triples

__all__ = ["Address", "Tell", "find_address", "parse_address", "read_source"]

Tell = Callable[[str], None]
"""Hears, in a line each, what a reader left out."""


def read_source(source: Any, *, tell: Tell | None = None, **options: Any) -> Triples:
    """The triples of a source: an address (see the table above), a path, or an object of another library.

    Options may stand in the address (`facts.csv?delimiter=;`) or be given here (`delimiter=";"`).
    """
    if not isinstance(source, str | Path | Address):
        return _from_object(source, options)
    address = source if isinstance(source, Address) else parse_address(source)
    address = address.with_options(options)
    for key in sorted(SPLIT_KEYS & set(address.options)):
        raise ConfigError(
            f"{address.text}: {key!r} says how a dataset is made of the graph, and here the whole graph is read. "
            "Leave it out, or load it as a dataset."
        )
    return _reader(address.kind)(address, tell or _hear_nothing)


def _hear_nothing(_: str) -> None:
    """What was left out is told to nobody."""


def _reader(kind: str) -> Callable[[Address, Tell], Triples]:
    """Imported where used: a plain file needs none of what the others import."""
    if kind == "tsv":
        return _read_tsv
    if kind in ("ntriples", "turtle", "nquads", "trig", "rdfxml"):
        from contextpool.triples.sources.rdf import read_rdf

        return read_rdf
    if kind == "neo4j":
        from contextpool.triples.sources.cypher import read_neo4j

        return lambda address, _: read_neo4j(address)
    from contextpool.triples.sources import sql, tables

    readers: dict[str, Callable[[Address], Triples]] = {
        "csv": tables.read_csv,
        "parquet": tables.read_parquet,
        "arrow": tables.read_arrow,
        "npy": tables.read_npy,
        "sqlite": sql.read_sqlite,
        "duckdb": sql.read_duckdb,
        "postgres": sql.read_postgres,
    }
    return lambda address, _: readers[kind](address)


def _read_tsv(address: Address, _: Tell) -> Triples:
    check_options(address, ())
    return read_triples(address.path)


def _from_object(source: Any, options: dict[str, Any]) -> Triples:
    from contextpool.triples.sources.networks import is_network, read_network
    from contextpool.triples.sources.tables import read_table

    kind = type(source)
    address = Address(kind.__name__, "", options, f"the {kind.__name__}")
    if is_network(source):
        return read_network(address, source)
    if hasattr(source, "__arrow_c_stream__") or hasattr(source, "iloc"):
        return read_table(address, source)
    raise DataError(
        f"a {kind.__module__}.{kind.__name__} is no source of triples. Give a file or an address, a DataFrame, an "
        "Arrow table or a NetworkX graph; of a list of (head, relation, tail), Graph.from_triples makes a graph."
    )
