"""Files of questions: three formats, one meaning; what is wrong is named with its place."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextpool.errors import InputError
from contextpool.predict import Question
from contextpool.predict.files import kind_of, read_questions

LABEL = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\t\n\r\0?\ufeff"), min_size=1)
QUESTION = st.tuples(LABEL, LABEL, st.sampled_from([0, 1, 2])).map(
    lambda parts: Question(*[None if place == parts[2] else parts[place % 2] for place in range(3)])
)


def write(folder: Path, kind: str, questions: list[Question]) -> Path:
    path = folder / f"questions.{kind}"
    rows = [question.to_dict() for question in questions]
    if kind == "tsv":
        lines = ["\t".join(row[place] or "?" for place in ("head", "relation", "tail")) for row in rows]
        path.write_bytes("".join(f"{line}\n" for line in lines).encode())
    elif kind == "jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    else:
        schema = pa.schema([(place, pa.string()) for place in ("head", "relation", "tail")])
        pq.write_table(pa.Table.from_pylist(rows, schema=schema), path)
    return path


@given(st.lists(QUESTION, max_size=6), st.sampled_from(["tsv", "jsonl", "parquet"]))
def test_what_is_written_is_read_again(
    tmp_path_factory: pytest.TempPathFactory, questions: list[Question], kind: str
) -> None:
    path = write(tmp_path_factory.mktemp("questions"), kind, questions)
    assert [question for _, question in read_questions(path)] == questions


def test_places_are_lines_and_rows(tmp_path: Path) -> None:
    asked = [Question("a", "r", None), Question(None, "r", "b")]
    assert [where.rpartition("questions")[2] for where, _ in read_questions(write(tmp_path, "tsv", asked))] == [
        ".tsv:1", ".tsv:2",
    ]  # fmt: skip
    parquet = read_questions(write(tmp_path, "parquet", asked))
    assert [where.rpartition(": ")[2] for where, _ in parquet] == ["row 1", "row 2"]


def test_two_columns_ask_for_a_tail_and_files_may_be_compressed(tmp_path: Path) -> None:
    path = tmp_path / "questions.tsv.gz"
    path.write_bytes(gzip.compress(b"a\tr\r\nb\t?\tc"))
    assert [question for _, question in read_questions(path)] == [
        Question("a", "r", None),
        Question("b", None, "c"),
    ]


def test_parquet_may_lack_a_column_and_have_others(tmp_path: Path) -> None:
    path = tmp_path / "q.parquet"
    columns = {"weight": [1.5, 2.5], "relation": pa.array(["r", "s"]).dictionary_encode(), "tail": ["b", "c"]}
    pq.write_table(pa.table(columns), path)
    assert [question for _, question in read_questions(path)] == [
        Question(None, "r", "b"),
        Question(None, "s", "c"),
    ]


BAD = [
    ("q.tsv", b"a\tr\n\n", "q.tsv:2: '' is no question"),
    ("q.tsv", b"a\n", "q.tsv:1: 'a' is no question"),
    ("q.tsv", b"a\tr\tb\n", "q.tsv:1: .* is no question"),
    ("q.tsv", b"?\tr\t?\n", "q.tsv:1"),
    ("q.tsv", b"a\tr\t?\tx\n", "q.tsv:1"),
    ("q.tsv", b"\tr\n", "q.tsv:1: head '' is empty"),
    ("q.tsv", b"a\t\xff\n", "q.tsv:1: byte 3 of the line is not UTF-8"),
    ("q.jsonl", b"{}\n", "q.jsonl:1: .* gives nothing"),
    ("q.jsonl", b'{"head": "a", "relation": "r", "k": 3}\n', "q.jsonl:1: .* found 'k'"),
    ("q.jsonl", b'{"head": "a", "relation": 3}\n', "q.jsonl:1: relation is a value of type int"),
    ("q.jsonl", b'{"head": "a", "head": "b", "relation": "r"}\n', "q.jsonl:1: .*a key occurs twice"),
    ("q.jsonl", b'{"head": "a", "relation": "r"}\nnull\n', "q.jsonl:2: .* found 'NoneType'"),
    ("q.jsonl", b'{"head": "a"\n', "q.jsonl:1: this is no JSON object"),
    ("q.jsonl", b"\n", "q.jsonl:1: this is no JSON object"),
    ("q.jsonl", b"[" * 100_000 + b"\n", "q.jsonl:1"),
    ("q.jsonl", b'{"head": "a\\tb", "relation": "r"}\n', "q.jsonl:1: head 'a.*tb' holds a tab"),
    ("q.jsonl", b'{"head": "\\ud800", "relation": "r"}\n', "q.jsonl:1: head .* surrogate"),
    ("q.jsonl", b'{"head": "", "relation": "r"}\n', "q.jsonl:1: head '' is empty"),
    ("q.parquet", b"PAR1 no it is not", "q.parquet: the Parquet file cannot be read"),
    ("q.csv", b"a,r\n", "not .csv"),
    ("q", b"a\tr\n", "not a file without suffix"),
]


@pytest.mark.parametrize(("name", "content", "words"), BAD)
def test_what_is_no_question_is_refused_with_its_place(
    tmp_path: Path, name: str, content: bytes, words: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=words) as caught:
        list(read_questions(tmp_path / name))
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"head": [1, 2], "relation": ["r", "s"]}, "the column 'head' holds int64"),
        ({"head": ["a"], "other": ["r"]}, "two of the columns head, relation and tail; found head, other"),
        ({"head": ["a", None], "relation": ["r", "s"]}, "row 2: .* gives relation"),
    ],
)
def test_parquet_that_holds_no_questions_is_refused(
    tmp_path: Path, columns: dict[str, list[object]], words: str
) -> None:
    pq.write_table(pa.table(columns), tmp_path / "q.parquet")
    with pytest.raises(InputError, match=words):
        list(read_questions(tmp_path / "q.parquet"))


@pytest.mark.parametrize("name", ["q.tsv", "q.jsonl", "q.parquet"])
def test_a_file_that_is_not_there_is_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match=name):
        list(read_questions(tmp_path / name))


def test_kinds_are_told_by_suffix() -> None:
    names = {
        "a.tsv": "tsv",
        "a.b.txt.zst": "tsv",
        "A.JSONL": "jsonl",
        "a.ndjson.gz": "jsonl",
        "a.parquet": "parquet",
    }
    assert {name: kind_of(Path(name)) for name in names} == names
