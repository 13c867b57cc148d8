"""The capped walk against a slow twin in plain sets; what is kept, in which order, and that no cap means everything."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contextpool.context.counts import count_cooccurrence
from contextpool.context.neighbors import mine_context
from contextpool.errors import ConfigError
from contextpool.graph.graph import Graph, walk_back
from contextpool.pool.frontier import Neighborhood, capped_walk, order_of, relation_groups, relation_order
from contextpool.triples.store import Triple


def slow_walk(
    triples: set[Triple], head: str, order: list[str], hops: int, cap: int | None
) -> tuple[set[str], set[Triple], list[int], list[int]]:
    """Entities, facts, edges there were and edges kept, by labels alone."""
    edges = triples | {walk_back(triple) for triple in triples}
    reached, frontier, facts = {head}, {head}, set()
    seen, kept = [], []
    for _ in range(hops):
        leaving = sorted(
            (edge for edge in edges if edge[0] in frontier and edge[1] in order),
            key=lambda edge: (order.index(edge[1]), edge[0], edge[2]),
        )
        best = leaving if cap is None else leaving[:cap]
        seen.append(len(leaving))
        kept.append(len(best))
        facts |= {edge if edge in triples else walk_back(edge) for edge in best}
        frontier = {tail for _, _, tail in best} - reached
        reached |= frontier
    return reached, facts, seen, kept


def labelled(graph: Graph, found: Neighborhood) -> tuple[set[str], set[Triple]]:
    names = graph.entities
    facts = {(names[h], graph.relations[r], names[t]) for h, r, t in found.facts.tolist()}
    return {names[entity] for entity in found.entities.tolist()}, facts


def random_triples(seed: int) -> set[Triple]:
    """A hub, self loops, several relations of one pair, and entities that a head does not reach."""
    draw = random.Random(seed)
    names = [f"e{number}" for number in range(draw.randint(2, 14))]
    count = draw.randint(1, 40)
    facts = {(draw.choice(names), draw.choice("pqrs"), draw.choice(names)) for _ in range(count)}
    return facts | {(names[0], "p", name) for name in names[:5]}


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    hops=st.integers(1, 4),
    cap=st.one_of(st.none(), st.integers(1, 12)),
    hidden=st.integers(0, 7),
)
def test_the_walk_is_the_slow_one(seed: int, hops: int, cap: int | None, hidden: int) -> None:
    """With one relation that may not be walked; the order is by relevance for a relation of the graph."""
    triples = random_triples(seed)
    graph = Graph.from_triples(triples)
    counts = count_cooccurrence(graph)
    query = seed % graph.relation_vocabulary.num_directed
    place = relation_order(counts, query)
    directed = graph.relation_vocabulary.directed
    barred = directed[hidden % len(directed)] if hidden else None
    if barred is not None:
        place = np.where(np.arange(len(place)) == directed.index(barred), -1, place)
    context = mine_context(graph, 0.0, 0.0)
    asked = directed[query]
    relevance = {one: context.precision(asked, one) * context.recall(asked, one) for one in directed}
    order = sorted((one for one in directed if one != barred), key=lambda one: (-relevance[one], one))
    head = sorted({triple[0] for triple in triples})[seed % 2 - 1]
    found = capped_walk(graph, graph.entity_id(head), place, hops, cap)
    reached, facts, seen, kept = slow_walk(triples, head, order, hops, cap)
    assert labelled(graph, found) == (reached, facts)
    assert (list(found.edges_seen), list(found.edges_kept)) == (seen, kept)


def test_the_most_relevant_relation_is_kept_and_ties_end_at_the_label() -> None:
    """Entities that live somewhere often work somewhere; likes says nothing. b and c tie: b stays."""
    facts = [("a", "works", "x"), ("a", "likes", "y"), ("a", "knows", "c"), ("a", "knows", "b")]
    graph = Graph.from_triples(facts)
    relations = graph.relation_vocabulary
    relevance = np.array([{"works": 0.9, "knows": 0.5}.get(label, 0.0) for label in relations.directed])
    place = order_of(relevance, relations)
    found = capped_walk(graph, graph.entity_id("a"), place, 1, 2)
    assert labelled(graph, found)[1] == {("a", "works", "x"), ("a", "knows", "b")}
    assert (found.edges_seen, found.edges_kept) == ((4,), (2,))


def test_equal_relevance_goes_by_the_label_of_the_relation() -> None:
    graph = Graph.from_triples([("a", "s", "x"), ("y", "q", "a"), ("a", "r", "z")])
    place = order_of(np.zeros(6), graph.relation_vocabulary)
    kept = [labelled(graph, capped_walk(graph, graph.entity_id("a"), place, 1, cap))[1] for cap in (1, 2, 3)]
    assert kept[0] == {("y", "q", "a")}
    assert kept[1] - kept[0] == {("a", "r", "z")}
    assert kept[2] - kept[1] == {("a", "s", "x")}


def test_a_hub_is_cut_within_a_relation_without_reading_it_all() -> None:
    facts = [("hub", "r", f"t{number:04}") for number in range(1000)] + [("hub", "s", "u")]
    graph = Graph.from_triples(facts)
    place = order_of(np.zeros(4), graph.relation_vocabulary)
    found = capped_walk(graph, graph.entity_id("hub"), place, 1, 7)
    assert labelled(graph, found)[0] == {"hub", *(f"t{number:04}" for number in range(7))}
    assert found.edges_seen == (1001,)


def test_groups_are_the_relations_that_entities_have() -> None:
    triples = random_triples(3)
    graph = Graph.from_triples(triples)
    some = np.arange(0, graph.num_entities, 2)
    place = np.zeros(graph.relation_vocabulary.num_directed, dtype=np.int64)
    entity, relation = relation_groups(graph, some, place)
    found = {
        (graph.entities[e], graph.relation_vocabulary.directed[r])
        for e, r in zip(entity.tolist(), relation.tolist(), strict=True)
    }
    edges = triples | {walk_back(triple) for triple in triples}
    names = {graph.entities[e] for e in some.tolist()}
    assert found == {(h, r) for h, r, _ in edges if h in names}


@pytest.mark.parametrize(("hops", "cap"), [(0, 5), (2, 0), (1, -3)])
def test_walks_of_nothing_are_refused(hops: int, cap: int) -> None:
    graph = Graph.from_triples([("a", "r", "b")])
    with pytest.raises(ConfigError, match="have to be at least 1"):
        capped_walk(graph, 0, np.zeros(2, dtype=np.int64), hops, cap)
