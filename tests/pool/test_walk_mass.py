"""Mass of a random walk: against a walk over plain dictionaries, and as the training-free scorer has it."""

from __future__ import annotations

from collections import defaultdict
from fractions import Fraction

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from contextpool.graph.graph import Graph
from contextpool.models.registry import model_class
from contextpool.pool.batch import BatchBuilder
from contextpool.pool.candidates import walk_mass
from learning_worlds import every_query, random_graph, without_fact
from learning_worlds import one_thread as one_thread
from support import amount, context_with

CASES = amount(40, 2000)


def literal_mass(graph: Graph, head: str, steps: int) -> list[Fraction]:
    """Visits of every entity, walked out over dictionaries with exact fractions; none at the head."""
    leads_to = defaultdict(list)
    for subject, _, goal in graph.triples:
        leads_to[subject].append(goal)
        leads_to[goal].append(subject)
    mass, visits = {head: Fraction(1)}, defaultdict(Fraction)
    for _ in range(steps):
        arrived: dict[str, Fraction] = defaultdict(Fraction)
        for entity, part in mass.items():
            for goal in leads_to[entity]:
                arrived[goal] += part / len(leads_to[entity])
        mass = arrived
        for entity, part in mass.items():
            visits[entity] += part
    return [Fraction(0) if entity == head else visits[entity] for entity in graph.entities]


@settings(max_examples=CASES, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 6), st.booleans())
def test_it_is_a_walk_over_dictionaries(seed: int, steps: int, by_product: bool) -> None:
    graph = random_graph(seed)
    head = torch.arange(graph.num_entities)
    found = walk_mass(graph, head, torch.full_like(head, -1), steps, by_product=by_product)
    expected = [[float(part) for part in literal_mass(graph, name, steps)] for name in graph.entities]
    torch.testing.assert_close(found, torch.tensor(expected), rtol=1e-6, atol=1e-9)


@settings(max_examples=CASES, deadline=None)
@given(st.integers(0, 10**6), st.booleans())
def test_a_hidden_fact_is_one_that_was_never_there(seed: int, by_product: bool) -> None:
    graph = random_graph(seed)
    edge = torch.arange(graph.num_edges)
    found = walk_mass(graph, graph.edge_head.long(), edge, by_product=by_product)
    for number in edge.tolist():
        smaller = without_fact(graph, number)
        honest = walk_mass(smaller, graph.edge_head[number, None].long(), torch.tensor([-1]))
        torch.testing.assert_close(found[number, None], honest, rtol=1e-6, atol=1e-9)
        assert torch.equal(found[number] > 0, honest[0] > 0)


@pytest.mark.parametrize("by_product", [True, False])
def test_a_hidden_loop_and_a_graph_without_edges(by_product: bool) -> None:
    loop = Graph.from_triples([("a", "r", "a"), ("a", "r", "b")])
    edge = torch.nonzero((loop.edge_head == 0) & (loop.edge_tail == 0)).squeeze(1)
    found = walk_mass(loop, torch.zeros(len(edge), dtype=torch.long), edge, steps=1, by_product=by_product)
    assert found.tolist() == [[0.0, 1.0]] * 2
    smaller = without_fact(Graph.from_triples([("a", "r", "b")]), 0)
    assert not walk_mass(smaller, torch.tensor([0]), torch.tensor([-1])).any()


@pytest.mark.parametrize("seed", range(5))
def test_the_training_free_scorer_walks_alike(seed: int) -> None:
    graph = random_graph(seed)
    head, relation = every_query(graph)
    walk = model_class("walk")(graph.num_relations)
    scores = walk(BatchBuilder(graph, walk.num_layers).build(head, relation))
    scores[torch.arange(len(head)), head] = 0.0  # the head comes last there
    mass = (
        BatchBuilder(graph, 1, context_with(views=(), arrive_walk=True)).build(head, relation).candidate_mass
    )
    assert mass is not None
    torch.testing.assert_close(mass, scores.float(), rtol=1e-6, atol=1e-9)


@pytest.mark.gpu
def test_devices_agree() -> None:
    for seed in range(5):
        graph = random_graph(seed, most_entities=200, most=2000)
        edge = torch.arange(0, graph.num_edges, 7)
        there, on_card = graph.edge_head[edge].long(), graph.to("cuda")
        found = walk_mass(on_card, there.to("cuda"), edge.to("cuda")).cpu()
        torch.testing.assert_close(found, walk_mass(graph, there, edge), rtol=1e-6, atol=1e-9)
