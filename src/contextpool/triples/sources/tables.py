"""Tables as triples: Parquet, Arrow, CSV and npy files.

Nothing is inferred: a CSV field is the text that stands there (`007`, `NA`), quoted as RFC 4180 has it. Integers of
typed columns are labels in decimals. Missing values, floats, dates and the like are errors that name the row.
"""

from __future__ import annotations

import contextlib
import csv
import io
import re
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, islice
from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow as pa

from contextpool.errors import ConfigError, DataError, TripleFileError, shortened
from contextpool.triples.files import MAX_LINE, NPY_ERRORS, long_line, open_bytes, readable
from contextpool.triples.labels import ROLES
from contextpool.triples.sources.address import Address, check_options, need_file
from contextpool.triples.sources.columns import (
    BATCH_ROWS,
    DELIMITERS,
    asked_columns,
    batch_of_rows,
    check_labels,
    chosen_columns,
    other_delimiter,
    row_batch,
    row_problem,
    some_delimiter,
    text_columns,
)
from contextpool.triples.sources.reading import BadRows, Reading

TABLE_ROWS = 1 << 18
_UNREADABLE = (pa.ArrowException, OSError, UnicodeDecodeError)
"""What pyarrow raises for a damaged file, the names of its columns included."""
_ADVICE = "Fill it, cast it to text, or leave the row out before handing the table over."


def _parquet(address: Address, reading: Reading) -> Iterator[pa.RecordBatch]:
    """Three columns of a Parquet file; the others are never read."""
    check_options(address, ("columns",))
    with opened_parquet(address) as file:
        names = file.schema_arrow.names
        reading.columns = chosen_columns(address, names)
        wanted = [names[position] for position in reading.columns]
        for name in wanted:
            if names.count(name) > 1:
                raise DataError(f"{address.text}: several columns are called {name!r}. Rename them apart.")
        stream = file.iter_batches(batch_size=TABLE_ROWS, columns=sorted(set(wanted)))
        yield from table_batches(address, ([batch.column(name) for name in wanted] for batch in stream))


@contextlib.contextmanager
def opened_parquet(address: Address) -> Iterator[Any]:
    """The file, as pyarrow.parquet.ParquetFile."""
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(need_file(address)) as file:
            yield file
    except _UNREADABLE as error:
        raise DataError(f"{address.place}: this is not a readable Parquet file ({told(error)}).") from None


def _arrow(address: Address, reading: Reading) -> Iterator[pa.RecordBatch]:
    """Three columns of an Arrow IPC file (Feather 2), or of an IPC stream."""
    check_options(address, ("columns",))
    try:
        with pa.memory_map(str(need_file(address))) as source, _opened_ipc(source) as reader:
            reading.columns = positions = chosen_columns(address, reader.schema.names)
            is_stream = isinstance(reader, pa.RecordBatchStreamReader)
            stream = reader if is_stream else map(reader.get_batch, range(reader.num_record_batches))
            yield from table_batches(address, ([batch.column(k) for k in positions] for batch in stream))
    except _UNREADABLE as error:
        raise DataError(
            f"{address.place}: this is neither an Arrow file nor an Arrow stream ({told(error)})."
        ) from None


def told(error: Exception) -> str:
    """What another library says, in a line of no great length."""
    return shortened(" ".join(str(error).split()), 300).strip("'\"")


def _opened_ipc(source: Any) -> Any:
    try:
        return pa.ipc.open_file(source)
    except pa.ArrowInvalid:
        source.seek(0)
        return pa.ipc.open_stream(source)


def table_batches(
    address: Address, stream: Iterable[Sequence[pa.Array]], advice: str = _ADVICE
) -> Iterator[pa.RecordBatch]:
    """Head, relation and tail columns of typed tables as batches, all strings or all int64; nulls are refused."""
    first = 0

    def refuse(row: int, what: str) -> DataError:
        return DataError(f"{address.text}: row {row:,} (from 0): {what} {advice}")

    for columns in stream:
        ready = []
        for role, column in zip(ROLES, columns, strict=True):
            column.validate(full=True)  # offsets, indices and UTF-8 are believed by all that comes after
            if column.null_count:
                row = first + int(np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0])
                raise refuse(row, f"the {role} is missing (null).")
            ready.append(_text_or_integers(address, column, role))
        are_ids = all(pa.types.is_integer(column.type) for column in ready)
        kind = pa.int64() if are_ids else pa.string()
        batch = pa.RecordBatch.from_arrays([column.cast(kind) for column in ready], names=list(ROLES))
        if not are_ids:
            check_labels(batch, first, refuse)
        yield batch
        first += batch.num_rows


def _text_or_integers(address: Address, column: pa.Array, role: str) -> pa.Array:
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    kind = column.type
    if pa.types.is_uint64(kind):
        return column.cast(pa.string())  # int64 does not hold them all
    if pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return column
    if pa.types.is_string_view(kind):
        return column.cast(pa.string())
    raise DataError(
        f"{address.text}: the {role} column is {kind}; labels are text or whole numbers. Cast it to text where the "
        "table is made, so that it is known how a value is written."
    )


def _csv(address: Address, reading: Reading) -> Iterator[pa.RecordBatch]:
    """A CSV file, plain, .gz or .zst; every field is the text that stands there. See `text_columns` for its header."""
    check_options(address, ("columns", "header", "delimiter", "bad_rows"))
    need_file(address)
    bad, good = reading.bad, 0
    with contextlib.closing(_csv_rows(address, reading)) as rows:
        while some := list(islice(rows, BATCH_ROWS)):
            try:
                batch = batch_of_rows([row for _, row in some], 0, lambda row, what: DataError(what))
            except DataError:
                batch = row_batch(_sound_rows(some, bad))
            good += batch.num_rows
            if bad.enough:
                break
            if bad.skip or not bad:
                yield batch
    bad.finish(good)


def _csv_rows(address: Address, reading: Reading) -> Generator[tuple[int, Sequence[str]], None, None]:
    """(line, head, relation, tail) of each record of the right width, not yet checked."""
    reading.find_line = lambda row: _line_of_row(address, row)
    with (
        readable(address.path),
        open_bytes(address.path) as raw,
        io.TextIOWrapper(raw, encoding="utf-8", errors="surrogateescape", newline="") as text,
    ):
        records = _records(text, address, reading.bad)
        top = next(records, None)
        if top is None:
            return
        _refuse_other_delimiter(address, top[1])
        header, chosen = text_columns(
            address, top[1], lambda what: TripleFileError(address.place, top[0], what)
        )
        reading.header, reading.first_line, reading.columns = (
            header,
            1 + header,
            asked_columns(address) or chosen,
        )
        pick = itemgetter(*chosen)
        for line, record in records if header else chain([top], records):
            yield line, pick(record)


def _refuse_other_delimiter(address: Address, top: Sequence[str]) -> None:
    """Where the first line has fewer than three fields."""
    if len(top) >= 3:
        return
    with open_bytes(address.path) as stream:
        start = stream.read(1 << 14).decode("utf-8", "replace").splitlines()
    lines = [line for line in start[: max(1, min(20, len(start) - 1))] if line]
    delimiter = _delimiter(address)
    other = other_delimiter(address, lines, delimiter) or f" {some_delimiter(address, lines, delimiter)}"
    what = (
        f"{len(top)} field{'s' * (len(top) != 1)} instead of three: {shortened(lines[0] if lines else '')}."
    )
    raise TripleFileError(address.place, 1, what + other)


def _sound_rows(rows: Sequence[tuple[int, Sequence[str]]], bad: BadRows) -> list[Sequence[str]]:
    """The rows that are triples; the others are added to the bad ones. O(rows)."""
    sound = []
    for line, row in rows:
        problem = row_problem(row)
        if problem is None:
            sound.append(row)
            continue
        foreign = re.search("[\udc80-\udcff]", "".join(row))
        if foreign:
            problem = f"the byte 0x{ord(foreign[0]) - 0xDC00:02x} is not UTF-8. Convert the file to UTF-8."
        bad.add(line, problem, _as_csv(row))
    return sound


def _as_csv(record: Sequence[str]) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator="").writerow(record)
    return out.getvalue()


def _line_of_row(address: Address, row: int) -> int:
    """The line on which row k ends, counted from 0 over the rows that are triples; reads the file again."""
    reading = Reading.of(replace(address, options={**address.options, "bad_rows": "skip"}))
    with contextlib.closing(_csv_rows(address, reading)) as rows:
        sound = (line for line, record in rows if row_problem(record) is None)
        return next(islice(sound, row, None))


def _records(text: Any, address: Address, bad: BadRows) -> Iterator[tuple[int, list[str]]]:
    """(the line on which it ends, record), all of one width; whatever else is bad, or an error where it has no end."""
    last = [""]
    reader = csv.reader(_remembered(text, last, address), delimiter=_delimiter(address), strict=True)
    width = None
    while not bad.enough:
        try:
            record = next(reader, None)
        except csv.Error as error:
            what = f"this is not CSV ({error}). Check its quotes."
            if "expected after" not in str(error):  # a quote that is open to the end, a field of any length
                raise TripleFileError(address.place, reader.line_num, what) from None
            bad.add(reader.line_num, what, last[0].rstrip("\r\n"))
            continue
        if record is None:
            return
        if width is None:
            width = len(record)
        if len(record) == width and record:
            yield reader.line_num, record
            continue
        what = (
            f"{len(record)} fields instead of {width}. Each line has as many as the first; is a quote open?"
        )
        bad.add(reader.line_num, what if record else "the line is blank. Remove it.", _as_csv(record))


def _remembered(text: Any, last: list[str], address: Address) -> Iterator[str]:
    for number, line in enumerate(iter(lambda: text.readline(MAX_LINE + 1), ""), start=1):
        if len(line) > MAX_LINE:
            raise long_line(address.place, number)
        last[0] = line
        yield line


def _delimiter(address: Address) -> str:
    value = address.options.get("delimiter", ",")
    value = next((sign for sign, word in DELIMITERS.items() if word == value), value)
    if not isinstance(value, str) or len(value) != 1 or value in '"\r\n':
        raise ConfigError(
            f"{address.text}: delimiter is {value!r}; it is one character, or the word tab or space."
        )
    return value


def _npy(address: Address, reading: Reading) -> Iterator[pa.RecordBatch]:
    """Integers [T, 3]: head, relation, tail as numbers. For more columns `columns` chooses three.

    Read in pieces rather than memory-mapped: mapped pages would count as resident memory.
    """
    check_options(address, ("columns",))
    ids = _mapped_ids(address)
    if asked_columns(address) is None and ids.shape[1] != 3:
        raise _not_triples(address, ids)
    names = list(ROLES) if ids.shape[1] == 3 else [f"column {number}" for number in range(ids.shape[1])]
    reading.columns = positions = chosen_columns(address, names)

    def pieces() -> Iterator[list[pa.Array]]:
        with address.path.open("rb") as stream:
            stream.seek(getattr(ids, "offset", 0))
            for low in range(0, len(ids), TABLE_ROWS):
                rows = ids[low : low + TABLE_ROWS]
                if ids.flags.c_contiguous:
                    rows = np.fromfile(stream, dtype=ids.dtype, count=rows.size).reshape(rows.shape)
                yield [pa.array(np.ascontiguousarray(rows[:, position])) for position in positions]

    yield from table_batches(address, pieces())


def _mapped_ids(address: Address) -> Any:
    path = need_file(address)
    try:
        ids = np.load(path, mmap_mode="r", allow_pickle=False)
    except NPY_ERRORS as error:
        what = f"this is not a readable .npy file, or it is cut short ({error})."
        raise DataError(f"{address.place}: {what}") from None
    if not isinstance(ids, np.ndarray) or ids.ndim != 2 or ids.dtype.kind not in "iu":
        raise _not_triples(address, ids)
    return ids


def _not_triples(address: Address, ids: Any) -> DataError:
    what = f"{ids.dtype} {list(ids.shape)}" if isinstance(ids, np.ndarray) else "an archive"
    return DataError(f"{address.place}: holds {what}; triples are integers [T, 3], a row each.")


def known_rows(address: Address) -> tuple[int, bool] | None:
    """(rows, whether they are integers) where the head of the file tells: Parquet and npy; otherwise None."""
    if address.kind == "npy":
        return len(_mapped_ids(address)), True
    if address.kind != "parquet":
        return None
    with opened_parquet(address) as file:
        schema = file.schema_arrow
        positions = chosen_columns(address, schema.names)
        return file.metadata.num_rows, all(pa.types.is_integer(schema.types[k]) for k in positions)


TABLES: dict[str, Callable[[Address, Reading], Iterator[pa.RecordBatch]]] = {
    "csv": _csv,
    "parquet": _parquet,
    "arrow": _arrow,
    "npy": _npy,
}
