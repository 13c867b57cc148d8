"""Counting on SQL engines: one statement, run by DuckDB here or by Spark, through ibis, on a cluster.

Both read Parquet. Text is first checked by our own reader and staged as Parquet in a temporary folder: the
CSV readers of the engines each read some hostile file silently wrong.
"""

from __future__ import annotations

import contextlib
import importlib
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from contextpool.context.counts import Cooccurrence, available_threads, check_relation_count
from contextpool.context.mining import by_sorted_label, mining_batches
from contextpool.errors import ContextPoolError, MissingExtraError, setting
from contextpool.triples.labels import ROLES
from contextpool.triples.sources.address import Address
from contextpool.triples.sources.tables import opened_parquet

Progress = Callable[[int, int], None]
CODES = """
WITH codes AS (
  SELECT relation, CAST(ROW_NUMBER() OVER (ORDER BY relation) - 1 AS INTEGER) AS code
  FROM (SELECT DISTINCT relation FROM triples) AS met
)
"""
"""Relations as small numbers, in their own order."""
HAS = f"""
{CODES}, has AS (
  SELECT DISTINCT head AS entity, 2 * code AS code FROM triples JOIN codes ON triples.relation = codes.relation
  UNION ALL
  SELECT DISTINCT tail AS entity, 2 * code + 1 AS code FROM triples JOIN codes ON triples.relation = codes.relation
)
"""
"""The incidence NR_e: each (entity, directed relation) once; relation k is 2 k, inverted 2 k + 1."""
COOCCURRENCE = f"""
{HAS}
SELECT a.code AS code_a, b.code AS code_b, COUNT(*) AS entities
FROM has AS a JOIN has AS b ON a.entity = b.entity
WHERE a.code <= b.code
GROUP BY a.code, b.code
"""
"""Entities having both, for each unordered pair of directed relations once."""
LABELS = f"{CODES} SELECT relation FROM codes ORDER BY code"
ENTITIES = f"{HAS} SELECT COUNT(DISTINCT entity) AS entities FROM has"
ROWS = "SELECT COUNT(*) AS rows_read FROM triples"


def mine_with_duckdb(
    address: Address, memory: int, folder: Path | None = None, progress: Progress = lambda done, of: None
) -> tuple[Cooccurrence, int]:
    """Counts and rows read by DuckDB, which spills to the temporary folder past `memory` bytes."""
    duckdb = _imported("duckdb", "sql", "Mining with DuckDB")
    with _as_parquet(address, folder) as (table, temporary), duckdb.connect() as connection:
        connection.execute(f"SET memory_limit = '{memory // 2**20}MiB'")
        connection.execute("SET temp_directory = " + _quoted(temporary / "spill"))
        connection.execute("SET preserve_insertion_order = false")
        connection.execute(f"SET threads = {available_threads()}")
        connection.execute(f"CREATE VIEW triples AS SELECT * FROM read_parquet({_quoted(table)})")
        try:
            return _collected(lambda query: connection.sql(query).to_arrow_table(), progress)
        except duckdb.OutOfMemoryException as error:
            reason = str(error).splitlines()[0]
            raise ContextPoolError(
                f"{address.text}: DuckDB could not mine it within {memory / 2**20:.0f} MiB ({reason}). "
                f"Raise {setting('memory')}, or use {setting('engine', 'disk')}."
            ) from error


def mine_with_spark(
    address: Address,
    memory: int,
    master: str | None = None,
    folder: Path | None = None,
    progress: Progress = lambda done, of: None,
) -> tuple[Cooccurrence, int]:
    """Counts and rows read by Spark, at `master` (a cluster's URL) or in this process' own JVM.

    On a cluster the file, or the temporary folder it is staged in, has to be one that the workers see.
    """
    ibis = _imported("ibis", "spark", "Mining with Spark")
    sql = _imported("pyspark.sql", "spark", "Mining with Spark")
    with _as_parquet(address, folder) as (table, temporary):
        own = sql.SparkSession.getActiveSession() is None  # a caller's session is used, and left running
        session = _spark_session(sql, memory, master, temporary.parent)
        try:
            session.read.parquet(table.resolve().as_uri()).createOrReplaceTempView("triples")
            connection = ibis.pyspark.connect(session)
            return _collected(lambda query: connection.sql(query, dialect="duckdb").to_pyarrow(), progress)
        finally:
            if own:
                session.stop()


def _imported(module: str, extra: str, purpose: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError:
        raise MissingExtraError(module.partition(".")[0], extra, purpose) from None


def _spark_session(sql: Any, memory: int, master: str | None, folder: Path) -> Any:
    settings = {
        "spark.driver.memory": f"{max(memory // 2**20, 512)}m",
        "spark.local.dir": str(folder.resolve()),  # Spark removes its own there when its JVM ends
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.ansi.enabled": "true",
        "spark.sql.session.timeZone": "UTC",
    }
    if master is None:
        settings |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    builder = sql.SparkSession.builder.appName("contextpool mine").master(
        master or f"local[{available_threads()}]"
    )
    for name, value in settings.items():
        builder = builder.config(name, value)
    try:
        return builder.getOrCreate()
    except Exception as error:  # py4j and pyspark raise many kinds: no Java, no such master, no memory
        reason = str(error).strip().splitlines()
        raise ContextPoolError(
            f"Spark did not start at {master or 'this machine'}: {reason[0] if reason else type(error).__name__}. "
            f"It needs Java 17 or newer (`java -version`), and {setting('master')} a URL that can be reached."
        ) from error


def _quoted(path: Path) -> str:
    return "'" + str(path).replace("'", "''") + "'"


@contextlib.contextmanager
def _as_parquet(address: Address, folder: Path | None) -> Iterator[tuple[Path, Path]]:
    """The input as a checked Parquet file, itself or a staged copy, and a temporary folder."""
    with tempfile.TemporaryDirectory(
        prefix="contextpool-mine-", dir=folder, ignore_cleanup_errors=True
    ) as name:
        temporary = Path(name)
        stream = mining_batches(address)
        if _is_plain(address):
            for _ in stream:
                pass  # the checks of the reader: nulls, types, labels
            yield address.path, temporary
        else:
            yield _staged(stream, temporary / "triples.parquet"), temporary


def _is_plain(address: Address) -> bool:
    """Whether an engine can read the file as it stands: Parquet, columns by our names, all strings or all integers."""
    if address.kind != "parquet" or address.options:
        return False
    with opened_parquet(address) as file:
        schema = file.schema_arrow
        kinds = {schema.field(name).type for name in ROLES} if set(ROLES) <= set(schema.names) else set()
    return len(kinds) == 1 and kinds <= {pa.string(), pa.int32(), pa.int64()}


def _staged(stream: Iterator[pa.RecordBatch], target: Path) -> Path:
    import pyarrow.parquet as pq

    first = next(stream)  # a source without a row is an error of the reader
    with pq.ParquetWriter(target, first.schema, compression="zstd") as writer:
        writer.write_batch(first)
        for batch in stream:
            writer.write_batch(batch)
    return target


def _collected(query: Callable[[str], pa.Table], progress: Progress) -> tuple[Cooccurrence, int]:
    """Run the statements with `query` and put their answers into a matrix; `progress` hears of each."""
    progress(0, 4)
    rows = int(query(ROWS).column(0)[0].as_py())
    progress(1, 4)
    labels: list[str] = query(LABELS).column(0).cast(pa.string()).to_pylist()
    check_relation_count(2 * len(labels))
    progress(2, 4)
    num_entities = int(query(ENTITIES).column(0)[0].as_py())
    progress(3, 4)
    counts = query(COOCCURRENCE)
    both = np.zeros((2 * len(labels), 2 * len(labels)), dtype=np.int64)
    one, other, entities = (_column(counts, name) for name in ("code_a", "code_b", "entities"))
    both[one, other] = entities
    both[other, one] = entities
    progress(4, 4)
    return by_sorted_label(both, labels, num_entities), rows


def _column(table: pa.Table, name: str) -> npt.NDArray[np.int64]:
    values: npt.NDArray[np.int64] = table.column(name).to_numpy().astype(np.int64)
    return values
