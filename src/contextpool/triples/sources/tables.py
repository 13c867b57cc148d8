"""Tables as triples: Parquet, Arrow, CSV and npy files, and whatever hands over Arrow data (pandas, polars, DuckDB).

Nothing is inferred: a CSV field is the text that stands there (`007`, `NA`), quoted as RFC 4180 has it. Integers of
typed columns are labels in decimals. Missing values, floats, dates and the like are errors that name the row.
"""

from __future__ import annotations

import csv
import io
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from contextpool.errors import ConfigError, DataError, TripleFileError
from contextpool.triples.reader import open_bytes
from contextpool.triples.sources.address import Address, check_options, need_file, yes_or_no
from contextpool.triples.sources.collect import ROLES, TripleCollector
from contextpool.triples.sources.columns import asked_columns, chosen_columns
from contextpool.triples.store import Triples

BATCH_ROWS = 1 << 18
_NUMBERED = "Fill it, cast it to text, or leave the row out before handing the table over."


def read_parquet(address: Address) -> Triples:
    """Three columns of a Parquet file, batch by batch; the others are never read."""
    import pyarrow.parquet as pq

    check_options(address, ("columns",))
    path = need_file(address)
    try:
        with pq.ParquetFile(path) as file:
            names = file.schema_arrow.names
            wanted = [names[position] for position in chosen_columns(address, names)]
            _refuse_doubles(address, names, wanted)
            batches = file.iter_batches(batch_size=BATCH_ROWS, columns=sorted(set(wanted)))
            return _from_batches(address, batches, wanted)
    except (pa.ArrowInvalid, OSError) as error:
        raise DataError(f"{address.place}: this is not a readable Parquet file ({error}).") from None


def read_arrow(address: Address) -> Triples:
    """Three columns of an Arrow IPC file (Feather 2), or of an IPC stream."""
    check_options(address, ("columns",))
    path = need_file(address)
    try:
        with pa.memory_map(str(path)) as source, _opened_ipc(source) as reader:
            names = reader.schema.names
            wanted = [names[position] for position in chosen_columns(address, names)]
            _refuse_doubles(address, names, wanted)
            batches = reader if isinstance(reader, pa.RecordBatchStreamReader) else _ipc_batches(reader)
            return _from_batches(address, batches, wanted)
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


def _ipc_batches(reader: Any) -> Iterator[pa.RecordBatch]:
    return (reader.get_batch(number) for number in range(reader.num_record_batches))


def read_table(address: Address, table: Any) -> Triples:
    """Anything that speaks Arrow: a pyarrow Table, a pandas or polars DataFrame, a DuckDB relation."""
    check_options(address, ("columns",))
    try:
        ready = pa.Table.from_pandas(table) if hasattr(table, "iloc") else pa.table(table)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise DataError(
            f"{address.text}: a column holds values of several kinds ({error}). Make it text, such as "
            "frame[column].astype(str), or whole numbers."
        ) from None
    names = ready.schema.names
    positions = chosen_columns(address, names)
    picked = pa.table([ready.column(position) for position in positions], names=list(ROLES))
    return _from_batches(address, picked.to_batches(max_chunksize=BATCH_ROWS), list(ROLES))


def _refuse_doubles(address: Address, names: Sequence[str], wanted: Sequence[str]) -> None:
    for name in wanted:
        if list(names).count(name) > 1:
            raise DataError(f"{address.text}: several columns are called {name!r}. Rename them apart.")


def _from_batches(address: Address, batches: Iterable[pa.RecordBatch], wanted: list[str]) -> Triples:
    collector = TripleCollector(lambda row: f"{address.text}: row {row:,} (from 0)", _NUMBERED)
    for batch in batches:
        columns = [batch.column(batch.schema.get_field_index(name)) for name in wanted]
        collector.add_columns(label_columns(address, columns, collector.rows))
    return collector.triples(f"{address.text}: the table holds no rows.")


def label_columns(address: Address, columns: Sequence[pa.Array], first_row: int) -> list[pa.Array]:
    """The columns as text or integers, dictionaries unpacked; a null or another type is an error."""
    ready = []
    for role, column in zip(ROLES, columns, strict=True):
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        if column.null_count:
            row = first_row + int(np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0])
            raise DataError(
                f"{address.text}: row {row:,} (from 0): the {role} is missing (null). {_NUMBERED}"
            )
        ready.append(_text_or_integers(address, column, role))
    return ready


def _text_or_integers(address: Address, column: pa.Array, role: str) -> pa.Array:
    kind = column.type
    if pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return column
    if pa.types.is_string_view(kind):
        return column.cast(pa.string())
    raise DataError(
        f"{address.text}: the {role} column is {kind}; labels are text or whole numbers. Cast it to text where the "
        "table is made, so that it is known how a value is written."
    )


def read_csv(address: Address) -> Triples:
    """A CSV file, plain, .gz or .zst, with a header unless `header=no`; every field is the text that stands there."""
    check_options(address, ("columns", "header", "delimiter"))
    path = need_file(address)
    has_header = yes_or_no(address, "header", True)
    if not has_header and asked_columns(address) is None:
        address = address.with_options({"columns": "0,1,2"})
    rows = _CsvRows(address, has_header, _delimiter(address))
    collector = TripleCollector(
        lambda row: f"{address.place}:{rows.line}", "Change it, or leave the line out."
    )
    try:
        with open_bytes(path) as raw, io.TextIOWrapper(raw, encoding="utf-8-sig", newline="") as text:
            collector.add_rows(rows.read(text))
    except UnicodeDecodeError as error:
        raise TripleFileError(address.place, rows.line + 1, f"a byte near here is not UTF-8 ({error.reason})."
                              " Convert the file to UTF-8.") from None  # fmt: skip
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(
            f"{address.place}: the file cannot be read to its end ({error}). Get it again."
        ) from None
    return collector.triples(f"{address.place}: the file holds no rows of data.")


def _delimiter(address: Address) -> str:
    value = address.options.get("delimiter", ",")
    value = "\t" if value == "tab" else value
    if not isinstance(value, str) or len(value) != 1 or value in '"\r\n':
        raise ConfigError(f"{address.text}: delimiter is {value!r}; it is one character, or the word tab.")
    return value


class _CsvRows:
    """Head, relation and tail of each record; `line` is where the last one ended."""

    def __init__(self, address: Address, has_header: bool, delimiter: str) -> None:
        self._address, self._has_header, self._delimiter = address, has_header, delimiter
        self.line = 0

    def read(self, text: io.TextIOWrapper) -> Iterator[tuple[str, str, str]]:
        reader = csv.reader(text, delimiter=self._delimiter, strict=True)
        records = self._checked(reader)
        first = next(records, None)
        if first is None:
            return
        names = first if self._has_header else [f"column {number}" for number in range(len(first))]
        head, relation, tail = chosen_columns(self._address, names)
        if not self._has_header:
            yield first[head], first[relation], first[tail]
        for record in records:
            yield record[head], record[relation], record[tail]

    def _checked(self, reader: Any) -> Iterator[list[str]]:
        """Records of one width; whatever else is an error with its line."""
        width = None
        try:
            for record in reader:
                self.line = reader.line_num
                if width is not None and len(record) != width:
                    raise TripleFileError(self._address.place, self.line, _width_problem(record, width))
                width = len(record)
                yield record
        except csv.Error as error:
            raise TripleFileError(
                self._address.place, reader.line_num, f"this is not CSV ({error}). Check its quotes."
            ) from None


def _width_problem(record: list[str], width: int) -> str:
    if not record:
        return "the line is blank. Remove it."
    return f"{len(record)} fields instead of {width}. Each line has as many as the first; is a quote missing?"


def read_npy(address: Address) -> Triples:
    """Integers [T, 3]: head, relation, tail as numbers, which become labels in decimals."""
    check_options(address, ("columns",))
    path = need_file(address)
    try:
        ids = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        raise DataError(f"{address.place}: this is not a readable .npy file ({error}).") from None
    if not isinstance(ids, np.ndarray) or ids.ndim != 2 or ids.dtype.kind not in "iu":
        what = f"{ids.dtype} {list(ids.shape)}" if isinstance(ids, np.ndarray) else "an archive"
        raise DataError(f"{address.place}: holds {what}; triples are integers [T, 3], a row each.")
    names = list(ROLES) if ids.shape[1] == 3 else [f"column {number}" for number in range(ids.shape[1])]
    positions = chosen_columns(address, names)
    columns = [pa.array(np.ascontiguousarray(ids[:, position])) for position in positions]
    return _from_batches(address, [pa.RecordBatch.from_arrays(columns, names=list(ROLES))], list(ROLES))
