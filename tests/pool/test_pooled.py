from __future__ import annotations

import numpy as np
import pytest

from contextpool.context.families import mine_families
from contextpool.context.neighbors import MaskSelector, mine_context
from contextpool.errors import ConfigError, DataError, UnknownNameError
from contextpool.graph.graph import Graph
from contextpool.graph.relations import RelationVocabulary
from contextpool.pool.pooled import pool
from pool.literal import literal_pool, select_by_mask
from support import amount, random_triples

FAMILY = [
    ("ann", "works_in", "bern"),
    ("ann", "speaks", "german"),
    ("bob", "works_in", "bern"),
    ("bob", "speaks", "french"),
    ("bern", "lies_in", "switzerland"),
]


def test_a_small_world_by_hand() -> None:
    """Precision(works_in | speaks) = 1 and back, so the two are each other's neighbors; bern has two relations."""
    graph = Graph.from_triples(FAMILY)
    pooled = pool(graph, mine_context(graph), head="ann", relation="works_in", hops=3)
    assert pooled.hops == [
        {("ann", "speaks", "german")},
        set(),  # german has no other relation than speaks^-1, which is not its own neighbor
        set(),
    ]
    assert (pooled.head, pooled.relation, pooled.num_hops) == ("ann", "works_in", 3)
    pooled = pool(graph, mine_context(graph), head="ann", relation="speaks", hops=2)
    assert pooled.hops == [{("ann", "works_in", "bern")}, {("bern", "lies_in", "switzerland")}]
    assert pooled.triples == {("ann", "works_in", "bern"), ("bern", "lies_in", "switzerland")}


def test_inverse_walks_are_named_so_and_may_be_asked() -> None:
    graph = Graph.from_triples(FAMILY)
    pooled = pool(graph, mine_context(graph), head="bern", relation="lies_in", hops=2)
    assert pooled.hops[0] == {("bern", "works_in^-1", "ann"), ("bern", "works_in^-1", "bob")}
    assert pooled.hops[1] == {("ann", "speaks", "german"), ("bob", "speaks", "french")}
    asked_back = pool(graph, mine_context(graph), head="bern", relation="works_in^-1", hops=1)
    assert asked_back.triples == {("bern", "lies_in", "switzerland")}


def test_hidden_triples_never_existed_for_the_walk_but_the_context_stays() -> None:
    graph = Graph.from_triples(FAMILY)
    context = mine_context(graph)
    before = context.neighbors("lies_in")
    for way in [("ann", "works_in", "bern"), ("bern", "works_in^-1", "ann")]:
        pooled = pool(graph, context, "bern", "lies_in", 2, hide=[way])
        assert pooled.hops == [{("bern", "works_in^-1", "bob")}, {("bob", "speaks", "french")}]
    assert context.neighbors("lies_in") == before == ["works_in^-1"]


def test_random_worlds_equal_the_literal_algorithm() -> None:
    for seed in range(amount(30, 1_000)):
        triples = random_triples(seed, most=14)
        graph = Graph.from_triples(triples)
        context = mine_context(graph, 0.2, self="keep" if seed % 2 else "exclude")
        select = select_by_mask(MaskSelector(context.relations, context.mask))
        head, relation, _ = triples[0]
        pooled = pool(graph, context, head, relation, 3, hide=triples[:1])
        assert pooled.hops == literal_pool(triples, select, head, relation, 3, triples[:1])
        assert pooled.triples == set().union(*pooled.hops)


def test_families_are_a_context_too() -> None:
    graph = Graph.from_triples(FAMILY)
    pooled = pool(graph, mine_families(graph), head="ann", relation="speaks", hops=2)
    assert pooled.hops == [{("ann", "works_in", "bern")}, {("bern", "lies_in", "switzerland")}]


def test_a_graph_is_aligned_with_a_context_that_knows_more_relations() -> None:
    context = mine_context(Graph.from_triples(FAMILY))
    new = Graph.from_triples([("eve", "works_in", "rome"), ("rome", "lies_in", "italy")])
    pooled = pool(new, context, head="eve", relation="speaks", hops=2, hide=[])
    assert pooled.hops == [{("eve", "works_in", "rome")}, {("rome", "lies_in", "italy")}]


def test_a_relation_that_the_context_does_not_know_is_an_error() -> None:
    context = mine_context(Graph.from_triples(FAMILY[:2]))
    with pytest.raises(UnknownNameError, match="'lies_in' is unknown"):
        pool(Graph.from_triples(FAMILY), context, head="ann", relation="speaks", hops=2)


def test_unknown_names_and_bad_numbers_are_errors() -> None:
    graph = Graph.from_triples(FAMILY)
    context = mine_context(graph)
    with pytest.raises(UnknownNameError, match=r"entity 'anne' is unknown .*closest 'ann'"):
        pool(graph, context, "anne", "speaks", 1)
    with pytest.raises(UnknownNameError, match="relation 'speak' is unknown"):
        pool(graph, context, "ann", "speak", 1)
    with pytest.raises(ConfigError, match="hops is 0"):
        pool(graph, context, "ann", "speaks", 0)
    with pytest.raises(DataError, match="not in the graph"):
        pool(graph, context, "ann", "speaks", 1, hide=[("ann", "speaks", "french")])


def test_the_representation_tells_the_sizes() -> None:
    vocabulary = RelationVocabulary(("lies_in", "speaks", "works_in"))
    everything = MaskSelector(vocabulary, np.ones((6, 6), dtype=bool))
    pooled = pool(Graph.from_triples(FAMILY), everything, "ann", "speaks", 2)
    assert repr(pooled) == "PooledGraph((ann, speaks, ?), 2 hops, 2 + 4 edges)"
