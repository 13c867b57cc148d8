"""The training-free scorer against a random walk done step by step with plain dictionaries."""

from __future__ import annotations

import pytest
import torch

from contextpool.graph.graph import Graph
from contextpool.models.walk import Walk, WalkConfig
from contextpool.pool.batch import BatchBuilder
from learning_worlds import ask, every_query, random_graph, without_fact
from learning_worlds import one_thread as one_thread
from support import amount, context_with

CASES = amount(30, 1_000)
ARRIVE = context_with(views=(), arrive=True)


def literal_mass(graph: Graph, head: int, steps: int) -> list[float]:
    """Mass left on each entity, summed over the steps; an edge is as likely as any other that leaves."""
    leaving: dict[int, list[int]] = {}
    for source, target in zip(graph.edge_head.tolist(), graph.edge_tail.tolist(), strict=True):
        leaving.setdefault(source, []).append(target)
    mass, visited = {head: 1.0}, [0.0] * graph.num_entities
    for _ in range(steps):
        after: dict[int, float] = {}
        for entity, share in mass.items():
            for target in leaving.get(entity, []):
                after[target] = after.get(target, 0.0) + share / len(leaving[entity])
        mass = after
        for entity, share in mass.items():
            visited[entity] += share
    return visited


@pytest.mark.parametrize("steps", [1, 2, 5])
def test_scores_are_the_mass_of_a_random_walk_and_the_head_comes_last(steps: int) -> None:
    for seed in range(CASES):
        graph = random_graph(seed)
        head, relation = every_query(graph)
        scores = ask(Walk(graph.num_relations, WalkConfig(steps)), BatchBuilder(graph, steps), head, relation)
        for row, start in zip(scores.tolist(), head.tolist(), strict=True):
            expected = literal_mass(graph, start, steps)
            expected[start] = -1.0
            assert row == pytest.approx(expected, abs=1e-12)


def test_a_candidate_counts_by_its_relevance() -> None:
    for seed in range(CASES):
        graph = random_graph(seed)
        head, relation = every_query(graph)
        builder = BatchBuilder(graph, 3, ARRIVE)
        model = Walk(graph.num_relations, WalkConfig(3), ARRIVE)
        batch = builder.build(head, relation)
        assert batch.candidate_relevance is not None
        mass = torch.tensor([literal_mass(graph, start, 3) for start in head.tolist()], dtype=torch.float64)
        expected = (mass + 1e-6) * batch.candidate_relevance
        expected[torch.arange(len(head)), head] = -1.0
        torch.testing.assert_close(ask(model, builder, head, relation), expected, atol=1e-9, rtol=1e-6)


def test_a_hidden_edge_is_not_walked_and_does_not_count_as_leaving() -> None:
    for seed in range(CASES // 2):
        graph = random_graph(seed)
        edge = torch.arange(graph.num_edges)
        head, relation = graph.edge_head.long(), graph.edge_relation.long()
        model = Walk(graph.num_relations, WalkConfig(3))
        scores = ask(model, BatchBuilder(graph, 3), head, relation, edge)
        for number in edge.tolist():
            expected = literal_mass(without_fact(graph, number), int(head[number]), 3)
            expected[int(head[number])] = -1.0
            assert scores[number].tolist() == pytest.approx(expected, abs=1e-12)


def test_a_world_done_by_hand() -> None:
    """From a half of the mass goes to b, half to c; from there back to a, or on from c to d."""
    graph = Graph.from_triples([("a", "r", "b"), ("a", "r", "c"), ("c", "s", "d")])
    scores = ask(Walk(2, WalkConfig(2)), BatchBuilder(graph, 2), torch.tensor([0]), torch.tensor([0]))
    assert scores[0].tolist() == [-1, 0.5, 0.5, 0.25]


def test_nothing_is_learned() -> None:
    assert not list(Walk(3).parameters())
    assert not Walk(3).state_dict()
    assert Walk(3).num_layers == 5
