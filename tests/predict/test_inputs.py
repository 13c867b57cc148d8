"""Any kind of graph as input: all of them give the same answers, equal facts are prepared once, changed ones again."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

import contextpool as cp
from contextpool.errors import ConfigError, DataError
from contextpool.graph.graph import Graph
from contextpool.predict import Predictor, as_graph
from contextpool.triples.files import write_triples

FACTS = [
    (f"{kind}{number}", relation, f"town{number % 3}")
    for number in range(9)
    for kind, relation in (("ann", "lives_in"), ("ann", "works_in"), ("bob", "works_in"))
]


@pytest.fixture(scope="module")
def predictor() -> Predictor:
    return cp.load()


def table() -> dict[str, list[str]]:
    return {name: [fact[place] for fact in FACTS] for place, name in enumerate(("head", "relation", "tail"))}


def pandas(folder: Path) -> Any:
    return pytest.importorskip("pandas").DataFrame(table())


def networkx(folder: Path, multi: bool = True) -> Any:
    nx = pytest.importorskip("networkx")
    network = nx.MultiDiGraph() if multi else nx.DiGraph()
    for head, relation, tail in FACTS:
        network.add_edge(head, tail, relation=relation)
    return network


def keyed_networkx(folder: Path) -> Any:
    network = pytest.importorskip("networkx").MultiDiGraph()
    network.add_edges_from([(head, tail, relation) for head, relation, tail in FACTS])
    return network


def pyg(folder: Path, inverse: Any = "none") -> Any:
    pytest.importorskip("torch_geometric")
    return Graph.from_triples(FACTS).to_pyg(inverse=inverse)


def hetero(folder: Path) -> Any:
    data = pytest.importorskip("torch_geometric.data").HeteroData()
    people = sorted({head for head, _, _ in FACTS})
    data["person"].entity_label, data["person"].num_nodes = people, len(people)
    data["town"].entity_label, data["town"].num_nodes = ["town0", "town1", "town2"], 3
    for relation in ("lives_in", "works_in"):
        ends = [(people.index(head), int(tail[-1])) for head, one, tail in FACTS if one == relation]
        data["person", relation, "town"].edge_index = torch.tensor(ends).T
    return data


def tsv(folder: Path) -> Path:
    write_triples(folder / "facts.tsv", FACTS)
    return folder / "facts.tsv"


def parquet(folder: Path) -> str:
    pq.write_table(pa.table(table()), folder / "facts.parquet")
    return str(folder / "facts.parquet")


KINDS = {
    "path": tsv,
    "address": parquet,
    "triples": lambda folder: list(FACTS),
    "generator": lambda folder: (fact for fact in FACTS),
    "set of lists": lambda folder: [list(fact) for fact in FACTS],
    "Triples": lambda folder: Graph.from_triples(FACTS).as_triples(),
    "Arrow": lambda folder: pa.table(table()),
    "pandas": pandas,
    "networkx": networkx,
    "networkx by key": keyed_networkx,
    "pyg": pyg,
    "pyg with inverses": lambda folder: pyg(folder, "offset"),
    "hetero": hetero,
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_the_same_graph_and_is_prepared_once(
    predictor: Predictor, tmp_path: Path, kind: str
) -> None:
    source, expected = KINDS[kind](tmp_path), Graph.from_triples(FACTS)
    answers = predictor.predict(source, head="bob1", relation="lives_in", k=3)
    assert [one.entity for one in answers] == [
        one.entity for one in predictor.predict(expected, head="bob1", relation="lives_in", k=3)
    ]
    again = KINDS[kind](tmp_path) if kind == "generator" else source
    prepared, _ = predictor.prepared(again)
    assert prepared.triples == expected.triples
    assert prepared is predictor.prepared(list(FACTS))[0]


def test_every_method_takes_any_kind(predictor: Predictor) -> None:
    assert predictor.predict_heads(FACTS, relation="lives_in", tail="town1", k=1)
    assert predictor.predict_relations(FACTS, head="bob1", tail="town1", k=1)[0].relation == "lives_in"
    assert len(predictor.predict_batch(FACTS, [("bob1", "lives_in"), ("bob2", "lives_in")], k=1)) == 2
    assert predictor.explain(FACTS, head="bob1", relation="lives_in", tail="town1").candidates == 21


def test_a_dataset_and_its_name_mean_the_inference_graph(predictor: Predictor) -> None:
    world = cp.load_dataset("world")
    assert as_graph("world").triples == as_graph(world).triples == set(world.inference_graph)
    assert predictor.prepared("world")[0] is predictor.prepared(world)[0]


def test_what_changed_meanwhile_is_read_again(predictor: Predictor, tmp_path: Path) -> None:
    """A list, a table and a file belong to the caller, who may change them between two questions."""
    new = ("bob1", "lives_in", "town1")
    listed = list(FACTS)
    before = predictor.prepared(listed)[0]
    listed.append(new)
    assert new in predictor.prepared(listed)[0].triples
    assert new not in before.triples
    path = tsv(tmp_path)
    assert predictor.prepared(path)[0] is before
    os.utime(path, ns=(1, 1))
    assert predictor.prepared(path)[0] is before  # other time, same facts
    with path.open("a") as stream:
        stream.write("\t".join(new) + "\n")
    assert new in predictor.prepared(path)[0].triples


BAD: list[tuple[Any, str]] = [
    (7, "graph is a value of type int; it has to be a Graph, a path or an address"),
    (None, "graph is a value of type NoneType"),
    ({"a": "b"}, "graph is a value of type dict"),
    (b"facts.tsv", "graph is a value of type bytes"),
    ([], "gives no triples"),
    (iter(()), "a generator that was read before"),
    ([("a", "r")], r"triples\[0\]: .* is not a \(head, relation, tail\) triple"),
    ([("a", "r", 3)], r"triples\[0\]"),
    ("nowhere.tsv", "nowhere.tsv"),
    ("wrld", "world"),
    (pa.table({"a": ["x"]}), "column"),
]


@pytest.mark.parametrize(("source", "told"), BAD)
def test_what_is_no_graph_is_refused_by_name(predictor: Predictor, source: Any, told: str) -> None:
    with pytest.raises((ConfigError, DataError, cp.ContextPoolError), match=told):
        predictor.predict(source, head="a", relation="r")


def test_networks_and_pyg_data_without_relations_are_refused(predictor: Predictor) -> None:
    nx = pytest.importorskip("networkx")
    with pytest.raises(ConfigError, match="which attribute of an edge is its relation"):
        as_graph(nx.DiGraph([("a", "b")]))
    with pytest.raises(DataError, match="undirected"):
        as_graph(nx.Graph([("a", "b")]))
    data = pytest.importorskip("torch_geometric.data")
    with pytest.raises(DataError, match="no edge_type"):
        as_graph(data.Data(edge_index=torch.zeros(2, 1).long(), num_nodes=1))
    empty = data.HeteroData()
    empty["a"].num_nodes = 1
    with pytest.raises(DataError, match="no edges"):
        as_graph(empty)


def test_nodes_of_types_are_called_after_them() -> None:
    data = pytest.importorskip("torch_geometric.data").HeteroData()
    data["author"].num_nodes, data["paper"].num_nodes = 2, 11
    data["author", "writes", "paper"].edge_index = torch.tensor([[0, 1], [3, 10]])
    assert as_graph(data).triples == {("author 0", "writes", "paper 03"), ("author 1", "writes", "paper 10")}
