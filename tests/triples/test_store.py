"""Triples: distinct, sorted, renumbered without loss."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextpool.errors import DataError, UnknownNameError
from contextpool.triples.labels import Vocabulary
from contextpool.triples.store import Triples, union

labels = st.sampled_from(["a", "b", "c", "d", "e"])
facts = st.lists(st.tuples(labels, st.sampled_from(["p", "q"]), labels), max_size=20)


@given(facts)
def test_facts_survive_numbering_and_duplicates_collapse(rows):
    store = Triples.from_labels(rows)
    assert set(store) == set(rows)
    assert len(store) == len(set(rows))
    assert list(store) == sorted(set(rows))


@given(facts, facts)
def test_union_is_the_union(first, second):
    assert set(union([Triples.from_labels(first), Triples.from_labels(second)])) == set(first) | set(second)


@given(facts)
def test_other_vocabularies_keep_the_facts(rows):
    store = Triples.from_labels(rows)
    wider = store.with_vocabularies(Vocabulary.of("abcdefgh"), Vocabulary.of(["p", "q", "z"], "relation"))
    assert set(wider) == set(rows)
    assert wider == store


@given(facts, st.integers(0, 25), st.integers(0, 3))
def test_a_sample_is_so_many_of_the_facts_and_the_same_ones_again(rows, number, seed):
    store = Triples.from_labels(rows)
    sample = store.sample(number, seed)
    assert len(sample) == min(number, len(store))
    assert list(sample) == [fact for fact in store if fact in set(sample)]
    assert list(store.sample(number, seed)) == list(sample)


def test_vocabulary_that_lacks_a_label_is_refused_by_name():
    store = Triples.from_labels([("a", "r", "b")])
    with pytest.raises(DataError, match=r"\('a', 'r', 'b'\)"):
        store.with_vocabularies(Vocabulary.of(["a"]), store.relations)


def test_unknown_entity_names_the_closest():
    with pytest.raises(UnknownNameError, match="closest 'France'"):
        Vocabulary.of(["France", "Spain"]).id_of("france")


@pytest.mark.parametrize("row", [("a", "r"), "arb and more", ("a", 1, "b"), ("a", "", "b"), None])
def test_what_is_no_triple_is_refused_with_its_place(row):
    with pytest.raises(DataError, match=r"triples\[1\]"):
        Triples.from_labels([("a", "r", "b"), row])


def test_no_triples_is_an_empty_store():
    assert Triples.from_labels([]).ids.shape == (0, 3)
    assert Triples.from_labels([]).ids.dtype == np.int32
