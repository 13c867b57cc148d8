"""The strict reader: right, or a named error with its line; never silently something else (I1, I2)."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contextpool.errors import DataError, TripleFileError
from contextpool.triples import files
from contextpool.triples.files import write_triples
from contextpool.triples.labels import label_problem, relation_problem
from contextpool.triples.reader import read_triples
from support import SOAK

pytestmark = pytest.mark.filterwarnings("ignore::contextpool.errors.DataWarning")
# What the file holds, and either the triples it means or (line, words the error has to contain).
NASTY: dict[str, tuple[bytes, object]] = {
    "leading zeros are text": (b"007\tr\t7\n", {("007", "r", "7")}),
    "NA is a label": (b"NA\tr\tnull\nnan\tr\tNone\n", {("NA", "r", "null"), ("nan", "r", "None")}),
    "numbers keep their spelling": (b"1.0\tr\t1\n1e3\tr\t1000\n", {("1.0", "r", "1"), ("1e3", "r", "1000")}),
    "quotes are not special": (b'"a\tr\tb"\n', {('"a', "r", 'b"')}),
    "commas are not special": (b"a,b\tr\tc;d\n", {("a,b", "r", "c;d")}),
    "hash is no comment": (b"#a\tr\tb\n", {("#a", "r", "b")}),
    "backslash is no escape": (b"a\\tb\tr\tc\\n\n", {("a\\tb", "r", "c\\n")}),
    "U+2028 does not end a line": ("a\u2028b\tr\tc\n".encode(), {("a\u2028b", "r", "c")}),
    "U+0085 does not end a line": ("a\u0085b\tr\tc\n".encode(), {("a\u0085b", "r", "c")}),
    "vertical tab and form feed stay": (b"a\x0bb\tr\tc\x0cd\n", {("a\x0bb", "r", "c\x0cd")}),
    "blanks are kept": (b" a\tr\tb \n", {(" a", "r", "b ")}),
    "no-break space is a character": ("a\u00a0\tr\tb\n".encode(), {("a\u00a0", "r", "b")}),
    "composed and decomposed differ": ("\u00e9\tr\te\u0301\n".encode(), {("\u00e9", "r", "e\u0301")}),
    "right to left": ("\u05d0\tr\t\u0628\n".encode(), {("\u05d0", "r", "\u0628")}),
    "beyond the basic plane": ("\U0001f30d\tr\tb\n".encode(), {("\U0001f30d", "r", "b")}),
    "CRLF": (b"a\tr\tb\r\nc\tr\td\r\n", {("a", "r", "b"), ("c", "r", "d")}),
    "no final line feed": (b"a\tr\tb\nc\tr\td", {("a", "r", "b"), ("c", "r", "d")}),
    "no final line feed after CR": (b"a\tr\tb\r", {("a", "r", "b")}),
    "duplicates collapse": (b"a\tr\tb\na\tr\tb\n", {("a", "r", "b")}),
    "true and dates are text": (b"true\tr\t2020-01-01\n", {("true", "r", "2020-01-01")}),
    "two columns": (b"a\tr\tb\na\tr\n", (2, "2 columns instead of 3")),
    "one column": (b"a r b\n", (1, "1 column instead of 3")),
    "four columns": (b"a\tr\tb\n\na\tr\tb\tc\n", (2, "blank")),
    "three tabs": (b"a\tr\tb\tc\n", (1, "4 columns instead of 3")),
    "shifted by a line that is short and one that is long": (b"a\tr\nb\tr\tc\td\n", (1, "2 columns")),
    "blank line": (b"a\tr\tb\n\nc\tr\td\n", (2, "blank")),
    "blank last line": (b"a\tr\tb\n\n", (2, "blank")),
    "empty head": (b"\tr\tb\n", (1, "head '' is empty")),
    "empty relation": (b"a\t\tb\n", (1, "relation '' is empty")),
    "empty tail": (b"a\tr\t\n", (1, "tail '' is empty")),
    "NUL": (b"a\tr\tb\nc\0d\tr\te\n", (2, "NUL")),
    "lone CR": (b"a\rb\tr\tc\n", (1, "carriage return")),
    "two CRs": (b"a\tr\tb\r\r\n", (1, "carriage return")),
    "old Mac line ends": (b"a\tr\tb\rc\tr\td\r", (1, "columns")),
    "not UTF-8": (b"a\tr\tb\ncaf\xe9\tr\td\n", (2, "not UTF-8")),
    "UTF-16": ("a\tr\tb\n".encode("utf-16"), (1, "UTF-8")),
    "overlong UTF-8": (b"a\xc0\xaf\tr\tb\n", (1, "not UTF-8")),
    "half a surrogate": (b"a\xed\xa0\x80\tr\tb\n", (1, "not UTF-8")),
    "cut inside a character": ("a\tr\té".encode()[:-1], (1, "not UTF-8")),
    "byte order mark": (b"\xef\xbb\xbfa\tr\tb\n", {("a", "r", "b")}),
    "byte order mark in the middle": (b"a\tr\tb\n\xef\xbb\xbfc\tr\td\n", (2, "byte order mark")),
    "relation that names an inverse": (b"a\tr\tb\na\tq^-1\tb\n", (2, "'^-1'")),
    "only line feeds": (b"\n\n", (1, "blank")),
}


@pytest.mark.parametrize("name", NASTY)
def test_nasty_file_is_right_or_refused_with_its_line(name: str, tmp_path: Path):
    content, expected = NASTY[name]
    path = tmp_path / "nasty.tsv"
    path.write_bytes(content)
    if isinstance(expected, set):
        assert set(read_triples(path)) == expected
        return
    line, words = expected
    with pytest.raises(TripleFileError, match=r"nasty\.tsv") as caught:
        read_triples(path)
    assert caught.value.line == line
    assert words in str(caught.value)


def test_nasty_files_are_at_least_25():
    assert len(NASTY) >= 25


@pytest.mark.parametrize("name", NASTY)
def test_nasty_file_reads_the_same_in_chunks_of_a_few_bytes(name: str, tmp_path: Path, monkeypatch):
    monkeypatch.setattr(files, "CHUNK_BYTES", 3)
    test_nasty_file_is_right_or_refused_with_its_line(name, tmp_path)


def test_empty_file_is_refused_unless_asked_for(tmp_path: Path):
    path = tmp_path / "empty.tsv"
    path.touch()
    with pytest.raises(DataError, match="holds no triples"):
        read_triples(path)
    assert len(read_triples(path, allow_empty=True)) == 0


def test_missing_file_and_folder_are_named(tmp_path: Path):
    with pytest.raises(DataError, match=r"nowhere\.tsv: there is no such file"):
        read_triples(tmp_path / "nowhere.tsv")
    with pytest.raises(DataError, match="is a folder"):
        read_triples(tmp_path)


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_cut_compressed_file_is_refused(suffix: str, tmp_path: Path):
    path = tmp_path / f"cut.tsv{suffix}"
    write_triples(path, [(f"entity {number}", "r", f"other {number * 7919}") for number in range(5_000)])
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(DataError, match="damaged or cut short"):
        read_triples(path)


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_plain_file_with_a_compressed_name_is_refused(suffix: str, tmp_path: Path):
    path = tmp_path / f"plain.tsv{suffix}"
    path.write_bytes(b"a\tr\tb\n")
    with pytest.raises(DataError, match="damaged or cut short"):
        read_triples(path)


def test_foreign_gzip_and_zstd_are_read(tmp_path: Path):
    content = b"a\tr\tb\n" * 3 + b"c\tr\td\n"
    (tmp_path / "x.tsv.gz").write_bytes(gzip.compress(content[:6]) + gzip.compress(content[6:]))
    (tmp_path / "x.tsv.zst").write_bytes(pa.Codec("zstd").compress(content).to_pybytes())
    for name in ("x.tsv.gz", "x.tsv.zst"):
        assert set(read_triples(tmp_path / name)) == {("a", "r", "b"), ("c", "r", "d")}


def test_line_numbers_survive_chunks(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(files, "CHUNK_BYTES", 64)
    path = tmp_path / "long.tsv"
    path.write_bytes(b"head\trelation\ttail\n" * 999 + b"head relation tail\n")
    with pytest.raises(TripleFileError) as caught:
        read_triples(path)
    assert caught.value.line == 1_000


def test_order_of_lines_leaves_no_trace(tmp_path: Path):
    lines = [f"e{n % 7}\tr{n % 3}\te{n % 5}\n".encode() for n in range(40)]
    (tmp_path / "a.tsv").write_bytes(b"".join(lines))
    (tmp_path / "b.tsv").write_bytes(b"".join(reversed(lines)))
    first, second = read_triples(tmp_path / "a.tsv"), read_triples(tmp_path / "b.tsv")
    assert first.entities == second.entities
    assert first.relations == second.relations
    assert (first.ids == second.ids).all()


labels = st.text(min_size=1, max_size=12).filter(lambda text: label_problem(text) is None)
relations = labels.filter(lambda text: relation_problem(text) is None)
facts = st.lists(st.tuples(labels, relations, labels), min_size=1, max_size=30)


@pytest.mark.parametrize("suffix", ["", ".gz", ".zst"])
@given(triples=facts)
@settings(max_examples=5_000 if SOAK else 200)
def test_written_triples_are_read_back(suffix: str, triples, tmp_path_factory):
    path = tmp_path_factory.getbasetemp() / f"round{os.getpid()}.tsv{suffix}"
    assert write_triples(path, triples) == len(triples)
    assert set(read_triples(path)) == set(triples)


@given(st.binary(max_size=60))
@settings(max_examples=5_000 if SOAK else 500)
def test_any_bytes_are_read_as_they_stand_or_refused(content: bytes):
    """Against the obvious reading of the rules, line by line."""
    path = Path(os.environ["CONTEXTPOOL_HOME"] + f"-{os.getpid()}.tsv")
    path.write_bytes(content)
    try:
        read = set(read_triples(path))
    except DataError:
        assert _obvious_reading(content) is None
    else:
        assert read == _obvious_reading(content)


def _obvious_reading(content: bytes) -> set[tuple[str, ...]] | None:
    lines = content.split(b"\n")
    if lines[-1] == b"":
        lines.pop()
    found = set()
    for line in lines:
        try:
            columns = tuple(line.removesuffix(b"\r").decode().split("\t"))
        except UnicodeDecodeError:
            return None
        if (
            len(columns) != 3
            or any(label_problem(column) for column in columns)
            or relation_problem(columns[1])
        ):
            return None
        found.add(columns)
    return found or None


BAD_LABELS = ["", "a\tb", "a\nb", "a\r", "a\0", "\ufeffa", "\ud800"]


@pytest.mark.parametrize("label", BAD_LABELS)
@pytest.mark.parametrize("role", [0, 1, 2])
def test_writer_refuses_what_could_not_be_read_back(label: str, role: int, tmp_path: Path):
    triple = ["a", "r", "b"]
    triple[role] = label
    path = tmp_path / "out.tsv"
    path.write_text("before\tr\tx\n")
    with pytest.raises(DataError, match=r"out\.tsv:2"):
        write_triples(path, [("a", "r", "b"), tuple(triple)])
    assert path.read_text() == "before\tr\tx\n"
    assert [file.name for file in tmp_path.iterdir()] == ["out.tsv"]


def test_writer_refuses_a_relation_named_like_an_inverse(tmp_path: Path):
    with pytest.raises(DataError, match="names the inverse"):
        write_triples(tmp_path / "out.tsv", [("a", "r^-1", "b")])
    assert not (tmp_path / "out.tsv").exists()
