"""Mining engines behind one function: the same counts from memory, disk, DuckDB or Spark."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from contextpool.context.counts import Cooccurrence
from contextpool.errors import ConfigError, setting
from contextpool.triples.sources.address import Address, parse_address

Engine = Literal["memory", "disk", "duckdb", "spark"]
DEFAULT_MEMORY = 1 << 30


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
