"""The same answers in every format, and every question somewhere in them."""

from __future__ import annotations

import io
import json

import pyarrow.parquet as pq

from contextpool.predict import Answer, Question, RelationAnswer
from contextpool.predict.files import COLUMNS, Answered, encoded

RESULTS = [
    Answered(
        1, Question("a", "r", None), [Answer("b", 1.25, 0.5, False, "Bea"), Answer("é", -2.0, None, True)]
    ),
    Answered(2, Question("a", None, "b"), [RelationAnswer("s", -0.5, 0.75, False, share=0.9)]),
    Answered(3, Question(None, "r", "zz"), [], "entity 'zz' is unknown."),
    Answered(4, Question(None, "r", "b"), []),
]


def test_json_lines_hold_one_question_a_line() -> None:
    lines = [json.loads(line) for line in encoded(RESULTS, "jsonl").decode().splitlines()]
    assert [line["question"] for line in lines] == [1, 2, 3, 4]
    assert lines[0]["answers"][1] == {
        "entity": "é",
        "score": -2.0,
        "probability": None,
        "share": None,
        "known": True,
    }
    assert lines[1]["answers"] == [
        {"relation": "s", "score": -0.5, "probability": 0.75, "share": 0.9, "known": False}
    ]
    assert lines[2] == {
        "question": 3, "head": None, "relation": "r", "tail": "zz", "error": "entity 'zz' is unknown.", "answers": [],
    }  # fmt: skip
    assert "error" not in lines[3]


def test_rows_hold_one_answer_each_and_no_question_is_lost() -> None:
    rows = [line.split("\t") for line in encoded(RESULTS, "tsv").decode().splitlines()]
    assert rows == [
        ["1", "a", "r", "?", "1", "b", "Bea", "1.25", "0.5", "", "false", ""],
        ["1", "a", "r", "?", "2", "é", "", "-2.0", "", "", "true", ""],
        ["2", "a", "?", "b", "1", "s", "", "-0.5", "0.75", "0.9", "false", ""],
        ["3", "?", "r", "zz", "", "", "", "", "", "", "", "entity 'zz' is unknown."],
        ["4", "?", "r", "b", "", "", "", "", "", "", "", ""],
    ]
    assert {len(row) for row in rows} == {len(COLUMNS)}


def test_parquet_holds_the_same_rows_typed() -> None:
    table = pq.read_table(io.BytesIO(encoded(RESULTS, "parquet")))
    assert tuple(table.column_names) == COLUMNS
    rows = table.to_pylist()
    assert [row["question"] for row in rows] == [1, 1, 2, 3, 4]
    assert rows[0]["score"] == 1.25
    assert rows[1]["known"] is True
    assert rows[1]["probability"] is None
    assert rows[3]["error"] == "entity 'zz' is unknown."


def test_the_same_answers_give_the_same_bytes() -> None:
    for kind in ("tsv", "jsonl", "parquet"):
        assert encoded(RESULTS, kind) == encoded(list(RESULTS), kind)  # type: ignore[arg-type]
