"""Explanations tell what the model did: without the path that they put first the score falls, without others less."""

from __future__ import annotations

import random

import numpy as np
import pytest

import contextpool as cp
from contextpool.experiment import training_free
from contextpool.graph.graph import Graph
from contextpool.predict import Predictor
from contextpool.triples.dataset import Dataset
from lab.world import Faithfulness, faithfulness
from learning_worlds import family_dataset
from learning_worlds import one_thread as one_thread
from support import amount
from world_model import new_world as new_world
from world_model import world as world
from world_model import world_predictor as world_predictor
from world_model import world_run as world_run


def faithful(predictor: Predictor, graph: Graph, facts: list[tuple[str, str, str]]) -> Faithfulness:
    prepared, _ = predictor.prepared(graph)
    ids = [
        (prepared.entity_id(head), prepared.relation_id(relation), prepared.entity_id(tail))
        for head, relation, tail in facts
    ]
    return faithfulness(predictor.model, predictor.builder(prepared), ids)


def check(found: Faithfulness, fewest: int) -> None:
    """More on average, and more often than a coin would have it."""
    assert len(found.path) >= fewest
    assert found.path.mean() > max(found.chance.mean(), 0)
    assert found.p_value < 1e-3, (found.wins, found.losses)


def held_out(world: Dataset, count: int) -> list[tuple[str, str, str]]:
    facts = [*world.inference_valid, *world.inference_test]
    return random.Random(1).sample(facts, count)


def test_removing_the_first_path_costs_more_than_removing_random_edges(
    world: Dataset, new_world: Graph, world_predictor: Predictor
) -> None:
    found = faithful(world_predictor, new_world, held_out(world, amount(150, 600)))
    check(found, amount(140, 560))
    assert np.median(found.path) > np.median(found.chance)


def test_the_same_holds_for_a_model_without_gradients(world: Dataset, new_world: Graph) -> None:
    walk = training_free(world)
    near = [fact for fact in held_out(world, 200) if fact[1] in ("pays_in", "speaks", "in_timezone")]
    check(faithful(walk, new_world, near[: amount(14, 60)]), amount(12, 50))


@pytest.mark.parametrize("context", [None, {"gate": True}])
def test_the_same_holds_for_redgnn(context: dict[str, bool] | None) -> None:
    data = family_dataset(inductive=True, count=20)
    predictor = cp.train(
        data, "redgnn", context, settings={"dim": 8, "layers": 3, "dropout": 0.0},
        train={"epochs": 4, "batch_size": 64, "lr": 0.01, "warmup_steps": 2},
    )  # fmt: skip
    graph = Graph.from_triples(data.inference_graph)
    facts = [*data.inference_test, *(data.inference_valid or [])]
    check(faithful(predictor, graph, facts[:40]), 12)


def test_what_a_person_would_say(new_world: Graph, world_predictor: Predictor) -> None:
    """A country pays with what its cities pay in, and the fact itself is not in the graph."""
    explanation = world_predictor.explain(new_world, "Belarus", "currency", "Belarusian Ruble")
    assert not explanation.known
    assert explanation.rank == 1
    assert {path.pattern[-1] for path in explanation.paths} == {"pays_in"}
    assert explanation.score_without < explanation.score
    assert explanation.rival is not None
    assert explanation.rival.lacks


def test_the_sign_test_is_that_of_a_coin() -> None:
    found = Faithfulness(np.array([1.0, 2.0, 0.0, 3.0, 1.0]), np.array([0.0, 0.0, 0.0, 1.0, 2.0]))
    assert (found.wins, found.losses) == (3, 1)
    assert found.p_value == pytest.approx((4 + 1) / 16)  # three or four heads of four
    assert Faithfulness(np.array([]), np.array([])).p_value == 1.0
