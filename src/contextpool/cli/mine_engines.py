"""What `contextpool mine` does past memory: engines, stored statistics and their updates."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from contextpool.cli.output import count_bar, note
from contextpool.errors import ConfigError, DataError

if TYPE_CHECKING:
    from contextpool.context.cooccurrence import Cooccurrence
    from contextpool.context.mining import Engine

_UNITS = {
    "": 1,
    "k": 10**3,
    "m": 10**6,
    "g": 10**9,
    "t": 10**12,
    "ki": 2**10,
    "mi": 2**20,
    "gi": 2**30,
    "ti": 2**40,
}


@dataclass(frozen=True)
class MiningOptions:
    """The options of `mine` that go to an engine."""

    engine: Engine
    memory: str
    master: str | None
    temp: Path | None
    output: Path | None
    update: Path | None
    added: Path | None
    removed: Path | None

    @property
    def wanted(self) -> bool:
        """Whether this is more than mining a graph in memory and printing it."""
        asked = (self.master, self.temp, self.output, self.update, self.added, self.removed)
        return self.engine != "memory" or any(value is not None for value in asked)


def parse_bytes(text: str) -> int:
    """'1GiB', '512 MB', '2g' or plain bytes."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?i?)b?\s*", text.lower())
    if found is None or found[2] not in _UNITS:
        raise ConfigError(f"--memory is {text!r}; write it like 512MiB, 1.5GB or 2g.")
    return int(float(found[1]) * _UNITS[found[2]])


def engine_counts(graph: str, options: MiningOptions) -> Cooccurrence:
    """Counts by the engine, or by updating stored ones; stored where --output says."""
    from contextpool.triples.sources import find_address

    address = find_address(graph)
    if address is None or address.options or not address.is_there or not address.path.is_file():
        raise DataError(
            f"{graph}: --engine, --output and --update read a triple file (.tsv, .csv, .parquet, .npy), "
            "and there is none of this name. A dataset's folder holds such files; of any other source, "
            "`contextpool data convert` makes one."
        )
    path = address.path
    if options.update is not None:
        return _updated(path, options)
    if options.added or options.removed:
        raise ConfigError("--add and --remove change stored statistics; name them with --update STATS.")
    return _mined(path, options)


def _mined(path: Path, options: MiningOptions) -> Cooccurrence:
    from contextpool.context.mining import mine_counts
    from contextpool.context.mining.stored import Input, Provenance, write_counts

    with count_bar("mining") as progress:
        mined = mine_counts(
            path, options.engine, memory=parse_bytes(options.memory), master=options.master, temp=options.temp,
            progress=progress,
        )  # fmt: skip
    if options.output is not None:
        provenance = Provenance.now(mined.engine, mined.rows, [Input.of("graph", path)])
        write_counts(options.output, mined.counts, provenance)
        note(f"statistics of {mined.rows:,} rows stored in {options.output}")
    return mined.counts


def _updated(path: Path, options: MiningOptions) -> Cooccurrence:
    from contextpool.context.mining.stored import read_counts, write_counts
    from contextpool.context.mining.update import update_counts

    assert options.update is not None
    result = update_counts(*read_counts(options.update), path, options.added, options.removed)
    if not result.verified:
        note(f"{path}: taken for the graph that the statistics are of; after an update nothing can tell")
    if options.output is not None:
        write_counts(options.output, result.counts, result.provenance)
        note(f"statistics updated for {result.touched:,} entities stored in {options.output}")
    return result.counts
