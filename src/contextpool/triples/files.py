"""Files of text: opened by their suffix, read line by line, and written whole or not at all."""

from __future__ import annotations

import codecs
import contextlib
import gzip
import io
import os
import stat
import tempfile
import tokenize
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any, cast

import pyarrow as pa

from contextpool.errors import DataError, TripleFileError
from contextpool.triples.labels import check_triple
from contextpool.triples.store import Triple

CHUNK_BYTES = 1 << 24
MAX_LINE = 1 << 20
"""Bytes of a line, its end included. A longer one is no triple, and would have to be held whole."""
MAX_EXPANSION = 200
"""How many times its size a compressed file may unpack to, beyond `FREE_BYTES`. Text packs to a tenth."""
FREE_BYTES = 1 << 26
NPY_ERRORS = (OSError, ValueError, TypeError, OverflowError, EOFError, SyntaxError, tokenize.TokenError)
"""What numpy raises where a file in its format is damaged: the head of one is an expression of Python."""


def open_bytes(path: Path) -> IO[bytes]:
    """Open a text file for reading, decompressed by its suffix, past a byte order mark at its start.

    What cannot be opened is a DataError, and so is UTF-16, told by its own mark.
    """
    stream = _opened(path)
    try:
        start = cast("io.BufferedReader", stream).peek(3)[:3]
        if start[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
            what = "the file is UTF-16, not UTF-8. Convert it: iconv -f UTF-16 -t UTF-8."
            raise TripleFileError(path, 1, what)
        if start == codecs.BOM_UTF8:
            stream.read(3)
    except BaseException:
        stream.close()
        raise
    return stream


def _opened(path: Path) -> IO[bytes]:
    try:
        raw = _open_regular(path)
    except FileNotFoundError:
        raise DataError(f"{path}: there is no such file.") from None
    except IsADirectoryError:
        raise DataError(f"{path}: this is a folder; name one of its triple files.") from None
    except OSError as error:
        raise DataError(f"{path}: the file cannot be opened ({error.strerror or error}).") from error
    if path.suffix not in (".gz", ".zst"):
        return raw
    return io.BufferedReader(_Unpacked(path, raw), 1 << 16)


def _open_regular(path: Path) -> IO[bytes]:
    """A pipe that nobody writes to would keep its reader waiting for ever, so only files and folders are opened."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    mode = os.fstat(handle).st_mode
    if stat.S_ISREG(mode):
        return os.fdopen(handle, "rb")
    os.close(handle)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError
    raise DataError(f"{path}: this is a pipe or a device, not a file. Write what it gives to a file first.")


class _Unpacked(io.RawIOBase):
    """What a compressed file holds, as far as that is in proportion to its size; closes the file."""

    def __init__(self, path: Path, raw: IO[bytes]) -> None:
        self._path, self._raw = path, raw
        self._stream: Any = (
            gzip.GzipFile(fileobj=raw, mode="rb")
            if path.suffix == ".gz"
            else pa.CompressedInputStream(pa.PythonFile(raw, mode="r"), "zstd")
        )
        self._left = max(FREE_BYTES, MAX_EXPANSION * os.fstat(raw.fileno()).st_size)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._stream.read(len(buffer))
        self._left -= len(data)
        if self._left < 0:
            raise DataError(
                f"{self._path}: the file unpacks to more than {MAX_EXPANSION} times its size, as no text does by "
                "itself. If you trust it, unpack it and read what comes out."
            )
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        if not self.closed:
            self._stream.close()
            self._raw.close()
        super().close()


@contextlib.contextmanager
def readable(path: str | Path) -> Iterator[None]:
    """Whatever goes wrong while the file is read, or decompressed, is a DataError."""
    try:
        yield
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(
            f"{path}: the file cannot be read to its end ({error}). It is damaged or cut short; get it again."
        ) from error


def chunks_of_lines(path: Path) -> Iterator[bytes]:
    """The file in pieces that end at a line's end; a last line without one gets it."""
    rest, line = b"", 1
    with readable(path), open_bytes(path) as stream:
        while block := stream.read(CHUNK_BYTES):
            rest += block
            _refuse_long_line(path, line, rest)
            cut = rest.rfind(b"\n") + 1
            if cut:
                yield rest[:cut]
                line += rest.count(b"\n", 0, cut)
                rest = rest[cut:]
    if rest:
        yield rest + b"\n"


def _refuse_long_line(path: Path, first: int, data: bytes) -> None:
    """Look for a line's end in each stretch of `MAX_LINE`, from behind; `first` is the number of the first line."""
    begin = 0
    while len(data) - begin > MAX_LINE:
        end = data.rfind(b"\n", begin, begin + MAX_LINE)
        if end < 0:
            raise long_line(path, first + data.count(b"\n", 0, begin))
        begin = end + 1


def long_line(path: Path | str, line: int) -> TripleFileError:
    what = f"the line is longer than {MAX_LINE:,} bytes, which no triple is. Is this the file that you mean?"
    return TripleFileError(path, line, what)


def raw_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """(number from 1, bytes without the line end) of each line, LF or CRLF."""
    with readable(path), open_bytes(path) as stream:
        for number, raw in enumerate(iter(lambda: stream.readline(MAX_LINE + 1), b""), start=1):
            if len(raw) > MAX_LINE:
                raise long_line(path, number)
            yield number, raw.removesuffix(b"\n").removesuffix(b"\r")


def numbered_lines(path: Path) -> Iterator[tuple[int, str]]:
    """(number from 1, text without its line end) of each line of a UTF-8 file, LF or CRLF."""
    for number, raw in raw_lines(path):
        try:
            yield number, raw.decode("utf-8")
        except UnicodeDecodeError as error:
            raise TripleFileError(path, number, not_utf8(raw, error)) from None


def not_utf8(raw: bytes, error: UnicodeDecodeError) -> str:
    """What to say of a line that cannot be decoded."""
    return f"byte {error.start + 1} of the line is not UTF-8 (0x{raw[error.start]:02x}). Convert the file to UTF-8."


def write_triples(path: str | Path, triples: Iterable[Triple]) -> int:
    """Write triples so that `read_triples` gives them back; returns how many. `.gz` and `.zst` by name.

    The file appears whole or not at all: a bad label or a full disk leaves what was there before.
    """
    path = Path(path)
    count = 0
    with atomic_file(path) as raw, _compressing(raw, path.suffix) as sink:
        for number, (head, relation, tail) in enumerate(triples, start=1):
            check_triple((head, relation, tail), f"{path}:{number}")
            sink.write(f"{head}\t{relation}\t{tail}\n".encode())
            count = number
    return count


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """A text file of these lines, whole or not at all."""
    with atomic_file(path) as sink:
        sink.writelines(f"{line}\n".encode() for line in lines)


@contextlib.contextmanager
def atomic_file(path: Path) -> Iterator[IO[bytes]]:
    """A file that takes its name only once it is complete and on disk: temporary file, fsync, rename."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
    try:
        with os.fdopen(handle, "wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


@contextlib.contextmanager
def _compressing(raw: IO[bytes], suffix: str) -> Iterator[IO[bytes]]:
    if suffix == ".gz":
        with gzip.GzipFile(fileobj=raw, mode="wb", mtime=0, filename="") as sink:
            yield cast("IO[bytes]", sink)
    elif suffix == ".zst":
        with pa.CompressedOutputStream(pa.PythonFile(_Borrowed(raw), mode="w"), "zstd") as sink:
            yield sink
    else:
        yield raw


class _Borrowed(io.RawIOBase):
    """A stream that another owner closes: pyarrow closes what it writes to, and we still have to fsync it."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        return self._stream.write(data)
