"""_manifest.json of a folder of answers: what they belong to, and which shards are finished."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from contextpool.errors import ConfigError, DataError, shortened
from contextpool.predict.questions import FileKind, file_digest
from contextpool.train._files import durable_file, reason

MANIFEST = "_manifest.json"
"""Readers of folders (Arrow, Spark, DuckDB) pass over names that start with an underscore."""
FORMAT = "contextpool answers 1"


class Manifest:
    """Of one output folder. A shard counts as finished once the manifest names it and its bytes are as named."""

    def __init__(self, folder: Path, identity: dict[str, Any], content: Mapping[str, Any] | None) -> None:
        self.folder, self.identity = folder, identity
        self.conditions: list[dict[str, Any]] = list(content["conditions"]) if content else []
        if _conditions() not in self.conditions:
            self.conditions.append(_conditions())
        kept = content["shards"] if content else {}
        self.shards: dict[str, str] = {
            name: digest for name, digest in kept.items() if self._is_intact(name, digest)
        }

    @classmethod
    def opened(cls, folder: Path, identity: dict[str, Any], overwrite: bool) -> Manifest:
        """Of a new or empty folder, or of one that was begun with the same identity."""
        if not folder.exists():
            return cls(folder, identity, None)
        path = folder / MANIFEST
        content = _read_manifest(path) if path.is_file() else None
        if content is None:
            _refuse_foreign(folder)
        elif content["identity"] != identity:
            if not overwrite:
                raise ConfigError(_what_differs(folder, content["identity"], identity))
            _remove(folder, content)
            content = None
        return cls(folder, identity, content)

    @property
    def paths(self) -> tuple[Path, ...]:
        return tuple(self.folder / name for name in sorted(self.shards))

    def has(self, number: int) -> bool:
        return _name(number, self.identity["settings"]["kind"]) in self.shards

    def add(self, number: int, content: bytes, kind: FileKind) -> None:
        """Write a shard, then the manifest that names it."""
        name = _name(number, kind)
        with durable_file(self.folder / name) as stream:
            stream.write(content)
        self.shards[name] = hashlib.sha256(content).hexdigest()
        self._write(complete=False)

    def finish(self) -> None:
        self._write(complete=True)

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


def _name(number: int, kind: FileKind) -> str:
    return f"part-{number:05}.{kind}"


def _conditions() -> dict[str, Any]:
    """What may change the last bits of a score."""
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
    own = ("part-", ".part-", f".{MANIFEST}")  # of a call that was killed before its first manifest
    try:
        foreign = sorted(entry.name for entry in folder.iterdir() if not entry.name.startswith(own))
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
        "Choose another folder, or replace them (overwrite)."
    )


def _remove(folder: Path, content: Mapping[str, Any]) -> None:
    """The manifest first: without it the shards are nobody's."""
    for name in (MANIFEST, *content["shards"]):
        (folder / name).unlink(missing_ok=True)
