"""CSV, Parquet, Arrow, npy, pandas, NetworkX: columns by name and position, nothing inferred, errors with rows."""

from __future__ import annotations

import csv
import gzip
import io
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import contextpool as cp
from contextpool.errors import ConfigError, DataError, TripleFileError
from contextpool.triples.labels import label_problem, relation_problem
from contextpool.triples.reader import read_triples

FACTS = [("a", "r", "b"), ("b", "s", "a"), ("007", "r", "NA")]
TABLE = pa.table(
    {"note": ["x", "y", "z"], "whom": ["b", "a", "NA"], "who": ["a", "b", "007"], "how": ["r", "s", "r"]}
)


def written(tmp_path: Path, kind: str, table: pa.Table) -> Path:
    path = tmp_path / f"facts.{kind}"
    if kind == "parquet":
        pq.write_table(table, path, row_group_size=2)
    elif kind == "feather":
        pyarrow.feather.write_feather(table, path)
    elif kind == "arrows":
        with pa.ipc.new_stream(path, table.schema) as writer:
            writer.write_table(table, max_chunksize=2)
    else:
        with path.open("w", newline="") as text:
            rows = csv.writer(text)
            rows.writerow(table.column_names)
            rows.writerows(zip(*(table.column(name).to_pylist() for name in table.column_names), strict=True))
    return path


@pytest.mark.parametrize("kind", ["csv", "parquet", "feather", "arrows"])
def test_columns_by_name_and_by_position(tmp_path: Path, kind: str):
    path = written(tmp_path, kind, TABLE)
    assert set(read_triples(f"{path}?columns=who,how,whom")) == set(FACTS)
    header = "&header=yes" if kind == "csv" else ""
    assert set(read_triples(f"{path}?columns=2,3,1{header}")) == set(FACTS)
    assert set(read_triples(path, columns=("who", 3, "whom"))) == set(FACTS)


@pytest.mark.parametrize("kind", ["csv", "parquet", "feather"])
@pytest.mark.parametrize(
    "names", ["head relation tail", "h r t", "subject predicate object", "source relation target"]
)
def test_customary_names_need_no_word(tmp_path: Path, kind: str, names: str):
    table = pa.table(list(zip(*FACTS, strict=True)), names=names.split()).select([2, 0, 1])
    assert set(read_triples(written(tmp_path, kind, table))) == set(FACTS)


@pytest.mark.parametrize("kind", ["csv", "parquet", "feather"])
def test_names_that_say_nothing_are_an_error_that_lists_them(tmp_path: Path, kind: str):
    with pytest.raises(DataError, match=r"'note', 'whom', 'who', 'how'.*columns=note,whom,who"):
        read_triples(written(tmp_path, kind, TABLE))
    with pytest.raises(DataError, match=r"'hou' is unknown \(4 known, closest"):
        read_triples(written(tmp_path, kind, TABLE), columns="who,hou,whom")
    with pytest.raises(DataError, match="no column 4"):
        read_triples(written(tmp_path, kind, TABLE), columns="0,1,4")
    with pytest.raises(ConfigError, match="name three"):
        read_triples(written(tmp_path, kind, TABLE), columns="0,1")


def test_integers_are_labels_in_decimals(tmp_path: Path):
    table = pa.table(
        {"head": [7, 8], "relation": ["r", "s"], "tail": pa.array(["8", "x"]).dictionary_encode()}
    )
    assert set(read_triples(written(tmp_path, "parquet", table))) == {("7", "r", "8"), ("8", "s", "x")}
    np.save(tmp_path / "ids.npy", np.array([[0, 1, 2], [2, 1, 0]]))
    assert set(read_triples(tmp_path / "ids.npy")) == {("0", "1", "2"), ("2", "1", "0")}


@pytest.mark.parametrize(
    ("column", "said"),
    [
        (pa.array(["x", None]), "row 1 (from 0): the tail is missing"),
        (pa.array([0.5, 1.0]), "the tail column is double"),
        (pa.array([True, False]), "the tail column is bool"),
        (pa.array(["x", "a\tb"]), "row 1 (from 0): the tail 'a\\tb' holds a tab"),
        (pa.array(["x", ""]), "row 1 (from 0): the tail '' is empty"),
    ],
)
def test_what_is_no_label(tmp_path: Path, column: pa.Array, said: str):
    table = pa.table({"head": ["a", "b"], "relation": ["r", "r"], "tail": column})
    for kind in ("parquet", "arrows"):
        with pytest.raises(DataError) as refused:
            read_triples(written(tmp_path, kind, table))
        assert said in str(refused.value)


def test_a_row_is_named_across_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("contextpool.triples.sources.tables.TABLE_ROWS", 2)
    table = pa.table({"head": list("abcde"), "relation": ["r"] * 4 + ["q^-1"], "tail": list("abcde")})
    with pytest.raises(DataError, match=r"row 4 \(from 0\): the relation 'q\^-1' ends in"):
        read_triples(written(tmp_path, "parquet", table))


@pytest.mark.parametrize("suffix", ["parquet", "arrow", "npy"])
def test_bytes_that_are_something_else(tmp_path: Path, suffix: str):
    (tmp_path / f"x.{suffix}").write_bytes(b"this is no such file at all, whatever its name says")
    with pytest.raises(DataError, match=rf"x\.{suffix}: this is n"):
        read_triples(tmp_path / f"x.{suffix}")


def test_an_archive_of_objects_is_never_unpickled(tmp_path: Path):
    np.save(tmp_path / "x.npy", np.array([[object()] * 3]), allow_pickle=True)
    with pytest.raises(DataError, match="not a readable"):
        read_triples(tmp_path / "x.npy")
    np.save(tmp_path / "y.npy", np.zeros((2, 3)))
    with pytest.raises(DataError, match=r"float64 \[2, 3\]"):
        read_triples(tmp_path / "y.npy")


# What a CSV file holds, its options, and the facts it means or the words its error has to contain.
CSV: dict[str, tuple[bytes, dict[str, str], object]] = {
    "no types": (b"head,relation,tail\n007,r,NA\n1.0,r,\xc3\xa9\n", {}, {("007", "r", "NA"), ("1.0", "r", "\u00e9")}),
    "quotes": (b'head,relation,tail\n"a,b",r,"say ""x"""\n', {}, {("a,b", "r", 'say "x"')}),
    "CRLF and a byte order mark": (b"\xef\xbb\xbfhead,relation,tail\r\na,r,b\r\n", {}, {("a", "r", "b")}),
    "blanks stay": (b"head,relation,tail\n a ,r,b\n", {}, {(" a ", "r", "b")}),
    "U+2028 is a character": ("head,relation,tail\na\u2028,r,b\n".encode(), {}, {("a\u2028", "r", "b")}),
    "semicolons": (b"head;relation;tail\na,1;r;b\n", {"delimiter": ";"}, {("a,1", "r", "b")}),
    "tabs": (b"head\trelation\ttail\na\tr\tb\n", {"delimiter": "tab"}, {("a", "r", "b")}),
    "no header": (b"a,r,b\n", {"header": "no"}, {("a", "r", "b")}),
    "no header, chosen": (b"x,b,a,r\n", {"header": "no", "columns": "2,3,1"}, {("a", "r", "b")}),
    "too few": (b"head,relation,tail\na,r,b\na,r\n", {}, ":3: 2 fields instead of 3"),
    "too many": (b"head,relation,tail\na,r,b,c\n", {}, ":2: 4 fields instead of 3"),
    "blank line": (b"head,relation,tail\n\na,r,b\n", {}, ":2: the line is blank"),
    "open quote": (b'head,relation,tail\n"a,r,b\n', {}, "this is not CSV"),
    "text after a quote": (b'head,relation,tail\n"a"x,r,b\n', {}, ":2: this is not CSV"),
    "not UTF-8": (b"head,relation,tail\na\xff,r,b\n", {}, "not UTF-8"),
    "empty label": (b"head,relation,tail\n,r,b\n", {}, ":2: the head '' is empty"),
    "NUL": (b"head,relation,tail\na\0,r,b\n", {}, ":2: the head"),
    "line end in a label": (b'head,relation,tail\n"a\nb",r,b\n', {}, ":3: the head 'a\\nb' holds a line feed"),
    "nothing": (b"", {}, "no rows"),
    "only a header": (b"head,relation,tail\n", {}, "no rows"),
    "twice the same name": (b"head,relation,tail,head\na,r,b,c\n", {"columns": "head,relation,tail"}, "2 columns are"),
    "a long delimiter": (b"a\n", {"delimiter": "::"}, "one character"),
}  # fmt: skip


@pytest.mark.parametrize("name", CSV)
def test_csv_as_it_stands_or_a_named_error(name: str, tmp_path: Path):
    data, options, meant = CSV[name]
    for path, stored in ((tmp_path / "x.csv", data), (tmp_path / "x.csv.gz", gzip.compress(data))):
        path.write_bytes(stored)
        if isinstance(meant, set):
            assert set(read_triples(path, **options)) == meant
            continue
        with pytest.raises((DataError, ConfigError)) as refused:
            read_triples(path, **options)
        assert str(meant) in str(refused.value)


def test_a_csv_file_cut_short(tmp_path: Path):
    whole = gzip.compress(b"head,relation,tail\n" + b"".join(b"e%d,r,b\n" % n for n in range(5_000)))
    (tmp_path / "x.csv.gz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match="cannot be read to its end"):
        read_triples(tmp_path / "x.csv.gz")


_LABELS = st.text(st.characters(codec="utf-8"), min_size=1, max_size=6)


@given(st.lists(st.tuples(_LABELS, _LABELS, _LABELS), min_size=1, max_size=8))
def test_csv_gives_back_what_was_written_or_refuses_it(
    tmp_path_factory: pytest.TempPathFactory, facts: list[Any]
):
    """The slow twin is Python's own writer and a set."""
    text = io.StringIO(newline="")
    csv.writer(text).writerows([("head", "relation", "tail"), *facts])
    path = tmp_path_factory.mktemp("csv") / "x.csv"
    path.write_bytes(text.getvalue().encode())
    fine = all(
        label_problem(h) is None and relation_problem(r) is None and label_problem(t) is None
        for h, r, t in facts
    )
    if fine:
        assert set(read_triples(path)) == set(facts)
    else:
        with pytest.raises((DataError, TripleFileError)):
            read_triples(path)


def test_data_frames():
    frame = pd.DataFrame(FACTS, columns=["who", "how", "whom"], index=[3, 5, 9])
    assert set(read_triples(frame, columns="who,how,whom")) == set(FACTS)
    assert set(read_triples(pd.DataFrame(FACTS), columns=(0, 1, 2))) == set(FACTS)
    assert set(cp.read_graph(frame.astype("category"), columns=("who", "how", "whom")).triples) == set(FACTS)
    assert set(read_triples(pa.table(list(zip(*FACTS, strict=True)), names=["h", "r", "t"]))) == set(FACTS)


def test_data_frames_that_hold_no_labels():
    frame = pd.DataFrame({"head": ["a", None], "relation": "r", "tail": [1, 2]})
    with pytest.raises(DataError, match=r"the DataFrame: row 1 \(from 0\): the head is missing"):
        read_triples(frame)
    with pytest.raises(DataError, match="several kinds"):
        read_triples(pd.DataFrame({"head": ["a", 5], "relation": "r", "tail": [1, 2]}))
    with pytest.raises(DataError, match="the tail column is double"):
        read_triples(pd.DataFrame({"head": ["a", "b"], "relation": "r", "tail": [0.5, 1.5]}))


def test_networks_by_key_and_by_attribute():
    keyed = nx.MultiDiGraph()
    keyed.add_edges_from([("a", "b", "r"), ("a", "b", "s"), (7, "b", "r")])
    assert set(read_triples(keyed)) == {("a", "r", "b"), ("a", "s", "b"), ("7", "r", "b")}
    plain = nx.DiGraph()
    plain.add_edge("a", "b", kind="r")
    assert set(cp.read_graph(plain, relation="kind").triples) == {("a", "r", "b")}


def _network(of: Any, *edges: Any, **attributes: str) -> Any:
    network = of()
    network.add_edges_from(edges, **attributes)
    return network


@pytest.mark.parametrize(
    ("network", "options", "said"),
    [
        (_network(nx.Graph, ("a", "b")), {}, "undirected"),
        (_network(nx.DiGraph, ("a", "b")), {}, "which attribute of an edge is its relation"),
        (_network(nx.DiGraph, ("a", "b")), {"relation": "key"}, "only the edges of a MultiDiGraph"),
        (_network(nx.DiGraph, ("a", "b")), {"relation": "kind"}, "has no attribute 'kind'"),
        (_network(nx.MultiDiGraph, ("a", "b")), {}, "a number that NetworkX"),
        (_network(nx.DiGraph, (("a", 1), "b"), kind="r"), {"relation": "kind"}, "a tuple; labels are text"),
        (_network(nx.DiGraph, (7, "7"), kind="r"), {"relation": "kind"}, "would become one entity"),
        (_network(nx.DiGraph), {"relation": "kind"}, "no edges"),
    ],
)
def test_networks_that_cannot_be_taken(network: Any, options: dict[str, str], said: str):
    with pytest.raises((DataError, ConfigError)) as refused:
        read_triples(network, **options)
    assert said in str(refused.value)


class OnlyArrow:
    """What polars, DuckDB and others hand over: the Arrow stream protocol and nothing else."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self._table.__arrow_c_stream__(requested_schema)


def test_whatever_speaks_arrow_is_a_table():
    table = pa.table(
        [pa.array(column, pa.string_view()) for column in zip(*FACTS, strict=True)], names=["s", "p", "o"]
    )
    assert set(read_triples(OnlyArrow(table))) == set(FACTS)
