"""Contexts without meaning: their sizes, what chance decides, and that it decides the same every time."""

from __future__ import annotations

import numpy as np
import pytest

from contextpool.context.controls import Draw, fixed_control, random_mask, shuffled_mask
from contextpool.context.families import mine_families
from contextpool.context.neighbors import SelfPolicy, mine_context
from contextpool.context.selection import MaskSelector
from contextpool.graph.graph import Graph
from contextpool.graph.relation_sets import relation_sets, unpack_bits
from learning_worlds import one_thread as one_thread
from learning_worlds import random_graph
from support import amount

CASES = amount(25, 500)


def masks(seed: int, policy: SelfPolicy) -> tuple[np.ndarray, np.ndarray, Draw]:
    context = mine_context(random_graph(seed, most_relations=6), 0.2, 0.1, self=policy)
    return context.mask, context.counts.support > 0, Draw.of(len(context.mask), seed, 1)


@pytest.mark.parametrize("policy", ["exclude", "keep"])
def test_a_random_row_has_as_many_neighbors_that_somebody_has_and_its_own_place(policy: SelfPolicy) -> None:
    moved = 0
    for seed in range(CASES):
        mask, has_support, draw = masks(seed, policy)
        drawn = random_mask(mask, has_support, draw)
        assert drawn.sum(axis=1).tolist() == mask.sum(axis=1).tolist()
        assert (drawn.diagonal() == mask.diagonal()).all()
        assert not drawn[:, ~has_support].any()
        moved += int((drawn != mask).sum())
    assert moved > CASES


def test_a_larger_random_row_keeps_what_it_had() -> None:
    """On another graph counts differ a little: the context that a model was trained with should not be another one."""
    for seed in range(CASES):
        mask, has_support, draw = masks(seed, "exclude")
        fewer = mask & (np.cumsum(mask, axis=1) <= 1)
        small, large = (random_mask(each, has_support, draw) for each in (fewer, mask))
        assert not (small & ~large).any()


@pytest.mark.parametrize("policy", ["exclude", "keep"])
def test_a_shuffled_row_is_anothers_with_the_two_relations_changed(policy: SelfPolicy) -> None:
    for seed in range(CASES):
        mask, has_support, draw = masks(seed, policy)
        found = shuffled_mask(mask, has_support, draw)
        assert sorted(draw.other.tolist()) == list(range(len(mask)))
        for query, other in enumerate(draw.other.tolist()):
            assert other != query or len(mask) == 1
            changed = {query: other, other: query}
            for neighbor in range(len(mask)):
                assert found[query, neighbor] == mask[other, changed.get(neighbor, neighbor)]


def test_chance_depends_on_seed_and_view_alone() -> None:
    first, again = Draw.of(12, 3, 0), Draw.of(12, 3, 0)
    assert (first.rank == again.rank).all()
    assert (first.other == again.other).all()
    for seed, view in ((4, 0), (3, 1)):
        other = Draw.of(12, seed, view)
        assert (first.rank != other.rank).any()
        assert (first.other != other.other).any()
    order = np.argsort(first.rank, axis=1)
    assert len({tuple(row) for row in order.tolist()}) == 12  # every row is drawn anew


def test_random_neighbors_are_spread_evenly() -> None:
    """Over many seeds every neighbor is drawn about equally often."""
    mask = np.zeros((10, 10), dtype=bool)
    mask[:, :3] = True
    np.fill_diagonal(mask, False)
    everybody = np.ones(10, dtype=bool)
    total = sum(random_mask(mask, everybody, Draw.of(10, seed, 0)).astype(int) for seed in range(600))
    expected = 600 * mask.sum(axis=1, keepdims=True) / 9
    off_diagonal = ~np.eye(10, dtype=bool)
    assert (abs(total - expected)[off_diagonal] < 5 * np.sqrt(600 * 0.25)).all()


@pytest.mark.parametrize("control", ["random", "shuffled"])
def test_algorithm_3_becomes_a_plain_mask(control: str) -> None:
    context = mine_context(random_graph(7), 0.1)
    fixed = fixed_control(context, control, 5, 2)  # type: ignore[arg-type]
    assert isinstance(fixed, MaskSelector)
    make = random_mask if control == "random" else shuffled_mask
    expected = make(context.mask, context.counts.support > 0, Draw.of(len(context.mask), 5, 2))
    assert (fixed.mask == expected).all()


def table_of(graph: Graph, selector: object) -> np.ndarray:
    """[S, 2R, 2R] what may leave each relation set of a graph, asked with each of its own relations."""
    sets = relation_sets(graph)
    members = sets.members()
    table = selector.selection_table(sets.words, members)  # type: ignore[attr-defined]
    allowed = unpack_bits(table.rows, sets.num_directed)[table.row_of] & members[:, None, :]
    return np.where(members[:, :, None], allowed, False)


def test_a_random_answer_of_algorithm_1_is_as_large_and_of_the_same_set() -> None:
    moved = 0
    for seed in range(CASES):
        graph = random_graph(seed)
        families = mine_families(graph, measure="precision", threshold=0.2, sizes=(1, 2))
        real = table_of(graph, families)
        drawn = table_of(graph, fixed_control(families, "random", seed, 0))
        assert (real.sum(axis=2) == drawn.sum(axis=2)).all()
        own = np.arange(real.shape[2])
        assert (real[:, own, own] == drawn[:, own, own]).all()
        moved += int((real != drawn).sum())
    assert moved > 0


def test_a_shuffled_answer_of_algorithm_1_is_what_it_says_to_another_relation() -> None:
    for seed in range(CASES // 2):
        graph = random_graph(seed)
        families = mine_families(graph, measure="recall", threshold=0.2, sizes=(1, 2))
        control = fixed_control(families, "shuffled", seed, 0)
        sets = relation_sets(graph)
        everything = np.ones((len(sets.words), sets.num_directed), dtype=bool)
        real, found = (
            unpack_bits(table.rows, sets.num_directed)[table.row_of] & sets.members()[:, None, :]
            for table in (one.selection_table(sets.words, everything) for one in (families, control))
        )
        other = Draw.of(sets.num_directed, seed, 0).other
        assert (found == real[:, other]).all()
