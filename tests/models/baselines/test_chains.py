"""Neural LP and DRUM: what arrives is what their rules say, and the rules can be learned and read."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import contextpool as cp
from contextpool.context.config import ViewConfig
from contextpool.errors import ConfigError
from contextpool.graph.graph import Graph
from contextpool.models.baselines import chains
from contextpool.models.baselines.chains import DRUM, LEAST, ChainConfig, ChainModel, NeuralLP
from contextpool.pool.batch import BatchBuilder
from learning_worlds import CONTEXTS, ask, every_query, families, family_dataset, new_model, random_graph
from learning_worlds import one_thread as one_thread
from models.baselines.literal import edges_of, grandparent_through_parents, walk_counts
from support import amount, context_with

CASES = amount(4, 100)
BOTH = pytest.mark.parametrize("name", ["neural_lp", "drum"])


def matrices(graph: Graph) -> Tensor:
    """[2R, N, N] M[r, y, x] = 1 where x leads to y along r: the operators as the papers write them."""
    operators = torch.zeros(2 * graph.num_relations, graph.num_entities, graph.num_entities)
    for head, relation, tail in edges_of(graph):
        operators[relation, tail, head] = 1.0
    return operators


def literal_drum(model: DRUM, graph: Graph, head: int, relation: int) -> Tensor:
    """[N] what arrives: for each rank the product over steps of a weighted sum of operators and the identity."""
    attention = model.attention(torch.tensor([relation]))[:, 0]  # [L, 2R + 1, rank]
    operators = torch.cat([matrices(graph), torch.eye(graph.num_entities)[None]])
    total = torch.zeros(graph.num_entities)
    for rank in range(model.settings.rank):
        state = torch.eye(graph.num_entities)[head]
        for weight in attention[:, :, rank]:
            state = (weight[:, None, None] * operators).sum(dim=0) @ state
        total += state
    return total


def literal_neural_lp(model: NeuralLP, graph: Graph, head: int, relation: int) -> Tensor:
    """[N] equations (6) to (8) of the paper: u_t from the memory of u_0 .. u_{t-1}, read once more at the end."""
    weights, memory = model.attention(torch.tensor([relation]))
    total = torch.zeros(graph.num_entities)
    for rank in range(model.settings.rank):
        steps = [torch.eye(graph.num_entities)[head]]
        for step, weight in enumerate(weights[:, 0, :, rank]):
            start = sum(memory[step][past, 0, rank] * state for past, state in enumerate(steps))
            steps.append((weight[:, None, None] * matrices(graph)).sum(dim=0) @ start)
        total += sum(memory[-1][past, 0, rank] * state for past, state in enumerate(steps))
    return total


LITERAL: dict[str, Any] = {"drum": literal_drum, "neural_lp": literal_neural_lp}


def as_scores(arrived: Tensor) -> Tensor:
    return (arrived / arrived.sum() + LEAST).log()


@BOTH
def test_scores_are_those_of_the_papers_matrices(name: str) -> None:
    for seed in range(CASES):
        graph = random_graph(seed)
        model = new_model(name, graph, seed=seed, layers=3)
        head, relation = every_query(graph)
        scores = ask(model, BatchBuilder(graph, model.num_layers), head, relation)
        with torch.no_grad():
            for row, *query in zip(scores, head.tolist(), relation.tolist(), strict=True):
                expected = as_scores(LITERAL[name](model, graph, *query))
                torch.testing.assert_close(row, expected, atol=1e-4, rtol=1e-4)


@BOTH
def test_attention_adds_up_to_one(name: str) -> None:
    graph = random_graph(2)
    model = new_model(name, graph, CONTEXTS["views"], layers=3, rank=2)
    relation = torch.arange(2 * graph.num_relations)
    found = model.attention(relation)  # type: ignore[operator]
    operators, memory = found if name == "neural_lp" else (found, [])
    assert operators.shape[:2] == (3, len(relation))
    torch.testing.assert_close(operators.sum(dim=2), torch.ones(3, len(relation), 2))
    assert [len(share) for share in memory] == ([1, 2, 3, 4] if memory else [])
    for share in memory:
        torch.testing.assert_close(share.sum(dim=0), torch.ones(len(relation), 2))


@BOTH
def test_rules_with_their_weights_say_all_that_the_model_does(name: str, monkeypatch: Any) -> None:
    """What arrives at an entity is the number of walks along each body, times the body's weight."""
    monkeypatch.setattr(chains, "BEAM", 10**6)
    for seed in range(CASES):
        graph = random_graph(seed, most_relations=1)
        model = new_model(name, graph, seed=seed)
        assert isinstance(model, ChainModel)
        for relation, head in product(range(2 * graph.num_relations), range(graph.num_entities)):
            with torch.no_grad():
                bodies = model.weighted_bodies(torch.tensor([relation]))
                arrived = LITERAL[name](model, graph, head, relation)
            assert sum(bodies.values()) == pytest.approx(1.0, abs=1e-5)
            said = torch.zeros(graph.num_entities)
            for body, weight in bodies.items():
                for entity, count in walk_counts(graph, head, body).items():
                    said[entity] += model.settings.rank * weight * count
            torch.testing.assert_close(said, arrived, atol=1e-5, rtol=1e-4)


@BOTH
def test_rules_are_ordered_and_readable(name: str) -> None:
    graph = Graph.from_triples(families(3))
    model = new_model(name, graph)
    assert isinstance(model, ChainModel)
    rules = model.rules(graph.relation_id("grandparent of"), most=5)
    assert len(rules) == 5
    assert [rule.confidence for rule in rules] == sorted((rule.confidence for rule in rules), reverse=True)
    relations = graph.relation_vocabulary
    lines = list(model.rules_text(relations))
    assert f"{rules[0].confidence:.6f}\t{rules[0].text(relations)}" in lines
    assert len(lines) == 10 * relations.num_directed
    assert len(model.rules(0, most=None)) > 10


@BOTH
def test_a_beam_keeps_the_heaviest_rules(name: str, monkeypatch: Any) -> None:
    model = new_model(name, Graph.from_triples(families(3)), layers=2)
    assert isinstance(model, ChainModel)
    best = {rule.body: rule.confidence for rule in model.rules(0)}
    monkeypatch.setattr(chains, "BEAM", 40)
    narrow = {rule.body: rule.confidence for rule in model.rules(0, most=3)}
    assert all(best[body] >= weight - 1e-6 for body, weight in narrow.items())
    assert next(iter(best)) == next(iter(narrow))


@BOTH
def test_the_rule_behind_the_facts_is_learned_and_written(name: str, tmp_path: Path) -> None:
    data = family_dataset(inductive=True, count=20)
    settings = {"dim": 16, "hidden": 16, "layers": 2, "rank": 1}
    training = {"epochs": 12, "batch_size": 32, "lr": 0.03, "warmup_steps": 0, "patience": 0}
    predictor = cp.train(data, name, settings=settings, train=training, output=tmp_path / "run")
    rules = (tmp_path / "run" / "rules.txt").read_text("utf-8").splitlines()
    best = next(line for line in rules if '"grandparent of"(X,Y)' in line)
    assert best.endswith('"grandparent of"(X,Y) <= "parent of"(X,A), "parent of"(A,Y)')
    assert float(best.partition("\t")[0]) > 0.5
    assert json.loads((tmp_path / "run" / "metrics.json").read_text())["valid_mrr"] > 0.5
    graph = Graph.from_triples(data.inference_graph)
    why = predictor.explain(graph, *grandparent_through_parents(graph))
    assert why.method == "gradient"
    assert [relation for _, relation, _ in why.paths[0].edges] == ["parent of", "parent of"]


@BOTH
def test_every_weight_learns(name: str) -> None:
    facts = [(f"e{a}", f"r{(a + b) % 3}", f"e{b}") for a in range(6) for b in range(6) if (a * b) % 3 != 2]
    graph = Graph.from_triples(facts)
    for context in CONTEXTS.values():
        model = new_model(name, graph, context)
        batch = BatchBuilder(graph, model.num_layers, context).build(*every_query(graph))
        torch.nn.functional.softplus(model(batch)).mean().backward()
        still = {
            key for key, weight in model.named_parameters() if weight.grad is None or not weight.grad.any()
        }
        assert not still


@BOTH
def test_operators_of_a_view_that_get_no_attention_change_nothing(name: str) -> None:
    graph = random_graph(5)
    pooled = context_with(views=(ViewConfig(min_precision=0.1),), hops=2, self_policy="keep")
    model = new_model(name, graph, pooled)
    plain = new_model(name, graph)
    with torch.no_grad():
        for key, weight in plain.named_parameters():
            other = model.get_parameter(key)
            if other.shape == weight.shape:
                other.copy_(weight)
        moves = 2 * graph.num_relations
        for part in ("weight", "bias"):  # of the attention: the view's operators out of sight
            wide, narrow = getattr(model.attend, part), getattr(plain.attend, part)
            wide[:moves], wide[moves : 2 * moves] = narrow[:moves], -1e4 if part == "bias" else 0.0
            wide[2 * moves :] = narrow[moves:]
    head, relation = every_query(graph)
    one = ask(model, BatchBuilder(graph, model.num_layers, pooled), head, relation)
    torch.testing.assert_close(
        one, ask(plain, BatchBuilder(graph, plain.num_layers), head, relation), atol=1e-5, rtol=1e-5
    )


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"dim": 0}, r"model\.dim is 0"),
        ({"hidden": 0}, r"model\.hidden is 0"),
        ({"rank": 0}, r"model\.rank is 0"),
        ({"layers": 0}, r"model\.layers is 0"),
        ({"layers": 9}, r"model\.layers is 9"),
    ],
)
def test_settings_out_of_range_are_refused_by_name(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        ChainConfig(**settings)
