"""Numbers over pairs of entities against plain sets, with the hidden fact taken out of the graph before counting."""

from __future__ import annotations

import math
import random
from collections import Counter

import pytest
import torch

from contextpool.context import counts as counting
from contextpool.context.parallel import (
    ParallelCounts,
    Parallels,
    count_joined,
    count_joined_by_tensors,
    rows_of_queries,
    rows_of_queries_by_tensors,
)
from contextpool.graph.graph import Graph
from contextpool.pool.candidates import answer_uses
from learning_worlds import graph_over
from support import Triple, amount, random_triples

CASES = amount(300, 20_000)


def directed(triples: set[Triple]) -> set[Triple]:
    return triples | {(tail, f"{relation}^-1", head) for head, relation, tail in triples}


def literal_counts(facts: set[Triple], names: list[str]) -> tuple[list[list[int]], list[int]]:
    """both [2R, 2R] and support [2R], by looking at every pair."""
    pairs = {name: {(head, tail) for head, relation, tail in facts if relation == name} for name in names}
    both = [[len(pairs[one] & pairs[other]) for other in names] for one in names]
    return both, [len({head for head, _ in pairs[name]}) for name in names]


def literal_numbers(facts: set[Triple], names: list[str], head: str, asked: str) -> list[list[float]]:
    """[4, 2R]"""
    both, support = literal_counts(facts, names)
    x = names.index(asked)
    leaving = Counter(relation for start, relation, _ in facts if start == head)
    each = range(len(names))
    return [
        [both[x][y] / max(both[y][y], 1) for y in each],
        [both[x][y] / max(both[x][x], 1) for y in each],
        [math.log(max(both[y][y], 1) / max(support[y], 1)) for y in each],
        [math.log1p(leaving[names[y]]) for y in each],
    ]


def names_of(graph: Graph) -> list[str]:
    return [*graph.relations, *(f"{relation}^-1" for relation in graph.relations)]


@pytest.mark.parametrize("first", range(0, CASES, 100))
def test_counts_and_numbers_are_those_of_plain_sets(first: int) -> None:
    for seed in range(first, first + 100):
        triples = set(random_triples(seed))
        graph, rng = Graph.from_triples(sorted(triples)), random.Random(seed)
        names, facts = names_of(graph), directed(triples)
        counts = ParallelCounts.of(graph)
        both, support = literal_counts(facts, names)
        assert counts.both.tolist() == both
        assert counts.support.tolist() == support
        edges = [-1, *rng.choices(range(graph.num_edges), k=4)]
        queries = [
            (rng.choice(graph.entities), rng.choice(names)) if edge < 0 else edge_of(graph, names, edge)[:2]
            for edge in edges
        ]
        heads = torch.tensor([graph.entities.index(head) for head, _ in queries])
        relations = torch.tensor([names.index(relation) for _, relation in queries])
        hidden = torch.tensor(edges)
        found, num_facts = Parallels(graph, counts).numbers(heads, relations, hidden)
        back = torch.where(
            relations < graph.num_relations, relations + graph.num_relations, relations - graph.num_relations
        )
        uses = answer_uses(graph, back, hidden, num_facts)
        for row, (edge, query) in enumerate(zip(edges, queries, strict=True)):
            left = facts if edge < 0 else without(facts, edge_of(graph, names, edge))
            expected = torch.tensor(literal_numbers(left, names, *query))
            torch.testing.assert_close(found[row], expected, atol=1e-6, rtol=1e-6)
            of_relation = [tail for _, relation, tail in left if relation == query[1]]
            assert int(num_facts[row]) == len(of_relation)
            counted = torch.tensor([float(of_relation.count(entity)) for entity in graph.entities])
            expected = torch.stack([torch.log1p(counted), counted / max(len(of_relation), 1)])
            torch.testing.assert_close(uses[row], expected, atol=1e-6, rtol=1e-6)


def test_compiled_loops_and_tensors_give_the_same_integers() -> None:
    """On random graphs with hubs, each edge hidden from itself, and nothing from some."""
    for seed in range(amount(3_000, 50_000)):
        size = random.Random(seed).choice((2, 8, 30))
        facts = random_triples(seed, most_entities=size, most_relations=6, most=4 * size)
        hub = [("e0", f"r{place % 3}", f"e{place}") for place in range(seed % 3 * size)]
        graph = Graph.from_triples(facts + hub)
        starts, *columns = (one.numpy() for one in (graph.row_start, graph.edge_relation, graph.edge_tail))
        joined = torch.from_numpy(count_joined(starts, *columns, 2 * graph.num_relations))
        assert torch.equal(joined, count_joined_by_tensors(graph))
        assert torch.equal(joined, ParallelCounts.of(graph).both)
        edge = torch.cat([torch.arange(graph.num_edges), torch.full((3,), -1)])
        head = torch.cat([graph.edge_head.long(), torch.randint(graph.num_entities, (3,))])
        other = head[torch.randperm(len(head))]  # the hidden fact may lie elsewhere
        longest = int(graph.row_start.diff().max())
        for asked in (head, other):
            loops = rows_of_queries(graph, asked, edge)
            tensors = rows_of_queries_by_tensors(graph, longest, asked, edge)
            for one, same in zip(loops, tensors, strict=True):
                assert one.dtype == same.dtype
                assert torch.equal(one, same)


def test_a_graph_without_facts_has_no_pairs() -> None:
    graph = graph_over([], ["a", "b"], ["r"])
    head, relation = torch.tensor([0, 1]), torch.tensor([1, 0])
    counts = ParallelCounts.of(graph)
    assert not counts.both.any()
    assert not Parallels(graph, counts).numbers(head, relation, None).of_relations.any()
    nothing = torch.tensor([-1, -1])
    for one in (rows_of_queries(graph, head, nothing), rows_of_queries_by_tensors(graph, 0, head, nothing)):
        assert not any(bool(column.any()) for column in one)


def test_any_number_of_threads_counts_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = Graph.from_triples(random_triples(7, most_entities=40, most_relations=6, most=900))
    alone = ParallelCounts.of(graph).both
    monkeypatch.setattr(counting, "LEAST_SHARED", 0)
    for threads in (1, 2, 3, 64):
        monkeypatch.setattr(counting, "available_threads", lambda threads=threads: threads)
        assert torch.equal(ParallelCounts.of(graph).both, alone)


def edge_of(graph: Graph, names: list[str], edge: int) -> Triple:
    """(head, relation, tail) of a directed edge."""
    head, relation, tail = (
        int(column[edge]) for column in (graph.edge_head, graph.edge_relation, graph.edge_tail)
    )
    return graph.entities[head], names[relation], graph.entities[tail]


def without(facts: set[Triple], fact: Triple) -> set[Triple]:
    """Without a fact in either direction."""
    head, relation, tail = fact
    back = relation.removesuffix("^-1") if relation.endswith("^-1") else f"{relation}^-1"
    return facts - {fact, (tail, back, head)}
