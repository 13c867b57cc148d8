r"""One reader for every source of triples: `batches` streams them, `read_triples` makes a `Triples` of them.

| source | is |
|---|---|
| `facts.tsv`, `.txt` (`.gz`, `.zst`) | head TAB relation TAB tail, read here |
| `.jsonl`, `.ndjson` (`.gz`, `.zst`) | objects or arrays, one a line (`sources.jsonl`) |
| `.csv` (`.gz`, `.zst`), `.parquet`, `.arrow`, `.feather`, `.npy` | a table (`sources.tables`) |
| `.nt .ttl .nq .trig .rdf .owl` (`.gz`, `.zst`) | RDF (`sources.rdf`); extra `rdf` |
| `sqlite:FILE?query=SELECT ...` | SQLite (`sources.sql`) |
| `duckdb:FILE?query=SELECT ...` | DuckDB; extra `sql` |
| `postgresql://USER@HOST/DATABASE?query=SELECT ...` | PostgreSQL; extra `postgres` |
| `sparql+https://HOST/PATH?query=SELECT ...` | a SPARQL endpoint (`sources.sparql`); extra `rdf` |
| `neo4j://USER@HOST/DATABASE?query=MATCH ...`, `bolt://...` | Neo4j (`sources.cypher`); extra `neo4j` |
| a pandas or polars DataFrame, a pyarrow Table, a NetworkX graph | from Python (`sources.objects`) |

Nothing is guessed: no types, no missing values, no trimming (`007` and `NA` are labels). A line of a text file is
head TAB relation TAB tail in UTF-8, ended by `\n` or `\r\n`, without quoting or comments. What does not fit is an error
with its place. General CSV readers are not used because each reads some hostile file silently wrong (a line of two
columns padded, U+2028 as a line end). `docs/own-data.md` tells every option.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from contextpool.errors import ConfigError, DataError, TripleFileError, shortened, warn
from contextpool.triples.doubts import Rows, doubts, merge_names
from contextpool.triples.files import chunks_of_lines, not_utf8
from contextpool.triples.labels import INVERSE_SUFFIX, MAX_LABEL, ROLES
from contextpool.triples.sources.address import SPLIT_KEYS, Address, check_options, parse_address, retyped
from contextpool.triples.sources.columns import other_delimiter, row_problem, some_delimiter, text_columns
from contextpool.triples.sources.reading import BadRows, Reading
from contextpool.triples.store import Ids, Triples

Tell = Callable[[str], None]
"""Hears, in a line each, what a reader left out."""
_TAB, _LINE_FEED = 9, 10
_BINARY = {
    b"SQLite format 3\0": "an SQLite file. Ask it: 'sqlite:{place}?query=SELECT head, relation, tail FROM facts'",
    b"PAR1": "a Parquet file. Type '{place}?format=parquet'",
    b"ARROW1": "an Arrow file. Type '{place}?format=arrow'",
    b"\x93NUMPY": "a NumPy file. Type '{place}?format=npy'",
    b"\x1f\x8b": "a compressed file. Let its name end in .gz.",
    b"\x28\xb5\x2f\xfd": "a compressed file. Let its name end in .zst.",
    b"PK\x03\x04": "a ZIP archive. Unpack it first.",
}
"""What a file that is no text starts with."""


def batches(
    source: Any, *, allow_empty: bool = False, tell: Tell | None = None, **options: Any
) -> Iterator[pa.RecordBatch]:
    """The triples of a source (see the table above), batch by batch, with the columns head, relation, tail.

    All three are strings, or all three int64, the same throughout: an integer is the label of its decimals. Every
    label is checked. Options may stand in the address (`facts.csv?delimiter=;`) or be given here (`delimiter=";"`).
    A source without a triple is an error unless `allow_empty`. RDF and objects of other libraries are held whole.
    """
    address = _address(source, options)
    if "merge" in address.options:
        raise ConfigError(
            f"{address.text}: merge is for a graph that is read whole, and this one is streamed."
        )
    return _checked(source, Reading.of(address), allow_empty, tell)


def _checked(source: Any, reading: Reading, allow_empty: bool, tell: Tell | None) -> Iterator[pa.RecordBatch]:
    rows = 0
    for batch in _stream(reading, source, tell or (lambda _: None)):
        rows += batch.num_rows
        yield batch
    if not rows and not allow_empty:
        raise DataError(_nothing_in(reading.address))


def read_triples(
    source: Any, *, allow_empty: bool = False, tell: Tell | None = None, part: bool = False, **options: Any
) -> Triples:
    """All triples of a source, as `batches` reads them. O(bytes) time; memory for the ids and distinct labels.

    Data that is probably not what it seems is warned about (`doubts`). `part` is a file of a folder, which takes no
    options, so that none are suggested.
    """
    reading = Reading.of(_address(source, options), part)
    entity_ids: dict[str, int] = {}
    relation_ids: dict[str, int] = {}
    blocks: list[Ids] = [np.empty((0, 3), dtype=np.int32)]
    for batch in _checked(source, reading, allow_empty, tell):
        numbering = zip(batch.columns, (entity_ids, relation_ids, entity_ids), strict=True)
        blocks.append(np.stack([_numbers(column, ids) for column, ids in numbering], axis=1))
    rows = merge_names(Rows(reading, np.concatenate(blocks), tuple(entity_ids), tuple(relation_ids)))
    for doubt in doubts(rows):
        warn(doubt)
    return Triples.from_numbers(rows.ids, rows.entities, rows.relations)


def _numbers(column: pa.Array, ids: dict[str, int]) -> npt.NDArray[np.int32]:
    """[rows] a number for each label of a column; new labels are added to `ids`."""
    encoded = column.dictionary_encode()
    labels = encoded.dictionary.cast(pa.string()).to_pylist()
    number_of = np.array([ids.setdefault(label, len(ids)) for label in labels], dtype=np.int32)
    places = encoded.indices  # int32, none missing; its to_numpy would import pandas where it is installed
    raw = np.frombuffer(places.buffers()[1], dtype=np.int32, count=len(places), offset=4 * places.offset)
    numbers: npt.NDArray[np.int32] = number_of[raw]
    return numbers


def _address(source: Any, options: dict[str, Any]) -> Address:
    if not isinstance(source, str | Path | Address):
        kind = type(source).__name__
        return Address("object", "", options, f"the {kind}")
    address = source if isinstance(source, Address) else parse_address(source)
    address = address.with_options(options)
    for key in sorted(SPLIT_KEYS & set(address.options)):
        raise ConfigError(
            f"{address.text}: {key!r} says how a dataset is made of the graph, and here the whole graph is read. "
            "Leave it out, or load it as a dataset."
        )
    return address


def _stream(reading: Reading, source: Any, tell: Tell) -> Iterator[pa.RecordBatch]:
    """The form's own batches. Imported where used: a plain file needs none of what the others import."""
    address = reading.address
    kind = address.kind
    if kind == "tsv":
        return _tsv(address, reading)
    if kind == "jsonl":
        from contextpool.triples.sources.jsonl import jsonl_batches

        return jsonl_batches(address, reading)
    if kind in ("ntriples", "turtle", "nquads", "trig", "rdfxml"):
        from contextpool.triples.sources.rdf import rdf_batches

        return rdf_batches(address, tell)
    if kind == "sparql":
        from contextpool.triples.sources.sparql import sparql_batches

        return sparql_batches(address, tell)
    if kind == "neo4j":
        from contextpool.triples.sources.cypher import neo4j_batches

        return neo4j_batches(address)
    if kind == "object":
        from contextpool.triples.sources.objects import object_batches

        return object_batches(address, source, reading)
    if kind in ("sqlite", "duckdb", "postgres"):
        from contextpool.triples.sources.sql import QUERIES

        return QUERIES[kind](address)
    from contextpool.triples.sources.tables import TABLES

    return TABLES[kind](address, reading)


def _nothing_in(address: Address) -> str:
    if address.kind == "tsv":
        return f"{address.place}: the file holds no triples. Expected lines of head TAB relation TAB tail."
    if "query" in address.options:
        return f"{address.shown}: the query gives no rows: {address.options['query']}"
    return f"{address.place or address.text}: it holds no triples, that is no rows of data, or no edges."


@dataclass(frozen=True)
class _Table:
    """How a tab-separated file is laid out."""

    width: int = 3
    chosen: tuple[int, ...] = (0, 1, 2)
    """The positions of head, relation and tail."""


def _tsv(address: Address, reading: Reading) -> Iterator[pa.RecordBatch]:
    check_options(address, ("columns", "header", "bad_rows"))
    bad, table, line, good = reading.bad, None, 1, 0
    for chunk in chunks_of_lines(address.path):
        if table is None:
            table, start = _table_at(address, chunk, reading)
            chunk, line = chunk[start:], line + bool(start)
        lines = chunk.count(b"\n")
        columns = _columns(chunk, table)
        if columns is None:
            columns = _columns(_sound_lines(chunk, line, table, bad), _Table())
            assert columns is not None, "each line is fine, but they are refused as a whole"
        line, good = line + lines, good + len(columns[0])
        if bad.enough:
            break
        if bad.skip or not bad:
            yield pa.RecordBatch.from_arrays(columns, names=list(ROLES))
    bad.finish(good)


def _table_at(address: Address, chunk: bytes, reading: Reading) -> tuple[_Table, int]:
    """The layout that the options and the first line tell, and how many bytes of the chunk are a line of names."""
    lines = [
        raw.removesuffix(b"\r").decode("utf-8", "replace") for raw in chunk[: 1 << 16].split(b"\n", 20)[:20]
    ]
    top = lines[0].split("\t")
    reading.header, reading.first_line, reading.columns = False, 1, (0, 1, 2)

    def refuse(what: str) -> TripleFileError:
        return TripleFileError(address.place, 1, what)

    what = next((what for magic, what in _BINARY.items() if chunk.startswith(magic)), None)
    if what is not None:
        raise refuse(f"this is {what.format(place=address.place)}")
    if len(top) == 1 and (other := other_delimiter(address, [text for text in lines if text], "\t")):
        what = f"1 column instead of 3: {shortened(lines[0])}. Each line holds head TAB relation TAB tail."
        raise refuse(what + other)
    if not {"columns", "header"} & set(address.options):
        reading.bad.advice = (
            "" if reading.bad.part else _other_columns(address, [text for text in lines if text])
        )
        return _Table(), 0
    header, chosen = text_columns(address, top, refuse)
    reading.header, reading.first_line, reading.columns = header, 1 + header, chosen
    return _Table(len(top), chosen), chunk.index(b"\n") + 1 if header else 0


def _other_columns(address: Address, lines: Sequence[str]) -> str:
    """What to do where each line has as many columns as the first, and not three."""
    width = lines[0].count("\t") + 1 if lines else 0
    if width == 1:
        return some_delimiter(address, lines, "\t")
    return f"To take three of its columns, type {retyped(address, columns='0,1,2')}" if width > 3 else ""


def _integers(values: npt.NDArray[np.int64]) -> pa.Int64Array:
    """Without pa.array, which imports pandas where it is installed, to see whether the values are its."""
    return pa.Array.from_buffers(pa.int64(), len(values), [None, pa.py_buffer(values)])


def _columns(chunk: bytes, table: _Table) -> list[pa.StringArray] | None:
    """Head, relation and tail of each line, or None where a line is not as it has to be, for the slow look.

    That is: width - 1 tabs a line, none of the three empty or too long, no NUL or stray CR, UTF-8, no inverse.
    """
    if b"\r" in chunk:
        chunk = chunk.replace(b"\r\n", b"\n")
    data = np.frombuffer(chunk, dtype=np.uint8)
    is_separator = (data == _TAB) | (data == _LINE_FEED)
    separator_at = np.flatnonzero(is_separator)
    if not _is_regular(chunk, separator_at, data[separator_at], table):
        return None
    offsets = np.empty(len(separator_at) + 1, dtype=np.int32)
    offsets[0] = 0
    offsets[1:] = separator_at - np.arange(len(separator_at))
    values = pa.py_buffer(data[~is_separator])
    fields = pa.Array.from_buffers(pa.binary(), len(separator_at), [None, pa.py_buffer(offsets), values])
    try:
        texts = fields.cast(pa.string())  # [width * lines]
    except pa.ArrowInvalid:
        return None
    starts = np.arange(0, len(texts), table.width)
    columns = [texts.take(_integers(starts + position)) for position in table.chosen]
    return None if pc.ends_with(columns[1], INVERSE_SUFFIX).true_count else columns


def _is_regular(
    chunk: bytes, separator_at: npt.NDArray[np.intp], separators: npt.NDArray[np.uint8], table: _Table
) -> bool:
    if len(separators) % table.width or b"\0" in chunk or b"\r" in chunk or _has_byte_order_mark(chunk):
        return False
    pattern = np.array([_TAB] * (table.width - 1) + [_LINE_FEED])
    lengths = np.diff(separator_at, prepend=-1) - 1
    pattern_holds = (separators.reshape(-1, table.width) == pattern).all()
    chosen = lengths.reshape(-1, table.width)[:, list(table.chosen)]
    return bool(pattern_holds and ((chosen > 0) & (chosen <= MAX_LABEL)).all())


def _has_byte_order_mark(chunk: bytes) -> bool:
    """Whether a label starts with U+FEFF, as in the middle of concatenated files."""
    if codecs.BOM_UTF8 not in chunk:
        return False
    return any(before + codecs.BOM_UTF8 in b"\n" + chunk for before in (b"\n", b"\t"))


def _sound_lines(chunk: bytes, first_line: int, table: _Table, bad: BadRows) -> bytes:
    """Walk the chunk line by line: head TAB relation TAB tail of each that is not bad."""
    sound = []
    for number, raw in enumerate(chunk.split(b"\n")[:-1], start=first_line):
        raw = raw.removesuffix(b"\r")
        problem = _line_problem(raw, table)
        if problem is None:
            fields = raw.split(b"\t")
            sound.append(b"\t".join(fields[position] for position in table.chosen) + b"\n")
        else:
            bad.add(number, problem, raw)
    return b"".join(sound)


def _line_problem(raw: bytes, table: _Table) -> str | None:
    if not raw:
        return "the line is blank. Each line holds head TAB relation TAB tail; remove it."
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        return not_utf8(raw, error)
    columns = text.split("\t")
    if len(columns) != table.width:
        plural = "" if len(columns) == 1 else "s"
        holds = "head TAB relation TAB tail" if table.width == 3 else "as many as the first"
        return f"{len(columns)} column{plural} instead of {table.width}: {shortened(text)}. Each line holds {holds}."
    return row_problem([columns[position] for position in table.chosen])
