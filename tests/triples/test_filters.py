"""Known answers against dictionaries of plain sets."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contextpool.errors import DataError
from contextpool.triples.filters import KnownAnswers
from contextpool.triples.store import Triples
from support import amount

labels = st.sampled_from("abcde")
triples_lists = st.lists(st.tuples(labels, st.sampled_from(["r", "s", "t"]), labels), min_size=1, max_size=30)

WORLD = Triples.from_labels(
    [("a", "r", "b"), ("a", "r", "c"), ("a", "s", "b"), ("c", "r", "b"), ("c", "r", "c")]
)
A, B, C = 0, 1, 2
R, S = 0, 1


def test_known_tails_and_heads_of_a_small_world():
    answers = KnownAnswers.of(WORLD)
    assert answers.known_tails(A, R).tolist() == [B, C]
    assert answers.known_tails(A, S).tolist() == [B]
    assert answers.known_tails(B, R).tolist() == []
    assert answers.known_heads(R, B).tolist() == [A, C]
    assert answers.known_heads(S, C).tolist() == []
    assert answers.known_tails(A, R).dtype == np.int32


def test_batches_name_the_row_of_each_answer():
    answers = KnownAnswers.of(WORLD)
    row, entity = answers.tails_of(np.array([A, B, A]), np.array([S, S, R]))
    assert list(zip(row.tolist(), entity.tolist(), strict=True)) == [(0, B), (2, B), (2, C)]
    row, entity = answers.heads_of(np.array([R, R]), np.array([C, B]))
    assert list(zip(row.tolist(), entity.tolist(), strict=True)) == [(0, A), (0, C), (1, A), (1, C)]
    assert (row.dtype, entity.dtype) == (np.int64, np.int32)


def test_an_empty_batch_has_no_answers():
    row, entity = KnownAnswers.of(WORLD).tails_of(np.empty(0, dtype=np.int32), np.empty(0, dtype=np.int32))
    assert len(row) == len(entity) == 0


def test_no_triples_no_answers():
    nothing = WORLD.select(np.zeros(len(WORLD), dtype=bool))
    answers = KnownAnswers.of(nothing)
    assert len(answers) == 0
    assert answers.known_tails(A, R).tolist() == []


def test_what_two_parts_hold_counts_once():
    assert len(KnownAnswers.of(WORLD, WORLD)) == len(WORLD)


@pytest.mark.parametrize(("head", "relation"), [(3, R), (-1, R), (A, 2), (A, -1)])
def test_an_id_out_of_range_is_refused(head, relation):
    with pytest.raises(DataError, match="out of range"):
        KnownAnswers.of(WORLD).known_tails(head, relation)


def test_batches_of_different_length_are_refused():
    with pytest.raises(DataError, match=r"both have to be \[B\]"):
        KnownAnswers.of(WORLD).tails_of(np.array([A, B]), np.array([R]))


def test_parts_numbered_by_different_vocabularies_are_refused():
    with pytest.raises(DataError, match="share their vocabularies"):
        KnownAnswers.of(WORLD, Triples.from_labels([("x", "r", "y")]))
    with pytest.raises(DataError, match="at least one"):
        KnownAnswers.of()


@settings(max_examples=amount(200, 2000), deadline=None)
@given(triples_lists, st.integers(0, 30))
def test_answers_equal_those_of_plain_sets(rows, cut):
    whole = Triples.from_labels(rows)
    first = np.arange(len(whole)) < cut
    answers = KnownAnswers.of(whole.select(first), whole.select(~first))
    tails, heads = defaultdict(set), defaultdict(set)
    for head, relation, tail in whole.ids.tolist():
        tails[head, relation].add(tail)
        heads[relation, tail].add(head)
    asked = [
        (entity, relation)
        for entity in range(len(whole.entities))
        for relation in range(len(whole.relations))
    ]
    entity, relation = np.array(asked).T

    row, found = answers.tails_of(entity, relation)
    expected = [(number, tail) for number, query in enumerate(asked) for tail in sorted(tails[query])]
    assert list(zip(row.tolist(), found.tolist(), strict=True)) == expected
    row, found = answers.heads_of(relation, entity)
    expected = [(number, head) for number, (e, r) in enumerate(asked) for head in sorted(heads[r, e])]
    assert list(zip(row.tolist(), found.tolist(), strict=True)) == expected
    for e, r in asked:
        assert answers.known_tails(e, r).tolist() == sorted(tails[e, r])
        assert answers.known_heads(r, e).tolist() == sorted(heads[r, e])
