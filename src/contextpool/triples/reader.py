r"""The strict byte-level reader of triple files, and the writer that it can read back.

A line is `head TAB relation TAB tail`, UTF-8, ended by `\n` or `\r\n`. Nothing is guessed: no quoting, no
comments, no types, no missing values, no trimming. What does not fit is an error with its file and line.
General CSV readers are not used because each of them reads some hostile file silently wrong (`007` as 7,
`NA` as missing, a line of two columns padded, U+2028 as a line end).
"""

from __future__ import annotations

import contextlib
import gzip
import io
import os
import tempfile
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from contextpool.errors import DataError, TripleFileError, shortened
from contextpool.triples.labels import Vocabulary, check_triple, label_problem, relation_problem
from contextpool.triples.store import Ids, Triple, Triples, distinct_rows

CHUNK_BYTES = 1 << 24
_TAB, _LINE_FEED = 9, 10
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def read_triples(path: str | Path, *, allow_empty: bool = False) -> Triples:
    """Read a triple file, plain, `.gz` or `.zst`. O(bytes) time; memory for the ids and distinct labels."""
    path = Path(path)
    entity_ids: dict[str, int] = {}
    relation_ids: dict[str, int] = {}
    blocks: list[Ids] = []
    line = 1
    for chunk in _chunks_of_lines(path):
        fields = _fields(chunk, path, line)  # [3 * lines]
        blocks.append(_numbered(fields, entity_ids, relation_ids, path, line))
        line += len(fields) // 3
    if line == 1 and not allow_empty:
        raise DataError(f"{path}: the file holds no triples. Expected lines of head TAB relation TAB tail.")
    ids = np.concatenate(blocks) if blocks else np.empty((0, 3), dtype=np.int32)
    return sorted_triples(ids, entity_ids, relation_ids)


def read_label_batches(path: str | Path) -> Iterator[tuple[int, pa.StringArray]]:
    """A triple file in pieces, for readers that never hold it whole: (first line, fields [3 * lines]), all checked.

    Relations are checked as `read_triples` does; a bad line is an error with its number before its piece is given.
    """
    path = Path(path)
    line = 1
    for chunk in _chunks_of_lines(path):
        fields = _fields(chunk, path, line)
        _check_relations(fields, path, line)
        yield line, fields
        line += len(fields) // 3


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


def open_bytes(path: Path) -> IO[bytes]:
    """Open a file for reading, decompressed by its suffix; what cannot be opened is a DataError."""
    try:
        if path.suffix == ".gz":
            return cast("IO[bytes]", gzip.GzipFile(path, mode="rb"))
        raw = path.open("rb")
    except FileNotFoundError:
        raise DataError(f"{path}: there is no such file.") from None
    except IsADirectoryError:
        raise DataError(f"{path}: this is a folder; name one of its triple files.") from None
    except OSError as error:
        raise DataError(f"{path}: the file cannot be opened ({error.strerror or error}).") from error
    if path.suffix == ".zst":
        return cast(
            "IO[bytes]", io.BufferedReader(pa.CompressedInputStream(pa.PythonFile(raw, mode="r"), "zstd"))
        )
    return raw


def _chunks_of_lines(path: Path) -> Iterator[bytes]:
    """The file in pieces that end at a line's end; a last line without one gets it."""
    rest = b""
    with open_bytes(path) as stream:
        while True:
            try:
                block = stream.read(CHUNK_BYTES)
            except (OSError, EOFError, zlib.error) as error:
                raise DataError(
                    f"{path}: the file cannot be read to its end ({error}). It is damaged or cut short; get it again."
                ) from error
            if not block:
                break
            rest += block
            cut = rest.rfind(b"\n") + 1
            if cut:
                yield rest[:cut]
                rest = rest[cut:]
    if rest:
        yield rest + b"\n"


def _fields(chunk: bytes, path: Path, first_line: int) -> pa.StringArray:
    """The chunk's fields, three a line, checked: two tabs a line, none empty, no NUL, no stray CR, UTF-8."""
    if b"\r" in chunk:
        chunk = chunk.replace(b"\r\n", b"\n")
    data = np.frombuffer(chunk, dtype=np.uint8)
    is_separator = (data == _TAB) | (data == _LINE_FEED)
    separator_at = np.flatnonzero(is_separator)
    separators = data[separator_at]
    if not _is_regular(chunk, separator_at, separators):
        raise _first_error(chunk, path, first_line)
    offsets = np.empty(len(separator_at) + 1, dtype=np.int32)
    offsets[0] = 0
    offsets[1:] = separator_at - np.arange(len(separator_at))
    values = pa.py_buffer(data[~is_separator])
    fields = pa.Array.from_buffers(pa.binary(), len(separator_at), [None, pa.py_buffer(offsets), values])
    try:
        return fields.cast(pa.string())
    except pa.ArrowInvalid:
        raise _first_error(chunk, path, first_line) from None


def _is_regular(chunk: bytes, separator_at: npt.NDArray[np.intp], separators: npt.NDArray[np.uint8]) -> bool:
    if len(separators) % 3 or b"\0" in chunk or b"\r" in chunk or _has_byte_order_mark(chunk):
        return False
    pattern_holds = (separators.reshape(-1, 3) == (_TAB, _TAB, _LINE_FEED)).all()
    none_empty = separator_at[0] > 0 and (np.diff(separator_at) > 1).all()
    return bool(pattern_holds and none_empty)


def _has_byte_order_mark(chunk: bytes) -> bool:
    """Whether a label starts with U+FEFF, as at the start of a file, or in the middle of concatenated ones."""
    if _BYTE_ORDER_MARK not in chunk:
        return False
    return any(before + _BYTE_ORDER_MARK in b"\n" + chunk for before in (b"\n", b"\t"))


def _first_error(chunk: bytes, path: Path, first_line: int) -> TripleFileError:
    """Walk the chunk line by line and say what is wrong with the first bad one."""
    for number, raw in enumerate(chunk.split(b"\n")[:-1], start=first_line):
        problem = _line_problem(raw)
        if problem:
            return TripleFileError(path, number, problem)
    raise AssertionError("a chunk was refused as a whole but each of its lines is fine")


def _line_problem(raw: bytes) -> str | None:
    if not raw:
        return "the line is blank. Each line holds head TAB relation TAB tail; remove it."
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        return f"byte {error.start + 1} of the line is not UTF-8 (0x{raw[error.start]:02x}). Convert the file to UTF-8."
    columns = text.split("\t")
    if len(columns) != 3:
        plural = "" if len(columns) == 1 else "s"
        return (
            f"{len(columns)} column{plural} instead of 3: {shortened(text)}. "
            "Each line holds head TAB relation TAB tail."
        )
    for role, label in zip(("head", "relation", "tail"), columns, strict=True):
        problem = label_problem(label)
        if problem:
            return f"the {role} {shortened(label)} {problem}."
    return None


def _numbered(
    fields: pa.StringArray,
    entity_ids: dict[str, int],
    relation_ids: dict[str, int],
    path: Path,
    first_line: int,
) -> Ids:
    """[lines, 3] ids of the fields; new labels are added to the two dictionaries."""
    encoded = fields.dictionary_encode()
    codes = encoded.indices.to_numpy().reshape(-1, 3)
    labels: list[str] = encoded.dictionary.to_pylist()
    heads = _code_map(codes[:, [0, 2]], labels, entity_ids)
    relation_codes = np.unique(codes[:, 1])
    for code in relation_codes.tolist():
        problem = relation_problem(labels[code])
        if problem:
            line = first_line + int(np.flatnonzero(codes[:, 1] == code)[0])
            raise TripleFileError(path, line, f"the relation {shortened(labels[code])} {problem}. Rename it.")
    relations = _code_map(codes[:, 1], labels, relation_ids)
    return np.stack([heads[codes[:, 0]], relations[codes[:, 1]], heads[codes[:, 2]]], axis=1)


def _check_relations(fields: pa.StringArray, path: Path, first_line: int) -> None:
    """Refuse a relation label that is ours, naming its first line."""
    encoded = fields.take(pa.array(np.arange(1, len(fields), 3))).dictionary_encode()
    for code, label in enumerate(encoded.dictionary.to_pylist()):
        problem = relation_problem(label)
        if problem:
            line = first_line + int(np.flatnonzero(encoded.indices.to_numpy() == code)[0])
            raise TripleFileError(path, line, f"the relation {shortened(label)} {problem}. Rename it.")


def _code_map(codes: npt.NDArray[np.int32], labels: list[str], ids: dict[str, int]) -> Ids:
    """[len(labels)] the id of each label that occurs among `codes`; -1 elsewhere."""
    mapping = np.full(len(labels), -1, dtype=np.int32)
    for code in np.unique(codes).tolist():
        mapping[code] = ids.setdefault(labels[code], len(ids))
    return mapping


def sorted_triples(ids: Ids, entity_ids: dict[str, int], relation_ids: dict[str, int]) -> Triples:
    """Ids by first appearance become ids by sorted label, so that the order of lines leaves no trace."""
    entities, entity_map = _sorted_vocabulary(entity_ids, "entity")
    relations, relation_map = _sorted_vocabulary(relation_ids, "relation")
    if len(ids):
        ids = np.stack([entity_map[ids[:, 0]], relation_map[ids[:, 1]], entity_map[ids[:, 2]]], axis=1)
    return Triples(entities, relations, distinct_rows(ids))


def _sorted_vocabulary(ids: dict[str, int], kind: str) -> tuple[Vocabulary, Ids]:
    labels = sorted(ids)
    mapping = np.empty(len(labels), dtype=np.int32)
    for position, label in enumerate(labels):
        mapping[ids[label]] = position
    return Vocabulary(tuple(labels), kind), mapping
