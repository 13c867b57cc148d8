"""A file of one's own with the usual mistakes: told with its line and what to type, and what is typed then works."""

from __future__ import annotations

import csv
import gzip
import json
import random
import re
import shlex
import warnings
from collections import Counter
from contextlib import chdir
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import contextpool as cp
from command_line import Ran, run
from contextpool.errors import ConfigError, DataError, DataWarning, TripleFileError
from contextpool.triples import files
from contextpool.triples.reader import batches, read_triples
from contextpool.triples.sources import reading
from support import Triple, benchmark_folder

_rng = random.Random(0)
FACTS: list[Triple] = [
    (f"person{n}", _rng.choice(["likes", "knows", "hates"]), f"person{_rng.randrange(60)}") for n in range(60)
]
OFTEN = Counter(tail for *_, tail in FACTS).most_common(1)[0][0]
MARK = "\ufeff"


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    monkeypatch.chdir(tmp_path)

    def call(*arguments: object) -> Ran:
        return run([str(argument) for argument in arguments], capsys, monkeypatch)

    return call


def lines(rows: Any, delimiter: str = "\t", mark: str = "") -> bytes:
    return (mark + "".join(delimiter.join(row) + "\n" for row in rows)).encode()


def suggested(message: str) -> str:
    """The address that a message says to type."""
    return shlex.split(re.split(r"\btype ", message.splitlines()[-1])[-1])[0]


def read_by_cli(cli: Any, source: str, *options: str) -> tuple[set[Triple], Ran]:
    ran = cli("data", "convert", source, "read.tsv", "--overwrite", *options)
    read = Path("read.tsv").read_text().splitlines() if ran.code == 0 else ()
    return {(h, r, t) for h, r, t in (line.split("\t") for line in read)}, ran


# What the file is called and holds, and what is said of which line. Each is read right by typing what is suggested.
MISTAKES: dict[str, tuple[str, bytes, str]] = {
    "tail and relation swapped": ("f.tsv", lines((h, t, r) for h, r, t in FACTS), r":1: is 'person\d+' a.*tails 3"),
    "relation first": ("f.csv", lines(((r, h, t) for h, r, t in FACTS), ","), r":1: is 'person0' a.*heads 3"),
    "swapped under a header": (
        "f.csv", lines([("head", "relation", "tail"), *((h, t, r) for h, r, t in FACTS)], ","), r":2: is .*tails 3"
    ),
    "customary names as a fact": ("f.tsv", lines([("Head", "Relation", "Tail"), *FACTS]), ":1: 'Head', 'Relation'"),
    "other names as a fact": ("f.csv", lines([("who", "how", "whom"), *FACTS], ","), ":1: 'who', 'how', 'whom' look"),
    "semicolons": ("f.csv", lines(FACTS, ";"), ":1: 1 field instead of three.*';'"),
    "tabs in CSV": ("f.csv", lines(FACTS), ":1: 1 field instead of three.*'tab'"),
    "commas in TSV": ("f.tsv", lines(FACTS, ","), ":1: 1 column instead of 3.*','"),
    "bars": ("f.txt", lines(FACTS, "|"), r":1: 1 column.*'\|'"),
    "spaces": ("f.txt", lines(FACTS, " "), ":1: 1 column.*'space'"),
    "a name with a space": ("f.tsv", lines([*FACTS, (OFTEN + " ", "knows", "person1")]), "' differ by spaces only"),
    "a name in capitals": ("f.tsv", lines([*FACTS, (OFTEN.upper(), "knows", "person1")]), "' differ by case only"),
    "a relation in capitals": (
        "f.csv", b'"a,b",knows,c\n' + lines([*FACTS, (OFTEN, "Knows", "person1")], ","), ":62: 'knows' and 'Knows'"
    ),
    "bad rows": ("f.tsv", lines([*FACTS, ("a", "b"), ("", "x", "y")]), ":61: 2 columns instead of 3"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_told_once_and_typing_what_is_suggested_mends_it(cli: Any, mistake: str):
    name, content, said = MISTAKES[mistake]
    Path(name).write_bytes(content)
    _, ran = read_by_cli(cli, name)
    told = [line for line in ran.err.splitlines() if not line.startswith("wrote")]
    message = re.sub("^contextpool: (warning|error): ", "", "\n".join(told))
    assert re.search(f"^{name}:61: .*{said}" if said[0] == "'" else f"^{name}{said}", message), ran.err
    assert ran.code == (2 if "error" in told[0] else 0)
    assert ran.code or len(told) == 1
    mended, again = read_by_cli(cli, suggested(message))
    extra = [(OFTEN, "knows", "person1")] * ("a name" in mistake or "a relation" in mistake)
    extra += [("a,b", "knows", "c")] * ("a relation" in mistake)
    assert mended == {*FACTS, *extra}, again.err
    assert again.code == 0


@pytest.mark.parametrize("mistake", [name for name in MISTAKES if "swapped" in name or "name" in name])
def test_python_warns_at_the_callers_line(mistake: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    name, content, said = MISTAKES[mistake]
    Path(name).write_bytes(content)
    with pytest.warns(DataWarning, match=said) as caught:
        cp.read_graph(name)
    assert caught[0].filename == __file__
    assert len(caught) == 1


def test_tables_and_frames_are_doubted_too(tmp_path: Path):
    table = pa.table(list(zip(*((h, t, r) for h, r, t in FACTS), strict=True)), names=["h", "r", "t"])
    pq.write_table(table, tmp_path / "f.parquet")
    with pytest.warns(DataWarning, match=r"f.parquet, row 0 \(from 0\): is .*a relation") as caught:
        read_triples(tmp_path / "f.parquet")
    assert set(read_triples(suggested(str(caught[0].message)))) == set(FACTS)
    with pytest.warns(DataWarning, match=r"type columns=\(0, 2, 1\)$"):
        read_triples(table)


def test_what_is_asked_for_is_not_doubted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    for mistake, option in (
        ("tail and relation swapped", "columns=0,1,2"),
        ("other names as a fact", "header=no"),
        ("a name in capitals", "merge=no"),
    ):
        name, content, _ = MISTAKES[mistake]
        Path(name).write_bytes(content)
        assert len(read_triples(f"{name}?{option}")) >= len(FACTS)


CAPITALS = [
    ("Minsk", "capital of", "Belarus"),
    ("Riga", "capital of", "Latvia"),
    ("Belarus", "borders", "Latvia"),
]
SMALL = [
    ("minsk", "capital of", "belarus"),
    ("riga", "capital of", "latvia"),
    ("belarus", "borders", "latvia"),
]


@pytest.mark.parametrize("suffix", ["tsv", "csv"])
@pytest.mark.parametrize(
    ("names", "facts"),
    [
        (("from", "kind", "to"), CAPITALS),
        (("from", "kind", "to"), SMALL[:1]),
        (("country", "prop", "value"), SMALL),
        (("source_id", "Rel", "Object"), SMALL[:2]),
        (("city", "fact", "land"), CAPITALS),
        (("who", "how", "whom"), FACTS[:3]),
        (("country", "prop", "value"), [*FACTS, ("person3", "met once", "person4")]),
    ],
)
def test_names_of_columns_are_told_where_facts_are_few(
    cli: Any, names: Triple, facts: list[Triple], suffix: str
):
    Path(f"f.{suffix}").write_bytes(lines([names, *facts], "\t" if suffix == "tsv" else ","))
    read, ran = read_by_cli(cli, f"f.{suffix}")
    assert read == {names, *facts}
    assert f"f.{suffix}:1: {', '.join(map(repr, names))} look like the names of the columns" in ran.err
    assert read_by_cli(cli, suggested(ran.err.splitlines()[0]))[0] == set(facts)


SOUND: dict[str, list[Triple]] = {
    "few facts": [("head office", "owns", "tail"), ("a", "b", "c")],
    "one fact": [("from", "kind", "value")],
    "two facts apart": [("Rex", "type", "Dog"), ("Tom", "likes", "Jerry")],
    "three facts apart": [("alice", "likes", "bob"), ("carol", "knows", "dave"), ("erin", "knows", "frank")],
    "two that hang together": [("alice", "likes", "bob"), ("carol", "knows", "dave"), ("dave", "knows", "erin")],
    "capitals": [("Rome", "in", "Italy"), *CAPITALS],
    "a first fact in another case": [("Rome", "in", "Italy"), *SMALL],
    "letters": [("s", "r", "t"), ("a", "q", "b"), ("c", "q", "d"), ("A", "p", "B")],
    "the first fact hangs on": [("kind", "type", "value"), *SMALL, ("value", "of", "latvia")],
    "many relations among few entities": [(f"c{n % 7}", f"r{n % 40}", f"c{n % 5}") for n in range(280)],
    "few answers to many questions": [(f"person{n}", f"likes {n % 9}", "yes" if n % 2 else "no") for n in range(200)],
    "one relation": [(f"user{n % 20}", "bought", f"item{n % 50}") for n in range(100)],
    "a rare relation first": [("x", "once", "y"), ("u", "twice", "v"), *FACTS],
}  # fmt: skip


@pytest.mark.parametrize("name", SOUND)
def test_nothing_is_said_of_sound_data(name: str, tmp_path: Path):
    (tmp_path / "f.tsv").write_bytes(lines(SOUND[name]))
    (tmp_path / "f.csv").write_bytes(lines(SOUND[name], ","))
    for file in ("f.tsv", "f.csv"):
        assert set(read_triples(tmp_path / file)) == set(SOUND[name])


@pytest.mark.benchmark_data
def test_no_false_alarm_on_any_benchmark_file():
    for path in sorted(benchmark_folder().rglob("*.txt*")):
        if "2id" not in path.name and "labels" not in path.parts:
            read_triples(path, allow_empty=True)


def test_a_csv_without_a_header_keeps_its_first_fact(cli: Any):
    Path("f.csv").write_bytes(lines(FACTS, ","))
    Path("wide.csv").write_bytes(lines((("x", *fact) for fact in FACTS), ","))
    assert read_by_cli(cli, "f.csv")[0] == set(FACTS)
    assert read_by_cli(cli, "f.csv", "--columns", "0,1,2")[0] == set(FACTS)
    assert read_by_cli(cli, "wide.csv", "--columns", "1,2,3")[0] == set(FACTS)
    _, ran = read_by_cli(cli, "wide.csv")
    by_name, by_position = re.findall(r"'(wide\.csv\?[^']*)'", ran.err)
    assert (by_name, by_position) == (
        "wide.csv?header=yes&columns=x,person0," + FACTS[0][1],
        "wide.csv?header=no&columns=0,1,2",
    )
    assert len(read_by_cli(cli, by_position)[0]) == len(FACTS)
    Path("named.csv").write_bytes(lines([(" Subject", "predicate ", "OBJECT"), *FACTS], ","))
    assert read_by_cli(cli, "named.csv")[0] == set(FACTS)


@pytest.mark.parametrize("suffix", ["tsv", "csv", "jsonl", "nt"])
@pytest.mark.parametrize("pack", ["", ".gz"])
def test_a_byte_order_mark_is_passed_over_everywhere(suffix: str, pack: str, tmp_path: Path):
    text = {
        "tsv": "a\tr\tb\n",
        "csv": "head,relation,tail\na,r,b\n",
        "jsonl": '["a", "r", "b"]\n',
        "nt": "<x:a> <x:r> <x:b> .\n",
    }[suffix]
    plain, marked = tmp_path / f"plain.{suffix}{pack}", tmp_path / f"marked.{suffix}{pack}"
    for path, content in ((plain, text), (marked, MARK + text)):
        path.write_bytes(gzip.compress(content.encode()) if pack else content.encode())
    assert set(read_triples(plain)) == set(read_triples(marked))
    marked.write_bytes(text.encode("utf-16"))
    if not pack:
        with pytest.raises(TripleFileError, match=r"UTF-16, not UTF-8.*iconv"):
            read_triples(marked)


def test_a_folder_with_byte_order_marks_is_the_same_dataset(tmp_path: Path):
    for folder, mark in (("plain", ""), ("marked", MARK)):
        (tmp_path / folder).mkdir()
        for part, some in (("train", FACTS[:40]), ("valid", FACTS[:2]), ("test", FACTS[2:4])):
            (tmp_path / folder / f"{part}.txt").write_bytes(lines(some, mark=mark))
    one, other = (cp.load_dataset(tmp_path / folder) for folder in ("plain", "marked"))
    assert (one.training_graph, one.inference_test) == (other.training_graph, other.inference_test)


def test_columns_of_a_tsv_by_name_position_and_option(cli: Any):
    rows = [(r, "", t, h) for h, r, t in FACTS]
    Path("f.tsv").write_bytes(lines([("how", "note", "whom", "who"), *rows]))
    Path("g.tsv").write_bytes(lines(rows).replace(b"\n", b"\r\n"))
    for source, *options in (
        ("f.tsv?columns=who,how,whom",),
        ("f.tsv", "--columns", "who,how,whom"),
        ("f.tsv?header=yes", "--columns", "3,0,2"),
        ("g.tsv", "--columns", "3,0,2"),
    ):
        assert read_by_cli(cli, source, *options)[0] == set(FACTS), source
    assert set(cp.read_graph("f.tsv", columns=("who", "how", "whom")).triples) == set(FACTS)
    ran = cli("mine", "g.tsv", "--columns", "3,0,2", "--relation", "likes", "--json")
    assert json.loads(ran.out)["support"] == len({h for h, r, _ in FACTS if r == "likes"})
    for wrong, said in (
        ("who,hou,whom", "column 'hou' is unknown"),
        ("0,1,9", "no column 9"),
        ("0,1,2", ":2: the relation '' is empty"),
    ):
        ran = cli("data", "convert", f"f.tsv?header=yes&columns={wrong}", "x.tsv")
        assert (ran.code, said in ran.err) == (2, True), ran.err
    assert "is for one file" in cli("data", "info", "world", "--columns", "0,1,2").err
    assert "Say it once" in cli("data", "info", "f.tsv?columns=0,1,2", "--columns", "0,1,2").err


BAD = {
    "tsv": [*map("\t".join, FACTS[:30]), "a\tb", *map("\t".join, FACTS[30:]), "", "a\tr^-1\tb", "a\tr\tb\tc"],
    "csv": [*map(",".join, FACTS[:30]), "a,b", *map(",".join, FACTS[30:]), "", "a,r^-1,b", 'a,"r"x,c'],
    "jsonl": [*map(json.dumps, FACTS[:30]), '["a", "b"]', *map(json.dumps, FACTS[30:]), "", '["a", "r^-1", "b"]', "{"],
}  # fmt: skip


@pytest.mark.parametrize("kind", BAD)
def test_bad_rows_are_told_together_or_left_out_counted_and_kept(cli: Any, kind: str):
    Path(f"f.{kind}").write_text("\n".join(BAD[kind]) + "\n")
    _, ran = read_by_cli(cli, f"f.{kind}")
    assert ran.code == 2
    assert re.findall(rf"f\.{kind}:(\d+): ", ran.err) == ["31", "62", "63", "64"]
    good, ran = read_by_cli(cli, f"f.{kind}", "--skip-bad-rows")
    assert good == set(FACTS)
    assert f"Left out 4 bad rows of 64; they are in f.{kind}.bad-rows.tsv" in ran.err
    kept = [line.split("\t", 2) for line in Path(f"f.{kind}.bad-rows.tsv").read_text().splitlines()]
    assert [(int(line), row) for line, _, row in kept] == [(n, BAD[kind][n - 1]) for n in (31, 62, 63, 64)]
    with pytest.warns(DataWarning, match="Left out 4 bad rows of 64"):
        assert set(cp.read_graph(f"f.{kind}", bad_rows="skip").triples) == set(FACTS)


def test_a_report_lists_twenty_bad_rows_and_counts_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path = tmp_path / "f.tsv"
    path.write_bytes(lines(FACTS) + b"a\tb\n" * 30)
    with pytest.raises(TripleFileError) as caught:
        read_triples(path)
    report = str(caught.value).splitlines()
    assert [int(re.search(r":(\d+): ", line)[1]) for line in report[:20]] == list(range(61, 81))  # type: ignore[index]
    assert report[20] == "... and 10 more bad rows"
    assert caught.value.line == 61
    monkeypatch.setattr(reading, "COUNTED", 25)
    monkeypatch.setattr(files, "CHUNK_BYTES", 64)
    with pytest.raises(TripleFileError, match=r"and at least \d+ more bad rows"):
        read_triples(path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(reading, "LEFT_OUT", 10)
    with pytest.raises(TripleFileError, match="Too many of its rows are bad"):
        read_triples(path, bad_rows="skip")


def spaced(triple: Triple) -> Triple:
    head, relation, tail = triple
    return f"the {head}" if head[-1] in "13579" else head, relation, tail


# A file of which no line is read, how often its mistake is told, and what is said after the first line of it.
ALL_BAD: dict[str, tuple[str, bytes, str]] = {
    "spaces in labels, too": ("f.txt", lines(map(spaced, FACTS), " "), "1 column instead .*Separate .* by 'tab'"),
    "as many spaces in each": ("f.txt", lines([("in New", "York", "x")] * 3, " "), "1 column .*Separate .* by 'tab'"),
    "spaces in labels of CSV": ("f.csv", lines(map(spaced, FACTS), " "), "1 field instead .*Separate .* by ','"),
    "nothing separates": ("f.txt", lines((h,) for h, *_ in FACTS) + b"\n", "1 column instead .*All 61 rows are like"),
    "one row": ("f.txt", b"the cat sat on the mat\n", "1 column instead .*TAB tail[.] The lines .*Separate .*by 'tab'"),
    "nothing separates in CSV": ("f.csv", lines((h,) for h, *_ in FACTS), "1 field instead of three"),
    "four columns": ("f.tsv", lines((*fact, "1999") for fact in FACTS), "4 columns instead .*All 60 rows are like"),
    "two columns": ("f.tsv", lines(fact[:2] for fact in FACTS), "2 columns instead .*All 60 rows are like this[.]$"),
    "no JSON": ("f.jsonl", lines(FACTS), "this is not JSON .*All 60 rows are like this[.]$"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", ALL_BAD)
def test_what_is_wrong_with_every_row_is_told_once(
    mistake: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    name, content, said = ALL_BAD[mistake]
    Path(name).write_bytes(content)
    with pytest.raises(TripleFileError, match=f"^{name}:1: {said}") as caught:
        read_triples(name)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 450


def test_what_is_said_of_every_row_helps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    for mistake, address in (
        ("spaces in labels, too", "f.txt?format=csv&delimiter=space"),
        ("spaces in labels of CSV", "f.csv?delimiter=space"),
        ("nothing separates", "f.txt?format=csv&delimiter=;"),
        ("nothing separates in CSV", "f.csv?delimiter=;"),
        ("four columns", "f.tsv?columns=0,1,2"),
    ):
        name, content, _ = ALL_BAD[mistake]
        Path(name).write_bytes(content)
        with pytest.raises(TripleFileError) as caught:
            read_triples(name)
        assert suggested(str(caught.value)) == address
    assert set(read_triples(address)) == set(FACTS)
    with pytest.raises(
        TripleFileError, match=r"All of its rows are bad .* To take three .*bad_rows=skip&columns=0,1,2'$"
    ):
        read_triples("f.tsv?bad_rows=skip")
    Path("g.tsv").write_bytes(b"# one of many remarks\n" * 30 + lines(FACTS))
    with pytest.warns(DataWarning, match="Left out 30 bad rows of 90"):
        assert set(read_triples("g.tsv?bad_rows=skip")) == set(FACTS)
    with Path("f.txt").open("w", newline="") as file:  # the labels in quotes, as the message says
        csv.writer(file, delimiter=" ", lineterminator="\n").writerows(map(spaced, FACTS))
    with pytest.raises(TripleFileError) as caught:
        read_triples("f.txt")
    assert set(read_triples(suggested(str(caught.value)))) == set(map(spaced, FACTS))


def test_a_file_that_is_bad_throughout_is_not_read_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(reading, "COUNTED", 25)
    monkeypatch.setattr(files, "CHUNK_BYTES", 64)
    (tmp_path / "f.tsv").write_bytes(lines((*fact, "1999") for fact in FACTS))
    with pytest.raises(TripleFileError, match=r"All of the first \d\d rows are like this. To take three"):
        read_triples(tmp_path / "f.tsv")
    for part in ("train", "valid", "test"):
        (tmp_path / f"{part}.txt").write_bytes(lines((*fact, "1999") for fact in FACTS))
    with pytest.raises(TripleFileError, match=r"rows are like this\.$"):  # files of a folder take no options
        cp.load_dataset(tmp_path)


def test_rows_are_left_out_where_they_cannot_be_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    Path("f.tsv").write_bytes(lines([*FACTS, ("a", "b")]))
    Path("f.tsv.bad-rows.tsv").mkdir()
    with pytest.warns(DataWarning, match=r"Left out 1 bad row of 61; .* cannot be written"):
        assert set(read_triples("f.tsv?bad_rows=skip")) == set(FACTS)


def test_what_cannot_be_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    Path("open.csv").write_text('a,r,b\nc,"r,d\ne,r,f\n')
    with pytest.raises(TripleFileError, match="unexpected end of data"):
        read_triples("open.csv", bad_rows="skip")
    Path("all.tsv").write_text("a\tb\nc\td\n")
    with pytest.raises(TripleFileError, match="All of its rows are bad"):
        read_triples("all.tsv", bad_rows="skip")
    with pytest.raises(ConfigError, match="'bad_rows' is not an option of parquet"):
        read_triples("x.parquet", bad_rows="skip")
    with pytest.raises(ConfigError, match="merge is for a graph that is read whole"):
        batches("all.tsv?merge=case")


def test_a_doubt_about_a_part_of_a_folder_suggests_no_option(tmp_path: Path):
    for part in ("train", "valid", "test"):
        (tmp_path / f"{part}.txt").write_bytes(lines([("head", "relation", "tail"), *FACTS]))
    with pytest.warns(DataWarning, match="If they are names, mend the file"):
        cp.load_dataset(tmp_path)


def test_json_lines_as_objects_and_as_arrays(cli: Any):
    objects = [dict(zip(("who", "how", "whom"), fact, strict=True), when=1900) for fact in FACTS]
    Path("o.jsonl").write_text("\n".join(map(json.dumps, objects)))
    Path("a.ndjson").write_text("".join(json.dumps([*fact, None]) + "\n" for fact in FACTS))
    Path("n.jsonl").write_text('{"h": 1, "r": "\\u00e9", "t": 2}\n')
    assert read_by_cli(cli, "o.jsonl", "--columns", "who,how,whom")[0] == set(FACTS)
    assert read_by_cli(cli, "a.ndjson?columns=0,1,2")[0] == set(FACTS)
    assert read_by_cli(cli, "n.jsonl")[0] == {("1", "é", "2")}
    assert "Name them in this order, such as columns=who,how,whom" in read_by_cli(cli, "o.jsonl")[1].err


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('{"h": "a", "r": "r"}', "there is no 't'"),
        ('{"h": "a", "r": "r", "t": "b", "t": "c"}', "a key is there twice"),
        ('{"h": "a", "r": "r", "t": 0.5}', "the tail is 0.5, a float"),
        ('{"h": "a", "r": "r", "t": null}', "the tail is missing"),
        ('{"h": "a", "r": "r", "t": NaN}', "the tail is nan"),
        ('{"h": "a", "r": "r", "t": "\\ud800"}', "half a surrogate pair"),
        ('["a", "r", "b"]', "not an object, as the first one is"),
        ("7", "not an object"),
        ('{"h":' * 100_000, "not JSON"),
        ('{"h": "a", "r": "r", "t": ' + "9" * 5000 + "}", "not JSON"),
        ('{"h": "caf\\xe9"}', "not UTF-8"),
    ],
)  # fmt: skip
def test_json_lines_that_are_no_triple(line: str, said: str, tmp_path: Path):
    raw = line.replace("\\xe9", "\udce9").encode("utf-8", "surrogateescape")
    (tmp_path / "f.jsonl").write_bytes(b'{"h": "a", "r": "r", "t": "b"}\n' + raw + b"\n")
    with pytest.raises(TripleFileError, match=re.escape(said)) as caught:
        read_triples(tmp_path / "f.jsonl")
    assert caught.value.line == 2


ALPHABET = st.text(st.sampled_from("ab\té \r\ufeff^-1\0"), max_size=4)


@given(
    st.lists(st.lists(ALPHABET, min_size=4, max_size=4), min_size=1, max_size=8), st.permutations(range(4))
)
def test_the_fast_reader_of_columns_agrees_with_a_slow_one(
    tmp_path_factory: pytest.TempPathFactory, rows: list[list[str]], order: list[int]
):
    """The twin splits each line by itself and asks for each label alone."""
    from contextpool.triples.labels import label_problem, relation_problem

    path = tmp_path_factory.mktemp("twin") / "f.tsv"
    path.write_bytes(lines([["x"] * 4, *rows]))
    chosen, expected, bad = order[:3], {("x",) * 3}, 0
    for row in rows:
        fields = "\t".join(row).removesuffix("\r").split("\t")
        if len(fields) != 4:
            bad += 1
            continue
        h, r, t = (fields[position] for position in chosen)
        sound = not (label_problem(h) or relation_problem(r) or label_problem(t))
        expected |= {(h, r, t)} if sound else set()
        bad += not sound
    with chdir(path.parent), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = read_triples(path, columns=tuple(chosen), bad_rows="skip")
    assert set(found) == expected
    told = [str(each.message) for each in caught if "Left out" in str(each.message)]
    assert len(told) == bool(bad)
    assert not bad or f"Left out {bad} bad row" in told[0]


NAMES = st.sampled_from(["a", "A", " a", "a  b", "A b", "a b ", "b", "ß", "SS", " "])


@given(st.lists(st.tuples(NAMES, NAMES, NAMES), min_size=1, max_size=12), st.sampled_from(["spaces", "case"]))
def test_names_are_merged_as_a_slow_twin_merges_them(rows: list[Triple], merge: str):
    def even(name: str) -> str:
        return " ".join(name.split()) or name

    def same(one: str, other: str) -> bool:
        return even(one) == even(other) or (
            merge == "case" and even(one).casefold() == even(other).casefold()
        )

    def best(name: str, among: list[str]) -> str:
        counts = Counter(even(other) for other in among if same(name, other))
        return min(counts, key=lambda spelling: (-counts[spelling], spelling))

    ends, relations = [end for h, _, t in rows for end in (h, t)], [r for _, r, _ in rows]
    expected = {(best(h, ends), best(r, relations), best(t, ends)) for h, r, t in rows}
    table = pa.table(list(zip(*rows, strict=True)), names=["h", "r", "t"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        merged = read_triples(table, merge=merge)
    assert set(merged) == expected


def test_binary_files_are_called_what_they_are(tmp_path: Path):
    pq.write_table(pa.table(list(zip(*FACTS, strict=True)), names=["h", "r", "t"]), tmp_path / "f.tsv")
    with pytest.raises(DataError, match="this is a Parquet file") as caught:
        read_triples(tmp_path / "f.tsv")
    assert set(read_triples(suggested(str(caught.value).replace("Type", "type")))) == set(FACTS)


ODD = st.text(st.sampled_from("aAbß \u00a0\u2003\x0b"), min_size=1, max_size=6)


@given(st.lists(ODD, min_size=2, max_size=8, unique=True))
def test_names_are_found_alike_as_a_slow_twin_finds_them(names: list[str]):
    """The twin compares every name with every other one."""

    def even(name: str) -> str:
        return " ".join(name.split()) or name

    def named(name: str) -> str:
        return even(name).casefold() if len(even(name)) > 3 else name

    table = pa.table([["r"] * len(names), names, ["t"] * len(names)], names=["h", "r", "t"])  # as relations
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        read_triples(table)
    pairs = [(one, other) for k, one in enumerate(names) for other in names[:k]]
    by_space = any(even(one) == even(other) for one, other in pairs)
    by_case = any(named(one) == named(other) for one, other in pairs)
    told = [str(each.message) for each in caught]
    assert ["by spaces only" in line for line in told] == ([True] if by_space else [False] * by_case)
