"""The model for any graph, and the one in the package: any relation, both directions, in all that the product does."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import torch
from torch import Tensor

import contextpool as cp
from command_line import run
from contextpool.context.config import ContextConfig
from contextpool.context.counts import check_relation_count
from contextpool.errors import DataError
from contextpool.graph.graph import Graph
from contextpool.interop.hub import local_folder
from contextpool.models.anygraph import AnyGraph
from contextpool.models.nbfnet import mean_log_degree, set_mean_log_degree
from learning_worlds import ask, every_query, families, graph_over, new_model, random_graph, without_fact
from learning_worlds import one_thread as one_thread
from support import amount

CONTEXT = ContextConfig()
CASES = amount(3, 100)

GRAPH = cp.Graph.from_triples([*families(4), ("f0", "met once", "f1")])


@pytest.fixture(scope="module")
def shipped() -> cp.Predictor:
    return cp.load()


def test_the_model_in_the_package_is_small_and_can_be_pinned(shipped: cp.Predictor) -> None:
    folder = local_folder(None)
    assert folder.name == cp.SHIPPED == "anygraph-1"
    assert sum(file.stat().st_size for file in folder.iterdir()) < 1_000_000
    assert cp.load("anygraph-1").fingerprint == shipped.fingerprint
    assert shipped.relations is None
    assert shipped.relations_for(GRAPH) == GRAPH.relation_vocabulary


@pytest.mark.parametrize("relation", ["grandparent of", "grandparent of^-1", "met once", "met once^-1"])
def test_it_answers_about_any_relation_in_both_directions(relation: str, shipped: cp.Predictor) -> None:
    answers = shipped.predict(GRAPH, "f0", relation, k=5)
    assert len(answers) == 5
    assert [one.score for one in answers] == sorted((one.score for one in answers), reverse=True)
    back = shipped.predict_heads(GRAPH, relation, "f0", k=5)
    inverse = relation.removesuffix("^-1") if relation.endswith("^-1") else f"{relation}^-1"
    assert back == shipped.predict(GRAPH, "f0", inverse, k=5)


def test_relations_that_it_never_saw_are_no_error_and_a_misspelt_one_is(shipped: cp.Predictor) -> None:
    renamed = cp.Graph.from_triples([(head, f"my {relation}", tail) for head, relation, tail in families(4)])
    assert shipped.predict(renamed, "f0", "my grandparent of")
    with pytest.raises(cp.ContextPoolError, match="grandparent of"):
        shipped.predict(renamed, "f0", "grandparent of")


def test_a_folder_of_the_same_name_is_not_taken_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "anygraph-1").mkdir()
    monkeypatch.chdir(tmp_path)
    assert cp.load("anygraph-1").relations is None
    with pytest.raises(cp.ContextPoolError, match="no config"):
        cp.load(tmp_path / "anygraph-1")


# no query sees its answer, and names mean nothing


def close(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


def models(graph: Graph, seed: int, shipped: cp.Predictor) -> list[AnyGraph]:
    """One with random weights everywhere, and the one in the package."""
    drawn = new_model("anygraph", graph, CONTEXT, seed)
    assert isinstance(drawn, AnyGraph)
    assert isinstance(shipped.model, AnyGraph)
    return [drawn, shipped.model]


@torch.no_grad()
def test_relation_states_of_a_training_query_are_those_without_its_fact(shipped: cp.Predictor) -> None:
    changed = False
    for seed in range(CASES):
        graph = random_graph(seed)
        head, relation = graph.edge_head.long(), graph.edge_relation.long()
        for model in models(graph, seed, shipped):
            batch = model.builder(graph, CONTEXT, None).build(head, relation, torch.arange(graph.num_edges))
            states = model.relations(batch, graph.num_relations)
            for edge in range(graph.num_edges):
                less = model.builder(without_fact(graph, edge), CONTEXT, None)
                alone = model.relations(
                    less.build(head[edge, None], relation[edge, None]), graph.num_relations
                )
                close(alone[0], states[edge])
                seen = model.builder(graph, CONTEXT, None).build(head[edge, None], relation[edge, None])
                changed |= not torch.allclose(model.relations(seen, graph.num_relations)[0], states[edge])
    assert changed  # the test would find a leak


def test_scores_do_not_change_when_the_hidden_answer_does(shipped: cp.Predictor) -> None:
    """PNA's constant is set alike: it is one number of the whole graph, whatever is asked."""
    for seed in range(CASES):
        draw, base = random.Random(seed), random_graph(seed)
        head, relation = draw.choice(base.entities), draw.choice(base.relations)
        known = {tail for one, kind, tail in base.triples if (one, kind) == (head, relation)}
        others = [entity for entity in base.entities if entity not in known]
        for model in models(base, seed, shipped):
            found = []
            for answer in others:
                facts = [*base.triples, (head, relation, answer)]
                graph = graph_over(facts, list(base.entities), list(base.relations))
                set_mean_log_degree(graph, mean_log_degree(base))
                ids = graph.entity_id(head), graph.relation_id(relation), graph.entity_id(answer)
                edge = graph.find_edge(*ids)
                builder = model.builder(graph, CONTEXT, None)
                found.append(ask(model, builder, *(torch.tensor([one]) for one in (ids[0], ids[1], edge))))
            for scores in found[1:]:
                close(scores, found[0])


def test_other_names_and_orders_of_relations_and_entities_change_nothing(shipped: cp.Predictor) -> None:
    for seed in range(CASES):
        graph, draw = random_graph(seed), random.Random(seed)
        entities, relations = (
            dict(
                zip(
                    labels,
                    draw.sample([f"{letter}{n:02}" for n in range(len(labels))], len(labels)),
                    strict=True,
                )
            )
            for labels, letter in ((graph.entities, "x"), (graph.relations, "y"))
        )
        facts = [(entities[h], relations[r], entities[t]) for h, r, t in graph.triples]
        other = graph_over(facts, list(entities.values()), list(relations.values()))
        entity = torch.tensor([other.entity_id(entities[label]) for label in graph.entities])
        forward = torch.tensor([other.relation_id(relations[label]) for label in graph.relations])
        relation = torch.cat([forward, forward + graph.num_relations])
        head, asked = every_query(graph)
        for model in models(graph, seed, shipped):
            here, there = (model.builder(one, CONTEXT, None) for one in (graph, other))
            close(ask(model, there, entity[head], relation[asked])[:, entity], ask(model, here, head, asked))


# graphs at the edge


@pytest.mark.parametrize(
    "facts",
    [
        [("a", "r", "b")],
        [("a", "r", "a")],
        [("a", "r", "b"), ("b", "r", "c"), ("c", "r", "a")],
        [("a", "r", "b"), ("c", "s", "d"), ("d", "s", "c")],
    ],
    ids=["two entities", "one loop", "one relation", "two parts"],
)
def test_a_small_graph_is_answered(facts: list[tuple[str, str, str]], shipped: cp.Predictor) -> None:
    graph = cp.Graph.from_triples(facts)
    for relation in graph.relations:
        for entity in graph.entities:
            for answers in (
                shipped.predict(graph, entity, relation, known=True),
                shipped.predict_heads(graph, relation, entity, known=True),
            ):
                assert {one.entity for one in answers} == set(graph.entities)
                assert all(abs(one.score) < 1e6 for one in answers)
    head, relation, tail = facts[0]
    assert shipped.explain(graph, head, relation, tail).known
    assert shipped.predict_relations(graph, head, tail, known=True)[0].relation in graph.relations


def test_an_entity_without_facts_and_a_relation_without_them_are_answered(shipped: cp.Predictor) -> None:
    graph = graph_over([("a", "r", "b"), ("b", "r", "c")], ["a", "b", "c", "lonely"], ["r", "unused"])
    for relation in ("r", "r^-1", "unused", "unused^-1"):
        assert len(shipped.predict(graph, "lonely", relation)) == 4
    assert shipped.explain(graph, "a", "r", "lonely").paths == ()


def test_a_graph_without_facts_is_answered_or_refused(
    shipped: cp.Predictor, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    empty = graph_over([], ["a", "b"], ["r"])
    assert len(shipped.predict(empty, "a", "r")) == 2
    (tmp_path / "empty.tsv").write_text("")
    ran = run(["ask", str(tmp_path / "empty.tsv"), "--head", "a", "-r", "r"], capsys, monkeypatch)
    assert ran.code == 2
    assert "holds no triples" in ran.err


def test_too_many_relations_are_refused_with_the_memory_that_they_would_take(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before it is taken; a million of them come from a file whose columns are swapped."""
    lines = (f"e{number % 50}\tr{number}\te{number % 7}\n" for number in range(11_000))
    (tmp_path / "many.tsv").write_text("".join(lines))
    ran = run(["ask", str(tmp_path / "many.tsv"), "--head", "e1", "-r", "r1"], capsys, monkeypatch)
    assert ran.code == 2
    assert "11,000 relations" in ran.err
    assert "GB" in ran.err
    with pytest.raises(DataError, match=r"1,000,000 relations .* 96,000 GB"):
        check_relation_count(2_000_000)
    with pytest.raises(DataError, match=r"takes 2\.4 GB .* 1\.0 GB are free"):
        check_relation_count(10_000, free=10**9)
    check_relation_count(10_000, free=10**10)


# all that the product does


def test_explanations_have_paths_gates_and_a_picture_in_pyg(shipped: cp.Predictor) -> None:
    head, relation, tail = min(fact for fact in GRAPH.triples if fact[1] == "grandparent of")
    for fact in ((head, relation, tail), (tail, f"{relation}^-1", head)):
        why = shipped.explain(GRAPH, *fact)
        assert why.paths
        assert why.context
        assert all(one.gate is not None for one in why.context)
        pytest.importorskip("torch_geometric", reason="the pyg extra is not installed")
        assert float(why.to_pyg(GRAPH).edge_mask.sum()) > 0


def test_it_is_exported_with_its_own_card_and_loaded_again(shipped: cp.Predictor, tmp_path: Path) -> None:
    from contextpool.interop.export import export

    folder = export("anygraph-1", tmp_path / "out", license="mit")
    assert cp.load(folder).fingerprint == shipped.fingerprint
    card = (folder / "README.md").read_text("utf-8")
    assert card.startswith("---\nlibrary_name: contextpool\n")
    assert (local_folder(None) / "README.md").read_text("utf-8") in card
    assert not (folder / "relations.json").exists()


def test_it_is_served_beside_a_graph_and_says_what_it_is() -> None:
    pytest.importorskip("fastapi", reason="the serve extra is not installed")
    from contextpool.serve import GraphSource, ModelSource
    from contextpool.serve.registry import Registry
    from serve.served import client_of

    registry = Registry([ModelSource("any", local_folder(None))], [GraphSource("families", lambda: GRAPH)])
    with client_of(registry) as client:
        assert client.get("/models").json()["models"][0]["relations"] is None
        labels = {row["relation"] for row in client.get("/relations").json()["relations"]}
        assert labels == set(GRAPH.relations)
        for question in ({"head": "f0", "relation": "met once"}, {"relation": "met once", "tail": "f0"}):
            found = client.post("/predict", json={**question, "k": 3}).json()
            assert len(found["answers"]) == 3, found
        fact = {"head": "f0", "relation": "met once", "tail": "f1"}
        assert client.get("/explain", params=fact).json()["known"]


def test_a_new_one_is_trained_and_knows_no_relation_either(tmp_path: Path) -> None:
    data = cp.split(GRAPH, inductive=False, seed=0)
    quick = {"settings": {"dim": 4, "layers": 2}, "train": {"epochs": 1}}
    trained = cp.train(data, "anygraph", context=True, output=tmp_path / "run", **quick)  # type: ignore[arg-type]
    renamed = cp.Graph.from_triples([(head, f"my {relation}", tail) for head, relation, tail in families(3)])
    loaded = cp.load(tmp_path / "run")
    assert loaded.predict(renamed, "f0", "my parent of") == trained.predict(renamed, "f0", "my parent of")
    assert not (tmp_path / "run" / "relations.json").exists()
