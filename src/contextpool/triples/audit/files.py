"""Duplicate lines of raw triple files, which are gone once the files have been read."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from contextpool.errors import DataError
from contextpool.triples.reader import open_bytes

_COMPRESSED = (".gz", ".zst")
_TEXT = (".txt", ".tsv")


@dataclass(frozen=True)
class RawFile:
    """The lines of one triple file before anything collapses them."""

    path: str
    triples: int
    """Lines that hold a triple."""
    duplicates: int
    """... that repeat an earlier line of the file."""
    repeated_elsewhere: int
    """Distinct triples that another file of the folder holds too: train.txt against valid.txt, say."""


def count_raw_lines(path: str | Path) -> int:
    """Lines of a file, plain, `.gz` or `.zst`; a last line without its line end counts."""
    return sum(1 for _ in _lines(Path(path)))


def audit_folder_duplicates(folder: str | Path) -> tuple[RawFile, ...]:
    """Count repeated lines in each triple file of a folder, by name. O(bytes) time and memory.

    A triple file ends in .txt or .tsv (.gz, .zst) and has three columns on every line, split at tabs or,
    where there are none, at spaces; its first line may be a lone count, as in OpenKE's id files. Others are
    passed over.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise DataError(f"{folder}: there is no such folder. Name the folder that holds the triple files.")
    triples_of = {path: lines for path in _text_files(folder) if (lines := _triple_lines(path))}
    distinct = {path: set(lines) for path, lines in triples_of.items()}
    return tuple(
        RawFile(str(path), len(lines), len(lines) - len(distinct[path]), _repeated_elsewhere(path, distinct))
        for path, lines in triples_of.items()
    )


def _repeated_elsewhere(path: Path, distinct: dict[Path, set[bytes]]) -> int:
    others: set[bytes] = set()
    for other, lines in distinct.items():
        if other != path:
            others |= distinct[path] & lines
    return len(others)


def _text_files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.is_file() and _plain_suffix(path) in _TEXT)


def _plain_suffix(path: Path) -> str:
    return path.with_suffix("").suffix if path.suffix in _COMPRESSED else path.suffix


def _triple_lines(path: Path) -> list[bytes]:
    """The file's lines without a leading count; nothing where it is no triple file."""
    lines = list(_lines(path))
    if lines and lines[0].strip().isdigit():
        lines = lines[1:]
    return lines if all(_has_three_columns(line) for line in lines) else []


def _has_three_columns(line: bytes) -> bool:
    return line.count(b"\t") == 2 if b"\t" in line else len(line.split()) == 3


def _lines(path: Path) -> Iterator[bytes]:
    """Lines without their ends, LF or CR LF."""
    with open_bytes(path) as stream:
        try:
            for line in stream:
                yield line.removesuffix(b"\n").removesuffix(b"\r")
        except (OSError, EOFError, zlib.error) as error:
            raise DataError(f"{path}: the file cannot be read to its end ({error}). Get it again.") from error
