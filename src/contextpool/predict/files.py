"""Files of questions and of answers: TSV, JSON lines or Parquet.

Questions are read as a stream, nothing is guessed, and errors carry their place. The same answers give the same bytes.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from contextpool.errors import ConfigError, DataError, InputError, TripleFileError, shortened
from contextpool.predict.answers import FIGURES, PLACES, Answers, AnyAnswer, Question
from contextpool.triples.files import numbered_lines
from contextpool.triples.labels import label_problem

FileKind = Literal["tsv", "jsonl", "parquet"]
KINDS: tuple[FileKind, ...] = get_args(FileKind)
ASKED_MARK = "?"
"""Stands in a TSV file where the answer would stand."""
ROWS_AT_ONCE = 4096
Placed = tuple[str, Question]
"""Where a question stands, such as questions.tsv:7, and the question."""


def kind_of(path: Path) -> FileKind:
    """The kind of a file by its suffix: .tsv or .txt, .jsonl, .parquet; the first two also as .gz and .zst."""
    suffixes = [suffix for suffix in path.suffixes if suffix not in (".gz", ".zst")]
    last = suffixes[-1].lower() if suffixes else ""
    known: dict[str, FileKind] = {
        ".tsv": "tsv", ".txt": "tsv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet"
    }  # fmt: skip
    if last not in known:
        raise ConfigError(
            f"{path}: questions are read from .tsv, .jsonl or .parquet files, not {last or 'a file without suffix'}."
        )
    return known[last]


def read_questions(path: str | Path) -> Iterator[Placed]:
    """The questions of a file, one after another; what is wrong is an error with its line or row."""
    path = Path(path)
    readers = {"tsv": _read_tsv, "jsonl": _read_jsonl, "parquet": _read_parquet}
    return readers[kind_of(path)](path)


def file_digest(path: str | Path) -> str:
    """sha256 of a file's bytes."""
    try:
        with Path(path).open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise DataError(f"{path}: the file cannot be read ({error.strerror or error}).") from error


def _read_tsv(path: Path) -> Iterator[Placed]:
    """A line is head TAB relation, or head TAB relation TAB tail with a ? for what is asked."""
    for number, text in numbered_lines(path):
        columns = text.split("\t")
        columns += [ASKED_MARK] * (len(columns) == 2)
        marks = columns.count(ASKED_MARK)
        if len(columns) != 3 or marks != 1:
            raise TripleFileError(
                path,
                number,
                f"{shortened(text)} is no question. A line holds head TAB relation TAB tail with ? for what is "
                "asked, or head TAB relation alone. (Is an entity called ?, use JSON lines.)",
            )
        values = dict(
            zip(PLACES, (None if column == ASKED_MARK else column for column in columns), strict=True)
        )
        yield f"{path}:{number}", _question_of(values, f"{path}:{number}")


def _read_jsonl(path: Path) -> Iterator[Placed]:
    """A line is {"head": ..., "relation": ..., "tail": ...}, one of them missing or null."""
    for number, text in numbered_lines(path):
        try:
            values = json.loads(text, object_pairs_hook=_without_repeats)
        except (ValueError, RecursionError) as error:
            raise TripleFileError(
                path, number, f"this is no JSON object ({shortened(str(error))})."
            ) from None
        yield f"{path}:{number}", _question_of(values, f"{path}:{number}")


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len({key for key, _ in pairs}) < len(pairs):
        raise ValueError("a key occurs twice")
    return dict(pairs)


def _question_of(values: Any, where: str) -> Question:
    if not isinstance(values, dict) or not set(values) <= set(PLACES):
        odd = sorted(set(values) - set(PLACES)) if isinstance(values, dict) else [type(values).__name__]
        raise DataError(
            f"{where}: a question is an object with two of head, relation and tail; found {shortened(str(odd[0]))}."
        )
    try:
        question = Question(**values)
    except InputError as error:
        raise DataError(f"{where}: {error}") from None
    for place, text in values.items():
        problem = None if text is None else label_problem(text)
        if problem:
            raise DataError(f"{where}: {place} {shortened(text)} {problem}, so nothing can be called that.")
    return question


def _read_parquet(path: Path) -> Iterator[Placed]:
    """Text columns head, relation, tail; null, or no such column, for what is asked."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            columns = _text_columns(file.schema_arrow, path)
            row = 0
            for batch in file.iter_batches(batch_size=ROWS_AT_ONCE, columns=columns):
                for values in batch.to_pylist():
                    row += 1
                    yield f"{path}: row {row}", _question_of(values, f"{path}: row {row}")
    except (OSError, pa.ArrowException) as error:
        reason = shortened(str(error).splitlines()[0] if str(error) else type(error).__name__, 200)
        raise DataError(f"{path}: the Parquet file cannot be read ({reason}).") from error


def _text_columns(schema: Any, path: Path) -> list[str]:
    import pyarrow as pa

    columns: list[str] = [place for place in PLACES if place in schema.names]
    for name in columns:
        kind = schema.field(name).type
        kind = kind.value_type if pa.types.is_dictionary(kind) else kind
        if not (pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_null(kind)):
            raise DataError(f"{path}: the column {name!r} holds {kind}; questions are text.")
    if len(columns) < 2:
        found = ", ".join(schema.names[:10])
        raise DataError(f"{path}: questions need two of the columns head, relation and tail; found {found}.")
    return columns


COLUMNS = ("question", *PLACES, "rank", "answer", "name", "score", "probability", "share", "known", "error")
"""The columns of TSV and Parquet: a row for each answer. A question without answers has one with an empty answer."""


@dataclass(frozen=True)
class Answered:
    """A question, its number from 1 in its file, and its answers or why there are none."""

    number: int
    question: Question
    answers: Sequence[AnyAnswer] = ()
    error: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """The object that a JSON line holds."""
        told: dict[str, Any] = {} if self.error is None else {"error": self.error}
        told |= self.answers.told() if isinstance(self.answers, Answers) else {}
        answers = [answer.to_dict() for answer in self.answers]
        return {"question": self.number, **self.question.to_dict(), **told, "answers": answers}

    def rows(self) -> Iterator[dict[str, Any]]:
        """The rows of TSV or Parquet, by column."""
        asked = {"question": self.number, **self.question.to_dict()}
        if not self.answers:
            yield {**dict.fromkeys(COLUMNS), **asked, "error": self.error}
        for rank, answer in enumerate(self.answers, start=1):
            figures = {key: getattr(answer, key) for key in FIGURES}
            own = {"rank": rank, "answer": answer.label, **figures, "error": None}
            yield asked | own


def encoded(results: Iterable[Answered], kind: FileKind) -> bytes:
    """The content of one file."""
    if kind == "jsonl":
        lines = (json.dumps(one.to_dict(), ensure_ascii=False, allow_nan=False) for one in results)
        return "".join(f"{line}\n" for line in lines).encode("utf-8")
    rows = (row for one in results for row in one.rows())
    if kind == "tsv":
        return "".join(_tsv_line(row) for row in rows).encode("utf-8")
    return _parquet(list(rows))


def _tsv_line(row: dict[str, Any]) -> str:
    open_place = {place: ASKED_MARK for place in PLACES if row[place] is None}
    return "\t".join(_cell((row | open_place)[column]) for column in COLUMNS) + "\n"


def _cell(value: Any) -> str:
    """Labels cannot hold tabs or line ends, and messages have them escaped."""
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _parquet(rows: list[dict[str, Any]]) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    whole, real, text = pa.int64(), pa.float64(), pa.string()
    kinds = [whole, text, text, text, whole, text, text, real, real, real, pa.bool_(), text]
    schema = pa.schema(list(zip(COLUMNS, kinds, strict=True)))
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), sink, compression="zstd")
    return sink.getvalue()
