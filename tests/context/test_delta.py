"""Statistics after a delta equal those counted anew, sets and counts alike."""

from __future__ import annotations

import random

import pytest

from contextpool.context.delta import Change, entity_changes
from contextpool.context.statistics import Statistics
from contextpool.errors import DataError
from contextpool.graph.graph import Graph
from contextpool.triples.labels import Vocabulary
from contextpool.triples.store import Triples
from support import Triple, amount, random_triples


def weights_by_set(statistics: Statistics) -> dict[frozenset[str], int]:
    directed = statistics.relations.directed
    members = statistics.sets.members().tolist()
    named = [frozenset(label for label, has in zip(directed, row, strict=True) if has) for row in members]
    return dict(zip(named, statistics.sets.weight.tolist(), strict=True))


def assert_equal(one: Statistics, other: Statistics) -> None:
    assert one.relations == other.relations
    assert one.counts.num_entities == other.counts.num_entities
    assert one.counts.both.tolist() == other.counts.both.tolist()
    assert weights_by_set(one) == weights_by_set(other)


def random_delta(seed: int, before: list[Triple]) -> tuple[list[Triple], list[Triple]]:
    """Some triples to add, a few of them there already or with new names, and some to remove."""
    rng = random.Random(seed)
    removed = rng.sample(sorted(set(before)), rng.randint(0, len(set(before))))
    fresh = random_triples(seed + 500_000, most_entities=12, most_relations=6, most=8)
    added = [triple for triple in [*fresh, *rng.choices(before, k=2)] if triple not in removed]
    return added, removed


def check_delta(seed: int) -> None:
    before = random_triples(seed)
    added, removed = random_delta(seed, before)
    after = sorted((set(before) - set(removed)) | set(added))
    graph = Graph.from_triples(before)
    assert_equal(
        Statistics.of(graph).updated(graph, added, removed), Statistics.of(Graph.from_triples(after))
    )


def test_a_delta_gives_what_counting_anew_gives_on_random_graphs():
    for seed in range(amount(300, 20_000)):
        check_delta(seed)


def test_a_delta_and_its_reverse_give_back_the_statistics():
    for seed in range(amount(50, 2_000)):
        before = sorted(set(random_triples(seed)))
        added, removed = random_delta(seed, before)
        added = [triple for triple in added if triple not in before]
        graph, after = Graph.from_triples(before), sorted((set(before) - set(removed)) | set(added))
        changed = Statistics.of(graph).updated(graph, added, removed)
        back = changed.updated(Graph.from_triples(after), removed, added)
        assert_equal(back, Statistics.of(graph))


def test_a_second_triple_of_the_relation_keeps_it():
    graph = Graph.from_triples([("a", "r", "b"), ("a", "r", "c"), ("a", "s", "b")])
    after = Statistics.of(graph).updated(graph, removed=[("a", "r", "b")])
    r, s = after.relations.id_of("r"), after.relations.id_of("s")
    assert after.counts.both[r, s] == 1
    assert after.counts.num_entities == 3


def test_isolated_entities_and_unused_relations_of_a_graph_stay_until_they_are_used():
    store = Triples.from_labels([("a", "r", "b")])
    entities = Vocabulary.of(["a", "b", "hermit", "other"])
    graph = Graph.from_triples(store.with_vocabularies(entities, Vocabulary.of(["r", "unused"], "relation")))
    after = Statistics.of(graph).updated(graph, added=[("hermit", "s", "a")])
    assert after.relations.forward == ("r", "s", "unused")
    assert after.counts.num_entities == 4
    assert weights_by_set(after)[frozenset()] == 1
    assert after.counts.support[after.relations.id_of("unused")] == 0


def test_a_triple_that_is_not_there_cannot_be_removed():
    graph = Graph.from_triples([("a", "r", "b")])
    with pytest.raises(DataError, match=r"removed\[0\].*not in the graph"):
        Statistics.of(graph).updated(graph, removed=[("b", "r", "a")])
    with pytest.raises(DataError, match="both added and removed"):
        Statistics.of(graph).updated(graph, added=[("a", "r", "b")], removed=[("a", "r", "b")])


def test_statistics_of_another_graph_are_noticed():
    graph, other = (
        Graph.from_triples([("a", "r", "b"), ("a", "s", "b")]),
        Graph.from_triples([("x", "r", "x")]),
    )
    with pytest.raises(DataError, match="below zero"):
        Statistics.of(other).updated(graph, removed=[("a", "s", "b")])


def test_changes_name_each_touched_entity_once():
    changes = entity_changes([("a", "r", "b")], [("a", "s", "a")], [("a", "r", "b")])
    a, b = changes
    assert a == Change(frozenset({"r"}), frozenset({"s", "s^-1"}))
    assert b == Change(frozenset({"r^-1"}), frozenset())
    assert (a.entities, b.entities) == (0, -1)
