"""The model for any graph: a query never sees its own fact, names do not matter, training is the same every time."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from contextpool.errors import ConfigError, DataError
from contextpool.triples.filters import KnownAnswers
from contextpool.triples.labels import Vocabulary
from contextpool.triples.store import Triples, distinct_rows
from lab.anygraph import (
    Pretraining,
    Task,
    evaluate,
    graph_names,
    numbered_as,
    settings_of,
    walk_and_relevance,
)
from lab.anygraph_model import AnyGraph, Settings

CPU = torch.device("cpu")
ENTITIES, RELATIONS = 12, 3
SMALL = Settings(dim=16, layers=3, relation_layers=2, batch=8)


def triples(ids: np.ndarray[Any, np.dtype[np.integer[Any]]]) -> Triples:
    entities = Vocabulary(tuple(f"e{number:02}" for number in range(ENTITIES)))
    relations = Vocabulary(tuple(f"r{number}" for number in range(RELATIONS)), "relation")
    return Triples(entities, relations, distinct_rows(ids.astype(np.int32)))


def random_facts(seed: int, size: int = 20) -> Triples:
    draw = np.random.default_rng(seed)
    columns = [draw.integers(most, size=size) for most in (ENTITIES, RELATIONS, ENTITIES)]
    return triples(np.stack(columns, axis=1))


def random_model(settings: Settings) -> AnyGraph:
    """Weights everywhere, also where training would start at zero."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = AnyGraph(settings)
        for weight in model.parameters():
            torch.nn.init.normal_(weight, std=0.3)
    return model.eval()


def close(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("weights", ["relevance", "binary", "counts"])
@torch.no_grad()
def test_a_training_query_is_scored_as_on_the_graph_without_its_fact(weights: str) -> None:
    """PNA's constant is the whole graph's on both sides: one number for all queries of a graph."""
    settings = replace(SMALL, weights=weights)
    model = random_model(settings)
    for seed in range(3):
        facts = random_facts(seed)
        task = Task("whole", facts, settings, CPU)
        asked = task.queries
        assert bool((asked.hidden_edge >= 0).all())
        batch = task.batch(asked.head, asked.relation, asked.hidden_edge)
        states, scores = model.relations(batch, RELATIONS), model(batch, task.log_degree)
        for fact in range(len(facts)):
            less = Task("less", triples(np.delete(facts.ids, fact, axis=0)), settings, CPU)
            rows = torch.tensor([fact, fact + len(facts)])  # its tail query and its head query
            head = asked.head[rows]
            alone = less.batch(head, asked.relation[rows], torch.full_like(head, -1))
            close(model.relations(alone, RELATIONS), states[rows])
            close(model(alone, task.log_degree), scores[rows])


@torch.no_grad()
def test_the_fact_matters_where_it_is_not_hidden() -> None:
    model, task = random_model(SMALL), Task("whole", random_facts(0), SMALL, CPU)
    asked = task.queries
    hidden = task.batch(asked.head, asked.relation, asked.hidden_edge)
    seen = task.batch(asked.head, asked.relation, torch.full_like(asked.head, -1))
    assert float((model.relations(hidden, RELATIONS) - model.relations(seen, RELATIONS)).abs().max()) > 1e-3
    assert float((model(hidden, task.log_degree) - model(seen, task.log_degree)).abs().max()) > 1e-3


@pytest.mark.parametrize("seed", range(3))
@torch.no_grad()
def test_other_numbers_for_entities_and_relations_change_nothing(seed: int) -> None:
    model, facts, draw = random_model(SMALL), random_facts(seed), np.random.default_rng(seed)
    entity, relation = (torch.from_numpy(draw.permutation(size)) for size in (ENTITIES, RELATIONS))
    head, kind, tail = torch.from_numpy(facts.ids).long().unbind(dim=1)
    moved = torch.stack([entity[head], relation[kind], entity[tail]], dim=1)
    here, there = (Task("any", triples(ids), SMALL, CPU) for ids in (facts.ids, moved.numpy()))
    nothing = torch.full_like(head, -1)
    for back in (0, RELATIONS):  # tails are asked for, then heads
        scores = model(here.batch(head, kind + back, nothing), here.log_degree)
        renamed = model(there.batch(entity[head], relation[kind] + back, nothing), there.log_degree)
        close(renamed[:, entity], scores)


def short_training() -> tuple[list[float], dict[str, Tensor]]:
    tasks = [Task(f"graph {seed}", random_facts(seed), SMALL, CPU) for seed in range(2)]
    training = Pretraining(SMALL, tasks, seed=0)
    losses = [float(training.step(*training.draw())) for _ in range(3)]
    return losses, training.model.state_dict()


def test_training_is_finite_and_the_same_every_time() -> None:
    with torch.random.fork_rng(devices=[]):
        losses, weights = short_training()
        again, same = short_training()
    assert all(math.isfinite(loss) for loss in losses)
    assert all(bool(weight.isfinite().all()) for weight in weights.values())
    assert losses == again
    assert all(torch.equal(weights[name], same[name]) for name in weights)


def test_a_run_tells_how_it_goes_and_its_model_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lab.anygraph.TOLD_EVERY", 10)
    facts = random_facts(0)
    told: list[dict[str, Any]] = []
    with torch.random.fork_rng(devices=[]):
        training = Pretraining(SMALL, [Task("one", facts, SMALL, CPU)], seed=0)
        result = training.run(20, told.append)
    assert [line["step"] for line in told] == [10, 20]
    assert math.isfinite(result["loss"])
    asked = numbered_as(facts, random_facts(9))
    for score in (training.model.eval(), walk_and_relevance):
        figures = evaluate(score, training.tasks[0], asked, KnownAnswers.of(facts, asked))
        assert figures["ranks"] == 2 * len(asked)
        assert 0 < figures["mrr"] <= 1


def test_queries_are_numbered_as_the_facts_and_strangers_are_left_out() -> None:
    facts = Triples.from_labels([("a", "r", "b"), ("b", "s", "c")])
    queries = Triples.from_labels([("c", "r", "a"), ("c", "r", "stranger"), ("a", "new", "b")])
    assert list(numbered_as(facts, queries)) == [("c", "r", "a")]


def test_the_mixture_holds_no_graph_of_a_family_left_out_and_none_that_is_held_back(tmp_path: Path) -> None:
    for name in ("grail/nell_v1", "grail/nell_v1_ind", "grail/fb237_v1", "pool/umls", "pool/nations"):
        (tmp_path / name).mkdir(parents=True)
    assert graph_names(tmp_path, ["all"], ["nell"]) == ["grail/fb237_v1", "pool/nations"]
    assert graph_names(tmp_path, ["nell_v1", "nations"], ["freebase"]) == ["grail/nell_v1", "pool/nations"]
    with pytest.raises(DataError, match="no graph to train on is called umls"):
        graph_names(tmp_path, ["umls"], ["nell"])


def test_settings_are_checked() -> None:
    assert settings_of(["dim=16", "query_heads=False", "heads=none"]) == Settings(
        16, query_heads=False, heads="none"
    )
    for wrong in ("colour=red", "weights=heavy", "heads=gate,tail"):
        with pytest.raises(ConfigError):
            settings_of([wrong])
