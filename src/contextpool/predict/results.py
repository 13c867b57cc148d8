"""Answers as bytes: TSV, JSON lines or Parquet; the same answers give the same bytes."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from contextpool.predict.answers import PLACES, AnyAnswer, Question
from contextpool.predict.questions import ASKED_MARK, FileKind

COLUMNS = (
    "question",
    *PLACES,
    "rank",
    "answer",
    "name",
    "score",
    "probability",
    "known",
    "error",
)
"""Of TSV and Parquet: one row an answer. A question without answers has one row, whose answer is empty."""


@dataclass(frozen=True)
class Answered:
    """A question, its number from 1 in its file, and its answers or why there are none."""

    number: int
    question: Question
    answers: Sequence[AnyAnswer] = ()
    error: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """As JSON holds it."""
        told = {} if self.error is None else {"error": self.error}
        answers = [answer.to_dict() for answer in self.answers]
        return {"question": self.number, **self.question.to_dict(), **told, "answers": answers}

    def rows(self) -> Iterator[dict[str, Any]]:
        """As columns hold it."""
        asked = {"question": self.number, **self.question.to_dict()}
        if not self.answers:
            yield {**dict.fromkeys(COLUMNS), **asked, "error": self.error}
        for rank, answer in enumerate(self.answers, start=1):
            figures = {"name": answer.name, "score": answer.score, "probability": answer.probability}
            own = {"rank": rank, "answer": answer.label, **figures, "known": answer.known, "error": None}
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
    kinds = [whole, text, text, text, whole, text, text, real, real, pa.bool_(), text]
    schema = pa.schema(list(zip(COLUMNS, kinds, strict=True)))
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), sink, compression="zstd")
    return sink.getvalue()
