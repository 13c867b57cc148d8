"""Edge dropout: which facts are gone for whom, as often as they should be, in both directions, and alike every time."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from contextpool.context.config import ViewConfig
from contextpool.context.counts import Statistics
from contextpool.errors import ConfigError
from contextpool.graph.graph import Graph
from contextpool.pool.batch import BatchBuilder, QueryBatch
from contextpool.pool.hide import EdgeDropout, HiddenEdges
from graph.test_hashing import literal as mixed_literally
from learning_worlds import CONTEXTS, random_graph
from learning_worlds import one_thread as one_thread
from support import amount, context_with

CASES = amount(20, 400)


def all_edges(graph: Graph) -> tuple[Tensor, Tensor, Tensor]:
    return graph.edge_head.long(), graph.edge_relation.long(), torch.arange(graph.num_edges)


def dropped_literally(graph: Graph, seed: int, query: int, threshold: int) -> set[int]:
    """Edges that are gone for a query, one by one on Python's integers."""
    salt = mixed_literally(mixed_literally(query ^ seed % 2**32) ^ seed >> 32)
    gone = set()
    for edge in range(graph.num_edges):
        fact = min(edge, int(graph.edge_inverse[edge]))
        if mixed_literally(mixed_literally(fact) ^ salt) < threshold:
            gone.add(edge)
    return gone


def test_walks_avoid_exactly_the_facts_that_the_hash_says() -> None:
    total = 0
    for seed in range(CASES):
        graph = random_graph(seed, most=30)
        head, relation, edge = all_edges(graph)
        builder = BatchBuilder(graph, 2)
        dropout = EdgeDropout(0.3, seed * 10**11 + 17)
        walk = builder.build(head, relation, edge, dropout=dropout).propagation
        removed = []
        for query in range(len(head)):
            gone = dropped_literally(graph, dropout.seed, query, int(0.3 * 2**32))
            removed += [(query, one) for one in gone | {query}]
            total += len(gone)
        rows, edges = torch.tensor(removed).unbind(1)
        everything = HiddenEdges.of_edges(graph, rows, edges, len(head))
        expected = builder.build(head, relation, edge, removed=everything).propagation
        for name in ("node_query", "node_entity", "edge_source", "edge_id"):
            assert torch.equal(getattr(walk, name), getattr(expected, name))
    assert total > CASES


def test_both_directions_share_their_fate_and_the_share_is_as_asked() -> None:
    graph = random_graph(3, most_entities=60, most_relations=8, most=900)
    for share in (0.1, 0.5):
        gone = EdgeDropout(share, 99).dropped(graph, 50)
        assert torch.equal(gone, gone[:, graph.edge_inverse.long()])
        draws = gone.numel() / 2
        assert abs(float(gone.double().mean()) - share) < 5 * (share * (1 - share) / draws) ** 0.5
        assert len(gone.unique(dim=0)) == 50  # another choice for every query


@pytest.mark.parametrize("way", ["views", "families", "all"])
def test_context_walks_the_graph_that_is_left(way: str) -> None:
    """Bits of views are those of walks without the dropped edges; relevance stays what it was."""
    context = CONTEXTS[way]
    for seed in range(CASES // 4):
        graph = random_graph(seed, most=30)
        head, relation, edge = all_edges(graph)
        builder = BatchBuilder(graph, 2, context)
        dropout = EdgeDropout(0.4, seed)
        batch = builder.build(head, relation, edge, dropout=dropout)
        usual = builder.build(head, relation, edge)
        for name in ("neighbor_relevance", "candidate_relevance"):
            one, other = getattr(batch, name), getattr(usual, name)
            assert one is None or torch.equal(one, other)
        if way == "families":
            continue  # its relation sets are those of the whole graph
        own = HiddenEdges.one_per_query(graph, edge)
        hidden = dropout.hidden_edges(graph, own)
        expected = builder.build(head, relation, edge, removed=hidden)
        assert same_bits(batch, expected)


def same_bits(one: QueryBatch, other: QueryBatch) -> bool:
    return torch.equal(one.propagation.edge_views, other.propagation.edge_views)


def test_another_seed_drops_other_facts_and_the_same_one_the_same() -> None:
    graph = random_graph(5, most=40)
    head, relation, edge = all_edges(graph)
    builder = BatchBuilder(graph, 2)
    walks = [
        builder.build(head, relation, edge, dropout=EdgeDropout(0.5, seed)).propagation.edge_id.tolist()
        for seed in (1, 1, 2, 1 + 2**40)
    ]
    assert walks[0] == walks[1]
    assert walks[0] != walks[2]
    assert walks[0] != walks[3]


def test_a_share_of_nothing_drops_nothing() -> None:
    graph = random_graph(5)
    head, relation, edge = all_edges(graph)
    context = context_with(views=(ViewConfig(0.1),))
    builder = BatchBuilder(graph, 2, context, Statistics.of(graph))
    none = builder.build(head, relation, edge, dropout=EdgeDropout(0.0, 3))
    assert torch.equal(none.propagation.edge_id, builder.build(head, relation, edge).propagation.edge_id)


def test_a_share_out_of_range_is_refused() -> None:
    for share in (-0.1, 1.0):
        with pytest.raises(ConfigError, match="share of dropped edges"):
            EdgeDropout(share, 0)
