"""Every engine gives the counts of plain sets, from every format, and all give the same checksum."""

from __future__ import annotations

import errno
import gc
import gzip
import importlib
import random
import shutil
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from context.mining.graph_files import (
    as_labels,
    assert_counts_of,
    power_law_ids,
    write_csv,
    write_id_parquet,
    write_npy,
    write_parquet,
    write_tsv,
)
from contextpool.context.counts import count_cooccurrence
from contextpool.context.mining import Engine, checksum, mine_counts, partitions
from contextpool.errors import ConfigError, ContextPoolError, DataError, MissingExtraError, TripleFileError
from contextpool.graph.graph import read_graph
from contextpool.triples.labels import ROLES
from contextpool.triples.sources.address import parse_address
from support import SOAK, Triple

HERE: list[Engine] = ["memory", "disk", "duckdb"]
WRITERS = {"tsv": write_tsv, "csv": write_csv, "parquet": write_parquet}
HANDFUL: list[Triple] = [
    ("Ada", "born_in", "London"),
    ("Ada", "born_in", "London"),  # a duplicate
    ("Ada", "knows", "Ada"),  # a self loop
    ("Björk", "born_in", "Reykjavík 🌋"),
    ("London", "NA", "007"),  # labels that other readers change
]


def label() -> st.SearchStrategy[str]:
    alphabet = st.characters(exclude_categories=["Cs"], exclude_characters="\t\n\r\0\ufeff")
    return st.one_of(
        st.sampled_from(["a", "b", "NA", "007", '"', "'", ",", "é", "🌋"]), st.text(alphabet, min_size=1)
    )


def relation() -> st.SearchStrategy[str]:
    return label().filter(lambda name: not name.endswith("^-1"))


def graphs() -> st.SearchStrategy[list[Triple]]:
    names = st.lists(label(), min_size=1, max_size=6)
    kinds = st.lists(relation(), min_size=1, max_size=4)
    return st.tuples(names, kinds).flatmap(
        lambda drawn: st.lists(
            st.tuples(st.sampled_from(drawn[0]), st.sampled_from(drawn[1]), st.sampled_from(drawn[0])),
            min_size=1,
            max_size=20,
        )
    )


def check(engine: Engine, kind: str, triples: list[Triple]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = WRITERS[kind](Path(folder) / f"graph.{kind}", triples)
        mined = mine_counts(path, engine)
    assert mined.rows == len(triples)
    assert_counts_of(mined.counts, triples)


@pytest.mark.parametrize("kind", WRITERS)
@pytest.mark.parametrize("engine", HERE)
def test_a_handful_of_triples_gives_the_counts_of_plain_sets(engine: Engine, kind: str):
    check(engine, kind, HANDFUL)


@given(triples=graphs(), kind=st.sampled_from(sorted(WRITERS)))
def test_memory_and_disk_equal_plain_sets(triples: list[Triple], kind: str):
    check("memory", kind, triples)
    check("disk", kind, triples)


@settings(max_examples=300 if SOAK else 15)
@given(triples=graphs(), kind=st.sampled_from(sorted(WRITERS)))
def test_duckdb_equals_plain_sets(triples: list[Triple], kind: str):
    check("duckdb", kind, triples)


@pytest.mark.parametrize("engine", HERE)
@pytest.mark.parametrize("step", [1, 31 * 7, 2**40])
def test_ids_are_labels_written_as_decimals(engine: Engine, step: int, tmp_path: Path):
    ids = np.array([[0, 10, 1], [1, 2, 1], [2, 10, 0], [0, 10, 1], [5, 9, 2]], dtype=np.int64)
    ids[:, [0, 2]] *= step
    triples = as_labels(ids)
    for path in (write_npy(tmp_path / "g.npy", ids), write_id_parquet(tmp_path / "g.parquet", ids)):
        assert_counts_of(mine_counts(path, engine).counts, triples)


def test_counts_are_those_of_the_graph(tmp_path: Path):
    path = write_tsv(tmp_path / "g.tsv", HANDFUL)
    assert checksum(mine_counts(path, "disk").counts) == checksum(count_cooccurrence(read_graph(path)))


def test_a_checksum_tells_other_counts_and_other_labels(tmp_path: Path):
    sums = set()
    for number, triples in enumerate((HANDFUL, HANDFUL[:-1], [("x", "knows", "x")], [("x", "likes", "x")])):
        sums.add(checksum(mine_counts(write_tsv(tmp_path / f"{number}.tsv", triples)).counts))
    assert len(sums) == 4


@pytest.mark.parametrize(("triples", "memory"), [(10_000, 1 << 27), (1_000_000, 1 << 27)])
def test_three_engines_give_one_checksum(triples: int, memory: int, tmp_path: Path):
    path = write_npy(tmp_path / "g.npy", power_law_ids(triples, triples // 10, 100))
    sums = {engine: checksum(mine_counts(path, engine, memory=memory).counts) for engine in HERE}
    assert len(set(sums.values())) == 1, sums


def test_many_partitions_and_batches_give_the_same_checksum(tmp_path: Path, monkeypatch):
    monkeypatch.setattr("contextpool.triples.files.CHUNK_BYTES", 50_000)
    ids = power_law_ids(20_000, 3_000, 40)
    text, binary = write_tsv(tmp_path / "g.tsv", as_labels(ids)), write_npy(tmp_path / "g.npy", ids)
    monkeypatch.setattr(partitions, "_num_partitions", lambda path, memory: 31)
    sums = [checksum(mine_counts(path, "disk").counts) for path in (text, binary)]
    assert sums == [checksum(mine_counts(binary).counts)] * 2


@given(triples=graphs(), parts=st.sampled_from(partitions.PRIMES[:4]), data=st.data())
def test_ids_and_labels_in_several_partitions_equal_plain_sets(
    triples: list[Triple], parts: int, data: st.DataObject
):
    numbers = {name: data.draw(st.integers(0, 60)) for triple in triples for name in triple}
    ids = np.array([[numbers[name] for name in triple] for triple in triples])
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(partitions, "_num_partitions", lambda path, memory: parts)
        binary, text = write_npy(Path(folder) / "g.npy", ids), write_tsv(Path(folder) / "g.tsv", triples)
        assert_counts_of(mine_counts(binary, "disk").counts, as_labels(ids))
        assert_counts_of(mine_counts(text, "disk").counts, triples)


def test_a_partition_larger_than_its_share_is_made_distinct_while_it_is_read(tmp_path: Path):
    keys = np.array([5, 3, 5, 5, 9, 3], dtype=np.int64)
    keys.tofile(tmp_path / "0.ids")
    assert partitions._read_ids(tmp_path / "0.ids", 16).tolist() == [3, 5, 9]
    assert partitions._read_ids(tmp_path / "0.ids", 48).tolist() == keys.tolist()


def test_more_rows_or_less_memory_make_more_partitions(tmp_path: Path):
    path = write_npy(tmp_path / "g.npy", np.zeros((1_000_000, 3), dtype=np.int32))
    assert partitions._num_partitions(parse_address(path), 1 << 27) == 7
    assert partitions._num_partitions(parse_address(path), 1 << 30) == 1
    named = write_parquet(tmp_path / "g.parquet", HANDFUL * 40_000)
    assert partitions._num_partitions(parse_address(named), 1 << 27) == 7
    with pytest.raises(DataError, match="128 MiB at least"):
        mine_counts(path, "disk", memory=1 << 20)


def test_compressed_text_is_read(tmp_path: Path):
    path = tmp_path / "g.tsv.gz"
    path.write_bytes(gzip.compress(write_tsv(tmp_path / "g.tsv", HANDFUL).read_bytes()))
    for engine in HERE:
        assert_counts_of(mine_counts(path, engine).counts, HANDFUL)


@pytest.mark.parametrize("engine", HERE)
def test_an_empty_file_is_refused(engine: Engine, tmp_path: Path):
    empty = [
        write_tsv(tmp_path / "g.tsv", []),
        write_parquet(tmp_path / "g.parquet", []),
        write_npy(tmp_path / "g.npy", np.empty((0, 3), dtype=np.int64)),
        write_csv(tmp_path / "g.csv", []),
    ]
    for path in empty:
        with pytest.raises(DataError, match="holds no triples"):
            mine_counts(path, engine)


BAD_TEXT = [
    ("g.tsv", "a\tr\tb\na\tr\n", 2),
    ("g.tsv", "a\tr\tb\n\na\tr\tb\n", 2),
    ("g.tsv", "a\tr\tb\na\tr\tb\na\tr^-1\tb\n", 3),
    ("g.csv", "head,relation,tail\na,r,b\na,r\n", 3),
    ("g.csv", "head,relation,tail\na,r,b\na,r^-1,b\n", 3),
    ("g.csv", "head,relation,tail\na,,b\n", 2),
    ("g.csv", "when,who,how,whom\n1,a,r,b\n", 1),
]


@pytest.mark.parametrize("engine", HERE)
@pytest.mark.parametrize(("name", "text", "line"), BAD_TEXT)
def test_a_bad_line_is_named_and_nothing_is_left_behind(
    engine: Engine, name: str, text: str, line: int, tmp_path: Path
):
    (tmp_path / name).write_text(text)
    (spill := tmp_path / "spill").mkdir()
    with pytest.raises(TripleFileError) as told:
        mine_counts(tmp_path / name, engine, temp=spill)
    assert told.value.line == line
    assert list(spill.iterdir()) == []


@pytest.mark.parametrize("engine", HERE)
@pytest.mark.parametrize(("row", "column", "value"), [(2, 0, -1), (3, 1, 2**20), (1, 2, 2**46)])
def test_a_bad_id_is_named_by_its_row(engine: Engine, row: int, column: int, value: int, tmp_path: Path):
    ids = np.zeros((4, 3), dtype=np.int64)
    ids[row - 1, column] = value
    for path in (write_npy(tmp_path / "g.npy", ids), write_id_parquet(tmp_path / "g.parquet", ids)):
        with pytest.raises(
            DataError, match=rf"row {row - 1} \(from 0\): the {ROLES[column]} id {value} is not in"
        ):
            mine_counts(path, engine)


def test_files_that_are_not_what_their_name_says_are_refused(tmp_path: Path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    for name in ("g.npy", "g.parquet"):
        (tmp_path / name).write_bytes(b"a\tr\tb\n")
        with pytest.raises(DataError, match="not a readable"):
            mine_counts(tmp_path / name)
    with pytest.raises(DataError, match=r"integers \[T, 3\]"):
        mine_counts(write_npy(tmp_path / "wide.npy", np.zeros((2, 4), dtype=np.int32)))
    cut = write_npy(tmp_path / "cut.npy", np.zeros((9, 3), dtype=np.int32))
    cut.write_bytes(cut.read_bytes()[:-5])
    with pytest.raises(DataError, match="cut short"):
        mine_counts(cut)
    pq.write_table(
        pa.table({"head": ["a", None], "relation": ["r", "r"], "tail": ["b", "b"]}), tmp_path / "n.parquet"
    )
    with pytest.raises(DataError, match=r"n\.parquet: row 1 \(from 0\): the head is missing"):
        mine_counts(tmp_path / "n.parquet")
    pq.write_table(pa.table({"head": ["a"], "relation": [1.5], "tail": ["b"]}), tmp_path / "f.parquet")
    with pytest.raises(DataError, match="the relation column is double"):
        mine_counts(tmp_path / "f.parquet")
    pq.write_table(pa.table({"s": ["a"], "relation": ["r"], "tail": ["b"]}), tmp_path / "s.parquet")
    with pytest.raises(
        DataError, match=r"which columns are head, relation and tail\?.*'s', 'relation', 'tail'"
    ):
        mine_counts(tmp_path / "s.parquet")


def test_settings_out_of_range_are_refused(tmp_path: Path):
    path = write_tsv(tmp_path / "g.tsv", HANDFUL)
    with pytest.raises(ConfigError, match="it is one of memory, disk, duckdb, spark"):
        mine_counts(path, "gpu")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="master URL is Spark's"):
        mine_counts(path, "disk", master="spark://host:7077")
    with pytest.raises(ConfigError, match="no such folder"):
        mine_counts(path, "disk", temp=tmp_path / "nowhere")


def test_a_disk_without_room_is_told_before_anything_is_written(tmp_path: Path, monkeypatch):
    path = write_npy(tmp_path / "g.npy", power_law_ids(1_000, 100, 5))
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: shutil._ntuple_diskusage(10, 10, 0))
    with pytest.raises(ContextPoolError, match="with temp") as told:
        mine_counts(path, "disk", temp=tmp_path)
    assert told.value.exit_code == 1
    assert [each.name for each in tmp_path.iterdir()] == ["g.npy"]


def test_a_disk_that_fills_up_is_told_and_nothing_is_left_behind(tmp_path: Path, monkeypatch):
    path = write_npy(tmp_path / "g.npy", power_law_ids(1_000, 100, 5))

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(partitions, "_write_ids", full)
    with pytest.raises(ContextPoolError, match="the disk is full") as told:
        mine_counts(path, "disk", temp=tmp_path)
    assert told.value.exit_code == 1
    assert [each.name for each in tmp_path.iterdir()] == ["g.npy"]


def test_an_interrupt_in_the_middle_leaves_no_files(tmp_path: Path):
    path = write_npy(tmp_path / "g.npy", power_law_ids(1_000, 100, 5))

    def interrupt(done: int, of: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        mine_counts(path, "disk", temp=tmp_path, progress=interrupt)
    assert [each.name for each in tmp_path.iterdir()] == ["g.npy"]


def test_progress_ends_at_all_of_it(tmp_path: Path):
    heard: list[tuple[int, int]] = []
    mine_counts(
        write_tsv(tmp_path / "g.tsv", HANDFUL), "disk", progress=lambda done, of: heard.append((done, of))
    )
    assert heard[-1] == (10, 10)
    assert heard == sorted(heard)
    heard.clear()
    mine_counts(tmp_path / "g.tsv", "duckdb", progress=lambda done, of: heard.append((done, of)))
    assert heard == [(done, 4) for done in range(5)]


@pytest.mark.parametrize(
    ("engine", "package", "extra"), [("duckdb", "duckdb", "sql"), ("spark", "ibis", "spark")]
)
def test_a_missing_package_names_its_extra(
    engine: Engine, package: str, extra: str, tmp_path: Path, monkeypatch
):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtraError, match=rf"contextpool\[{extra}\]"):
        mine_counts(write_tsv(tmp_path / "g.tsv", HANDFUL), engine)


def test_duckdb_says_that_the_memory_is_too_small(tmp_path: Path):
    path = write_npy(tmp_path / "g.npy", power_law_ids(200_000, 20_000, 100))
    with pytest.raises(ContextPoolError, match="Raise memory"):
        mine_counts(path, "duckdb", memory=1 << 20)


def why_no_spark() -> str | None:
    if not SOAK:
        return "long; run by `make soak`"
    if shutil.which("java") is None:
        return "Spark needs Java 17 or newer, and there is no `java` on this machine"
    for package in ("ibis", "pyspark"):
        if importlib.util.find_spec(package) is None:
            return f"{package} is not installed; pip install 'contextpool[spark]'"
    return None


@pytest.mark.soak
@pytest.mark.skipif(why_no_spark() is not None, reason=str(why_no_spark()))
@pytest.mark.filterwarnings("ignore")  # py4j leaves sockets to the garbage collector, which runs at the end
def test_spark_gives_the_same_checksum(tmp_path: Path):
    for triples in (10_000, 1_000_000):
        path = write_npy(tmp_path / "g.npy", power_law_ids(triples, triples // 10, 100))
        expected = checksum(mine_counts(path).counts)
        assert checksum(mine_counts(path, "spark", temp=tmp_path).counts) == expected
    shuffled = random.Random(0).sample(HANDFUL, len(HANDFUL))
    assert_counts_of(mine_counts(write_csv(tmp_path / "g.csv", shuffled), "spark").counts, HANDFUL)
    gc.collect()
