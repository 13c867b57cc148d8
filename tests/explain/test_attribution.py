"""What edges add: the hook changes nothing, integrals add up, and models without gradients are asked again."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from contextpool.explain import attribution
from contextpool.explain.attribution import Case, by_gradient, by_removal
from contextpool.graph.graph import Graph
from contextpool.pool.batch import BatchBuilder
from learning_worlds import CONTEXTS, families, new_model, without_fact
from learning_worlds import one_thread as one_thread

FAMILIES = Graph.from_triples(families(4))
WITH_GRADIENT = pytest.mark.parametrize("name", ["nbfnet", "redgnn"])


def case(
    name: str, context: str = "plain", head: str = "f1", answer: str = "f1.0.1", **settings: object
) -> Case:
    config = CONTEXTS[context]
    model = new_model(name, FAMILIES, config, **settings)
    builder = BatchBuilder(FAMILIES, model.num_layers, config)
    relation = FAMILIES.relation_id("grandparent of")
    ids = FAMILIES.entity_id(head), relation, FAMILIES.entity_id(answer)
    edge = FAMILIES.find_edge(*ids)
    return Case(model, builder, *ids, -1 if edge is None else edge)


@WITH_GRADIENT
@pytest.mark.parametrize("context", list(CONTEXTS))
def test_a_scale_of_one_gives_the_same_bits(name: str, context: str) -> None:
    one = case(name, context)
    batch = one.batch(3)
    ones = torch.ones(len(batch.propagation.edge_source))
    scaled = replace(batch, propagation=replace(batch.propagation, edge_scale=ones))
    with torch.no_grad():
        assert torch.allclose(one.model(scaled), one.model(batch), atol=1e-6)
        assert batch.propagation.hops[0].edge_scale is None


@WITH_GRADIENT
@pytest.mark.parametrize("context", ["plain", "gate", "views", "all"])
def test_integrals_add_up_to_what_messages_added(
    name: str, context: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Completeness: the sum over edges is the score less the score without any message."""
    monkeypatch.setattr(attribution, "STEPS", 200)
    one = case(name, context)
    batch = one.batch()
    value = by_gradient(one, batch.propagation)
    assert value is not None
    silent = replace(batch.propagation, edge_scale=torch.zeros(len(value)))
    with torch.no_grad():
        nothing = float(one.model(replace(batch, propagation=silent))[0, one.answer])
    added = float(one.scores()[one.answer]) - nothing
    assert value.sum() == pytest.approx(added, abs=0.02 * max(1.0, abs(added)))


@WITH_GRADIENT
def test_copies_of_a_query_are_told_apart(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """All points of the integral at once, or one after another, is the same."""
    one = case(name, "gate")
    walk = one.batch().propagation
    together = by_gradient(one, walk)
    monkeypatch.setattr(attribution, "EDGES_AT_ONCE", 1)
    alone = by_gradient(one, walk)
    assert together is not None
    assert alone is not None
    np.testing.assert_allclose(together, alone, atol=1e-5)


def test_edges_that_cannot_matter_add_nothing() -> None:
    """A relation of weight zero carries no message of NBFNet's."""
    one = case("nbfnet")
    walk = one.batch().propagation
    silent = FAMILIES.relation_id("sibling of")
    with torch.no_grad():
        for layer in one.model.layers:  # type: ignore[union-attr]
            linear = layer.relation[0]  # type: ignore[union-attr, index]
            dim = linear.in_features
            linear.weight[silent * dim : (silent + 1) * dim] = 0
            linear.bias[silent * dim : (silent + 1) * dim] = 0
    value = by_gradient(one, walk)
    assert value is not None
    is_silent = (walk.edge_relation == silent).numpy()
    assert np.abs(value[is_silent]).max() < 1e-6 < np.abs(value).max()


def test_removing_edges_is_asking_the_graph_that_never_had_them() -> None:
    one = case("nbfnet")
    edges = [FAMILIES.edge_id("f1", "parent of", "f1.0"), FAMILIES.edge_id("f1.1", "sibling of^-1", "f1.0")]
    found = one.scores_without([[edge] for edge in edges])
    without_answer = without_fact(FAMILIES, one.hidden)
    for edge, score in zip(edges, found, strict=True):
        smaller = without_fact(without_answer, without_answer.edge_id(*FAMILIES.edge_label(edge)))
        builder = BatchBuilder(smaller, one.model.num_layers)
        alone = Case(one.model, builder, one.head, one.relation, one.answer, -1)
        assert score == pytest.approx(float(alone.scores()[one.answer]), abs=1e-5)


def test_a_model_without_gradients_is_asked_without_each_edge() -> None:
    one = case("walk")
    walk = one.batch().propagation
    assert by_gradient(one, walk) is None
    end = walk.node_entity.tolist().index(one.answer)
    score = float(one.scores()[one.answer])
    value = by_removal(one, walk, score, end)
    for place in np.flatnonzero(value)[:5]:
        (left,) = one.scores_without([[int(walk.edge_id[place])]])
        assert value[place] == pytest.approx(score - left)
    only_way_in = walk.edge_id.tolist().index(FAMILIES.edge_id("f1.0", "parent of", "f1.0.1"))
    assert value[only_way_in] == pytest.approx(score)
    assert value.argmax() == only_way_in


def test_only_so_many_edges_are_removed_and_the_nearest_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attribution, "MOST_REMOVED", 4)
    one = case("walk")
    walk = one.batch().propagation
    end = walk.node_entity.tolist().index(one.answer)
    value = by_removal(one, walk, float(one.scores()[one.answer]), end)
    removed = {FAMILIES.edge_label(int(walk.edge_id[place])) for place in np.flatnonzero(value)}
    assert {("f1", "parent of", "f1.0"), ("f1.0", "parent of", "f1.0.1")} <= removed  # the way of two steps
    assert len(removed) <= 4


def test_nothing_is_left_on_the_model() -> None:
    one = case("nbfnet", "all")
    by_gradient(one, one.batch().propagation)
    assert all(weight.grad is None for weight in one.model.parameters())
