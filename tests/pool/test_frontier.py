"""The capped walk against a slow twin in plain sets; what is kept, in which order, and that no cap means everything."""

from __future__ import annotations

import random
from collections import defaultdict
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contextpool.context.counts import count_cooccurrence
from contextpool.context.neighbors import mine_context
from contextpool.errors import ConfigError
from contextpool.graph.graph import Graph, walk_back
from contextpool.graph.relations import inverse_label
from contextpool.pool.frontier import (
    LEAST_RELEVANCE,
    Leaving,
    Neighborhood,
    arrival_relevance,
    best_first,
    by_key,
    capped_walk,
    relevance_of,
)
from contextpool.triples.store import Triple


def by_relevance(leaving: Leaving, room: int) -> Leaving:
    """An order that a twin can follow to the last tie."""
    return by_key(leaving, room, leaving.relevance)


def slow_walk(
    triples: set[Triple], head: str, relevance: dict[str, float], hops: int, cap: int | None
) -> tuple[set[str], set[Triple], list[int], list[int]]:
    """Entities, facts, edges there were and edges kept, by labels alone; relations come in the order of `relevance`."""
    order = list(relevance)
    edges = triples | {walk_back(triple) for triple in triples}
    reached, frontier, facts = {head}, {head}, set()
    seen, kept, back = [], [], set()
    for _ in range(hops):
        leaving = sorted(
            (edge for edge in edges - back if edge[0] in frontier and edge[1] in order),
            key=lambda edge: (-relevance[edge[1]], edge[0], order.index(edge[1]), edge[2]),
        )
        best = leaving if cap is None else leaving[:cap]
        seen.append(len(leaving))
        kept.append(len(best))
        facts |= {edge if edge in triples else walk_back(edge) for edge in best}
        frontier = {tail for _, _, tail in best} - reached
        reached |= frontier
        back = {walk_back(edge) for edge in best}
    return reached, facts, seen, kept


def labelled(graph: Graph, found: Neighborhood) -> tuple[set[str], set[Triple]]:
    facts = [graph.edge_label(edge) for edge in found.edges.tolist()]
    forward = {fact for fact in facts if not fact[1].endswith("^-1")}
    assert len(facts) == 2 * len(forward)
    assert {walk_back(fact) for fact in forward} == set(facts) - forward
    return {graph.entities[entity] for entity in found.entities.tolist()}, forward


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
    barred=st.integers(0, 7),
    hides=st.booleans(),
)
def test_the_walk_is_the_slow_one(seed: int, hops: int, cap: int | None, barred: int, hides: bool) -> None:
    """With a relation that may not be walked and a fact that is not there."""
    triples = random_triples(seed)
    graph = Graph.from_triples(triples)
    directed = graph.relation_vocabulary.directed
    context = relevance_of(count_cooccurrence(graph), seed % len(directed))
    if barred:
        context[barred % len(directed)] = -1.0
    relevance = {label: float(value) for label, value in zip(directed, context, strict=True) if value >= 0}
    head = sorted({triple[0] for triple in triples})[seed % 2 - 1]
    hidden = seed % graph.num_edges if hides else -1
    found = capped_walk(graph, graph.entity_id(head), context, hops, cap, hidden=hidden, choose=by_relevance)
    left = triples - {graph.edge_label(hidden), walk_back(graph.edge_label(hidden))} if hides else triples
    reached, facts, seen, kept = slow_walk(left, head, relevance, hops, cap)
    assert labelled(graph, found) == (reached, facts)
    assert (list(found.edges_seen), list(found.edges_kept)) == (seen, kept)
    leaving = [edge for one in left for edge in (one, walk_back(one)) if edge[1] in relevance]
    names = [graph.entities[entity] for entity in found.entities.tolist()]
    assert found.degree.tolist() == [sum(edge[0] == name for edge in leaving) for name in names]
    pairs = list(zip(found.pair_entity.tolist(), found.pair_relation.tolist(), strict=True))
    assert pairs == sorted(set(pairs))
    sizes = [sum(edge[:2] == (names[e], directed[r]) for edge in leaving) for e, r in pairs]
    assert found.pair_size.tolist() == sizes
    assert {(names[e], directed[r]) for e, r in pairs} == {edge[:2] for edge in leaving if edge[0] in reached}


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), hides=st.booleans())
def test_mass_is_what_a_random_walk_brings_to_an_entity_when_it_first_gets_there(
    seed: int, hides: bool
) -> None:
    """With exact fractions; each entity splits what it has over all its edges."""
    triples = random_triples(seed)
    graph = Graph.from_triples(triples)
    hidden = seed % graph.num_edges if hides else -1
    gone = {graph.edge_label(hidden), walk_back(graph.edge_label(hidden))} if hides else set()
    edges = [edge for one in triples - gone for edge in {one, walk_back(one)} - gone]
    seen: list[Leaving] = []

    def watch(leaving: Leaving, room: int) -> Leaving:
        seen.append(leaving)
        return best_first(leaving, room)

    relevance = np.ones(graph.relation_vocabulary.num_directed)
    found = capped_walk(graph, 0, relevance, 3, graph.num_edges - 1, hidden=hidden, choose=watch)
    if sum(found.edges_seen) > sum(found.edges_kept):
        return  # something was dropped, and its mass with it
    mass, reached = {graph.entities[0]: Fraction(1)}, {graph.entities[0]}
    for leaving in seen:
        each = [mass[name] / sum(edge[0] == name for edge in edges) for name in sorted(mass)]
        assert leaving.mass.tolist() == pytest.approx([float(each[place]) for place in leaving.head.tolist()])
        carried: dict[str, Fraction] = defaultdict(Fraction)
        for one, _, other in edges:
            if one in mass and other not in reached:
                carried[other] += mass[one] / sum(edge[0] == one for edge in edges)
        reached |= set(carried)
        mass = dict(carried)


def test_relevance_is_what_mining_says() -> None:
    graph = Graph.from_triples(random_triples(5))
    context, directed = mine_context(graph, 0.0, 0.0), graph.relation_vocabulary.directed
    for asked, label in enumerate(directed):
        expected = [context.precision(label, one) * context.recall(label, one) for one in directed]
        assert relevance_of(count_cooccurrence(graph), asked) == pytest.approx(expected)
        back = inverse_label(label)
        ends = [inverse_label(one) for one in directed]
        expected = [context.precision(back, one) * context.recall(back, one) for one in ends]
        assert arrival_relevance(count_cooccurrence(graph), asked) == pytest.approx(expected)


def test_what_looks_like_leading_to_an_answer_is_kept_and_ties_end_at_the_label() -> None:
    """Of an entity's edges all carry alike. b and c tie: b stays."""
    facts = [("a", "works", "x"), ("a", "likes", "y"), ("a", "knows", "c"), ("a", "knows", "b")]
    graph = Graph.from_triples(facts)
    relevance = np.array(
        [{"works": 0.9, "knows": 0.5}.get(one, 0.0) for one in graph.relation_vocabulary.directed]
    )
    found = capped_walk(graph, graph.entity_id("a"), relevance, 1, 2)
    assert labelled(graph, found)[1] == {("a", "works", "x"), ("a", "knows", "b")}
    assert (found.edges_seen, found.edges_kept) == ((4,), (2,))


def test_a_hub_shares_what_it_has_and_comes_after_those_with_few_edges() -> None:
    """From a, half of the walk is at the hub and half at b; b's one other edge carries more than each of the hub's."""
    facts = [("a", "r", "hub"), ("a", "r", "b"), ("b", "s", "c"), *(("hub", "t", f"t{n}") for n in range(9))]
    graph = Graph.from_triples(facts)
    directed = graph.relation_vocabulary.directed
    relevance = np.array([1.0 if one == "t" else 0.0 for one in directed])
    hub, rare = (LEAST_RELEVANCE + 1) / 2 / 10, LEAST_RELEVANCE / 2 / 2
    assert hub > rare
    found = capped_walk(graph, graph.entity_id("a"), relevance, 2, 4)
    assert labelled(graph, found)[0] == {"a", "b", "hub", "t0", "t1", "t2", "t3"}
    indifferent = capped_walk(graph, graph.entity_id("a"), np.zeros(len(directed)), 2, 4)
    assert labelled(graph, indifferent)[0] == {"a", "b", "hub", "c", "t0", "t1", "t2"}


def test_a_hub_is_cut_within_a_relation_without_reading_it_all() -> None:
    facts = [("hub", "r", f"t{number:04}") for number in range(1000)] + [("hub", "s", "u")]
    graph = Graph.from_triples(facts)
    found = capped_walk(graph, graph.entity_id("hub"), np.zeros(4), 1, 7)
    assert labelled(graph, found)[0] == {"hub", *(f"t{number:04}" for number in range(7))}
    assert found.edges_seen == (1001,)


def test_many_edges_with_equal_keys_keep_their_order() -> None:
    """Whatever the partition that finds the best does with ties."""
    key = np.array([1.0, 3.0, 2.0, 3.0, 2.0, 2.0])
    columns = [np.arange(6), np.arange(6), np.arange(6), np.ones(6, dtype=np.int64), key, key]
    for room in range(1, 8):
        assert by_key(Leaving(*columns), room, key).head.tolist() == [1, 3, 2, 4, 5, 0][:room]


@pytest.mark.parametrize(("hops", "cap"), [(0, 5), (2, 0), (1, -3)])
def test_walks_of_nothing_are_refused(hops: int, cap: int) -> None:
    graph = Graph.from_triples([("a", "r", "b")])
    with pytest.raises(ConfigError, match="have to be at least 1"):
        capped_walk(graph, 0, np.zeros(2), hops, cap)
