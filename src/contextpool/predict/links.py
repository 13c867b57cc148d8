"""Links that a graph lacks, as a table in memory and as files: Parquet, CSV, TSV or N-Triples by suffix."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal, NamedTuple
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from contextpool.errors import ConfigError
from contextpool.notebook import frame_of, html_table

LinkFile = Literal["parquet", "csv", "tsv", "nt"]
SUFFIXES: dict[str, LinkFile] = {
    ".parquet": "parquet",
    ".csv": "csv",
    ".tsv": "tsv",
    ".txt": "tsv",
    ".nt": "nt",
}
ROWS_AT_ONCE = 1 << 16
"""Rows of a group of a Parquet file."""
PLAIN_LABEL = "urn:contextpool:"
"""Begins the IRI of a label that is none, in N-Triples; the label follows, percent-encoded."""
_FIELDS: dict[str, tuple[Any, str]] = {
    "head": (pa.string(), "Label."),
    "relation": (pa.string(), "Label."),
    "tail": (pa.string(), "Label."),
    "probability": (pa.float64(), "Chance that the fact holds."),
    "share": (pa.float64(), "Of the answers to its question, given that there is one more."),
    "score": (pa.float64(), "What the model gave it."),
    "rank": (pa.int64(), "Among the new answers to its question."),
    "asked": (pa.string(), "What was asked for: the tail, or the head."),
    "head_name": (pa.string(), "Where names were given."),
    "relation_name": (pa.string(), "Where names were given."),
    "tail_name": (pa.string(), "Where names were given."),
    "path": (pa.string(), "The strongest path; empty where none leads there."),
}
NAMES = ("head_name", "relation_name", "tail_name")
PATH = "path"
_IRI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:[^\x00-\x20<>\"{}|\\^`]+")
_LITERAL = re.compile(r'(".*")(?:(@[A-Za-z0-9-]+)|\^\^(.+))?', re.DOTALL)


def schema_of(names: bool, path: bool) -> Any:
    """The columns of links, with names and with paths."""
    left_out = {*(() if names else NAMES), *(() if path else (PATH,))}
    return pa.schema([(name, kind) for name, (kind, _) in _FIELDS.items() if name not in left_out])


def link_file_of(path: Path) -> LinkFile:
    """The kind of a file by its suffix."""
    if path.suffix.lower() not in SUFFIXES:
        raise ConfigError(
            f"output {path}: links are written as .parquet, .csv, .tsv or .nt (N-Triples), not "
            f"{path.suffix or 'to a file without suffix'}."
        )
    return SUFFIXES[path.suffix.lower()]


class Link(NamedTuple):
    """A fact that the graph lacks."""

    head: str
    relation: str
    tail: str
    probability: float
    path: str | None = None


@dataclass(frozen=True, eq=False)
class Links:
    """What `Predictor.complete` found: how much was asked, and the links, in the order of their questions."""

    questions: int
    asked_now: int
    """The other questions were asked by an earlier call."""
    found: int
    """How many links there are."""
    output: Path | None
    """The file that holds them; None where they are in memory."""
    best: tuple[dict[str, Any], ...] = ()
    """The likeliest few, as rows by column."""
    in_memory: Any = None

    @property
    def table(self) -> Any:
        """The links as an Arrow table; from a Parquet file they are read when this is asked for."""
        if self.in_memory is not None:
            return self.in_memory
        if self.output is None or link_file_of(self.output) != "parquet":
            raise ConfigError(
                f"the links are in {self.output}; only Parquet is read back. Read the file yourself."
            )
        return pq.read_table(self.output)

    def to_frame(self) -> Any:
        """The links as a pandas DataFrame; needs the extra `frame`."""
        return frame_of(self.table.to_pylist(), self.table.column_names)

    def __len__(self) -> int:
        return self.found

    def __iter__(self) -> Iterator[Link]:
        for row in self.table.to_pylist():
            yield Link(row["head"], row["relation"], row["tail"], row["probability"], row.get(PATH))

    def __repr__(self) -> str:
        where = "" if self.output is None else f" in {self.output}"
        return f"Links({self.found:,} of {self.questions:,} questions{where})"

    def _repr_html_(self) -> str:
        columns = list(self.best[0]) if self.best else []
        below = f"the likeliest {len(self.best)}" if len(self.best) < self.found else ""
        rows = [list(row.values()) for row in self.best]
        return html_table(columns, rows, above=repr(self), below=below)


class Likeliest:
    """Looks at tables that pass, and keeps the `most` rows of the highest probability; the first of equals."""

    def __init__(self, most: int = 10) -> None:
        self._most, self._kept = most, None

    def seen(self, tables: Iterable[Any]) -> Iterator[Any]:
        for table in tables:
            both = table if self._kept is None else pa.concat_tables([self._kept, table])
            self._kept = likeliest(both, self._most)
            yield table

    @property
    def rows(self) -> tuple[dict[str, Any], ...]:
        return () if self._kept is None else tuple(self._kept.to_pylist())


def likeliest(table: Any, most: int) -> Any:
    """The rows of the highest probability, best first; among equals those that come first."""
    order = np.argsort(-table["probability"].to_numpy(), kind="stable")[:most]
    return table.take(pa.array(order))


def write_links(stream: IO[bytes], tables: Iterable[Any], schema: Any, kind: LinkFile) -> int:
    """All tables as one file, each as it comes; how many rows there were. The same rows give the same bytes."""
    if kind == "parquet":
        return _write_parquet(stream, tables, schema)
    written = 0
    text = io.TextIOWrapper(stream, encoding="utf-8", newline="", write_through=True)
    rows = csv.writer(text, delimiter="," if kind == "csv" else "\t", lineterminator="\n")
    if kind != "nt":
        rows.writerow(schema.names)
    for table in tables:
        written += table.num_rows
        for row in table.to_pylist():
            if kind == "nt":
                text.write(triple_line(row))
            else:
                rows.writerow([_cell(row[name]) for name in schema.names])
    text.detach()
    return written


def _write_parquet(stream: IO[bytes], tables: Iterable[Any], schema: Any) -> int:
    """In groups of ROWS_AT_ONCE rows, however the tables are cut."""
    written, kept = 0, schema.empty_table()
    with pq.ParquetWriter(stream, schema, compression="zstd") as writer:
        for table in tables:
            written += table.num_rows
            kept = pa.concat_tables([kept, table])
            while kept.num_rows >= ROWS_AT_ONCE:
                writer.write_table(kept.slice(0, ROWS_AT_ONCE).combine_chunks())
                kept = kept.slice(ROWS_AT_ONCE)
        writer.write_table(kept.combine_chunks())
    return written


def _cell(value: Any) -> str:
    return "" if value is None else str(value)


def triple_line(row: dict[str, Any]) -> str:
    """One line of N-Triples; the probability, and the path, stand behind it as a comment."""
    comment = f"{row['probability']:.4g} {row.get(PATH) or ''}".strip()
    tail = _literal(row["tail"]) or _iri(row["tail"])
    return f"{_iri(row['head'])} {_iri(row['relation'])} {tail} . # {comment}\n"


def _iri(label: str) -> str:
    """`<label>` where it can be an IRI, a blank node as it is, anything else as a name of ours."""
    if re.fullmatch(r"_:[A-Za-z0-9]+", label):
        return label
    return f"<{label}>" if _IRI.fullmatch(label) else f"<{PLAIN_LABEL}{quote(label, safe='')}>"


def _literal(label: str) -> str | None:
    """A literal as the reader of RDF spells it: "text", "text"@en or "7"^^xsd:integer; None for anything else."""
    found = _LITERAL.fullmatch(label)
    if found is None:
        return None
    text, language, datatype = found.groups()
    return text + (language or "") + (f"^^{_iri(datatype)}" if datatype else "")
