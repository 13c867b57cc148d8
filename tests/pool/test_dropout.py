"""Edge dropout: which facts are gone for whom, as often as they should be, in both directions, and alike every time."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from contextpool.context.statistics import Statistics
from contextpool.errors import ConfigError
from contextpool.graph.graph import Graph
from contextpool.pool.batch import BatchBuilder, ContextConfig, QueryBatch, ViewConfig
from contextpool.pool.dropout import DropRule, EdgeDropout, query_salts, relevance_thresholds
from contextpool.pool.hidden import HiddenEdges
from graph.test_hashing import literal as mixed_literally
from learning_worlds import CONTEXTS, random_graph, without_fact
from learning_worlds import one_thread as one_thread
from support import amount

CASES = amount(20, 400)


def all_edges(graph: Graph) -> tuple[Tensor, Tensor, Tensor]:
    return graph.edge_head.long(), graph.edge_relation.long(), torch.arange(graph.num_edges)


def dropped_literally(graph: Graph, seed: int, query: int, threshold: Tensor) -> set[int]:
    """Edges that are gone for a query, one by one on Python's integers."""
    salt = mixed_literally(mixed_literally(query ^ seed % 2**32) ^ seed >> 32)
    gone = set()
    for edge in range(graph.num_edges):
        fact = min(edge, int(graph.edge_inverse[edge]))
        relation = int(graph.edge_relation[edge])
        if mixed_literally(mixed_literally(fact) ^ salt) < int(threshold[query, relation]):
            gone.add(edge)
    return gone


@pytest.mark.parametrize("by", ["uniform", "relevance"])
def test_walks_avoid_exactly_the_facts_that_the_hash_says(by: Any) -> None:
    total = 0
    for seed in range(CASES):
        graph = random_graph(seed, most=30)
        head, relation, edge = all_edges(graph)
        builder = BatchBuilder(graph, 2)
        dropout = EdgeDropout(0.3, seed * 10**11 + 17, by)
        relevance = builder._counts.for_queries(relation, edge).relevance()[:, :2]
        threshold = dropout.rule(graph, len(head), relevance, edge).threshold
        walk = builder.build(head, relation, edge, dropout=dropout).propagation
        removed = []
        for query in range(len(head)):
            gone = dropped_literally(graph, dropout.seed, query, threshold)
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
    size = (50, graph.relation_vocabulary.num_directed)
    for share in (0.1, 0.5):
        threshold = torch.full(size, int(share * 2**32))
        gone = DropRule(query_salts(99, 50, graph.device), threshold).dropped(graph)
        assert torch.equal(gone, gone[:, graph.edge_inverse.long()])
        draws = gone.numel() / 2
        assert abs(float(gone.double().mean()) - share) < 5 * (share * (1 - share) / draws) ** 0.5
        assert len(gone.unique(dim=0)) == 50  # another choice for every query


def test_irrelevant_facts_are_dropped_more_often_and_the_expected_share_stays() -> None:
    graph = random_graph(11, most_entities=60, most_relations=8, most=900)
    relation = torch.arange(graph.relation_vocabulary.num_directed)
    counts = BatchBuilder(graph, 1)._counts.for_queries(relation, torch.full_like(relation, -1))
    relevance = counts.relevance()[:, :2]
    threshold = relevance_thresholds(graph, 0.2, relevance, torch.full_like(relation, -1))
    chance = threshold.double() / 2**32  # [2R, 2R]
    best = relevance.amax(dim=1)
    best = torch.maximum(best, best[:, (relation + graph.num_relations) % len(relation)])
    of_facts = chance[:, graph.edge_relation[graph.forward_edges].long()].mean(dim=1)
    uncapped = (chance < 1).all(dim=1)
    assert uncapped.any()
    torch.testing.assert_close(
        of_facts[uncapped], torch.full_like(of_facts, 0.2)[uncapped], atol=1e-5, rtol=0
    )
    own = chance.diagonal()
    has_facts = torch.bincount(graph.edge_relation.long(), minlength=len(relation)) > 0
    assert not own[has_facts].any()  # what is asked for is relevant to itself
    for row, judged in zip(chance, best, strict=True):
        order = judged.argsort()
        assert (row[order].diff() <= 0).all()


def test_thresholds_do_not_know_the_fact_that_is_left_out() -> None:
    for seed in range(CASES):
        graph = random_graph(seed, most=30)
        _, relation, edge = all_edges(graph)
        found = BatchBuilder(graph, 1)._counts.for_queries(relation, edge).relevance()[:, :2]
        thresholds = relevance_thresholds(graph, 0.3, found, edge)
        for number in range(graph.num_edges):
            smaller, asked = without_fact(graph, number), relation[number, None]
            nothing = torch.tensor([-1])
            counts = BatchBuilder(smaller, 1)._counts.for_queries(asked, nothing)
            honest = relevance_thresholds(smaller, 0.3, counts.relevance()[:, :2], nothing)
            used = torch.bincount(smaller.edge_relation.long(), minlength=thresholds.size(1)) > 0
            assert torch.equal(thresholds[number][used], honest[0][used])


@pytest.mark.parametrize("way", ["views", "layered", "families", "all"])
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
        hidden = dropout.rule(graph, len(head), None, edge).hidden_edges(graph, own)
        expected = builder.build(head, relation, edge, removed=hidden)
        assert same_bits(batch, expected)


def same_bits(one: QueryBatch, other: QueryBatch) -> bool:
    pairs = zip(one.propagation.layer_views, other.propagation.layer_views, strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


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
    context = ContextConfig(views=(ViewConfig(0.1),))
    builder = BatchBuilder(graph, 2, context, Statistics.of(graph))
    for by in ("uniform", "relevance"):
        none = builder.build(head, relation, edge, dropout=EdgeDropout(0.0, 3, by))  # type: ignore[arg-type]
        assert torch.equal(none.propagation.edge_id, builder.build(head, relation, edge).propagation.edge_id)


def test_a_share_out_of_range_is_refused() -> None:
    for share in (-0.1, 1.0):
        with pytest.raises(ConfigError, match="share of dropped edges"):
            EdgeDropout(share, 0)
