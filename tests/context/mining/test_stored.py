"""Stored statistics: read back whole, say what they are of, and follow a delta exactly."""

from __future__ import annotations

import hashlib
import json
import random
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from context.mining.graph_files import assert_counts_of, write_csv, write_npy, write_tsv
from contextpool.context.mining import mine_counts
from contextpool.context.mining.codes import checksum
from contextpool.context.mining.stored import Input, Provenance, read_counts, write_counts
from contextpool.context.mining.update import Updated, update_counts
from contextpool.errors import ConfigError, DataError
from support import Triple, amount, random_triples

HANDFUL: list[Triple] = [("a", "r", "b"), ("a", "ö", "c"), ("b", "r", "c"), ("c", "ö", "c")]


def stored(path: Path, folder: Path) -> Path:
    """The statistics of a file, stored."""
    mined = mine_counts(path)
    write_counts(
        folder / "stats.parquet",
        mined.counts,
        Provenance.now("memory", mined.rows, [Input.of("graph", path)]),
    )
    return folder / "stats.parquet"


def updated(stats: Path, graph: Path, added: Path | None = None, removed: Path | None = None) -> Updated:
    return update_counts(*read_counts(stats), graph, added, removed)


def test_what_is_stored_is_read_back_with_its_provenance(tmp_path: Path):
    path = write_tsv(tmp_path / "g.tsv", HANDFUL)
    counts, provenance = read_counts(stored(path, tmp_path))
    assert_counts_of(counts, HANDFUL)
    assert (provenance.engine, provenance.rows) == ("memory", 4)
    assert provenance.inputs == (
        Input("graph", "g.tsv", path.stat().st_size, hashlib.sha256(path.read_bytes()).hexdigest()),
    )
    assert provenance.date.endswith("+00:00")


def test_the_file_is_small_and_any_parquet_reader_can_read_it(tmp_path: Path):
    stats = stored(write_tsv(tmp_path / "g.tsv", HANDFUL), tmp_path)
    table = pq.read_table(stats)
    assert table.column_names == ["relation_a", "relation_b", "entities"]
    rows = {(row["relation_a"], row["relation_b"]): row["entities"] for row in table.to_pylist()}
    assert rows["r", "ö"] == 1  # a alone has both
    assert rows["r", "r"] == 2


def test_a_damaged_or_foreign_file_is_refused(tmp_path: Path):
    stats = stored(write_tsv(tmp_path / "g.tsv", HANDFUL), tmp_path)
    table = pq.read_table(stats)
    meta = json.loads(table.schema.metadata[b"contextpool"])
    broken = {
        "not statistics": table.replace_schema_metadata({}),
        "schema 99": table.replace_schema_metadata({b"contextpool": json.dumps(meta | {"schema": 99})}),
        "checksum": table.slice(1),
        "damaged": table.replace_schema_metadata({b"contextpool": json.dumps(meta | {"relations": ["q"]})}),
    }
    for message, bad in broken.items():
        pq.write_table(bad, tmp_path / "bad.parquet")
        with pytest.raises(DataError, match=message):
            read_counts(tmp_path / "bad.parquet")
    stats.write_bytes(stats.read_bytes()[:-9])
    with pytest.raises(DataError, match="not a readable Parquet"):
        read_counts(stats)
    with pytest.raises(DataError, match="no such file"):
        read_counts(tmp_path / "nothing.parquet")


def test_a_delta_of_files_gives_what_mining_anew_gives(tmp_path: Path):
    for seed in range(amount(40, 1_000)):
        rng = random.Random(seed)
        before = random_triples(seed)
        removed = rng.sample(sorted(set(before)), rng.randint(0, len(set(before)) - 1))
        added = [each for each in random_triples(seed + 9_000, most_relations=6) if each not in removed]
        graph = write_tsv(tmp_path / "g.tsv", before)
        files = write_tsv(tmp_path / "add.tsv", added), write_csv(tmp_path / "remove.csv", removed)
        result = updated(stored(graph, tmp_path), graph, *files)
        assert_counts_of(result.counts, sorted((set(before) - set(removed)) | set(added)))
        assert result.verified


def test_a_delta_of_ids_meets_a_graph_of_ids(tmp_path: Path):
    ids = np.array([[0, 1, 2], [2, 1, 0], [7, 0, 2]], dtype=np.int32)
    graph = write_npy(tmp_path / "g.npy", ids)
    result = updated(stored(graph, tmp_path), graph, removed=write_tsv(tmp_path / "r.tsv", [("2", "1", "0")]))
    again = write_npy(tmp_path / "after.npy", ids[[0, 2]])
    assert checksum(result.counts) == checksum(mine_counts(again).counts)


def test_provenance_grows_with_each_update_and_a_stale_graph_is_refused(tmp_path: Path):
    graph, add = write_tsv(tmp_path / "g.tsv", HANDFUL), write_tsv(tmp_path / "add.tsv", [("d", "new", "a")])
    stats = stored(graph, tmp_path)
    first = updated(stats, graph, add)
    write_counts(stats, first.counts, first.provenance)
    with pytest.raises(DataError, match="updated since this file"):
        updated(stats, graph, add)
    grown = write_tsv(tmp_path / "grown.tsv", [*HANDFUL, ("d", "new", "a")])
    second = updated(stats, grown, removed=add)
    assert [each.role for each in second.provenance.inputs] == ["graph", "added", "graph", "removed"]
    assert not second.verified
    assert_counts_of(second.counts, HANDFUL)


def test_another_graph_or_no_delta_is_refused(tmp_path: Path):
    graph = write_tsv(tmp_path / "g.tsv", HANDFUL)
    stats = stored(graph, tmp_path)
    other = write_tsv(tmp_path / "other.tsv", HANDFUL[:2])
    with pytest.raises(DataError, match="mined from another file"):
        updated(stats, other, added=graph)
    with pytest.raises(ConfigError, match="--add"):
        updated(stats, graph)


def test_a_triple_to_remove_that_is_not_there_is_named_by_its_line(tmp_path: Path):
    graph = write_tsv(tmp_path / "g.tsv", HANDFUL)
    stats = stored(graph, tmp_path)
    gone = [HANDFUL[0], ("b", "r", "a")]
    with pytest.raises(DataError, match=r"gone\.tsv:2: .*not in the graph"):
        updated(stats, graph, removed=write_tsv(tmp_path / "gone.tsv", gone))
    with pytest.raises(DataError, match=r"gone\.csv:3: .*not in the graph"):
        updated(stats, graph, removed=write_csv(tmp_path / "gone.csv", gone))
