"""The graph against plain sets: both directions, all parallel relations, nothing twice."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from contextpool.errors import DataError, UnknownNameError
from contextpool.graph.graph import Graph, walk_back
from contextpool.graph.relation_sets import entity_words, relation_sets, unpack_bits
from contextpool.graph.relations import RelationVocabulary
from contextpool.triples.labels import Vocabulary
from contextpool.triples.reader import read_triples
from contextpool.triples.store import Triples
from support import benchmark_folder, random_triples, relation_sets_of

seeds = st.integers(0, 10**9)


@given(seeds)
def test_edges_are_the_facts_walked_both_ways(seed):
    triples = random_triples(seed)
    graph = Graph.from_triples(triples)
    walked = list(graph.edge_labels(torch.arange(graph.num_edges)))
    assert set(walked) == set(triples) | {walk_back(triple) for triple in triples}
    assert len(walked) == len(set(walked)) == 2 * len(set(triples)) == graph.num_edges


@given(seeds)
def test_inverse_edge_is_the_same_fact_walked_back(seed):
    graph = Graph.from_triples(random_triples(seed))
    for edge in range(graph.num_edges):
        twin = int(graph.edge_inverse[edge])
        assert twin != edge
        assert graph.edge_label(twin) == walk_back(graph.edge_label(edge))


@given(seeds)
def test_rows_hold_the_edges_of_their_entity_in_order(seed):
    graph = Graph.from_triples(random_triples(seed))
    for entity in range(graph.num_entities):
        row = range(int(graph.row_start[entity]), int(graph.row_start[entity + 1]))
        assert all(int(graph.edge_head[edge]) == entity for edge in row)
        keys = [(int(graph.edge_relation[edge]), int(graph.edge_tail[edge])) for edge in row]
        assert keys == sorted(set(keys))


@given(seeds)
def test_every_edge_is_found_by_its_labels(seed):
    graph = Graph.from_triples(random_triples(seed))
    for edge in range(graph.num_edges):
        assert graph.edge_id(*graph.edge_label(edge)) == edge


@given(seeds)
def test_triples_are_a_set_and_a_sequence(seed):
    triples = random_triples(seed)
    view = Graph.from_triples(triples).triples
    assert view == set(triples)
    assert set(triples) == view
    assert len(view) == len(set(triples))
    assert list(view) == sorted(set(triples)) == view[:]
    assert all(triple in view and walk_back(triple) not in view for triple in triples)
    assert view & {triples[0]} == {triples[0]}


@given(seeds)
def test_relation_sets_equal_plain_sets(seed):
    triples = random_triples(seed)
    graph = Graph.from_triples(triples)
    expected = relation_sets_of(triples)
    directed = graph.relation_vocabulary.directed
    found = unpack_bits(entity_words(graph), len(directed))
    sets = relation_sets(graph)
    for entity, label in enumerate(graph.entities):
        assert {directed[x] for x in found[entity].nonzero()[0]} == expected[label]
        assert (sets.members()[sets.set_of_entity[entity]] == found[entity]).all()
    assert len(sets.weight) == len({frozenset(relations) for relations in expected.values()})
    assert sets.weight.sum() == graph.num_entities
    assert sorted(sets.sizes.tolist()) == sorted({frozenset(s): len(s) for s in expected.values()}.values())


def test_two_relations_between_one_pair_both_survive():
    graph = Graph.from_triples(
        [("alice", "knows", "bob"), ("alice", "likes", "bob"), ("alice", "knows", "bob")]
    )
    assert graph.num_triples == 2
    assert graph.triples == {("alice", "knows", "bob"), ("alice", "likes", "bob")}


def test_self_loop_has_the_relation_and_its_inverse():
    graph = Graph.from_triples([("narcissus", "loves", "narcissus")])
    assert relation_sets(graph).members().tolist() == [[True, True]]
    assert graph.num_edges == 2


def test_public_counts_and_labels():
    graph = Graph.from_triples([("b", "s", "a"), ("a", "r", "c")])
    assert (graph.num_entities, graph.num_relations, graph.num_triples) == (3, 2, 2)
    assert graph.entities == ("a", "b", "c")
    assert graph.relations == ("r", "s")


def test_isolated_entities_of_a_vocabulary_have_the_empty_set():
    store = Triples.from_labels([("a", "r", "b")])
    graph = Graph.from_triples(store.with_vocabularies(Vocabulary.of(["a", "b", "hermit"]), store.relations))
    sets = relation_sets(graph)
    assert sets.sizes[sets.set_of_entity[graph.entity_id("hermit")]] == 0


def test_edge_that_is_not_there_is_refused_by_name():
    graph = Graph.from_triples([("a", "r", "b"), ("c", "r", "b")])
    with pytest.raises(DataError, match=r"\('a', 'r', 'c'\) is not in the graph"):
        graph.edge_id("a", "r", "c")
    with pytest.raises(UnknownNameError, match="entity 'z'"):
        graph.edge_id("z", "r", "c")
    with pytest.raises(UnknownNameError, match="relation 'rr'"):
        graph.edge_id("a", "rr", "c")


def test_other_relation_vocabulary_keeps_the_facts():
    graph = Graph.from_triples([("a", "r", "b"), ("b", "s", "c")])
    wider = graph.with_relations(RelationVocabulary(("a0", "r", "s", "t")))
    assert wider.triples == set(graph.triples)
    assert wider.num_relations == 4


def test_relation_that_the_other_vocabulary_lacks_is_named():
    graph = Graph.from_triples([("a", "works_For", "b")])
    with pytest.raises(UnknownNameError, match=r"'works_For' is unknown .*closest 'works_for'"):
        graph.with_relations(RelationVocabulary(("works_for",)))
    assert graph.without_relations(["works_For"]).num_triples == 0


def test_empty_graph_is_a_graph():
    graph = Graph.from_triples([])
    assert (graph.num_entities, graph.num_relations, graph.num_triples) == (0, 0, 0)
    assert graph.triples == set()


@pytest.mark.benchmark_data
def test_distinct_relation_sets_of_a_benchmark_are_few():
    sets = relation_sets(
        Graph.from_triples(read_triples(benchmark_folder() / "grail" / "fb237_v1" / "train.txt"))
    )
    assert (len(sets.words), sets.sizes.max()) == (1_017, 20)
