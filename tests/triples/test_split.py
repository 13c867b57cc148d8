"""Splits: nothing leaks, nothing is lost by accident, and the seed decides everything."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from contextpool.errors import ConfigError, DataError
from contextpool.triples.dataset import Dataset, used_only
from contextpool.triples.reader import read_triples
from contextpool.triples.split import grow_region, hold_out, split_triples
from contextpool.triples.store import Triple, Triples
from support import amount, benchmark_folder


def clique(prefix: str, size: int) -> list[Triple]:
    members = [f"{prefix}{number}" for number in range(size)]
    relation = {0: "even", 1: "odd"}
    pairs = [(i, j) for i in range(size) for j in range(i)]
    return [(members[i], relation[(i + j) % 2], members[j]) for i, j in pairs]


BRIDGE = ("a0", "even", "b0")
TWO_CLIQUES = Triples.from_labels([*clique("a", 7), BRIDGE, *clique("b", 7)])


def random_graph(seed: int) -> Triples:
    rng = random.Random(seed)
    entities = [f"e{number}" for number in range(rng.randint(3, 30))]
    relations = [f"r{number}" for number in range(rng.randint(1, 4))]
    count = rng.randint(8, 150)
    return Triples.from_labels(
        (rng.choice(entities), rng.choice(relations), rng.choice(entities)) for _ in range(count)
    )


def entities_of(*parts: Triples | None) -> set[str]:
    return {label for part in parts if part is not None for head, _, tail in part for label in (head, tail)}


def relations_of(*parts: Triples | None) -> set[str]:
    return {relation for part in parts if part is not None for _, relation, _ in part}


def split_or_skip(graph: Triples, **settings_: object) -> Dataset:
    """The split, or the example dropped where the graph is too small for it."""
    try:
        return split_triples(graph, **settings_)  # type: ignore[arg-type]
    except DataError as error:
        assume("too small" not in str(error))
        raise


@settings(max_examples=amount(100, 1000), deadline=None)
@given(st.integers(0, 10**6), st.integers(0, 3))
def test_transductive_splits_cover_and_do_not_leak(graph_seed, seed):
    graph = random_graph(graph_seed)
    dataset = split_or_skip(graph, inductive=False, seed=seed)
    train, valid, test = (
        set(part) for part in (dataset.training_graph, dataset.validation_queries, dataset.inference_test)
    )
    assert train | valid | test == set(graph)
    assert len(train) + len(valid) + len(test) == len(graph)
    assert valid
    assert test
    assert entities_of(dataset.training_graph) == entities_of(graph)
    assert relations_of(dataset.training_graph) == relations_of(graph)


@settings(max_examples=amount(100, 1000), deadline=None)
@given(st.integers(0, 10**6), st.integers(0, 3))
def test_inductive_splits_are_disjoint_and_do_not_leak(graph_seed, seed):
    graph = random_graph(graph_seed)
    dataset = split_or_skip(graph, inductive=True, seed=seed)
    home = [dataset.training_graph, dataset.training_valid, dataset.validation_queries]
    away = [dataset.inference_graph, dataset.inference_valid, dataset.inference_test]
    assert not entities_of(*home) & entities_of(*away)
    assert relations_of(*away) <= relations_of(dataset.training_graph)
    for half in (home, away):
        sets = [set(part) for part in half if part is not None]
        assert all(sets)
        assert sum(map(len, sets)) == len(set.union(*sets))
        assert set.union(*sets) <= set(graph)
        assert entities_of(half[0]) == entities_of(*half)
    kept = sum(len(part) for part in (*home, *away) if part is not None)
    assert dataset.kept_share == pytest.approx(kept / len(graph))


@settings(max_examples=amount(25, 200), deadline=None)
@given(st.integers(0, 10**6), st.booleans(), st.randoms(use_true_random=False))
def test_the_order_of_the_input_does_not_matter(graph_seed, inductive, shuffler):
    graph = random_graph(graph_seed)
    rows = list(graph)
    shuffler.shuffle(rows)
    shuffled = Triples.from_labels([*rows, rows[0]])
    one = split_or_skip(graph, inductive=inductive, seed=5)
    other = split_or_skip(shuffled, inductive=inductive, seed=5)
    for part in (
        "training_graph",
        "training_queries",
        "validation_queries",
        "inference_graph",
        "inference_test",
    ):
        assert set(getattr(one, part)) == set(getattr(other, part))


def test_labels_that_no_triple_names_do_not_matter():
    wide = Triples.from_labels([*TWO_CLIQUES, ("0", "0", "0")])
    same = wide.select(wide.ids[:, 1] != wide.relations.id_of("0"))
    assert len(same.entities) == len(TWO_CLIQUES.entities) + 1
    one, other = (split_triples(graph, inductive=True, seed=1) for graph in (TWO_CLIQUES, same))
    assert one.training_graph == other.training_graph
    assert one.inference_test == other.inference_test
    assert other.training_entities.labels == one.training_entities.labels


def test_another_seed_is_another_split():
    tests = {
        tuple(split_triples(TWO_CLIQUES, inductive=False, seed=seed).inference_test) for seed in range(5)
    }
    assert len(tests) > 1


def test_the_global_generator_is_left_alone():
    before = np.random.get_state()[1].tolist()  # type: ignore[index, union-attr]
    split_triples(TWO_CLIQUES, inductive=True, seed=0)
    assert np.random.get_state()[1].tolist() == before  # type: ignore[index, union-attr]


def test_shares_are_kept():
    dataset = split_triples(TWO_CLIQUES, inductive=False, seed=0, valid=0.2, test=0.3)
    assert len(dataset.validation_queries) == round(0.2 * 43)
    assert len(dataset.inference_test) == round(0.3 * 43)


@pytest.mark.parametrize("seed", range(5))
def test_two_cliques_are_cut_at_their_bridge(seed):
    region = grow_region(TWO_CLIQUES, 0.5, np.random.default_rng(seed))
    inside = {
        label for label, is_in in zip(TWO_CLIQUES.entities.labels, region.tolist(), strict=True) if is_in
    }
    assert len({label[0] for label in inside}) == 1
    assert len(inside) == 7
    dataset = split_triples(TWO_CLIQUES, inductive=True, seed=seed, inference_share=0.5)
    assert dataset.kept_share == pytest.approx(42 / 43)
    assert BRIDGE not in {*dataset.training_queries, *dataset.inference_graph}


def test_components_fill_the_region_one_after_another():
    islands = Triples.from_labels(triple for island in "abcdefghij" for triple in clique(island, 4))
    region = grow_region(islands, 0.3, np.random.default_rng(0))
    inside = {label for label, is_in in zip(islands.entities.labels, region.tolist(), strict=True) if is_in}
    assert len(inside) == 4 * len({label[0] for label in inside})  # whole islands only
    assert 2 <= len({label[0] for label in inside}) <= 4


def test_inference_relations_that_training_lacks_are_dropped():
    own = [(f"b{number}", "own", f"b{number + 1}") for number in range(3)]
    graph = Triples.from_labels([*clique("a", 9), *clique("b", 5), *own])
    dataset = split_triples(graph, inductive=True, seed=0)
    assert entities_of(dataset.inference_graph) == {f"b{number}" for number in range(5)}
    assert "own" not in dataset.relations
    assert dataset.kept_share == pytest.approx((len(graph) - 3) / len(graph))


def test_hold_out_takes_what_it_can_and_no_more():
    star = Triples.from_labels([("hub", "r", f"leaf{number}") for number in range(5)])
    assert not hold_out(star, 3, np.random.default_rng(0)).any()
    triangle = Triples.from_labels([("a", "r", "b"), ("b", "r", "c"), ("c", "r", "a")])
    assert hold_out(triangle, 3, np.random.default_rng(0)).sum() == 1


def test_a_self_loop_counts_once_for_its_entity():
    loop = Triples.from_labels([("a", "r", "a"), ("b", "r", "c"), ("b", "r", "b")])
    held = loop.select(hold_out(loop, 3, np.random.default_rng(0)))
    assert set(held) == {("b", "r", "b")}


@pytest.mark.parametrize("seed", range(8))
def test_holding_a_self_loop_out_costs_its_entity_one_triple(seed):
    graph = Triples.from_labels([("a", "r", "a"), ("a", "r", "b"), ("b", "r", "a")])
    assert hold_out(graph, 3, np.random.default_rng(seed)).sum() == 2


@pytest.mark.parametrize("seed", range(8))
def test_the_only_triple_of_a_relation_is_not_held_out(seed):
    graph = Triples.from_labels([("a", "r", "b"), ("b", "r", "a"), ("a", "once", "b")])
    held = graph.select(hold_out(graph, 3, np.random.default_rng(seed)))
    assert set(held) in ({("a", "r", "b")}, {("b", "r", "a")})


@pytest.mark.parametrize("inductive", [True, False])
def test_a_graph_too_small_to_split_says_so(inductive):
    with pytest.raises(DataError, match="holds 1 triples, and a split needs 3"):
        split_triples(Triples.from_labels([("a", "r", "b")]), inductive=inductive, seed=0)


def test_a_star_cannot_be_split():
    star = Triples.from_labels([("hub", "r", f"leaf{number}") for number in range(20)])
    with pytest.raises(DataError, match=r"too sparse to split: 2 \+ 2 of its 20 triples .* only 0 can be"):
        split_triples(star, inductive=False, seed=0)
    with pytest.raises(DataError, match="too small to split in two"):
        split_triples(star, inductive=True, seed=0)


@pytest.mark.parametrize(
    ("settings_", "why"),
    [
        ({"valid": 0.0}, "valid is 0.0"),
        ({"test": 1.0}, "test is 1.0"),
        ({"valid": 0.5, "test": 0.5}, "nothing would be left"),
        ({"inference_share": -1.0}, "inference_share is -1.0"),
        ({"seed": -1}, "seed is -1"),
        ({"seed": 0.5}, "seed is 0.5"),
    ],
)
def test_settings_out_of_range_are_refused(settings_, why):
    with pytest.raises(ConfigError, match=why):
        split_triples(TWO_CLIQUES, **{"inductive": True, "seed": 0, **settings_})


@pytest.mark.benchmark_data
@pytest.mark.parametrize("name", ["fb237_v1", "WN18RR_v1", "nell_v1"])
def test_real_graphs_keep_most_of_their_triples(name):
    graph = read_triples(benchmark_folder() / "grail" / name / "train.txt")
    dataset = split_triples(graph, inductive=True, seed=0)
    chance = 0.3**2 + 0.7**2  # kept by a random region of the same size
    assert dataset.kept_share > chance + 0.1
    assert len(dataset.inference_graph) > 0.1 * len(graph)
    assert len(used_only(dataset.training_graph).entities) == len(dataset.training_entities)
