"""A query's three columns as triples: SQLite by Python's own module, DuckDB, PostgreSQL through DuckDB.

SQLite is asked through the module that Python brings, in SQLite's own SQL, because DuckDB would need its sqlite
extension, which has to be downloaded first, and because an answer should not depend on which extensions a machine
has; `engine=duckdb` chooses that extension. Every database is opened for reading only.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator, Sequence
from typing import Any

from contextpool.errors import ConfigError, DataError, MissingExtraError
from contextpool.triples.sources.address import Address, check_options, choice, need_file
from contextpool.triples.sources.collect import TripleCollector
from contextpool.triples.store import Triples

BATCH_ROWS = 1 << 16
_ADVICE = "Change it in the query: CAST(x AS TEXT), replace(), or leave the row out (WHERE x IS NOT NULL)."


def read_sqlite(address: Address) -> Triples:
    """The rows of one SELECT on a SQLite file."""
    check_options(address, ("engine", "query"))
    query = asked_query(address, "SELECT head, relation, tail FROM facts")
    need_file(address)
    if choice(address, "engine", "sqlite3", ("sqlite3", "duckdb")) == "duckdb":
        return _attached(address, query, "sqlite", str(address.path))
    collector = _collector(address)
    uri = f"{address.path.absolute().as_uri()}?mode=ro"
    try:
        with contextlib.closing(sqlite3.connect(uri, uri=True)) as connection:
            connection.execute("PRAGMA query_only = ON")
            cursor = connection.execute(query)
            _check_width(address, [column[0] for column in cursor.description or ()])
            collector.add_rows(cursor)
    except (sqlite3.Error, sqlite3.Warning) as error:
        raise DataError(f"{_shown(address)}: SQLite says: {error}. The query was: {query}") from None
    return collector.triples(f"{_shown(address)}: the query gives no rows: {query}")


def read_duckdb(address: Address) -> Triples:
    """The rows of one SELECT on a DuckDB file or, without a file, on whatever files the query names."""
    check_options(address, ("query",))
    query = asked_query(address, "SELECT head, relation, tail FROM 'facts.parquet'")
    if address.place:
        need_file(address)
    with _connected(address, str(address.path) if address.place else ":memory:") as connection:
        return _answer(address, connection, query)


def read_postgres(address: Address) -> Triples:
    """The rows of one SELECT on PostgreSQL, in its own SQL, by DuckDB's postgres extension."""
    check_options(address, ("query",))
    query = asked_query(address, "SELECT head, relation, tail FROM facts")
    return _attached(address, query, "postgres", address.place)


def asked_query(address: Address, example: str) -> str:
    """The query of an address; without one, an error that shows where it goes."""
    query = address.options.get("query")
    if not isinstance(query, str) or not query.strip():
        raise ConfigError(
            f"{address.text}: which facts? Ask for three columns, head, relation and tail, at the end of the "
            f"address: {address.kind}:{address.place}?query={example}"
        )
    return query.strip().rstrip(";")


def _collector(address: Address) -> TripleCollector:
    return TripleCollector(lambda row: f"{_shown(address)}: row {row + 1:,} of the query", _ADVICE)


def _shown(address: Address) -> str:
    return f"{address.kind}:{address.place}" if not address.place.startswith(address.kind) else address.place


def _check_width(address: Address, names: Sequence[str]) -> None:
    if len(names) != 3:
        listed = f" ({', '.join(names)})" if names else ""
        raise DataError(
            f"{_shown(address)}: the query gives {len(names)} columns{listed}; it has to give three: head, relation "
            "and tail, in this order."
        )


def _duckdb() -> Any:
    try:
        import duckdb
    except ImportError:
        raise MissingExtraError("duckdb", "sql", "asking DuckDB") from None
    return duckdb


@contextlib.contextmanager
def _connected(address: Address, place: str) -> Iterator[Any]:
    """A connection that downloads nothing by itself and writes nothing; what DuckDB refuses is a DataError."""
    duckdb = _duckdb()
    settings = {"autoinstall_known_extensions": "false"}
    try:
        with duckdb.connect(place, read_only=place != ":memory:", config=settings) as connection:
            yield connection
    except duckdb.Error as error:
        first = str(error).splitlines()[0]
        raise DataError(
            f"{_shown(address)}: DuckDB says: {first}. The query was: {address.options['query']}"
        ) from None


def _answer(address: Address, connection: Any, query: str, parameters: Sequence[str] = ()) -> Triples:
    statements = connection.extract_statements(query)
    if len(statements) != 1 or "SELECT" not in str(statements[0].type):
        raise DataError(f"{_shown(address)}: the query has to be one SELECT. It was: {query}")
    result = connection.execute(query, list(parameters))
    _check_width(address, [column[0] for column in result.description])
    collector = _collector(address)
    while rows := result.fetchmany(BATCH_ROWS):
        collector.add_rows(rows)
    return collector.triples(f"{_shown(address)}: the query gives no rows: {query}")


def _attached(address: Address, query: str, extension: str, place: str) -> Triples:
    """The query, sent to a database that a DuckDB extension opens, in that database's own SQL."""
    with _connected(address, ":memory:") as connection:
        load_extension(address, connection, extension)
        quoted = place.replace("'", "''")
        connection.execute(f"ATTACH '{quoted}' AS source (TYPE {extension}, READ_ONLY)")
        asked = f"SELECT * FROM {extension}_query('source', ?)"
        return _answer(address, connection, asked, [query])


def load_extension(address: Address, connection: Any, extension: str) -> None:
    """LOAD, never INSTALL: a missing extension is an error that says how to get it."""
    try:
        connection.execute(f"LOAD {extension}")
    except _duckdb().Error:
        instead = (
            "leave engine=duckdb out, and Python's own sqlite3 asks"
            if extension == "sqlite"
            else r"write the rows to a file, psql -c '\copy (SELECT ...) TO facts.csv CSV HEADER', and read that"
        )
        raise DataError(
            f"{_shown(address)}: DuckDB's {extension} extension is not on this machine, and nothing is downloaded "
            "without being asked. Once, with a network: "
            f"python -c \"import duckdb; duckdb.sql('INSTALL {extension}')\". Without one: {instead}."
        ) from None
