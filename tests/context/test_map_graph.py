"""A graph made in a folder, range by range, is the graph that memory makes; opened, it is one."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from contextpool.context import map_graph as making
from contextpool.context.counts import count_cooccurrence
from contextpool.context.map_graph import map_graph
from contextpool.context.parallel import ParallelCounts, count_joined_by_tensors
from contextpool.errors import ConfigError, DataError, UnknownNameError
from contextpool.graph.graph import Graph
from contextpool.graph.mapped import EDGE_ARRAYS, MappedGraph, checksum, is_mapped, open_graph

LETTERS = ["a", "b", "ab", "é", "ü", "z", "𝕫", "0", "~", "\ufffd"]
Triple = tuple[str, str, str]


def some_triples(seed: int, count: int = 400) -> list[Triple]:
    """Labels of one to four letters of one to four bytes; a hub, self loops, several relations of a pair, repeats."""
    draw = random.Random(seed)

    def label() -> str:
        return "".join(draw.choices(LETTERS, k=draw.randint(1, 4)))

    names = [label() for _ in range(60)]
    facts = [(draw.choice(names), draw.choice("pqrs"), draw.choice(names)) for _ in range(count)]
    return facts + [(names[0], "p", name) for name in names] + facts[:50]


def written(path: Path, triples: list[Triple]) -> Path:
    path.write_text("".join("\t".join(triple) + "\n" for triple in triples), encoding="utf-8")
    return path


def assert_same(mapped: MappedGraph, graph: Graph) -> None:
    assert tuple(mapped.entities) == graph.entities
    assert mapped.relations == graph.relations
    for name in EDGE_ARRAYS:
        assert torch.equal(getattr(mapped, name), getattr(graph, name)), name
    assert np.array_equal(mapped.both, count_cooccurrence(graph).both)
    assert np.array_equal(mapped.joined, count_joined_by_tensors(graph).numpy())
    counts, expected = ParallelCounts.of(mapped), ParallelCounts.of(graph)
    assert torch.equal(counts.both, expected.both)
    assert torch.equal(counts.support, expected.support)


@pytest.mark.parametrize("seed", range(4))
def test_the_folder_holds_what_memory_holds(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many runs, ranges of few labels, many parts, batches of edges: every seam is crossed."""
    triples = some_triples(seed)
    monkeypatch.setattr(making, "LABELS_AT_ONCE", 16)
    monkeypatch.setattr(making, "SHARE_OF_MEMORY", 2**19)
    monkeypatch.setattr(making, "EDGES_AT_ONCE", 64)
    sources = [written(tmp_path / f"{number}.tsv", triples[number::5]) for number in range(5)]
    mapped = map_graph(sources, tmp_path / "graph", memory=making.MIN_MEMORY)
    assert_same(mapped, Graph.from_triples(triples))
    assert mapped.description["rows_read"] == len(triples)
    assert sorted(path.name for path in tmp_path.iterdir()) == [*(f"{n}.tsv" for n in range(5)), "graph"]


def test_ids_are_labels_and_parquet_is_read(tmp_path: Path) -> None:
    rows = np.array([[7, 0, 10], [10, 1, 7], [7, 0, 10], [100, 0, 7]])
    np.save(tmp_path / "ids.npy", rows)
    columns = {name: [str(one) for one in rows[:, k]] for k, name in enumerate(("head", "relation", "tail"))}
    pq.write_table(pa.table(columns), tmp_path / "same.parquet")
    expected = Graph.from_triples([tuple(map(str, row)) for row in rows.tolist()])  # type: ignore[misc]
    one = map_graph([tmp_path / "ids.npy"], tmp_path / "one")
    assert_same(one, expected)
    other = map_graph([tmp_path / "same.parquet", tmp_path / "ids.npy"], tmp_path / "other")
    assert_same(other, expected)
    assert one.digest == other.digest


def test_labels_are_found_and_unknown_ones_are_not(tmp_path: Path) -> None:
    triples = some_triples(9)
    mapped = map_graph([written(tmp_path / "x.tsv", triples)], tmp_path / "graph")
    for place, label in enumerate(mapped.entities):
        assert mapped.entity_id(label) == place
        assert label in mapped.entity_vocabulary
    assert "nobody" not in mapped.entity_vocabulary
    assert mapped.entities[-1] == max(mapped.entities)
    assert mapped.entities[:2] == tuple(sorted(set(mapped.entities))[:2])
    with pytest.raises(UnknownNameError):
        mapped.entity_id("nobody")
    with pytest.raises(IndexError):
        mapped.entities[len(mapped.entities)]
    assert set(mapped.triples) == set(triples)
    assert mapped.triples_of_relation == {r: len({t for t in triples if t[1] == r}) for r in "pqrs"}


def test_it_is_mapped_and_cannot_be_changed_on_disk(tmp_path: Path) -> None:
    source = written(tmp_path / "x.tsv", [("a", "r", "b"), ("b", "r", "c")])
    mapped = map_graph([source], tmp_path / "graph")
    before = (tmp_path / "graph" / "edge_tail.npy").read_bytes()
    mapped.edge_tail[0] = 2
    assert (tmp_path / "graph" / "edge_tail.npy").read_bytes() == before
    assert open_graph(tmp_path / "graph").edge_tail.tolist() == [1, 2, 0, 1]
    maps = Path("/proc/self/maps")
    if maps.exists():
        assert "edge_tail.npy" in maps.read_text()


def test_what_is_there_is_replaced_only_where_it_is_a_graph(tmp_path: Path) -> None:
    source = written(tmp_path / "x.tsv", [("a", "r", "b")])
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "mine.txt").write_text("x")
    with pytest.raises(ConfigError, match="is there already"):
        map_graph([source], tmp_path / "notes", overwrite=True)
    map_graph([source], tmp_path / "graph")
    with pytest.raises(ConfigError, match="is there already"):
        map_graph([source], tmp_path / "graph")
    more = written(tmp_path / "y.tsv", [("a", "r", "b"), ("a", "r", "c")])
    assert map_graph([more], tmp_path / "graph", overwrite=True).num_triples == 2
    assert is_mapped(tmp_path / "graph")
    assert not is_mapped(tmp_path / "notes")


def test_what_is_wrong_is_told_and_leaves_nothing(tmp_path: Path) -> None:
    broken = tmp_path / "x.tsv"
    broken.write_text("a\tr\tb\na\tr\n")
    with pytest.raises(DataError, match=r"x.tsv:2"):
        map_graph([broken], tmp_path / "graph")
    with pytest.raises(ConfigError, match="memory is 5 bytes"):
        map_graph([broken], tmp_path / "graph", memory=5)
    assert [path.name for path in tmp_path.iterdir()] == ["x.tsv"]
    with pytest.raises(DataError, match="there is no graph here"):
        open_graph(tmp_path)


def test_a_damaged_folder_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "graph"
    map_graph([written(tmp_path / "x.tsv", [("a", "r", "b")])], folder)
    description = json.loads((folder / "graph.json").read_text())
    other = {**description, "triples": 2}
    (folder / "graph.json").write_text(json.dumps(other))
    with pytest.raises(DataError, match="does not say what was written"):
        open_graph(folder)
    (folder / "graph.json").write_text(json.dumps({**other, "checksum": checksum(other)}))
    with pytest.raises(DataError, match=r"graph\.json says"):
        open_graph(folder)
    before = {**description, "format": "contextpool graph 2"}  # without counts of pairs
    (folder / "graph.json").write_text(json.dumps({**before, "checksum": checksum(before)}))
    with pytest.raises(
        DataError, match="not a graph of this version; make it again with `contextpool data map`"
    ):
        open_graph(folder)
    (folder / "graph.json").write_text(json.dumps(description))
    (folder / "edge_tail.npy").write_bytes(b"\x93NUMPY")
    with pytest.raises(DataError, match="cannot be mapped"):
        open_graph(folder)
