"""Counts as a small Parquet file that says what they were made of."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from contextpool.context.cooccurrence import Cooccurrence, check_relation_count
from contextpool.context.mining.codes import checksum
from contextpool.errors import DataError
from contextpool.graph.relations import RelationVocabulary
from contextpool.triples.reader import atomic_file

SCHEMA_VERSION = 1
_KEY = b"contextpool"
Role = Literal["graph", "added", "removed"]


@dataclass(frozen=True)
class Input:
    """One file that went in."""

    role: Role
    name: str
    size: int
    sha256: str

    @classmethod
    def of(cls, role: Role, path: Path) -> Input:
        """Reads the file once."""
        with path.open("rb") as stream:
            return cls(
                role, path.name, path.stat().st_size, hashlib.file_digest(stream, "sha256").hexdigest()
            )


@dataclass(frozen=True)
class Provenance:
    """Where counts come from: `graph` first, then every delta with the graph it was applied to, in order."""

    engine: str
    rows: int
    """Rows read by the engine; deltas not counted."""
    date: str
    inputs: tuple[Input, ...]

    @classmethod
    def now(cls, engine: str, rows: int, inputs: Sequence[Input]) -> Provenance:
        return cls(engine, rows, datetime.now(UTC).isoformat(timespec="seconds"), tuple(inputs))


def write_counts(path: str | Path, counts: Cooccurrence, provenance: Provenance) -> None:
    """One row for each pair of directed relations that share an entity; the file appears whole or not at all."""
    import pyarrow.parquet as pq

    one, other = np.nonzero(np.triu(counts.both))
    names = pa.array(counts.relations.directed, pa.string())
    columns = {
        "relation_a": pa.DictionaryArray.from_arrays(one.astype(np.int32), names),
        "relation_b": pa.DictionaryArray.from_arrays(other.astype(np.int32), names),
        "entities": counts.both[one, other],
    }
    meta = {
        "schema": SCHEMA_VERSION,
        "relations": counts.relations.forward,
        "num_entities": counts.num_entities,
        "checksum": checksum(counts),
        "provenance": asdict(provenance),
    }
    table = pa.table(columns).replace_schema_metadata({_KEY: json.dumps(meta, ensure_ascii=False)})
    with atomic_file(Path(path)) as stream:
        pq.write_table(table, stream, compression="zstd")


def read_counts(path: str | Path) -> tuple[Cooccurrence, Provenance]:
    """What `write_counts` wrote; a file that is not that, or not whole, is a DataError."""
    path = Path(path)
    table = _table(path)
    meta = _meta(table, path)
    try:
        counts = _counts(table, meta)
        provenance = _provenance(meta["provenance"])
    except (KeyError, TypeError, IndexError, pa.ArrowException) as error:
        raise DataError(f"{path}: the stored statistics are damaged ({error!r}). Mine them again.") from None
    if checksum(counts) != meta["checksum"]:
        raise DataError(
            f"{path}: the stored statistics do not have the checksum they claim. Mine them again."
        )
    return counts, provenance


def _table(path: Path) -> pa.Table:
    import pyarrow.parquet as pq

    if not path.is_file():
        raise DataError(f"{path}: there is no such file of statistics.")
    try:
        return pq.ParquetFile(path).read()
    except (pa.ArrowInvalid, OSError) as error:
        raise DataError(f"{path}: this is not a readable Parquet file ({error}).") from None


def _meta(table: pa.Table, path: Path) -> dict[str, Any]:
    stored = (table.schema.metadata or {}).get(_KEY)
    if stored is None:
        raise DataError(
            f"{path}: these are not statistics; make them with `contextpool mine GRAPH --output FILE`."
        )
    meta: dict[str, Any] = json.loads(stored)
    if meta.get("schema") != SCHEMA_VERSION:
        raise DataError(
            f"{path}: the statistics have schema {meta.get('schema')!r}, this version reads {SCHEMA_VERSION}."
        )
    return meta


def _counts(table: pa.Table, meta: dict[str, Any]) -> Cooccurrence:
    relations = RelationVocabulary(tuple(meta["relations"]))
    check_relation_count(relations.num_directed)
    one, other = (
        np.array([relations.index[label] for label in table.column(name).to_pylist()], dtype=np.int64)
        for name in ("relation_a", "relation_b")
    )
    both = np.zeros((relations.num_directed, relations.num_directed), dtype=np.int64)
    both[one, other] = both[other, one] = table.column("entities").to_numpy()
    return Cooccurrence(relations, both, int(meta["num_entities"]))


def _provenance(stored: dict[str, Any]) -> Provenance:
    inputs = tuple(Input(**each) for each in stored["inputs"])
    return Provenance(stored["engine"], int(stored["rows"]), stored["date"], inputs)
