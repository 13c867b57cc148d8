"""A query's three columns as triples: SQLite by Python's own module, DuckDB, PostgreSQL through DuckDB.

SQLite is asked through the module that Python brings, in SQLite's own SQL: DuckDB would need its sqlite extension,
which has to be downloaded first, and an answer should not depend on the extensions of a machine. Every database
is opened for reading only.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

import pyarrow as pa

from contextpool.errors import ConfigError, DataError, MissingExtraError
from contextpool.triples.sources.address import Address, check_options, need_file
from contextpool.triples.sources.columns import BATCH_ROWS, row_batches

_ADVICE = "Change it in the query: CAST(x AS TEXT), replace(), or leave the row out (WHERE x IS NOT NULL)."


def _sqlite(address: Address) -> Iterator[pa.RecordBatch]:
    """The rows of one SELECT on a SQLite file."""
    check_options(address, ("query",))
    query = asked_query(address, "SELECT head, relation, tail FROM facts")
    need_file(address)
    uri = f"{address.path.absolute().as_uri()}?mode=ro"
    try:
        with contextlib.closing(sqlite3.connect(uri, uri=True)) as connection:
            connection.execute("PRAGMA query_only = ON")
            cursor = connection.execute(query)
            check_width(address.shown, [column[0] for column in cursor.description or ()])
            yield from answer_batches(address.shown, cursor, _ADVICE)
    except (sqlite3.Error, sqlite3.Warning) as error:
        raise DataError(f"{address.shown}: SQLite says: {error}. The query was: {query}") from None


def _duckdb(address: Address) -> Iterator[pa.RecordBatch]:
    """The rows of one SELECT on a DuckDB file or, without a file, on whatever files the query names."""
    check_options(address, ("query",))
    query = asked_query(address, "SELECT head, relation, tail FROM 'facts.parquet'")
    if address.place:
        need_file(address)
    with _connected(address, str(address.path) if address.place else ":memory:") as connection:
        yield from _answer(address, connection, query)


def _postgres(address: Address) -> Iterator[pa.RecordBatch]:
    """The rows of one SELECT on PostgreSQL, sent in its own SQL through DuckDB's postgres extension."""
    check_options(address, ("query",))
    query = asked_query(address, "SELECT head, relation, tail FROM facts")
    with _connected(address, ":memory:") as connection:
        _load_extension(address, connection)
        place = address.place.replace("'", "''")
        connection.execute(f"ATTACH '{place}' AS source (TYPE postgres, READ_ONLY)")
        yield from _answer(address, connection, "SELECT * FROM postgres_query('source', ?)", [query])


QUERIES = {"sqlite": _sqlite, "duckdb": _duckdb, "postgres": _postgres}


def asked_query(address: Address, example: str) -> str:
    """The query of an address; without one, an error that shows where it goes."""
    query = address.options.get("query")
    if not isinstance(query, str) or not query.strip():
        raise ConfigError(
            f"{address.text}: which facts? Ask for three columns, head, relation and tail, at the end of the "
            f"address: {address.kind}:{address.place}?query={example}"
        )
    return query.strip().rstrip(";")


def check_width(shown: str, names: Sequence[str]) -> None:
    """Refuse an answer that has not three columns."""
    if len(names) != 3:
        listed = f" ({', '.join(names)})" if names else ""
        raise DataError(
            f"{shown}: the query gives {len(names)} columns{listed}; it has to give three: head, relation and tail, "
            "in this order."
        )


def answer_batches(shown: str, rows: Iterable[Sequence[Any]], advice: str) -> Iterator[pa.RecordBatch]:
    """The rows of an answer; what is no label is an error with its row and the advice."""
    return row_batches(
        rows, lambda row, what: DataError(f"{shown}: row {row + 1:,} of the query: {what} {advice}")
    )


def _duckdb_package() -> Any:
    try:
        import duckdb
    except ImportError:
        raise MissingExtraError("duckdb", "sql", "asking DuckDB") from None
    return duckdb


@contextlib.contextmanager
def _connected(address: Address, place: str) -> Iterator[Any]:
    """A connection that downloads nothing by itself and writes nothing; what DuckDB refuses is a DataError."""
    duckdb = _duckdb_package()
    settings = {"autoinstall_known_extensions": "false"}
    try:
        with duckdb.connect(place, read_only=place != ":memory:", config=settings) as connection:
            yield connection
    except duckdb.Error as error:
        first = str(error).splitlines()[0]
        raise DataError(
            f"{address.shown}: DuckDB says: {first}. The query was: {address.options['query']}"
        ) from None


def _answer(
    address: Address, connection: Any, query: str, parameters: Sequence[str] = ()
) -> Iterator[pa.RecordBatch]:
    statements = connection.extract_statements(query)
    if len(statements) != 1 or "SELECT" not in str(statements[0].type):
        raise DataError(f"{address.shown}: the query has to be one SELECT. It was: {query}")
    result = connection.execute(query, list(parameters))
    check_width(address.shown, [column[0] for column in result.description])
    rows = chain.from_iterable(iter(lambda: result.fetchmany(BATCH_ROWS), []))
    yield from answer_batches(address.shown, rows, _ADVICE)


def _load_extension(address: Address, connection: Any) -> None:
    """LOAD, never INSTALL: a missing extension is an error that says how to get it."""
    try:
        connection.execute("LOAD postgres")
    except _duckdb_package().Error:
        raise DataError(
            f"{address.shown}: DuckDB's postgres extension is not on this machine, and nothing is downloaded "
            "without being asked. Once, with a network: "
            "python -c \"import duckdb; duckdb.sql('INSTALL postgres')\". Without one: write the rows to a file, "
            r"psql -c '\copy (SELECT ...) TO facts.csv CSV HEADER', and read that."
        ) from None
