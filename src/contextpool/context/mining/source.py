"""Triple files as a stream of column batches: what every engine that never holds the whole input reads.

| suffix | holds |
|---|---|
| .tsv .txt (and .gz, .zst) | head TAB relation TAB tail, the strict reader's rules |
| .csv (and .gz, .zst) | a header with head, relation, tail; quoting as in RFC 4180 |
| .parquet | columns head, relation, tail: strings or integers |
| .npy | integers [T, 3] |

Integers are labels too, written as decimals: `7` in a .npy file and `7` in a .tsv file are the same entity.
"""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from contextpool.errors import DataError, TripleFileError, shortened
from contextpool.triples.labels import label_problem, relation_problem
from contextpool.triples.reader import open_bytes, read_label_batches

COLUMNS = ("head", "relation", "tail")
BATCH_ROWS = 1 << 20
MAX_ENTITY_ID = 2**46 - 1
MAX_RELATION_ID = 2**20 - 1
FileKind = Literal["tsv", "csv", "parquet", "npy"]
_KINDS: dict[str, FileKind] = {
    ".tsv": "tsv", ".txt": "tsv", ".csv": "csv", ".parquet": "parquet", ".npy": "npy",
}  # fmt: skip
_SUSPECT = r"^$|[\t\n\r\x00]|^\x{FEFF}"
"""Labels that `label_problem` may refuse, for a vectorised look before the exact one."""


def file_kind(path: Path) -> FileKind:
    """By suffix; .tsv, .txt and .csv also compressed. A file without a known suffix is read as .tsv."""
    suffixes = path.suffixes
    last = suffixes[-2] if len(suffixes) > 1 and suffixes[-1] in (".gz", ".zst") else path.suffix
    return _KINDS.get(last, "tsv")


def batches(path: str | Path) -> Iterator[pa.RecordBatch]:
    """Checked batches with the columns head, relation, tail: all three strings, or int64.

    What is wrong is an error with its line (text) or its row, counted from 1 (Parquet, npy).
    """
    path = Path(path)
    if not path.is_file():
        raise DataError(f"{path}: there is no such file.")
    readers = {"tsv": _tsv, "csv": _csv, "parquet": _parquet, "npy": _npy}
    return readers[file_kind(path)](path)


def known_rows(path: Path) -> int | None:
    """How many rows the file says it has; None for text."""
    kind = file_kind(path)
    if kind == "npy":
        return _npy_header(path)[1]
    if kind == "parquet":
        with _opened_parquet(path) as file:
            return int(file.metadata.num_rows)
    return None


def stores_ids(path: Path) -> bool:
    """Whether the file holds integers, as far as its header tells."""
    if file_kind(path) == "parquet":
        with _opened_parquet(path) as file:
            return all(pa.types.is_integer(file.schema_arrow.field(name).type) for name in COLUMNS)
    return file_kind(path) == "npy"


def holds_ids(batch: pa.RecordBatch) -> bool:
    """Whether the columns are integers rather than labels."""
    return bool(pa.types.is_integer(batch.schema.types[0]))


def _tsv(path: Path) -> Iterator[pa.RecordBatch]:
    for _, fields in read_label_batches(path):
        places = np.arange(0, len(fields), 3)
        columns = [fields.take(pa.array(places + column)) for column in range(3)]
        yield pa.RecordBatch.from_arrays(columns, names=list(COLUMNS))


def _csv(path: Path) -> Iterator[pa.RecordBatch]:
    from pyarrow import csv

    line = 2
    try:
        with open_bytes(path) as raw, csv.open_csv(
            pa.PythonFile(raw, mode="r"),
            read_options=csv.ReadOptions(use_threads=False, block_size=1 << 24),
            parse_options=csv.ParseOptions(ignore_empty_lines=False),
            convert_options=csv.ConvertOptions(
                column_types=dict.fromkeys(COLUMNS, pa.string()), include_columns=list(COLUMNS),
                strings_can_be_null=False,
            ),
        ) as reader:  # fmt: skip
            for batch in reader:
                _check_labels(batch, path, line)
                yield batch
                line += batch.num_rows
    except (pa.ArrowInvalid, pa.ArrowKeyError) as error:
        raise _csv_error(path, str(error)) from None


def _csv_error(path: Path, message: str) -> DataError:
    """The complaint of pyarrow with the line it names; without one, about the header."""
    row = re.search(r"Row #(\d+): (.*)", message, re.DOTALL)
    if row:
        return TripleFileError(
            path, int(row[1]), f"{shortened(row[2].strip())}. Each line holds three columns."
        )
    return TripleFileError(path, 1, f"{message.strip()}. The header has to name head, relation and tail.")


@contextlib.contextmanager
def _opened_parquet(path: Path) -> Iterator[Any]:
    import pyarrow.parquet as pq

    try:
        file = pq.ParquetFile(path)
    except (pa.ArrowInvalid, OSError) as error:
        raise DataError(f"{path}: this is not a readable Parquet file ({error}).") from None
    with file:
        missing = [name for name in COLUMNS if name not in file.schema_arrow.names]
        if missing:
            raise DataError(
                f"{path}: column {missing[0]!r} is missing; the file has {', '.join(file.schema_arrow.names)}. "
                "Rename its columns to head, relation, tail."
            )
        yield file


def _parquet(path: Path) -> Iterator[pa.RecordBatch]:
    row = 1
    with _opened_parquet(path) as file:
        for batch in file.iter_batches(batch_size=BATCH_ROWS, columns=list(COLUMNS)):
            ready = _one_kind(batch.select(list(COLUMNS)), path, row)
            (_check_ids if holds_ids(ready) else _check_labels)(ready, path, row)
            yield ready
            row += batch.num_rows


def _one_kind(batch: pa.RecordBatch, path: Path, first_row: int) -> pa.RecordBatch:
    """All three columns as strings, or all as int64; nulls and other types are errors."""
    columns = [
        column.dictionary_decode() if pa.types.is_dictionary(column.type) else column for column in batch.columns
    ]  # fmt: skip
    for name, column in zip(COLUMNS, columns, strict=True):
        if column.null_count:
            row = first_row + int(np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0])
            raise TripleFileError(path, row, f"the {name} is missing (null). Remove the row or fill it.")
    if all(pa.types.is_integer(column.type) for column in columns):
        return pa.RecordBatch.from_arrays(
            [column.cast(pa.int64()) for column in columns], names=list(COLUMNS)
        )
    if all(pa.types.is_string(column.type) or pa.types.is_large_string(column.type) for column in columns):
        return pa.RecordBatch.from_arrays(
            [column.cast(pa.string()) for column in columns], names=list(COLUMNS)
        )
    types = ", ".join(str(column.type) for column in columns)
    raise DataError(f"{path}: head, relation, tail are {types}; they are all strings or all integers.")


def _npy(path: Path) -> Iterator[pa.RecordBatch]:
    """Read in pieces rather than memory-mapped: mapped pages would count as resident memory."""
    dtype, rows, offset = _npy_header(path)
    with path.open("rb") as stream:
        stream.seek(offset)
        for first in range(0, rows, BATCH_ROWS):
            count = min(BATCH_ROWS, rows - first)
            part = np.fromfile(stream, dtype=dtype, count=3 * count)
            if len(part) != 3 * count:
                raise DataError(
                    f"{path}: the file ends before row {first + count:,} of {rows:,}; it is cut short."
                )
            ids = part.reshape(-1, 3).astype(np.int64)
            batch = pa.RecordBatch.from_arrays(
                [pa.array(ids[:, k].copy()) for k in range(3)], names=list(COLUMNS)
            )
            _check_ids(batch, path, first + 1)
            yield batch


def _npy_header(path: Path) -> tuple[np.dtype[Any], int, int]:
    """dtype, rows, where the data begins."""
    try:
        with path.open("rb") as stream:
            version = np.lib.format.read_magic(stream)
            read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
            shape, by_column, dtype = read[version](stream)
            offset = stream.tell()
    except (ValueError, KeyError, io.UnsupportedOperation) as error:
        raise DataError(f"{path}: this is not a readable .npy file ({error}).") from None
    if len(shape) != 2 or shape[1] != 3 or by_column or dtype.kind not in "iu":
        raise DataError(f"{path}: holds {dtype} {list(shape)}; triples are integers [T, 3], row after row.")
    return dtype, int(shape[0]), offset


def _check_ids(batch: pa.RecordBatch, path: Path, first_row: int) -> None:
    for name, column in zip(COLUMNS, batch.columns, strict=True):
        ids: npt.NDArray[np.int64] = column.to_numpy()
        most = MAX_RELATION_ID if name == "relation" else MAX_ENTITY_ID
        if len(ids) and (ids.min() < 0 or ids.max() > most):
            at = int(np.flatnonzero((ids < 0) | (ids > most))[0])
            what = f"the {name} id {ids[at]} is not in 0 ... {most:,}. Are columns swapped?"
            raise TripleFileError(path, first_row + at, what)


def _check_labels(batch: pa.RecordBatch, path: Path, first_row: int) -> None:
    """What the strict reader refuses in text, with the row."""
    import pyarrow.compute as pc

    for name, column in zip(COLUMNS, batch.columns, strict=True):
        pattern = rf"{_SUSPECT}|\^-1$" if name == "relation" else _SUSPECT
        suspects = pc.match_substring_regex(column, pattern).to_numpy(zero_copy_only=False)
        for at in np.flatnonzero(suspects).tolist():
            label = column[at].as_py()
            problem = (relation_problem if name == "relation" else label_problem)(label)
            if problem:
                raise TripleFileError(
                    path, first_row + at, f"the {name} {shortened(label)} {problem}. Rename it."
                )
