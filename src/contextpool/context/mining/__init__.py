"""Mining engines behind one function: the same counts from memory, disk, DuckDB or Spark."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from contextpool.context.counts import Cooccurrence, count_from_columns
from contextpool.context.mining.codes import RelationCodes, by_sorted_label, mining_batches
from contextpool.errors import ConfigError, DataError, setting
from contextpool.triples.sources.address import Address, parse_address

Engine = Literal["memory", "disk", "duckdb", "spark"]
DEFAULT_MEMORY = 1 << 30
MAX_SPREAD = 2
"""Entities are renumbered where the highest id exceeds this many times the number of heads and tails."""


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
    if engine == "disk":
        from contextpool.context.mining.disk import mine_on_disk

        return mine_on_disk(address, memory, folder, progress)
    if engine == "duckdb":
        from contextpool.context.mining.sql import mine_with_duckdb

        return mine_with_duckdb(address, memory, folder, progress)
    if engine == "spark":
        from contextpool.context.mining.sql import mine_with_spark

        return mine_with_spark(address, memory, master, folder, progress)
    return _mine_in_memory(address)


def _mine_in_memory(address: Address) -> tuple[Cooccurrence, int]:
    """Counts and rows read, by one counting sort. About 30 bytes a triple beside the distinct labels."""
    codes = RelationCodes()
    ends: list[pa.Array] = []
    relations: list[npt.NDArray[np.int32]] = []
    for batch in mining_batches(address):
        relations.append(codes.encode(batch.column(1)))
        ends += [batch.column(0), batch.column(2)]
    relation = np.concatenate(relations)
    ids, span = _numbered(ends)  # [2T] head, tail of each batch after the other's
    sizes = [len(part) for part in relations]
    cuts = np.cumsum(np.repeat(sizes, 2))[:-1]
    parts = np.split(ids, cuts)
    head, tail = np.concatenate(parts[0::2]), np.concatenate(parts[1::2])
    del ids, parts, ends, relations
    both = count_from_columns(head, relation, tail, span, len(codes.labels))
    num_entities = _distinct(head, tail, span)
    return by_sorted_label(_interleaved(both), codes.labels, num_entities), len(relation)


def _numbered(ends: list[pa.Array]) -> tuple[npt.NDArray[np.int32], int]:
    """[2T] the entity number of each head and tail, and their span; dense ids stay as they are."""
    total = sum(map(len, ends))
    if total >= 2**31:
        raise DataError(
            f"the in-memory engine takes fewer than 2^30 triples; use {setting('engine', 'disk')}."
        )
    if pa.types.is_integer(ends[0].type):
        span = max(int(part.to_numpy().max(initial=0)) for part in ends) + 1
        if span <= MAX_SPREAD * total:
            return np.concatenate([part.to_numpy().astype(np.int32) for part in ends]), span
    encoded = pa.chunked_array(ends).dictionary_encode().unify_dictionaries()
    numbers = np.concatenate([chunk.indices.to_numpy() for chunk in encoded.chunks])
    return numbers, len(encoded.chunk(0).dictionary)


def _distinct(head: npt.NDArray[np.int32], tail: npt.NDArray[np.int32], span: int) -> int:
    """How many entities occur."""
    met = np.zeros(span, dtype=bool)
    met[head] = True
    met[tail] = True
    return int(np.count_nonzero(met))


def _interleaved(both: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """From r, then r^-1 (`r + R`) to `2 r`, `2 r + 1`."""
    size = len(both)
    place = np.arange(size).reshape(2, -1).T.reshape(-1)
    return both[np.ix_(place, place)]
