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
from support import amount, known_tails

labels = st.sampled_from("abcde")
triples_lists = st.lists(st.tuples(labels, st.sampled_from(["r", "s", "t"]), labels), min_size=1, max_size=30)

WORLD = Triples.from_labels(
    [("a", "r", "b"), ("a", "r", "c"), ("a", "s", "b"), ("c", "r", "b"), ("c", "r", "c")]
)
A, B, C = 0, 1, 2
R, S = 0, 1


def asked(answers, entities, relations, is_tail):
    row, entity = answers.answers_to(np.array(entities), np.array(relations), np.full(len(entities), is_tail))
    return list(zip(row.tolist(), entity.tolist(), strict=True))


def test_known_tails_and_heads_of_a_small_world():
    answers = KnownAnswers.of(WORLD)
    assert known_tails(answers, A, R) == [B, C]
    assert known_tails(answers, A, S) == [B]
    assert known_tails(answers, B, R) == []
    assert asked(answers, [B], [R], False) == [(0, A), (0, C)]
    assert asked(answers, [C], [S], False) == []
    assert answers.answer.dtype == np.int32


def test_batches_name_the_row_of_each_answer():
    answers = KnownAnswers.of(WORLD)
    assert asked(answers, [A, B, A], [S, S, R], True) == [(0, B), (2, B), (2, C)]
    assert asked(answers, [C, B], [R, R], False) == [(0, A), (0, C), (1, A), (1, C)]
    row, entity = answers.answers_to(np.array([A]), np.array([R]), np.array([True]))
    assert (row.dtype, entity.dtype) == (np.int64, np.int32)


def test_a_batch_may_ask_both_ways():
    both = KnownAnswers.of(WORLD).answers_to(np.array([A, C]), np.array([R, R]), np.array([True, False]))
    assert [column.tolist() for column in both] == [[0, 0, 1, 1], [B, C, A, C]]


def test_an_empty_batch_has_no_answers():
    nothing = np.empty(0, dtype=np.int32)
    row, entity = KnownAnswers.of(WORLD).answers_to(nothing, nothing, nothing.astype(bool))
    assert len(row) == len(entity) == 0


def test_no_triples_no_answers():
    nothing = WORLD.select(np.zeros(len(WORLD), dtype=bool))
    answers = KnownAnswers.of(nothing)
    assert len(answers) == 0
    assert known_tails(answers, A, R) == []


def test_what_two_parts_hold_counts_once():
    assert len(KnownAnswers.of(WORLD, WORLD)) == len(WORLD)


@pytest.mark.parametrize(("head", "relation"), [(3, R), (-1, R), (A, 2), (A, -1)])
def test_an_id_out_of_range_is_refused(head, relation):
    with pytest.raises(DataError, match="out of range"):
        known_tails(KnownAnswers.of(WORLD), head, relation)


def test_batches_of_different_length_are_refused():
    with pytest.raises(DataError, match=r"both have to be \[B\]"):
        asked(KnownAnswers.of(WORLD), [A, B], [R], True)


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
    queries = [
        (entity, relation)
        for entity in range(len(whole.entities))
        for relation in range(len(whole.relations))
    ]
    columns = tuple(zip(*queries, strict=True))
    expected = [(number, tail) for number, query in enumerate(queries) for tail in sorted(tails[query])]
    assert asked(answers, *columns, True) == expected
    expected = [(number, head) for number, (e, r) in enumerate(queries) for head in sorted(heads[r, e])]
    assert asked(answers, *columns, False) == expected
