"""No query is answered with its own head, unless training says that this happens."""

from __future__ import annotations

from pathlib import Path

import torch

import contextpool as cp
from contextpool.graph.graph import Graph
from contextpool.models.nbfnet import HEAD_MARGIN
from contextpool.pool.batch import BatchBuilder
from contextpool.train.config import TrainConfig
from contextpool.train.course import EveryQuery
from contextpool.train.loop import Trainer
from contextpool.train.queries import TrainingQueries
from contextpool.triples.filters import KnownAnswers
from learning_worlds import SMALL, ask, every_query, family_dataset, graph_over, new_model, random_graph
from learning_worlds import one_thread as one_thread

WORLD = [("a", "likes", "a"), ("a", "likes", "b"), ("b", "made", "c"), ("c", "made", "d")]


def graph_of_likes() -> Graph:
    return graph_over(WORLD, ["a", "b", "c", "d", "e"], ["likes", "made"])


def test_the_head_is_out_where_the_relation_is_never_reflexive_and_nothing_else_changes() -> None:
    graph = graph_of_likes()
    model = new_model("nbfnet", graph, None, 0, exclude_head=True)
    plain = new_model("nbfnet", graph)
    plain.load_state_dict(model.state_dict(), strict=False)
    head, relation = every_query(graph)
    builder = BatchBuilder(graph, 2)
    expected, found = ask(plain, builder, head, relation), ask(model, builder, head, relation)
    for row, (entity, asked) in enumerate(zip(head.tolist(), relation.tolist(), strict=True)):
        if "made" in graph.relation_vocabulary.directed[asked]:
            expected[row, entity] = expected[row].min() - HEAD_MARGIN
    assert torch.equal(found, expected)
    assert found.isfinite().all()


def test_what_training_asks_for_is_allowed() -> None:
    """A training query (d, made, d) that the graph does not hold: its loss would be beyond all bounds."""
    graph = graph_of_likes()
    model = new_model("nbfnet", graph, None, 0, exclude_head=True)
    triples = Graph.from_triples([("d", "made", "d")]).as_triples()
    asked = triples.with_vocabularies(graph.entity_vocabulary, graph.as_triples().relations)
    queries = TrainingQueries.of(asked, graph, KnownAnswers.of(asked))
    config = TrainConfig(epochs=1)
    course = EveryQuery(queries, BatchBuilder(graph, 2), config)
    trainer = Trainer(model, course, config, lambda model: 0.5)
    outcome = trainer.fit()
    assert outcome.history[0]["loss"] < 100
    reflexive = model.state_dict()["own_head.reflexive"]
    assert reflexive.tolist() == [True, True, True, True]


def test_no_gradient_comes_from_a_head_that_is_out() -> None:
    graph = graph_of_likes()
    model = new_model("nbfnet", graph, None, 0, exclude_head=True)
    batch = BatchBuilder(graph, 2).build(torch.tensor([3]), torch.tensor([1]))  # (d, made, ?)
    model(batch)[0, 3].backward()
    assert all(weight.grad is None or not weight.grad.any() for weight in model.parameters())


def test_the_mask_is_stored_with_the_model(tmp_path: Path) -> None:
    data = family_dataset(inductive=True)
    settings = {**SMALL["nbfnet"], "exclude_head": True}
    trained = cp.train(data, "nbfnet", output=tmp_path / "run", settings=settings, train={"epochs": 1})
    loaded = cp.load(tmp_path / "run")
    reflexive = loaded.model.state_dict()["own_head.reflexive"]
    assert not reflexive.any()  # nobody is their own parent
    assert loaded.fingerprint == trained.fingerprint
    graph = Graph.from_triples(data.inference_graph)
    head = graph.entities[0]
    answers = loaded.predict(graph, head, "parent of", k=graph.num_entities, known=True)
    assert answers[-1].entity == head


def test_a_new_module_excludes_nothing_until_it_has_looked() -> None:
    graph = random_graph(3)
    kind = type(new_model("nbfnet", graph))
    model = kind(graph.num_relations, kind.config_class(**SMALL["nbfnet"], exclude_head=True))
    assert model.state_dict()["own_head.reflexive"].all()
    assert "own_head.reflexive" not in kind(graph.num_relations).state_dict()
