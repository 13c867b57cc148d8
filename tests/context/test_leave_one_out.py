"""Counts and relation sets without one fact, against a recount on the graph that never held it."""

from __future__ import annotations

import torch

from contextpool.context.counts import CountsOf, count_cooccurrence
from contextpool.context.relevance import neighborhood_precision, neighborhood_recall
from contextpool.graph.graph import Graph
from contextpool.graph.relations import inverse
from learning_worlds import graph_over, random_graph, without_fact
from learning_worlds import one_thread as one_thread
from support import amount, relation_sets_of

CASES = amount(40, 2_000)


def wide_graph(seed: int) -> Graph:
    """As many relations as take three words of 64 bits, few of them used."""
    graph = random_graph(seed)
    facts = [(head, relation.replace("r", "z"), tail) for head, relation, tail in graph.triples]
    relations = [f"a{number:02}" for number in range(80)] + sorted({relation for _, relation, _ in facts})
    return graph_over(facts, list(graph.entities), relations)


def graphs() -> list[Graph]:
    return [random_graph(seed) for seed in range(CASES)] + [wide_graph(seed) for seed in range(CASES // 10)]


def literal_sets(graph: Graph, entities: torch.Tensor) -> list[list[bool]]:
    """Whether each entity has each relation, by plain sets."""
    has = relation_sets_of(list(graph.triples))
    directed = graph.relation_vocabulary.directed
    return [[label in has.get(graph.entities[entity], set()) for label in directed] for entity in entities]


def test_counts_equal_a_recount_without_the_fact_for_every_edge() -> None:
    changed = 0
    for graph in graphs():
        own = CountsOf(graph, count_cooccurrence(graph))
        relation = graph.edge_relation.long()
        asked = [relation, inverse(relation, graph.num_relations)]
        found = own.for_queries(relation, torch.arange(graph.num_edges))
        precision = torch.stack([found.precision(row) for row in (0, 1)], dim=1)  # [2T, 2, 2R]
        recall = torch.stack([found.recall(row) for row in (0, 1)], dim=1)
        for edge, rows in enumerate(torch.stack(asked, dim=1).tolist()):
            recount = count_cooccurrence(without_fact(graph, edge))
            assert found.both[edge].tolist() == recount.both[rows].tolist()
            assert found.support[edge].tolist() == recount.support.tolist()
            assert precision[edge].tolist() == neighborhood_precision(recount)[rows].tolist()
            assert recall[edge].tolist() == neighborhood_recall(recount)[rows].tolist()
            changed += recount.both[rows].tolist() != own.both[rows].tolist()
    assert changed > CASES  # hiding does make a difference


def test_nothing_hidden_gives_the_counts_as_they_are() -> None:
    for graph in graphs()[: CASES // 3]:
        own = CountsOf(graph, count_cooccurrence(graph))
        relation = torch.arange(graph.relation_vocabulary.num_directed)
        counts = count_cooccurrence(graph)
        found = own.for_queries(relation, torch.full_like(relation, -1))
        for asked in relation.tolist():
            rows = [asked, inverse(asked, graph.num_relations)]
            assert found.both[asked].tolist() == counts.both[rows].tolist()
            assert found.support[asked].tolist() == counts.support.tolist()


def test_what_one_query_hides_is_there_for_the_next() -> None:
    for graph in graphs()[: CASES // 3]:
        own = CountsOf(graph, count_cooccurrence(graph))
        edges = torch.arange(graph.num_edges)
        relation = graph.edge_relation.long()
        mixed = torch.where(edges % 2 == 0, edges, -1)
        found, alone = own.for_queries(relation, mixed), own.for_queries(relation, edges)
        nothing = own.for_queries(relation, torch.full_like(edges, -1))
        for edge in edges.tolist():
            expected = alone if edge % 2 == 0 else nothing
            assert torch.equal(found.both[edge], expected.both[edge])
            assert torch.equal(found.support[edge], expected.support[edge])
        assert torch.equal(nothing.both[:, 0], own.both[relation])  # the graph's own counts are untouched


def test_relation_sets_equal_plain_sets_with_and_without_the_fact() -> None:
    for graph in graphs():
        own = CountsOf(graph, count_cooccurrence(graph))
        entities = torch.arange(graph.num_entities)
        assert own.relation_sets(entities).tolist() == literal_sets(graph, entities)
        head, head_set, tail, tail_set = own.sets_without(torch.arange(graph.num_edges))
        assert torch.equal(head, graph.edge_head.long())
        assert torch.equal(tail, graph.edge_tail.long())
        for edge in range(graph.num_edges):
            ends = torch.stack([head[edge], tail[edge]])
            expected = literal_sets(without_fact(graph, edge), ends)
            assert [head_set[edge].tolist(), tail_set[edge].tolist()] == expected


def test_a_world_done_by_hand() -> None:
    """a has r once and s; hiding (a, r, b) leaves nobody with both; b keeps r^-1 because of c."""
    graph = Graph.from_triples([("a", "r", "b"), ("c", "r", "b"), ("a", "s", "b")])
    own = CountsOf(graph, count_cooccurrence(graph))
    r, s, _, s_back = range(4)
    edge = torch.tensor([graph.edge_id("a", "r", "b")])
    counts = own.for_queries(torch.tensor([r]), edge)
    assert own.both[r].tolist() == [2, 1, 0, 0]
    assert counts.both[0].tolist() == [[1, 0, 0, 0], [0, 0, 1, 1]]
    assert counts.support[0].tolist() == [1, 1, 1, 1]
    assert counts.precision(0)[0, s] == 0
    assert counts.recall(1)[0, s_back] == 1
    _, head_set, _, tail_set = own.sets_without(edge)
    assert head_set[0].tolist() == [False, True, False, False]
    assert tail_set[0].tolist() == [False, False, True, True]
