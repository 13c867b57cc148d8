"""A folder of shards that a kill at any moment costs at most one of.

    FOLDER/part-00000.jsonl, part-00001.jsonl, ...
    FOLDER/_manifest.json          what they depend on, and the sha256 of every finished shard

Shards and manifest are replaced whole, a shard before the manifest that names it. What belongs into a shard depends on
its number alone, so whoever finishes the work, and after however many kills, writes the same bytes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from contextpool.errors import ConfigError, DataError, setting, shortened
from contextpool.predict.files import file_digest
from contextpool.predict.workers import Doing, Piece
from contextpool.train.files import durable_file, reason

MANIFEST = "_manifest.json"
"""Readers of folders (Arrow, Spark, DuckDB) pass over names that start with an underscore."""
OWN = ("part-", ".part-", f".{MANIFEST}")
"""Also of a call that was killed before its first manifest."""
FORMAT = "contextpool answers 2"


class Manifest:
    """The manifest of an output folder. A shard is finished once the manifest names it and its bytes are as named."""

    def __init__(
        self, folder: Path, identity: dict[str, Any], suffix: str, content: Mapping[str, Any] | None
    ) -> None:
        self.folder, self.identity, self.suffix = folder, identity, suffix
        self.conditions: list[dict[str, Any]] = list(content["conditions"]) if content else []
        if _conditions() not in self.conditions:
            self.conditions.append(_conditions())
        kept = content["shards"] if content else {}
        self.shards: dict[str, str] = {
            name: digest for name, digest in kept.items() if self._is_intact(name, digest)
        }

    @classmethod
    def opened(cls, folder: Path, identity: dict[str, Any], suffix: str, overwrite: bool) -> Manifest:
        """Open the manifest of a new or empty folder, or of one that was begun with the same identity."""
        if not folder.exists():
            return cls(folder, identity, suffix, None)
        path = folder / MANIFEST
        content = _read_manifest(path) if path.is_file() else None
        if content is None:
            _refuse_foreign(folder)
        elif content["identity"] != identity:
            if not overwrite:
                raise ConfigError(_what_differs(folder, content["identity"], identity))
            _remove(folder, content)
            content = None
        return cls(folder, identity, suffix, content)

    @property
    def paths(self) -> tuple[Path, ...]:
        return tuple(self.folder / name for name in sorted(self.shards, key=lambda name: (len(name), name)))

    def has(self, number: int) -> bool:
        return self._name(number) in self.shards

    def add(self, number: int, content: bytes) -> None:
        """Write a shard, then the manifest that names it."""
        name = self._name(number)
        with durable_file(self.folder / name) as stream:
            stream.write(content)
        self.shards[name] = hashlib.sha256(content).hexdigest()
        self._write(complete=False)

    def finish(self) -> None:
        self._write(complete=True)

    def remove(self) -> None:
        """All of it, what a kill left half written included, and the folder where nothing else is in it."""
        _remove(self.folder, {"shards": self.shards})
        for left in [entry for entry in self.folder.iterdir() if entry.name.startswith(OWN)]:
            left.unlink()
        with suppress(OSError):
            self.folder.rmdir()

    def fill(self, chunks: Iterable[Sized], count: int, doing: Doing, progress: Callable[[int], None]) -> int:
        """Have all `count` chunks worked on that have no shard yet; how many things were in them.

        `progress` hears how many things of all chunks are done.
        """
        sizes: dict[int, int] = {}
        done = 0

        def missing() -> Iterator[Piece]:
            nonlocal done
            for number, chunk in enumerate(chunks):
                if self.has(number):
                    done += len(chunk)
                    progress(done)
                else:
                    sizes[number] = len(chunk)
                    yield number, chunk

        now = 0
        left = sum(not self.has(number) for number in range(count))
        for number, content in doing(missing(), left):
            self.add(number, content)
            size = sizes.pop(number)
            done, now = done + size, now + size
            progress(done)
        self.finish()
        return now

    def _name(self, number: int) -> str:
        return f"part-{number:05}.{self.suffix}"

    def _write(self, complete: bool) -> None:
        content = {
            "format": FORMAT,
            "identity": self.identity,
            "conditions": self.conditions,
            "complete": complete,
            "shards": dict(sorted(self.shards.items())),
        }
        with durable_file(self.folder / MANIFEST) as stream:
            stream.write((json.dumps(content, indent=2) + "\n").encode("utf-8"))

    def _is_intact(self, name: str, digest: str) -> bool:
        path = self.folder / name
        return path.is_file() and file_digest(path) == digest


def begun_with(folder: Path) -> Mapping[str, Any] | None:
    """What the shards of a folder depend on; None where there are none."""
    path = folder / MANIFEST
    identity = _read_manifest(path)["identity"] if path.is_file() else None
    return identity if isinstance(identity, dict) else None


def _conditions() -> dict[str, Any]:
    """Library version and threads, which may change the last bits of a score."""
    return {"torch": torch.__version__, "threads": torch.get_num_threads()}


def _read_manifest(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_bytes())
        whole = content["format"] == FORMAT and {"identity", "conditions", "shards"} <= set(content)
        plain = all("/" not in name and name.startswith("part-") for name in content["shards"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        whole = plain = False
    if not (whole and plain):
        raise DataError(f"{path}: this is no manifest of answers, or it is damaged. Choose another folder.")
    return content  # type: ignore[no-any-return]


def _refuse_foreign(folder: Path) -> None:
    if not folder.is_dir():
        raise ConfigError(f"output {folder} is a file; answers go into a folder. Choose another name.")
    try:
        foreign = sorted(entry.name for entry in folder.iterdir() if not entry.name.startswith(OWN))
    except OSError as error:
        raise ConfigError(
            f"output {folder} cannot be read ({reason(error)}). Choose another folder."
        ) from error
    if foreign:
        raise ConfigError(
            f"output {folder} holds other files, such as {shortened(foreign[0])}. Choose an empty or a new folder."
        )


def _what_differs(folder: Path, old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    keys = [key for key in new if old.get(key) != new[key]]
    return (
        f"output {folder} holds answers of another call: {', '.join(keys)} differ. "
        f"Choose another folder, or replace them ({setting('overwrite', True)})."
    )


def _remove(folder: Path, content: Mapping[str, Any]) -> None:
    """The manifest first: without it the shards are nobody's."""
    for name in (MANIFEST, *content["shards"]):
        (folder / name).unlink(missing_ok=True)
