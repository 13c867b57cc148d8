"""Mining engines behind one function: the same counts from memory, disk, DuckDB or Spark.

They share how ids are checked and relations numbered: a stream does not know R before its end, so relation k is `2 k`
as it stands and `2 k + 1` inverted until then.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from contextpool.context.counts import Cooccurrence, Counts, check_relation_count
from contextpool.errors import ConfigError, DataError, setting
from contextpool.graph.relations import RelationVocabulary
from contextpool.triples.labels import ROLES
from contextpool.triples.reader import batches
from contextpool.triples.sources.address import Address, parse_address

Engine = Literal["memory", "disk", "duckdb", "spark"]
DEFAULT_MEMORY = 1 << 30
MAX_ENTITY_ID = 2**46 - 1
MAX_RELATION_ID = 2**20 - 1


@dataclass(frozen=True, eq=False)
class Mined:
    """What an engine made of a file."""

    counts: Cooccurrence
    rows: int
    """Rows read, duplicates included."""
    engine: Engine


def mine_counts(
    source: str | Path | Address,
    engine: Engine = "memory",
    *,
    memory: int = DEFAULT_MEMORY,
    master: str | None = None,
    temp: str | Path | None = None,
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> Mined:
    """Co-occurrence counts of a file (`triples.reader` says which forms), the same from each engine.

    `memory` in bytes bounds what disk, DuckDB and Spark hold beside the interpreter and the counts; `temp` is
    where they spill; `master` is Spark's URL. `progress` hears (done, of): rows on disk, else statements.
    """
    address = source if isinstance(source, Address) else parse_address(source)
    folder = None if temp is None else Path(temp)
    if engine not in get_args(Engine):
        raise ConfigError(f"{setting('engine')} is {engine!r}; it is one of {', '.join(get_args(Engine))}.")
    if master is not None and engine != "spark":
        raise ConfigError(
            f"a master URL is Spark's; the engine is {engine!r}. Use {setting('engine', 'spark')}."
        )
    if folder is not None and not folder.is_dir():
        raise ConfigError(f"{folder}: there is no such folder for temporary files.")
    counts, rows = _run(address, engine, memory, master, folder, progress)
    return Mined(counts, rows, engine)


def _run(
    address: Address, engine: Engine, memory: int, master: str | None, folder: Path | None,
    progress: Callable[[int, int], None],
) -> tuple[Cooccurrence, int]:  # fmt: skip
    if engine == "duckdb":
        from contextpool.context.mining.sql import mine_with_duckdb

        return mine_with_duckdb(address, memory, folder, progress)
    if engine == "spark":
        from contextpool.context.mining.sql import mine_with_spark

        return mine_with_spark(address, memory, master, folder, progress)
    from contextpool.context.mining.partitions import (  # numba is loaded where it is needed
        mine_in_memory,
        mine_on_disk,
    )

    return mine_on_disk(address, memory, folder, progress) if engine == "disk" else mine_in_memory(address)


def mining_batches(address: Address) -> Iterator[pa.RecordBatch]:
    """As the reader gives them; ids are checked to be small enough to be packed into one number with a relation."""
    row = 0
    for batch in batches(address):
        if holds_ids(batch):
            _check_ids(batch, address, row)
        yield batch
        row += batch.num_rows


def holds_ids(batch: pa.RecordBatch) -> bool:
    """Whether the columns are integers rather than labels."""
    return bool(pa.types.is_integer(batch.schema.types[0]))


def _check_ids(batch: pa.RecordBatch, address: Address, first: int) -> None:
    for role, column in zip(ROLES, batch.columns, strict=True):
        ids: npt.NDArray[np.int64] = column.to_numpy()
        most = MAX_RELATION_ID if role == "relation" else MAX_ENTITY_ID
        if len(ids) and (ids.min() < 0 or ids.max() > most):
            at = int(np.flatnonzero((ids < 0) | (ids > most))[0])
            raise DataError(
                f"{address.text}: row {first + at:,} (from 0): the {role} id {ids[at]} is not in 0 ... {most:,}. "
                "Are columns swapped?"
            )


class RelationCodes:
    """Labels or ids of relations -> 0, 1, 2, ... in the order of their first batch."""

    def __init__(self) -> None:
        self.labels: list[str] = []
        self._code_of_label: dict[str, int] = {}
        self._code_of_id: npt.NDArray[np.int32] | None = None  # [MAX_RELATION_ID + 1], -1 where unmet

    @property
    def num_directed(self) -> int:
        """2R of what was met so far."""
        return 2 * len(self.labels)

    def encode(self, column: pa.Array) -> npt.NDArray[np.int32]:
        """[rows] the code of each relation; too many distinct ones are refused at once."""
        codes = (
            self._of_ids(column.to_numpy()) if pa.types.is_integer(column.type) else self._of_labels(column)
        )
        check_relation_count(self.num_directed)
        return codes

    def _of_ids(self, ids: npt.NDArray[np.int64]) -> npt.NDArray[np.int32]:
        if self._code_of_id is None:
            self._code_of_id = np.full(MAX_RELATION_ID + 1, -1, dtype=np.int32)
        present = np.flatnonzero(np.bincount(ids))
        for relation in present[self._code_of_id[present] < 0].tolist():
            self._code_of_id[relation] = self._add(str(relation))
        return self._code_of_id[ids]

    def _of_labels(self, column: pa.Array) -> npt.NDArray[np.int32]:
        encoded = column.dictionary_encode()
        labels = encoded.dictionary.to_pylist()
        known = [
            self._code_of_label[label] if label in self._code_of_label else self._add(label)
            for label in labels
        ]
        codes: npt.NDArray[np.int32] = np.array(known, dtype=np.int32)[encoded.indices.to_numpy()]
        return codes

    def _add(self, label: str) -> int:
        self._code_of_label[label] = code = len(self.labels)
        self.labels.append(label)
        return code


def by_sorted_label(both: Counts, labels: list[str], num_entities: int) -> Cooccurrence:
    """Counts [2R, 2R] over codes 2 k + inverted, as counts over the sorted vocabulary: r in R, then r^-1."""
    order = np.array(sorted(range(len(labels)), key=labels.__getitem__), dtype=np.int64)
    place = np.concatenate([2 * order, 2 * order + 1])
    relations = RelationVocabulary(tuple(labels[code] for code in order.tolist()))
    return Cooccurrence(relations, np.ascontiguousarray(both[np.ix_(place, place)]), num_entities)


def checksum(counts: Cooccurrence) -> str:
    """sha256 over the labels and the matrix, little-endian int64: equal for equal counts, whoever made them."""
    digest = hashlib.sha256("\n".join(counts.relations.forward).encode())
    digest.update(counts.both.astype("<i8").tobytes())
    return digest.hexdigest()
