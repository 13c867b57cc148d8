"""The pinned surface: names that users and other tools call."""

from __future__ import annotations

import inspect

import pytest

import contextpool as cp
from contextpool.errors import UnknownNameError

TRIPLES = [("a", "r", "b"), ("b", "s", "c"), ("a", "s", "c"), ("d", "r", "b"), ("d", "s", "c")]


def test_every_exported_name_exists_and_is_documented():
    for name in cp.__all__:
        thing = getattr(cp, name)
        assert name == "__version__" or inspect.getdoc(thing), name


def test_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="nonsense"):
        _ = cp.nonsense


def test_stages_can_be_imported_and_called():
    import contextpool.pool.expand

    assert callable(cp.pool)
    assert inspect.ismodule(contextpool.pool)
    assert contextpool.pool.expand.expand


def test_graph_surface():
    graph = cp.Graph.from_triples(TRIPLES)
    assert (graph.num_entities, graph.num_relations, graph.num_triples) == (4, 2, 5)
    assert set(graph.entities) == set("abcd")
    assert set(graph.relations) == {"r", "s"}
    assert graph.triples == set(TRIPLES)


def test_context_surface():
    context = cp.mine_context(cp.Graph.from_triples(TRIPLES), min_precision=0.1, min_recall=0.0)
    assert context.precision("r", "s") == pytest.approx(2 / 3)
    assert context.recall("r", "s") == 1.0
    assert context.neighbors("r") == ["s"]
    assert context.precision("r", "s^-1") == 0.0


def test_families_surface():
    families = cp.mine_families(
        cp.Graph.from_triples(TRIPLES), measure="precision", threshold=0.1, sizes=range(1, 6)
    )
    assert len(families["r"]) == len(list(families["r"])) == 1
    assert frozenset({"s"}) in families["r"]
    assert len(families["never heard of"]) == 0


def test_pool_surface():
    graph = cp.Graph.from_triples(TRIPLES)
    pooled = cp.pool(graph, cp.mine_context(graph), head="a", relation="r", hops=2, hide=[("a", "r", "b")])
    assert pooled.hops[0] == {("a", "s", "c")}
    assert pooled.triples == set().union(*pooled.hops)
    assert not any(set(edge) >= {"a", "b"} and edge[1] in ("r", "r^-1") for edge in pooled.triples)
    with pytest.raises(UnknownNameError):
        cp.pool(graph, cp.mine_context(graph), head="zz", relation="r", hops=2)


def test_read_graph_and_split(tmp_path):
    path = tmp_path / "graph.tsv"
    path.write_text("".join(f"e{n}\tr{n % 2}\te{(n + k) % 100}\n" for n in range(100) for k in (1, 2, 7)))
    graph = cp.read_graph(path)
    assert graph.num_triples == 300
    dataset = cp.split(graph, inductive=True, seed=0)
    assert isinstance(dataset, cp.Dataset)
    assert not set(dataset.training_entities.labels) & set(dataset.inference_entities.labels)


def test_world_loads_and_audits():
    dataset = cp.load_dataset("world")
    assert dataset.inductive
    assert dataset.audit().findings
