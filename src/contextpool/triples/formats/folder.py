"""Files of a dataset folder, found by what they are called without their suffixes."""

from __future__ import annotations

import os
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from contextpool.errors import DataError

TEXT_SUFFIXES = (".txt", ".tsv")
COMPRESSED_SUFFIXES = ("", ".gz", ".zst")
_SUFFIXES = tuple(text + compressed for text in TEXT_SUFFIXES for compressed in COMPRESSED_SUFFIXES)


@dataclass(frozen=True)
class Folder:
    """A folder and its text files by stem: `train.txt`, `train.tsv.gz`, ... are all "train"."""

    path: Path
    files: dict[str, list[Path]]

    @classmethod
    def at(cls, path: Path) -> Folder:
        files = defaultdict(list)
        try:
            entries = sorted(path.iterdir())
        except OSError as error:
            raise DataError(f"{path}: the folder cannot be read ({error.strerror or error}).") from error
        for file in entries:
            stem = stem_of(file.name)
            if stem is not None and file.is_file():
                files[stem].append(file)
        return cls(path, dict(files))

    def has(self, *stems: str) -> bool:
        return all(stem in self.files for stem in stems)

    def get(self, stem: str) -> Path | None:
        """The one file of that stem, or None; two of them are an error, because they might differ."""
        found = self.files.get(stem, [])
        if len(found) > 1:
            names = " and ".join(file.name for file in found)
            raise DataError(
                f"{self.path}: {names} are both there, and only one can be meant. Remove the other."
            )
        return found[0] if found else None

    def need(self, stem: str, why: str) -> Path:
        """The one file of that stem; without it, an error that says what is there and `why` it is needed."""
        found = self.get(stem)
        if found is None:
            raise DataError(f"{self.path}: {stem}.txt is missing (found: {listing(self.path)}). {why}")
        return found


def stem_of(name: str) -> str | None:
    """`train` for train.txt, train.tsv, train.txt.gz, ...; None for what is no text file."""
    for suffix in _SUFFIXES:
        if name.endswith(suffix) and name != suffix:
            return name.removesuffix(suffix)
    return None


def listing(path: Path, limit: int = 12) -> str:
    """What a folder holds, as it can stand in a message."""
    names = sorted(entry.name + "/" * entry.is_dir() for entry in path.iterdir())
    shown = ", ".join(names[:limit]) or "nothing"
    return shown if len(names) <= limit else f"{shown} and {len(names) - limit:,} more"


def named_folder(path: str | Path) -> Path:
    """The path, spelled so that it has a name and a parent: `.` and `..` stand for real folders."""
    path = Path(path).expanduser()
    return Path(os.path.normpath(path.absolute())) if path.name in ("", "..") else path
