"""What `contextpool mine` does past memory: the engines that count."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from contextpool.cli.output import count_bar
from contextpool.errors import ConfigError, DataError

if TYPE_CHECKING:
    from contextpool.context.counts import Cooccurrence
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

    @property
    def wanted(self) -> bool:
        """Whether this is more than mining a graph in memory and printing it."""
        return self.engine != "memory" or self.master is not None or self.temp is not None


def parse_bytes(text: str) -> int:
    """'1GiB', '512 MB', '2g' or plain bytes."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?i?)b?\s*", text.lower())
    if found is None or found[2] not in _UNITS:
        raise ConfigError(f"--memory is {text!r}; write it like 512MiB, 1.5GB or 2g.")
    return int(float(found[1]) * _UNITS[found[2]])


def engine_counts(graph: str, options: MiningOptions) -> Cooccurrence:
    """Counts by the engine."""
    from contextpool.context.mining import mine_counts
    from contextpool.triples.sources.address import find_address

    address = find_address(graph)
    if address is None or not address.path.is_file():
        raise DataError(
            f"{graph}: --engine reads a file of triples, and there is none of this name. A dataset's folder "
            "holds such files; of any other source, `contextpool data convert` makes one."
        )
    with count_bar("mining") as progress:
        return mine_counts(
            address, options.engine, memory=parse_bytes(options.memory), master=options.master,
            temp=options.temp, progress=progress,
        ).counts  # fmt: skip
