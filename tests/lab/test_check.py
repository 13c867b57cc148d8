"""Planted errors, and how well an order finds them, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from contextpool.triples.catalog import load_dataset
from lab.check import area, planted, precision


def test_one_in_a_hundred_facts_gets_another_tail_of_its_relation() -> None:
    facts = load_dataset("world").inference_graph
    graph, rows, wrong = planted(facts, seed=3)
    before = {tuple(row) for row in facts.ids.tolist()}
    tails = {(relation, tail) for _, relation, tail in before}
    assert wrong.sum() == round(0.01 * len(facts)) == 27
    assert len(rows) == len(facts)
    assert {tuple(row) for row in rows[~wrong].tolist()} <= before
    for head, relation, tail in rows[wrong].tolist():
        assert (head, relation, tail) not in before
        assert (relation, tail) in tails
        assert head != tail
    again = planted(facts, seed=3)
    assert np.array_equal(again[1], rows)
    assert graph.num_triples == len(facts)


def test_the_area_counts_pairs() -> None:
    wrong = np.array([True, False, True, False])
    assert area(np.array([0.0, 1.0, 0.1, 2.0]), wrong) == 1.0
    assert area(np.array([2.0, 1.0, 3.0, 0.0]), wrong) == 0.0
    assert area(np.zeros(4), wrong) == 0.5


def test_precision_is_among_the_least_supported_hundredth() -> None:
    wrong = np.zeros(200, dtype=bool)
    wrong[[0, 7]] = True
    support, weight = np.arange(200.0), np.ones(200)
    assert precision(support, wrong, weight) == 0.5  # the two least supported: 0 and 1
    assert precision(np.zeros(200), wrong, weight) == pytest.approx(0.01)  # any order is as good
    sampled = np.append(np.flatnonzero(wrong), [1, 50])  # two others stand for 198
    few = precision(support[sampled], wrong[sampled], np.array([1.0, 1.0, 99.0, 99.0]))
    assert few == pytest.approx(0.5)
