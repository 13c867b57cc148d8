"""The model for any graph: a query never sees its own fact, names do not matter, training is the same every time."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from contextpool.errors import ConfigError, DataError
from contextpool.models.anygraph import AnyGraph
from contextpool.models.nbfnet import mean_log_degree, set_mean_log_degree
from contextpool.pretraining import Mixture
from contextpool.train.config import MixedGraph
from contextpool.triples.filters import KnownAnswers
from contextpool.triples.labels import Vocabulary
from contextpool.triples.store import Triples, distinct_rows
from lab.anygraph import (
    LabPretraining,
    Task,
    evaluate,
    graph_names,
    main,
    settings_of,
    walk_and_relevance,
)
from lab.anygraph_model import Settings, new_model
from lab.ship import read_checkpoint

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
        model = new_model(settings)
        for weight in model.parameters():
            torch.nn.init.normal_(weight, std=0.3)
    return model.eval()


def close(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("weights", ["binary", "counts", "shuffled", "all-shuffled"])
@torch.no_grad()
def test_a_training_query_is_scored_as_on_the_graph_without_its_fact(weights: str) -> None:
    """PNA's constant is the whole graph's on both sides: one number for all queries of a graph."""
    settings = replace(SMALL, weights=weights)
    model = random_model(settings)
    for seed in range(3):
        facts = random_facts(seed)
        task = Task(facts, settings, CPU)
        asked = task.queries
        assert bool((asked.hidden_edge >= 0).all())
        batch = task.batch(asked.head, asked.relation, asked.hidden_edge)
        states, scores = model.relations(batch, RELATIONS), model(batch)
        for fact in range(len(facts)):
            less = Task(triples(np.delete(facts.ids, fact, axis=0)), settings, CPU)
            set_mean_log_degree(less.graph, mean_log_degree(task.graph))
            rows = torch.tensor([fact, fact + len(facts)])  # its tail query and its head query
            head = asked.head[rows]
            alone = less.batch(head, asked.relation[rows], torch.full_like(head, -1))
            close(model.relations(alone, RELATIONS), states[rows])
            close(model(alone), scores[rows])


@torch.no_grad()
def test_the_fact_matters_where_it_is_not_hidden() -> None:
    model, task = random_model(SMALL), Task(random_facts(0), SMALL, CPU)
    asked = task.queries
    hidden = task.batch(asked.head, asked.relation, asked.hidden_edge)
    seen = task.batch(asked.head, asked.relation, torch.full_like(asked.head, -1))
    assert float((model.relations(hidden, RELATIONS) - model.relations(seen, RELATIONS)).abs().max()) > 1e-3
    assert float((model(hidden) - model(seen)).abs().max()) > 1e-3


def training_of(settings: Settings, steps: int) -> LabPretraining:
    facts = tuple(random_facts(seed) for seed in range(2))
    mixture = Mixture((MixedGraph("one"), MixedGraph("other")), facts, ("1", "2"))
    return LabPretraining(settings, mixture, steps, 0, CPU)


@pytest.mark.parametrize("weights", ["relevance", "binary", "shuffled"])
def test_training_is_finite_and_the_same_every_time(weights: str) -> None:
    settings = replace(SMALL, weights=weights)
    first, again = (training_of(settings, 3).fit(None).model.state_dict() for _ in range(2))
    assert all(bool(weight.isfinite().all()) for weight in first.values())
    assert all(torch.equal(first[name], again[name]) for name in first)


def test_weights_of_an_ablation_train_another_model() -> None:
    plain, binary = (
        training_of(replace(SMALL, weights=weights), 3).fit(None).model.state_dict()
        for weights in ("relevance", "binary")
    )
    assert any(not torch.equal(plain[name], binary[name]) for name in plain)


def test_a_training_tells_how_it_goes_leaves_a_run_and_its_model_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("lab.anygraph.TOLD_EVERY", 10)
    for name, seed in (("grail/fb237_v1", 0), ("grail/nell_v1", 1), ("grail/nell_v2", 2)):
        (tmp_path / name).mkdir(parents=True)
        for part in ("train", "valid", "test"):
            lines = ("\t".join(triple) for triple in random_facts(seed + 10 * len(part)))
            (tmp_path / name / f"{part}.txt").write_text("\n".join(lines) + "\n", "utf-8")
    for version in (3, 4):
        (tmp_path / f"grail/nell_v{version}").symlink_to(tmp_path / "grail/nell_v1")
    words = ["train", "--data", str(tmp_path), "--mixture", "fb237_v1", "--steps", "15", "--queries", "5"]
    small = [word for pair in ("dim=8", "layers=2", "batch=4") for word in ("--set", pair)]
    monkeypatch.setattr(
        "sys.argv", ["anygraph", *words, *small, "--run", str(tmp_path / "run"), "--device", "cpu"]
    )
    assert main() == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["event"] for line in lines] == ["start", "steps", "steps", "result"]
    assert [line["step"] for line in lines if line["event"] == "steps"] == [10, 15]
    assert 0 < lines[-1]["mean_mrr"] <= 1
    recipe, weights = read_checkpoint(tmp_path / "run")
    assert recipe.mixture is not None
    assert weights.keys() == AnyGraph(0, recipe.model_config(), recipe.context).state_dict().keys()
    twice = ["--run", str(tmp_path / "run")] * 2  # the mean of a model and itself is the model
    monkeypatch.setattr("sys.argv", ["anygraph", "ask", *words[1:], *small, *twice, "--device", "cpu"])
    assert main() == 0
    assert json.loads(capsys.readouterr().out)["graphs"] == lines[-1]["graphs"]


def test_what_needs_no_training_is_asked_alike() -> None:
    facts = random_facts(0)
    asked = random_facts(9).within(facts.entities, facts.relations)
    figures = evaluate(walk_and_relevance, Task(facts, SMALL, CPU), asked, KnownAnswers.of(facts, asked))
    assert figures["ranks"] == 2 * len(asked)
    assert 0 < figures["mrr"] <= 1


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
