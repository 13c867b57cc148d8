"""Tables as triples: Parquet, Arrow, CSV and npy files.

Nothing is inferred: a CSV field is the text that stands there (`007`, `NA`), quoted as RFC 4180 has it. Integers of
typed columns are labels in decimals. Missing values, floats, dates and the like are errors that name the row.
"""

from __future__ import annotations

import contextlib
import csv
import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow as pa

from contextpool.errors import ConfigError, DataError, TripleFileError
from contextpool.triples.files import open_bytes, readable
from contextpool.triples.labels import ROLES
from contextpool.triples.sources.address import Address, check_options, need_file, yes_or_no
from contextpool.triples.sources.columns import (
    BATCH_ROWS,
    asked_columns,
    batch_of_rows,
    check_labels,
    chosen_columns,
)

TABLE_ROWS = 1 << 18
_ADVICE = "Fill it, cast it to text, or leave the row out before handing the table over."


def _parquet(address: Address) -> Iterator[pa.RecordBatch]:
    """Three columns of a Parquet file; the others are never read."""
    check_options(address, ("columns",))
    with opened_parquet(address) as file:
        names = file.schema_arrow.names
        wanted = [names[position] for position in chosen_columns(address, names)]
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
    except (pa.ArrowInvalid, OSError) as error:
        raise DataError(f"{address.place}: this is not a readable Parquet file ({error}).") from None


def _arrow(address: Address) -> Iterator[pa.RecordBatch]:
    """Three columns of an Arrow IPC file (Feather 2), or of an IPC stream."""
    check_options(address, ("columns",))
    try:
        with pa.memory_map(str(need_file(address))) as source, _opened_ipc(source) as reader:
            positions = chosen_columns(address, reader.schema.names)
            is_stream = isinstance(reader, pa.RecordBatchStreamReader)
            stream = reader if is_stream else map(reader.get_batch, range(reader.num_record_batches))
            yield from table_batches(address, ([batch.column(k) for k in positions] for batch in stream))
    except (pa.ArrowInvalid, OSError) as error:
        raise DataError(
            f"{address.place}: this is neither an Arrow file nor an Arrow stream ({error})."
        ) from None


def _opened_ipc(source: Any) -> Any:
    try:
        return pa.ipc.open_file(source)
    except pa.ArrowInvalid:
        source.seek(0)
        return pa.ipc.open_stream(source)


def table_batches(address: Address, stream: Iterable[Sequence[pa.Array]]) -> Iterator[pa.RecordBatch]:
    """Head, relation and tail columns of typed tables as batches, all strings or all int64; nulls are refused."""
    first = 0

    def refuse(row: int, what: str) -> DataError:
        return DataError(f"{address.text}: row {row:,} (from 0): {what} {_ADVICE}")

    for columns in stream:
        ready = []
        for role, column in zip(ROLES, columns, strict=True):
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


def _csv(address: Address) -> Iterator[pa.RecordBatch]:
    """A CSV file, plain, .gz or .zst, with a header unless `header=no`; every field is the text that stands there."""
    check_options(address, ("columns", "header", "delimiter"))
    path, has_header = need_file(address), yes_or_no(address, "header", True)
    if not has_header and asked_columns(address) is None:
        address = address.with_options({"columns": "0,1,2"})
    with (
        readable(path),
        open_bytes(path) as raw,
        io.TextIOWrapper(raw, encoding="utf-8-sig", newline="") as text,
    ):
        records = _records(csv.reader(text, delimiter=_delimiter(address), strict=True), address.place)
        top = next(records, None)
        if top is None:
            return
        names = top[1] if has_header else [f"column {number}" for number in range(len(top[1]))]
        chosen = chosen_columns(address, names, lambda what: TripleFileError(address.place, 1, what))
        pick = itemgetter(*chosen)
        remaining = records if has_header else chain([top], records)
        while some := list(islice(remaining, BATCH_ROWS)):
            lines = [line for line, _ in some]
            yield batch_of_rows([pick(record) for _, record in some], 0, _bad_line(address, lines))


def _bad_line(address: Address, lines: Sequence[int]) -> Callable[[int, str], DataError]:
    return lambda row, what: TripleFileError(
        address.place, lines[row], f"{what} Change it, or leave the line out."
    )


def _records(reader: Any, place: str) -> Iterator[tuple[int, list[str]]]:
    """(the line on which it ends, record), all of one width; whatever else is an error with its line."""
    width = None
    try:
        for record in reader:
            if width is not None and len(record) != width:
                what = f"{len(record)} fields instead of {width}. Each line has as many as the first; is a quote open?"
                what = what if record else "the line is blank. Remove it."
                raise TripleFileError(place, reader.line_num, what)
            width = len(record)
            yield reader.line_num, record
    except csv.Error as error:
        what = f"this is not CSV ({error}). Check its quotes."
        raise TripleFileError(place, reader.line_num, what) from None
    except UnicodeDecodeError as error:
        what = f"a byte near here is not UTF-8 ({error.reason}). Convert the file to UTF-8."
        raise TripleFileError(place, reader.line_num + 1, what) from None


def _delimiter(address: Address) -> str:
    value = address.options.get("delimiter", ",")
    value = "\t" if value == "tab" else value
    if not isinstance(value, str) or len(value) != 1 or value in '"\r\n':
        raise ConfigError(f"{address.text}: delimiter is {value!r}; it is one character, or the word tab.")
    return value


def _npy(address: Address) -> Iterator[pa.RecordBatch]:
    """Integers [T, 3]: head, relation, tail as numbers. For more columns `columns` chooses three.

    Read in pieces rather than memory-mapped: mapped pages would count as resident memory.
    """
    check_options(address, ("columns",))
    ids = _mapped_ids(address)
    if asked_columns(address) is None and ids.shape[1] != 3:
        raise _not_triples(address, ids)
    names = list(ROLES) if ids.shape[1] == 3 else [f"column {number}" for number in range(ids.shape[1])]
    positions = chosen_columns(address, names)

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
    except (ValueError, EOFError, OSError) as error:
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


TABLES: dict[str, Callable[[Address], Iterator[pa.RecordBatch]]] = {
    "csv": _csv,
    "parquet": _parquet,
    "arrow": _arrow,
    "npy": _npy,
}
