"""All likely pairs at once against one pair at a time."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextpool.context import pairs as pairs_module
from contextpool.context.counts import Cooccurrence, count_cooccurrence
from contextpool.context.more import MoreAnswers
from contextpool.context.pairs import likely_pairs
from contextpool.errors import ConfigError
from contextpool.graph.graph import Graph

FACTS = st.lists(
    st.tuples(st.sampled_from("abcdefg"), st.sampled_from("xyz"), st.sampled_from("abcdefg")),
    min_size=1,
    max_size=30,
)


def one_by_one(graph: Graph, least: float) -> list[tuple[int, int, float]]:
    """The slow twin."""
    more = MoreAnswers(graph, count_cooccurrence(graph))
    found = []
    for entity in range(graph.num_entities):
        for relation in range(2 * graph.num_relations):
            chance = more.chance(entity, relation)
            if chance >= least:
                found.append((entity, relation, chance))
    return found


@given(FACTS, st.sampled_from([0.01, 0.2, 0.5, 1.0]), st.sampled_from([1, 7, 1 << 22]))
def test_all_pairs_have_the_chance_of_each(
    facts: list[tuple[str, str, str]], least: float, at_once: int
) -> None:
    graph = Graph.from_triples(facts)
    every = range(2 * graph.num_relations)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(pairs_module, "NUMBERS_AT_ONCE", at_once)  # blocks change nothing
        found = likely_pairs(graph, count_cooccurrence(graph), least, every)
    expected = one_by_one(graph, least)
    assert list(zip(found.entity.tolist(), found.relation.tolist(), strict=True)) == [
        (entity, relation) for entity, relation, _ in expected
    ]
    assert found.chance.tolist() == pytest.approx([chance for _, _, chance in expected], abs=1e-12)


@given(FACTS, st.integers(1, 6))
def test_a_selection_is_part_of_all_and_a_budget_takes_the_likeliest(
    facts: list[tuple[str, str, str]], most: int
) -> None:
    graph = Graph.from_triples(facts)
    counts, last = count_cooccurrence(graph), graph.num_relations - 1
    everything = one_by_one(graph, 0.1)
    some = likely_pairs(graph, counts, 0.1, [last], [0, 1])
    assert list(zip(some.entity.tolist(), some.relation.tolist(), strict=True)) == [
        (entity, relation) for entity, relation, _ in everything if entity < 2 and relation == last
    ]
    few = likely_pairs(graph, counts, 0.1, range(2 * graph.num_relations), most=most)
    best = sorted(sorted(everything, key=lambda row: (-row[2], row[:2]))[:most])
    assert list(zip(few.entity.tolist(), few.relation.tolist(), strict=True)) == [row[:2] for row in best]


def test_counts_may_be_of_more_than_the_graph_and_by_other_numbers() -> None:
    graph = Graph.from_triples([("a", "x", "b"), ("b", "y", "c"), ("a", "y", "c"), ("d", "y", "a")])
    own = count_cooccurrence(graph)
    both = np.zeros((6, 6), dtype=np.int64)  # relations 0 and 1 of the graph are 2 and 0 there
    numbers = np.array([2, 0, 5, 3])
    both[np.ix_(numbers, numbers)] = own.both * 2
    counts = Cooccurrence(own.relations, both, 9)
    more = MoreAnswers(graph, counts, numbers)
    found = likely_pairs(graph, counts, 0.01, range(6), relation_of=numbers)
    expected = {
        (entity, relation): more.chance(entity, relation) for entity in range(4) for relation in range(6)
    }
    assert {
        (entity, relation): pytest.approx(chance)
        for entity, relation, chance in zip(found.entity, found.relation, found.chance, strict=True)
    } == {pair: chance for pair, chance in expected.items() if chance >= 0.01}


def test_limits_are_checked() -> None:
    graph = Graph.from_triples([("a", "x", "b")])
    with pytest.raises(ConfigError, match=r"min_chance is 0.*above 0"):
        likely_pairs(graph, count_cooccurrence(graph), 0, [0])
    with pytest.raises(ConfigError, match="at least one question"):
        likely_pairs(graph, count_cooccurrence(graph), 0.5, [0], most=0)
    assert len(likely_pairs(graph, count_cooccurrence(graph), 0.5, [])) == 0
