"""Statistics: counts and relation sets that add over graphs and survive being stored."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from contextpool.context.counts import Statistics
from contextpool.context.families import ContextFamilies
from contextpool.errors import DataError
from contextpool.graph.graph import Graph
from contextpool.graph.relations import RelationVocabulary
from learning_worlds import graph_over, random_graph
from learning_worlds import one_thread as one_thread
from support import amount, relation_sets_of

CASES = amount(40, 1_000)
RELATIONS = ["r0", "r1", "r2", "unused"]


def two_graphs(seed: int) -> tuple[Graph, Graph, Graph]:
    """Two graphs over the same relations without a common entity, and their union."""
    facts = [list(random_graph(seed + shift).triples) for shift in (0, 100_000)]
    apart = [
        [(f"{side}{head}", relation, f"{side}{tail}") for head, relation, tail in triples]
        for side, triples in zip("xy", facts, strict=True)
    ]
    names = [
        [*sorted({end for head, _, tail in part for end in (head, tail)}), f"{part[0][0]}!"] for part in apart
    ]
    one, other = (graph_over(part, own, RELATIONS) for part, own in zip(apart, names, strict=True))
    return one, other, graph_over(apart[0] + apart[1], names[0] + names[1], RELATIONS)


def weights_by_set(statistics: Statistics) -> dict[tuple[bool, ...], int]:
    members = statistics.sets.members().tolist()
    return dict(zip(map(tuple, members), statistics.sets.weight.tolist(), strict=True))


def test_the_sum_is_what_the_union_of_the_graphs_counts() -> None:
    for seed in range(CASES):
        one, other, union = two_graphs(seed)
        total, expected = Statistics.of(one) + Statistics.of(other), Statistics.of(union)
        assert (total.counts.both == expected.counts.both).all()
        assert total.counts.num_entities == expected.counts.num_entities == union.num_entities
        assert weights_by_set(total) == weights_by_set(expected)
        swapped = Statistics.of(other) + Statistics.of(one)
        assert (swapped.counts.both == total.counts.both).all()
        assert weights_by_set(swapped) == weights_by_set(total)


def test_families_mined_from_a_sum_are_those_of_the_union() -> None:
    for seed in range(CASES // 4):
        one, other, union = two_graphs(seed)
        mined = [
            ContextFamilies(RelationVocabulary(tuple(RELATIONS)), statistics.sets, "precision", 0.3, (1, 2))
            for statistics in (Statistics.of(one) + Statistics.of(other), Statistics.of(union))
        ]
        for relation in union.relation_vocabulary.directed:
            assert set(mined[0][relation]) == set(mined[1][relation])


def test_distinct_sets_are_weighted_by_their_entities() -> None:
    for seed in range(CASES):
        graph = random_graph(seed)
        has = relation_sets_of(list(graph.triples))
        directed = graph.relation_vocabulary.directed
        expected: dict[tuple[bool, ...], int] = {}
        for entity in graph.entities:
            key = tuple(label in has.get(entity, set()) for label in directed)
            expected[key] = expected.get(key, 0) + 1
        assert weights_by_set(Statistics.of(graph)) == expected


def test_what_is_stored_comes_back() -> None:
    for seed in range(CASES // 4):
        statistics = Statistics.of(random_graph(seed))
        back = Statistics.from_tensors(statistics.relations, *statistics.to_tensors())
        assert (back.counts.both == statistics.counts.both).all()
        assert back.counts.num_entities == statistics.counts.num_entities
        assert weights_by_set(back) == weights_by_set(statistics)
        total = back + back
        assert (total.counts.both == 2 * statistics.counts.both).all()


def test_what_is_stored_shares_no_memory_with_the_statistics() -> None:
    statistics = Statistics.of(random_graph(1))
    before = statistics.counts.both.copy()
    for tensor in statistics.to_tensors()[0].values():
        tensor.zero_()
    assert (statistics.counts.both == before).all()
    assert statistics.sets.weight.sum() == statistics.counts.num_entities


def test_other_relations_are_refused() -> None:
    graph = Graph.from_triples([("a", "r", "b"), ("a", "s", "b")])
    tensors, meta = Statistics.of(graph).to_tensors()
    with pytest.raises(DataError, match="does not belong to 1 relations"):
        Statistics.from_tensors(RelationVocabulary(("r",)), tensors, meta)
    short = {**tensors, "set_weight": torch.zeros(1, dtype=torch.int64)}
    with pytest.raises(DataError, match="does not belong"):
        Statistics.from_tensors(graph.relation_vocabulary, short, meta)
    with pytest.raises(DataError, match="different relation vocabularies"):
        Statistics.of(graph) + Statistics.of(Graph.from_triples([("a", "r", "b")]))


def test_many_relations_take_several_words() -> None:
    facts = [(f"e{number}", f"r{number:03}", "hub") for number in range(100)]
    statistics = Statistics.of(Graph.from_triples(facts))
    assert statistics.sets.words.shape[1] == 4
    back = Statistics.from_tensors(statistics.relations, *statistics.to_tensors())
    assert np.array_equal(back.sets.words, statistics.sets.words)
    assert int(statistics.counts.support.sum()) == 200
