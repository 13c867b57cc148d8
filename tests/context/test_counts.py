"""N1 and N2: counts, precision and recall against sets in plain Python, and engines against each other."""

from __future__ import annotations

import hashlib
import itertools
import random

import numpy as np
import pytest
import scipy.sparse

from contextpool.context.counts import Cooccurrence, check_relation_count, count_cooccurrence
from contextpool.context.neighbors import mine_context
from contextpool.context.relevance import neighborhood_precision, neighborhood_recall
from contextpool.errors import ConfigError, DataError, UnknownNameError
from contextpool.graph.graph import Graph
from contextpool.graph.relations import RelationVocabulary
from contextpool.triples.labels import Vocabulary
from contextpool.triples.store import Triples
from support import amount, random_triples, relation_sets_of


def graph_with_hermits(triples: list[tuple[str, str, str]], seed: int) -> Graph:
    """The graph of the triples with up to three isolated entities and an unused relation."""
    store = Triples.from_labels(triples)
    hermits = [f"hermit{number}" for number in range(seed % 4)]
    entities = Vocabulary.of([*store.entities.labels, *hermits])
    relations = Vocabulary.of([*store.relations.labels, *(["unused"] if seed % 3 == 0 else [])], "relation")
    return Graph.from_triples(store.with_vocabularies(entities, relations))


def counts_by_sets(triples: list[tuple[str, str, str]], relations: RelationVocabulary) -> np.ndarray:
    has = relation_sets_of(triples)
    having = {label: {entity for entity in has if label in has[entity]} for label in relations.directed}
    return np.array([[len(having[a] & having[b]) for b in relations.directed] for a in relations.directed])


def check_against_sets(seed: int) -> None:
    triples = random_triples(seed)
    graph = graph_with_hermits(triples, seed)
    counts = count_cooccurrence(graph)
    both = counts_by_sets(triples, graph.relation_vocabulary)
    assert (counts.both == both).all()
    assert (counts.both == counts.both.T).all()
    precision, recall = neighborhood_precision(counts), neighborhood_recall(counts)
    assert (precision == recall.T).all()
    support = both.diagonal()
    for a in range(len(both)):
        for b in range(len(both)):
            assert precision[a, b] == (both[a, b] / support[b] if support[b] else 0)
            assert recall[a, b] == (both[a, b] / support[a] if support[a] else 0)


def test_counts_precision_and_recall_equal_plain_sets_on_random_graphs():
    for seed in range(amount(400, 50_000)):
        check_against_sets(seed)


def test_counts_ignore_order_duplicates_and_names():
    for seed in range(amount(100, 5_000)):
        triples = random_triples(seed)
        rng = random.Random(seed)
        entities = sorted({label for h, _, t in triples for label in (h, t)})
        renamed = dict(zip(entities, rng.sample([f"x{n}" for n in range(50)], len(entities)), strict=True))
        shuffled = [(renamed[h], r, renamed[t]) for h, r, t in rng.sample(triples, len(triples))] + [
            (renamed[h], r, renamed[t]) for h, r, t in triples[:3]
        ]
        first = count_cooccurrence(Graph.from_triples(triples))
        second = count_cooccurrence(Graph.from_triples(shuffled))
        assert (first.both == second.both).all()


def test_neighbors_shrink_as_a_threshold_grows():
    for seed in range(amount(100, 5_000)):
        graph = Graph.from_triples(random_triples(seed))
        masks = [
            mine_context(graph, threshold, threshold / 2).mask for threshold in (0.0, 0.1, 0.3, 0.5, 0.9)
        ]
        assert all((tighter <= looser).all() for looser, tighter in itertools.pairwise(masks))


@pytest.mark.parametrize("num_triples", [10_000, 1_000_000])
def test_engines_agree_on_a_checksum(num_triples: int):
    rng = np.random.default_rng(num_triples)
    num_entities, num_relations = num_triples // 10, 50
    head, tail = (rng.zipf(1.6, num_triples) % num_entities for _ in range(2))
    relation = rng.integers(0, num_relations, num_triples)
    graph = graph_of_columns(head, relation, tail, num_entities, num_relations)
    engines = {
        "graph": count_cooccurrence(graph).both,
        "scipy": counts_by_scipy(head, relation, tail, num_entities, num_relations),
    }
    checksums = {
        name: hashlib.sha256(np.ascontiguousarray(c, dtype="<i8")).hexdigest() for name, c in engines.items()
    }
    assert len(set(checksums.values())) == 1, checksums


def graph_of_columns(head, relation, tail, num_entities: int, num_relations: int) -> Graph:
    width = len(str(num_entities))
    entities = Vocabulary(tuple(f"{n:0{width}}" for n in range(num_entities)))
    relations = Vocabulary(tuple(f"{n:03}" for n in range(num_relations)), "relation")
    ids = np.unique(np.stack([head, relation, tail], axis=1), axis=0).astype(np.int32)
    return Graph.from_triples(Triples(entities, relations, ids))


def counts_by_scipy(head, relation, tail, num_entities: int, num_relations: int) -> np.ndarray:
    entity, kind = np.concatenate([head, tail]), np.concatenate([relation, relation + num_relations])
    has = scipy.sparse.csr_matrix(
        (np.ones(len(entity), dtype=np.int64), (entity, kind)), shape=(num_entities, 2 * num_relations)
    )
    has.data[:] = 1
    return (has.T @ has).toarray()


def test_counts_of_two_graphs_add():
    first = Graph.from_triples([("a", "r", "b"), ("a", "s", "c")])
    second = Graph.from_triples([("x", "r", "y"), ("x", "s", "x")])
    together = Graph.from_triples([*first.triples, *second.triples])
    total = count_cooccurrence(first) + count_cooccurrence(second)
    assert (total.both == count_cooccurrence(together).both).all()
    assert total.num_entities == together.num_entities


def test_counts_of_different_vocabularies_do_not_add():
    first = count_cooccurrence(Graph.from_triples([("a", "r", "b")]))
    second = count_cooccurrence(Graph.from_triples([("a", "s", "b")]))
    with pytest.raises(DataError, match="vocabularies"):
        first + second


def test_too_many_relations_are_refused_before_memory_is():
    with pytest.raises(DataError, match="swapped"):
        check_relation_count(2 * 10_001)


def test_precision_and_recall_keep_their_direction():
    # alice has both, bob and carol only live somewhere: 1 of 3 who live somewhere was born somewhere
    context = mine_context(
        Graph.from_triples(
            [
                ("alice", "born_in", "x"),
                ("alice", "lives_in", "y"),
                ("bob", "lives_in", "y"),
                ("carol", "lives_in", "y"),
            ]
        )
    )
    assert context.precision("born_in", "lives_in") == pytest.approx(1 / 3)
    assert context.recall("born_in", "lives_in") == 1
    assert context.precision("lives_in", "born_in") == 1
    assert context.recall("lives_in", "born_in") == pytest.approx(1 / 3)


def test_neighbors_come_best_first_with_ties_by_label():
    triples = (
        [("a", r, "x") for r in ("q", "n2", "n1", "far")]
        + [("b", r, "x") for r in ("q", "far")]
        + [("c", "far", "x")]
    )
    context = mine_context(Graph.from_triples(triples), min_precision=0.0)
    assert context.neighbors("q") == ["n1", "n2", "far"]
    assert context.precision("q", "far") == pytest.approx(2 / 3)


def test_thresholds_are_strict():
    triples = [("a", "q", "x"), ("a", "n", "x"), ("b", "n", "x")]
    graph = Graph.from_triples(triples)
    assert "n" in mine_context(graph, min_precision=0.49).neighbors("q")
    assert "n" not in mine_context(graph, min_precision=0.5).neighbors("q")


def test_both_thresholds_have_to_be_exceeded():
    triples = [("a", "q", "x"), ("a", "n", "x"), ("b", "q", "x")]
    graph = Graph.from_triples(triples)
    assert "n" in mine_context(graph, min_precision=0.9, min_recall=0.4).neighbors("q")
    assert "n" not in mine_context(graph, min_precision=0.9, min_recall=0.5).neighbors("q")


def test_a_relation_is_its_own_neighbor_only_where_asked_for():
    graph = Graph.from_triples([("a", "q", "b")])
    assert mine_context(graph, 0.0).neighbors("q") == []
    assert mine_context(graph, 0.0, self="keep").neighbors("q") == ["q"]


@pytest.mark.parametrize("bad", [-0.1, 1.0, float("nan")])
def test_threshold_out_of_range_is_refused_by_its_key(bad: float):
    graph = Graph.from_triples([("a", "q", "b")])
    with pytest.raises(ConfigError, match="min_precision"):
        mine_context(graph, min_precision=bad)
    with pytest.raises(ConfigError, match="min_recall"):
        mine_context(graph, min_recall=bad)


def test_unknown_relation_is_an_error_with_a_suggestion():
    context = mine_context(Graph.from_triples([("a", "born_in", "b")]))
    with pytest.raises(UnknownNameError, match="closest 'born_in'"):
        context.neighbors("born_inn")


def test_single_share_counts_the_same(monkeypatch):
    import contextpool.context.counts as module

    graph = Graph.from_triples(random_triples(5, most=200))
    threaded = count_cooccurrence(graph).both
    monkeypatch.setattr(module, "MAX_BYTES_A_THREAD", 0)
    assert (count_cooccurrence(graph).both == threaded).all()


def test_empty_graph_has_empty_counts():
    counts = count_cooccurrence(Graph.from_triples([]))
    assert isinstance(counts, Cooccurrence)
    assert counts.both.shape == (0, 0)
