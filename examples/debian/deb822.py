"""Debian's control files, strictly: stanzas of `Field: value`, continued by indented lines, parted by blank ones."""

from __future__ import annotations

import io
import lzma
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

import pyarrow as pa

from contextpool.errors import DataError, TripleFileError, shortened
from contextpool.triples.files import open_bytes

_FIELD = re.compile(r"([!-9;-~]+):[ \t]*(.*)")  # a name is printable ASCII without a colon
_SPACES = " \t"


@dataclass(frozen=True)
class Stanza:
    """The fields of one paragraph by their names in lower case; `line` is where it begins."""

    path: Path
    line: int
    fields: dict[str, str]
    """Continuation lines are joined by line feeds, without their indent."""
    lines: dict[str, int]
    """The line of each field."""

    def get(self, field: str) -> str:
        return self.fields.get(field, "")

    def error(self, field: str, what: str) -> TripleFileError:
        """An error at the line of a field."""
        return TripleFileError(self.path, self.lines.get(field, self.line), what)


def read_stanzas(path: str | Path) -> Iterator[Stanza]:
    """Each stanza of a file, plain or .gz, .xz, .lz4, .zst; the first malformed line is an error with its number."""
    path = Path(path)
    start, fields, lines = 1, dict[str, str](), dict[str, int]()
    last = ""
    for number, text in _lines(path):
        if not text.strip(_SPACES):
            if fields:
                yield Stanza(path, start, fields, lines)
            fields, lines, last = {}, {}, ""
        elif text[0] == "#":
            continue
        elif text[0] in _SPACES:
            if not last:
                raise TripleFileError(path, number, f"{shortened(text)} is indented, but continues no field.")
            fields[last] += f"\n{text.strip(_SPACES)}"
        else:
            last, value = _field(path, number, text, fields)
            start = start if fields else number
            fields[last], lines[last] = value, number
    if fields:
        yield Stanza(path, start, fields, lines)


def _field(path: Path, number: int, text: str, fields: dict[str, str]) -> tuple[str, str]:
    found = _FIELD.fullmatch(text)
    if found is None:
        raise TripleFileError(
            path,
            number,
            f"{shortened(text)} is no field. A line is 'Name: value', or indented to continue one.",
        )
    name = found[1].lower()
    if name in fields:
        raise TripleFileError(
            path, number, f"the field {found[1]} is there twice in one stanza. Is a blank line lost?"
        )
    return name, found[2].strip(_SPACES)


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    number = 0
    try:
        with _opened(path) as stream:
            for number, raw in enumerate(stream, start=1):
                yield number, raw.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8")
    except UnicodeDecodeError:
        raise TripleFileError(path, number, "the line is not UTF-8.") from None
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        raise DataError(
            f"{path}: the file cannot be read past line {number:,} ({error}). It is damaged; get it again."
        ) from None


def _opened(path: Path) -> IO[bytes]:
    if path.suffix == ".xz" and path.is_file():
        return cast("IO[bytes]", lzma.open(path))
    if path.suffix == ".lz4" and path.is_file():
        return _unpacked_lz4(path)
    return open_bytes(path)


def _unpacked_lz4(path: Path) -> IO[bytes]:
    """As apt keeps its lists; unpacked by pyarrow."""
    return cast("IO[bytes]", io.BufferedReader(pa.CompressedInputStream(pa.OSFile(str(path)), "lz4")))
