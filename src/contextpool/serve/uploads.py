"""The graph in a file that somebody sent: read from memory, by the reader that reads every file."""

from __future__ import annotations

import os
import re
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import PurePosixPath

from contextpool.errors import ConfigError, DataError, DataWarning, shortened
from contextpool.graph.graph import Graph
from contextpool.serve.registry import LONGEST_NAME
from contextpool.triples.reader import read_triples
from contextpool.triples.sources.address import SUFFIXES, Address

KINDS = {suffix: kind for suffix, kind in SUFFIXES.items() if kind in ("tsv", "csv", "jsonl")}
OPTIONS = ("columns", "delimiter", "header", "merge")
"""How a file may be read; no other option of an address can be given here."""


@dataclass(frozen=True)
class Remark:
    """What the reader says about a file."""

    message: str
    options: str | None
    """What it suggests to read the file with, such as "header=yes"."""


class UnreadableError(DataError):
    """A file that holds no graph, as far as anybody can read it."""

    def __init__(self, remark: Remark) -> None:
        super().__init__(remark.message)
        self.remark = remark


def read_upload(
    file_name: str, content: bytes, options: Mapping[str, str]
) -> tuple[str, Graph, list[Remark]]:
    """A name for the graph, the graph, and doubts about it."""
    path = PurePosixPath(file_name.replace("\\", "/"))
    kind = KINDS.get(path.suffix.lower())
    if kind is None:
        told = f"{shortened(path.name)}: send a file that ends in {', '.join(KINDS)}."
        raise UnreadableError(Remark(told, None))
    for key in options:
        if key not in OPTIONS:
            raise ConfigError(f"options: {shortened(key)} is none of {', '.join(OPTIONS)}.")
    name = "".join(letter for letter in path.name if letter.isprintable())
    with _in_memory(content) as place:
        address = Address(kind, place, dict(options), name)
        try:
            with warnings.catch_warnings(record=True) as told_of:
                warnings.simplefilter("always", DataWarning)
                graph = Graph.from_triples(read_triples(address))
        except DataError as error:
            raise UnreadableError(_remark(str(error), place, name)) from None
        doubts = [str(one.message) for one in told_of if issubclass(one.category, DataWarning)]
        return (
            path.stem[:LONGEST_NAME].strip() or "graph",
            graph,
            [_remark(one, place, name) for one in doubts],
        )


def _remark(message: str, place: str, name: str) -> Remark:
    """The message with the file's own name, and apart from it what to read the file with."""
    found = re.search(
        rf"[.;,]? (?:if [^,;:.]*, )?type '?{re.escape(place)}\?([^']*)'?", message, re.IGNORECASE
    )
    if found is None:
        return Remark(message.replace(place, name), None)
    pairs = [pair for pair in found[1].split("&") if not pair.startswith("format=")]
    usable = bool(pairs) and all(pair.partition("=")[0] in OPTIONS for pair in pairs)
    told = f"{message[: found.start()].rstrip()}.".replace(place, name)
    return Remark(told, "&".join(pairs) if usable else None)


@contextmanager
def _in_memory(content: bytes) -> Iterator[str]:
    """A path under which the bytes can be read, and which is no file of any disk where the system can do that."""
    if sys.platform == "linux":
        handle = os.memfd_create("graph", os.MFD_CLOEXEC)
        try:
            with os.fdopen(handle, "wb", closefd=False) as stream:
                stream.write(content)
            yield f"/proc/self/fd/{handle}"
        finally:
            os.close(handle)
        return
    with tempfile.NamedTemporaryFile(prefix="contextpool-") as stream:
        stream.write(content)
        stream.flush()
        yield stream.name
