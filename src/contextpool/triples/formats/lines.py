"""Text files read line by line, strictly, for what is not a plain triple file."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from pathlib import Path

from contextpool.errors import DataError, TripleFileError
from contextpool.triples.reader import open_bytes


def numbered_lines(path: Path) -> Iterator[tuple[int, str]]:
    """(number from 1, text without its line end) of each line of a UTF-8 file, LF or CRLF."""
    with open_bytes(path) as stream:
        number = 0
        try:
            for number, raw in enumerate(stream, start=1):
                yield number, _decoded(raw, path, number)
        except (OSError, EOFError, zlib.error) as error:
            raise DataError(
                f"{path}: the file cannot be read past line {number} ({error}). It is damaged; get it again."
            ) from error


def _decoded(raw: bytes, path: Path, number: int) -> str:
    try:
        return raw.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8")
    except UnicodeDecodeError as error:
        what = f"byte {error.start + 1} of the line is not UTF-8 (0x{raw[error.start]:02x})."
        raise TripleFileError(path, number, f"{what} Convert the file to UTF-8.") from None
