"""A query's three columns as triples: SQLite by Python's own module, DuckDB, PostgreSQL by its ADBC driver.

Each is asked in its own SQL and by its own driver: DuckDB would need extensions for the others, which have to be
downloaded first, and an answer should not depend on the extensions of a machine. Every database is opened for reading
only.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa

from contextpool.errors import ConfigError, DataError, MissingExtraError, printable
from contextpool.triples.sources.address import Address, check_options, need_file, retyped
from contextpool.triples.sources.columns import BATCH_ROWS, row_batches
from contextpool.triples.sources.tables import table_batches

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
            connection.set_authorizer(_no_other_file)
            cursor = connection.execute(query)
            check_width(address.shown, [column[0] for column in cursor.description or ()])
            yield from answer_batches(address.shown, cursor, _ADVICE)
    except (sqlite3.Error, sqlite3.Warning) as error:
        raise DataError(f"{address.shown}: SQLite says: {error}. The query was: {query}") from None


def _no_other_file(action: int, *_: str | None) -> int:
    """Deny ATTACH, which VACUUM INTO does, too: the file is opened for reading, but these would make another."""
    return sqlite3.SQLITE_DENY if action == sqlite3.SQLITE_ATTACH else sqlite3.SQLITE_OK


def _duckdb(address: Address) -> Iterator[pa.RecordBatch]:
    """The rows of one SELECT on a DuckDB file, or on files that the query names; it sees nothing else."""
    check_options(address, ("query",))
    query = asked_query(address, "SELECT head, relation, tail FROM 'facts.parquet'")
    if address.place:
        need_file(address)
    with _connected(address, str(address.path) if address.place else ":memory:") as connection:
        _close_off(connection, _files_of(address, connection, query))
        yield from _answer(address, connection, query)


def _postgres(address: Address) -> Iterator[pa.RecordBatch]:
    """The rows of one SELECT on PostgreSQL, as Arrow data; in a transaction that writes nothing."""
    check_options(address, ("query",))
    query = asked_query(address, "SELECT head, relation, tail FROM facts")
    try:
        import adbc_driver_manager as manager
        import adbc_driver_postgresql.dbapi as driver
    except ImportError:
        raise MissingExtraError("adbc_driver_postgresql", "postgres", "asking PostgreSQL") from None
    try:
        with driver.connect(_with_timeout(address.place)) as connection, connection.cursor() as cursor:
            cursor.execute("SET TRANSACTION READ ONLY")
            # Inside of another SELECT nothing but a SELECT is understood: not COPY, which can start programs.
            cursor.execute(f"SELECT * FROM (\n{query}\n) AS facts")
            reader = cursor.fetch_record_batch()
            check_width(address.shown, reader.schema.names)
            yield from table_batches(address, (batch.columns for batch in reader), _ADVICE)
    except (manager.Error, pa.ArrowException, OSError) as error:  # the latter ones while rows come in
        raise DataError(f"{address.shown}: PostgreSQL says: {_told(error)} The query was: {query}") from None


def _with_timeout(place: str) -> str:
    """Where to connect: without an answer for 15 s it is given up, or for as long as PGCONNECT_TIMEOUT says."""
    if "PGCONNECT_TIMEOUT" in os.environ or "connect_timeout" in place:
        return place
    return f"{place}?connect_timeout=15" if "//" in place else f"{place} connect_timeout=15"


def _told(error: Exception) -> str:
    """The server's own words: without the driver's before them, and without the query, which is told once."""
    said = re.split(r"Query was:|LINE \d+:", str(error))[0]
    said = " ".join(re.sub(r"^.*?(ERROR:|FATAL:|Failed to connect:)", "", said, flags=re.DOTALL).split())
    said = re.sub(r"\.? SQLSTATE: \w+$", "", said).rstrip(".")
    hint = " The password is read from PGPASSWORD." if "password" in said else ""
    return f"{printable(said)}.{hint}"


QUERIES = {"sqlite": _sqlite, "duckdb": _duckdb, "postgres": _postgres}


def asked_query(address: Address, example: str) -> str:
    """The query of an address; without one, an error that shows where it goes."""
    query = address.options.get("query")
    if not isinstance(query, str) or not query.strip():
        raise ConfigError(
            f"{address.text}: which facts? Ask for three columns, head, relation and tail, at the end of the "
            f"address: {retyped(address, query=example)}"
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
    settings = {"autoinstall_known_extensions": "false", "python_enable_replacements": "false"}
    try:
        with duckdb.connect(place, read_only=place != ":memory:", config=settings) as connection:
            yield connection
    except duckdb.Error as error:
        first = str(error).splitlines()[0]
        raise DataError(
            f"{address.shown}: DuckDB says: {first}. The query was: {address.options['query']}"
        ) from None


# What DuckDB's own parser may find in a query; everything else, such as a COPY inside of WITH, may write.
_READING = frozenset({"SELECT_NODE", "SET_OPERATION_NODE", "RECURSIVE_CTE_NODE", "CTE_NODE"})
_RUNS_TEXT = frozenset({"query", "query_table"})


def _files_of(address: Address, connection: Any, query: str) -> list[str]:
    """The files that one SELECT names; refused where it is not one, or where any part of it does more than read."""
    ((text,),) = connection.execute("SELECT json_serialize_sql(?)", [query]).fetchall()
    parsed = json.loads(text)
    if len(connection.extract_statements(query)) != 1 or parsed["error"]:
        raise DataError(f"{address.shown}: the query has to be one SELECT. It was: {query}")
    found = list(_objects(parsed["statements"]))
    kinds = {str(one.get("type", "")) for one in found}
    runs = _RUNS_TEXT & {str(one.get("function_name", "")).lower() for one in found}
    wrong = sorted(kind for kind in kinds if kind.endswith("_NODE") and kind not in _READING) or sorted(runs)
    if wrong:
        what = wrong[0].removesuffix("_NODE").removesuffix("_QUERY")
        raise DataError(
            f"{address.shown}: the query has to be one SELECT, in every part of it; it holds {what}. It was: {query}"
        )
    tables = [one["table_name"] for one in found if one.get("type") == "BASE_TABLE"]
    calls = [one for one in found if one.get("type") == "TABLE_FUNCTION"]
    return [
        *tables,
        *(one["text"] for one in _objects(calls) if one.get("kind") == "STRING" and "text" in one),
    ]


def _objects(value: Any) -> Iterator[dict[str, Any]]:
    """Every object of parsed JSON."""
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict):
            yield one
            waiting += one.values()
        elif isinstance(one, list):
            waiting += one


def _close_off(connection: Any, files: Sequence[str]) -> None:
    """From now on the connection reaches these files, `*` in their names included, and nothing else."""
    places = [str(Path(file).expanduser()) for file in files if "\0" not in file and file]
    fixed = [re.split(r"[*?\[{]", place)[0].rpartition("/")[0] or "." for place in places if _is_glob(place)]
    connection.execute(
        "SET allowed_paths = ?", [[*files, *(place for place in places if not _is_glob(place))]]
    )
    connection.execute("SET allowed_directories = ?", [[f"{folder}/" for folder in fixed]])
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")


def _is_glob(place: str) -> bool:
    return re.search(r"[*?\[{]", place) is not None


def _answer(address: Address, connection: Any, query: str) -> Iterator[pa.RecordBatch]:
    result = connection.execute(query)
    check_width(address.shown, [column[0] for column in result.description])
    rows = chain.from_iterable(iter(lambda: result.fetchmany(BATCH_ROWS), []))
    yield from answer_batches(address.shown, rows, _ADVICE)
