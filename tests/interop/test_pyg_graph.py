"""Graphs to PyG and back: facts, names and inverse edges survive, and nothing is guessed."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("torch_geometric", reason="the pyg extra is not installed")
from torch_geometric.data import Batch, Data

from contextpool.errors import ConfigError, DataError
from contextpool.graph.graph import Graph
from contextpool.interop.pyg_data import InverseEdges
from learning_worlds import graph_over
from support import random_triples

FACTS = [("b", "s", "a"), ("a", "r", "b"), ("a", "r", "a")]


def test_a_small_world_by_hand() -> None:
    data = Graph.from_triples(FACTS).to_pyg()
    assert data.edge_index.tolist() == [[0, 0, 1, 0, 1, 0], [0, 1, 0, 0, 0, 1]]
    assert data.edge_type.tolist() == [0, 0, 1, 2, 2, 3]  # r r s, then their inverses, r + 2
    assert data.entity_label == ["a", "b"]
    assert data.relation_label == {0: "r", 1: "s"}
    plain = Graph.from_triples(FACTS).to_pyg(inverse="none")
    assert plain.edge_index.tolist() == [[0, 0, 1], [0, 1, 0]]
    assert plain.edge_type.tolist() == [0, 0, 1]
    assert data.validate()


@given(seed=st.integers(0, 10_000), inverse=st.sampled_from(["offset", "none"]))
def test_there_and_back_is_the_same_graph(seed: int, inverse: InverseEdges) -> None:
    facts = random_triples(seed)
    names = sorted({label for head, _, tail in facts for label in (head, tail)} | {"lonely", "Zoe"})
    graph = graph_over(facts, names, [*sorted({relation for _, relation, _ in facts}), "unused"])
    back = Graph.from_pyg(graph.to_pyg(inverse=inverse), inverse=inverse)
    assert back.triples == set(facts)
    assert back.entities == graph.entities
    assert back.relations == graph.relations
    assert torch.equal(back.edge_tail, graph.edge_tail)


@given(seed=st.integers(0, 10_000), data=st.data())
def test_columns_in_any_order_and_repeated_are_the_same_graph(seed: int, data: st.DataObject) -> None:
    graph = Graph.from_triples(random_triples(seed))
    given_data = graph.to_pyg()
    order = torch.tensor(data.draw(st.permutations(range(given_data.num_edges))))
    order = torch.cat([order, order[: seed % 3]])
    shuffled = Data(
        edge_index=given_data.edge_index[:, order],
        edge_type=given_data.edge_type[order],
        num_nodes=graph.num_entities,
    )
    again = Graph.from_pyg(shuffled, entities=graph.entities, relations=graph.relations)
    assert again.triples == graph.triples


def test_labels_by_node_are_sorted_into_ids() -> None:
    data = Data(edge_index=torch.tensor([[0], [1]]), edge_type=torch.tensor([1]), num_nodes=3)
    graph = Graph.from_pyg(data, inverse="none", entities=["zoe", "ann", "bob"], relations=["z", "knows"])
    assert list(graph.triples) == [("zoe", "knows", "ann")]
    assert graph.entities == ("ann", "bob", "zoe")
    assert graph.relations == ("knows", "z")


def test_without_labels_numbers_sort_as_the_nodes_do() -> None:
    data = Data(edge_index=torch.tensor([[0, 11], [11, 2]]), edge_type=torch.tensor([0, 0]), num_nodes=12)
    graph = Graph.from_pyg(data, inverse="none")
    assert graph.entities == tuple(f"e{number:02d}" for number in range(12))
    assert list(graph.triples) == [("e00", "r0", "e11"), ("e11", "r0", "e02")]


def test_an_empty_graph_keeps_its_nodes() -> None:
    data = Data(
        edge_index=torch.empty(2, 0, dtype=torch.long),
        edge_type=torch.empty(0, dtype=torch.long),
        num_nodes=2,
    )
    graph = Graph.from_pyg(data)
    assert (graph.num_entities, graph.num_relations, graph.num_triples) == (2, 0, 0)


def test_labels_go_with_their_nodes_through_pyg() -> None:
    data = Graph.from_triples([("a", "r", "b"), ("b", "r", "c"), ("c", "r", "d")]).to_pyg()
    part = data.subgraph(torch.tensor([True, True, False, True]))
    assert part.entity_label == ["a", "b", "d"]
    assert Graph.from_pyg(part).triples == {("a", "r", "b")}
    assert Batch.from_data_list([data, data]).num_graphs == 2


TWO = {"edge_index": torch.tensor([[0, 1], [1, 0]]), "num_nodes": 2}


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        (Data(**TWO, edge_type=torch.tensor([0, 0])), {}, "odd number"),
        (Data(**TWO, edge_type=torch.tensor([0, 2])), {"relations": ["r", "s"]}, None),
        (Data(**TWO, edge_type=torch.tensor([0, 3])), {}, "0 -> 1 of type 0 has no edge 1 -> 0 of type 2"),
        (Data(**TWO, edge_type=torch.tensor([0, 2])), {"relations": ["r"]}, "edge_type holds 2"),
        (
            Data(**TWO, edge_type=torch.tensor([0, 1]), x=torch.ones(2, 1)),
            {"entities": ["a"]},
            "1 entity labels for 2 nodes",
        ),
        (Data(**TWO, edge_type=torch.tensor([0, 1])), {"entities": ["a", "a"]}, "of which 1 differ"),
        (Data(**TWO, edge_type=torch.tensor([0, 1])), {"relations": ["r^-1"]}, "names the inverse"),
        (Data(**TWO, edge_type=torch.tensor([0, 1])), {"entities": ["a", 7]}, "is a int, not a string"),
        (Data(**TWO), {}, "no edge_type"),
        (Data(**TWO, edge_type=torch.tensor([0])), {}, r"\[2, E\] and \[E\]"),
        (Data(**TWO, edge_type=torch.tensor([0.0, 1.0])), {}, "have to be integers"),
        (
            Data(edge_index=torch.tensor([[0], [5]]), edge_type=torch.tensor([0]), num_nodes=2),
            {"inverse": "none"},
            "holds 5",
        ),
        (
            Data(edge_index=torch.tensor([[-1], [1]]), edge_type=torch.tensor([0]), num_nodes=2),
            {"inverse": "none"},
            "holds -1",
        ),
    ],
)
def test_what_cannot_be_is_refused_by_name(data: Data, options: dict, message: str | None) -> None:
    if message is None:
        assert Graph.from_pyg(data, **options).triples == {("e0", "r", "e1")}
        return
    with pytest.raises(DataError, match=message):
        Graph.from_pyg(data, **options)


def test_inverse_edges_are_not_guessed_at() -> None:
    both = Graph.from_triples(FACTS).to_pyg()
    assert Graph.from_pyg(both).num_triples == 3
    del both.relation_label
    assert Graph.from_pyg(both, inverse="none").num_triples == 6
    with pytest.raises(ConfigError, match="inverse is 'maybe'"):
        Graph.from_pyg(both, inverse="maybe")  # type: ignore[arg-type]
