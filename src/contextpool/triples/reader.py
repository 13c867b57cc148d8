r"""One reader for every source of triples: `batches` streams them, `read_triples` makes a `Triples` of them.

| source | is |
|---|---|
| `facts.tsv`, `.txt` (`.gz`, `.zst`) | head TAB relation TAB tail, read here |
| `.csv` (`.gz`, `.zst`), `.parquet`, `.arrow`, `.feather`, `.npy` | a table (`sources.tables`) |
| `.nt .ttl .nq .trig .rdf .owl` (`.gz`, `.zst`) | RDF (`sources.rdf`); extra `rdf` |
| `sqlite:FILE?query=SELECT ...` | SQLite (`sources.sql`) |
| `duckdb:FILE?query=SELECT ...`, `postgres:...?query=SELECT ...` | DuckDB, PostgreSQL; extra `sql` |
| `neo4j://USER@HOST/DATABASE?query=MATCH ...`, `bolt://...` | Neo4j (`sources.cypher`); extra `neo4j` |
| a pandas or polars DataFrame, a pyarrow Table, a NetworkX graph | from Python (`sources.objects`) |

Nothing is guessed: no types, no missing values, no trimming (`007` and `NA` are labels). A line of a text file is
head TAB relation TAB tail in UTF-8, ended by `\n` or `\r\n`, without quoting or comments. What does not fit is an error
with its place. General CSV readers are not used because each reads some hostile file silently wrong (a line of two
columns padded, U+2028 as a line end). `docs/own-data.md` tells every option.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from contextpool.errors import ConfigError, DataError, TripleFileError, shortened
from contextpool.triples.files import chunks_of_lines, not_utf8
from contextpool.triples.labels import INVERSE_SUFFIX, ROLES, label_problem, relation_problem
from contextpool.triples.sources.address import SPLIT_KEYS, Address, check_options, parse_address
from contextpool.triples.store import Ids, Triples

Tell = Callable[[str], None]
"""Hears, in a line each, what a reader left out."""
_TAB, _LINE_FEED = 9, 10
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def batches(
    source: Any, *, allow_empty: bool = False, tell: Tell | None = None, **options: Any
) -> Iterator[pa.RecordBatch]:
    """The triples of a source (see the table above), batch by batch, with the columns head, relation, tail.

    All three are strings, or all three int64, the same throughout: an integer is the label of its decimals. Every
    label is checked. Options may stand in the address (`facts.csv?delimiter=;`) or be given here (`delimiter=";"`).
    A source without a triple is an error unless `allow_empty`. RDF and objects of other libraries are held whole.
    """
    address = _address(source, options)
    rows = 0
    for batch in _stream(address, source, tell or (lambda _: None)):
        rows += batch.num_rows
        yield batch
    if not rows and not allow_empty:
        raise DataError(_nothing_in(address))


def read_triples(
    source: Any, *, allow_empty: bool = False, tell: Tell | None = None, **options: Any
) -> Triples:
    """All triples of a source, as `batches` reads them. O(bytes) time; memory for the ids and distinct labels."""
    entity_ids: dict[str, int] = {}
    relation_ids: dict[str, int] = {}
    blocks: list[Ids] = [np.empty((0, 3), dtype=np.int32)]
    for batch in batches(source, allow_empty=allow_empty, tell=tell, **options):
        numbering = zip(batch.columns, (entity_ids, relation_ids, entity_ids), strict=True)
        blocks.append(np.stack([_numbers(column, ids) for column, ids in numbering], axis=1))
    return Triples.from_numbers(np.concatenate(blocks), tuple(entity_ids), tuple(relation_ids))


def _numbers(column: pa.Array, ids: dict[str, int]) -> npt.NDArray[np.int32]:
    """[rows] a number for each label of a column; new labels are added to `ids`."""
    encoded = column.dictionary_encode()
    labels = encoded.dictionary.cast(pa.string()).to_pylist()
    number_of = np.array([ids.setdefault(label, len(ids)) for label in labels], dtype=np.int32)
    numbers: npt.NDArray[np.int32] = number_of[encoded.indices.to_numpy()]
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


def _stream(address: Address, source: Any, tell: Tell) -> Iterator[pa.RecordBatch]:
    """The form's own batches. Imported where used: a plain file needs none of what the others import."""
    kind = address.kind
    if kind == "tsv":
        return _tsv(address)
    if kind in ("ntriples", "turtle", "nquads", "trig", "rdfxml"):
        from contextpool.triples.sources.rdf import rdf_batches

        return rdf_batches(address, tell)
    if kind == "neo4j":
        from contextpool.triples.sources.cypher import neo4j_batches

        return neo4j_batches(address)
    if kind == "object":
        from contextpool.triples.sources.objects import object_batches

        return object_batches(address, source)
    if kind in ("sqlite", "duckdb", "postgres"):
        from contextpool.triples.sources.sql import QUERIES

        return QUERIES[kind](address)
    from contextpool.triples.sources.tables import TABLES

    return TABLES[kind](address)


def _nothing_in(address: Address) -> str:
    if address.kind == "tsv":
        return f"{address.place}: the file holds no triples. Expected lines of head TAB relation TAB tail."
    if "query" in address.options:
        return f"{address.shown}: the query gives no rows: {address.options['query']}"
    return f"{address.place or address.text}: it holds no triples, that is no rows of data, or no edges."


def _tsv(address: Address) -> Iterator[pa.RecordBatch]:
    check_options(address, ())
    line = 1
    for chunk in chunks_of_lines(address.path):
        fields = _fields(chunk, address.path, line)  # [3 * lines]
        places = np.arange(0, len(fields), 3)
        columns = [fields.take(pa.array(places + column)) for column in range(3)]
        _refuse_inverses(columns[1], address.path, line)
        yield pa.RecordBatch.from_arrays(columns, names=list(ROLES))
        line += len(places)


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
        return not_utf8(raw, error)
    columns = text.split("\t")
    if len(columns) != 3:
        plural = "" if len(columns) == 1 else "s"
        return (
            f"{len(columns)} column{plural} instead of 3: {shortened(text)}. "
            "Each line holds head TAB relation TAB tail."
        )
    for role, label in zip(ROLES, columns, strict=True):
        problem = label_problem(label)
        if problem:
            return f"the {role} {shortened(label)} {problem}."
    return None


def _refuse_inverses(relations: pa.StringArray, path: Path, first_line: int) -> None:
    """A relation that is spelled as an inverse is refused with its first line."""
    found = pc.index(pc.ends_with(relations, INVERSE_SUFFIX), True).as_py()
    if found >= 0:
        label = relations[found].as_py()
        what = f"the relation {shortened(label)} {relation_problem(label)}. Rename it."
        raise TripleFileError(path, first_line + found, what)
