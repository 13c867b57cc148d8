"""What is known of candidates, against plain sets of labels; and nothing of it knows the hidden fact."""

from __future__ import annotations

import math

import torch

from contextpool.context.counts import Statistics
from contextpool.context.neighbors import ContextNeighbors
from contextpool.graph.graph import Graph
from contextpool.pool.batch import BatchBuilder
from contextpool.pool.candidates import FEATURES, degrees_without
from learning_worlds import every_query, random_graph, without_fact
from learning_worlds import one_thread as one_thread
from support import amount, context_with, relation_sets_of

CASES = amount(12, 300)
CONTEXT = context_with(views=(), arrive=True, arrive_features=True)


def inverse_label(label: str) -> str:
    return label.removesuffix("^-1") if label.endswith("^-1") else f"{label}^-1"


def literal_features(graph: Graph, asked: str, entity: str) -> list[float]:
    """The seven features of one candidate, in the order of `FEATURES`."""
    has = relation_sets_of(list(graph.triples))
    context = ContextNeighbors(Statistics.of(graph).counts)
    back = inverse_label(asked)
    own = sorted(has.get(entity, set()))
    precision = {label: context.precision(back, label) for label in own}
    recall = {label: context.recall(back, label) for label in own}
    best = max(precision.values(), default=0.0)
    support = max((context.support(label) for label in own if precision[label] == best), default=0)
    degree = sum((head == entity) + (tail == entity) for head, _, tail in graph.triples)
    return [
        best,
        sum(precision.values()) / max(len(own), 1),
        max(recall.values(), default=0.0),
        sum(recall.values()) / max(len(own), 1),
        math.log1p(support) / math.log1p(graph.num_entities),
        float(back in own),
        min(int(math.log2(degree + 1)), 8) / 8,
    ]


def test_features_are_those_of_plain_sets() -> None:
    for seed in range(CASES):
        graph = random_graph(seed)
        directed = graph.relation_vocabulary.directed
        relation = torch.arange(len(directed))
        batch = BatchBuilder(graph, 1, CONTEXT).build(torch.zeros_like(relation), relation)
        assert batch.candidate_features is not None
        expected = [
            [literal_features(graph, asked, entity) for entity in graph.entities] for asked in directed
        ]
        assert batch.candidate_features.shape == (len(directed), graph.num_entities, len(FEATURES))
        torch.testing.assert_close(batch.candidate_features, torch.tensor(expected))
        assert torch.equal(batch.candidate_features[..., 0], batch.candidate_relevance)


def test_features_do_not_know_the_hidden_fact() -> None:
    for seed in range(CASES):
        graph = random_graph(seed)
        head, relation, edge = (
            graph.edge_head.long(),
            graph.edge_relation.long(),
            torch.arange(graph.num_edges),
        )
        found = BatchBuilder(graph, 1, CONTEXT).build(head, relation, edge).candidate_features
        assert found is not None
        for number in range(graph.num_edges):
            smaller = without_fact(graph, number)
            honest = BatchBuilder(smaller, 1, CONTEXT).build(head[number, None], relation[number, None])
            torch.testing.assert_close(found[number, None], honest.candidate_features)


def test_degrees_lack_the_hidden_edge() -> None:
    """A degree that still counts the edge gives it away."""
    graph = Graph.from_triples([("a", "r", "b"), ("a", "s", "c"), ("d", "r", "d")])
    edges = torch.tensor([graph.edge_id("a", "r", "b"), graph.edge_id("d", "r", "d"), -1])
    assert degrees_without(graph, edges).tolist() == [[1, 0, 1, 2], [2, 1, 1, 0], [2, 1, 1, 2]]
    head, relation = graph.edge_head[edges[:2]], graph.edge_relation[edges[:2]]
    found = BatchBuilder(graph, 1, CONTEXT).build(head, relation, edges[:2]).candidate_features
    assert found is not None
    assert (found[..., 6] * 8).tolist() == [[1, 0, 1, 1], [1, 1, 1, 0]]


def test_features_without_arrive_are_not_made() -> None:
    graph = random_graph(1)
    head, relation = every_query(graph)
    only = context_with(views=(), arrive=False, arrive_features=True)
    assert BatchBuilder(graph, 1, only).build(head, relation).candidate_features is None
    plain = context_with(views=(), arrive=True)
    assert BatchBuilder(graph, 1, plain).build(head, relation).candidate_features is None
