"""N3: Algorithm 1 against a literal twin on random graphs, and worlds whose families one can do by hand."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterable
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from context.literal import Labels, cnf_generate, cnf_train, graph_of, neighbors_of
from contextpool.context.families import ContextFamilies, checked_sizes, mine_families, select_relations
from contextpool.context.itemsets import least_relevant
from contextpool.context.neighbors import RelationSelector, mine_context
from contextpool.errors import ConfigError
from contextpool.graph.graph import Graph
from contextpool.graph.relation_sets import pack_bits, relation_sets, unpack_bits
from contextpool.triples.labels import Vocabulary
from contextpool.triples.store import Triples
from support import amount, benchmark_folder

MEASURES = ("precision", "recall")
THRESHOLDS = (0.0, 0.1, 0.2, 0.25, 1 / 3, 0.5, 2 / 3, 0.75, 0.99)
SIZES = (range(1, 6), range(9), (1,), (2, 4), (0,), (3, 1, 1), range(4, 6), (5, 1_000), ())
LABELS = ("a", "a]", "a_", "B", "é", "a^")  # "a^-1" sorts between some of them
TRICKY = [(label + inverse) for label in LABELS for inverse in ("", "^-1")]


# ---- graphs -----------------------------------------------------------------------------------------------------


def world(**relations_of: str) -> Graph:
    """Entities with one relation per letter, each relation leading to a thing of its own."""
    return graph_of([(e, r, f"thing of {r}") for e, letters in relations_of.items() for r in letters])


def words_of(graph: Graph, sets: list[Labels]) -> np.ndarray:
    labels = graph.relation_vocabulary.directed
    return pack_bits(np.array([[label in row for label in labels] for row in sets]).reshape(-1, len(labels)))


def table_as_labels(
    families: ContextFamilies, graph: Graph, sets: list[Labels]
) -> dict[tuple[Labels, str], Labels]:
    labels = graph.relation_vocabulary.directed
    table = families.selection_table(words_of(graph, sets), np.ones((len(sets), len(labels)), dtype=bool))
    rows = unpack_bits(table.rows, len(labels))
    answers = [frozenset(label for label, chosen in zip(labels, row, strict=True) if chosen) for row in rows]
    assert len(set(answers)) == len(answers), "identical answers share a row"
    return {
        (having, query): answers[table.row_of[s, q]]
        for s, having in enumerate(sets)
        for q, query in enumerate(labels)
    }


graphs = st.builds(
    graph_of,
    st.lists(
        st.tuples(st.sampled_from("uvwxyz"), st.sampled_from(LABELS[:4]), st.sampled_from("uvwxyz")),
        min_size=1,
        max_size=14,
    ),
    hermits=st.integers(0, 2),
    unused=st.sampled_from(((), (LABELS[4],))),
)
label_sets = st.frozensets(st.sampled_from(TRICKY), max_size=8)


# ---- against the twin -------------------------------------------------------------------------------------------


@settings(max_examples=amount(150, 20_000))
@given(
    graphs, st.sampled_from(THRESHOLDS), st.sampled_from(SIZES), st.lists(label_sets, min_size=1, max_size=3)
)
def test_families_and_selection_equal_the_pseudo_code(
    graph: Graph, threshold: float, sizes: Iterable[int], asked: list[Labels]
):
    has = neighbors_of(graph)
    for measure in MEASURES:
        families = mine_families(graph, measure, threshold, sizes)
        literal = cnf_train(has, measure, threshold, sizes)
        check_families(families, literal, asked)
        check_selection(families, graph, literal, [*asked, *set(has.values())])


def check_families(families: ContextFamilies, literal: dict[str, set[Labels]], asked: list[Labels]) -> None:
    for relation in families.relations.directed:
        family, members = families[relation], literal[relation]
        assert list(family) == sorted(members, key=lambda member: (len(member), sorted(member)))
        assert len(family) == len(members)
        assert all(member in family for member in members)
        assert all((labels in family) == (labels in members) for labels in asked)
    assert families.total == sum(map(len, literal.values()))


def check_selection(
    families: ContextFamilies, graph: Graph, literal: dict[str, set[Labels]], asked: list[Labels]
) -> None:
    known = frozenset(families.relations.directed)
    table = table_as_labels(families, graph, [having & known for having in asked])
    for (having, query), answer in table.items():
        assert answer == cnf_generate(literal[query], having)
    for having, query in itertools.product(asked, sorted(known)[:2]):
        assert select_relations(families, having, query) == cnf_generate(literal[query], having)


@pytest.mark.parametrize("measure", MEASURES)
def test_relations_beyond_one_machine_word_equal_the_pseudo_code(measure: str):
    for seed in range(amount(4, 100)):
        rng = random.Random(seed)
        relations = [f"r{number}" for number in range(75)]  # 150 directed relations, three words
        popular = rng.sample(relations, 8)
        triples = [
            (
                f"e{rng.randrange(12)}",
                rng.choice(popular if rng.random() < 0.7 else relations),
                f"e{rng.randrange(12)}",
            )
            for _ in range(35)
        ]
        graph = graph_of(triples, unused=relations)
        has = neighbors_of(graph)
        families = mine_families(graph, measure, 0.3, (1, 3, 4))
        literal = cnf_train(has, measure, 0.3, (1, 3, 4))
        check_families(families, literal, [])
        directed = families.relations.directed
        strangers = [frozenset(rng.sample(directed, 6)) for _ in range(5)]
        check_selection(families, graph, literal, [*set(has.values()), *strangers])


@pytest.mark.parametrize("measure", MEASURES)
def test_counting_equals_listing_where_sets_overlap_a_lot(measure: str):
    rng = random.Random(7)
    letters = "abcdefghijklmn"
    graph = world(**{f"e{n}": "".join(rng.sample(letters, rng.randint(1, 11))) for n in range(40)})
    for threshold, sizes in itertools.product((0.0, 0.15, 0.6), (range(15), (3, 7), (11,))):
        families = mine_families(graph, measure, threshold, sizes)
        for relation in ("a", "g", "n", "a^-1"):
            per_size = [len(families[relation].member_ids(size)) for size in families.sizes]
            assert len(families[relation]) == sum(per_size)


def test_singletons_are_the_neighbors_of_algorithm_3():
    graph = world(e="abcd", f="abc", g="ab", h="a", i="d")
    precise = mine_context(graph, min_precision=0.3)
    complete = mine_context(graph, min_precision=0.0, min_recall=0.3)
    for measure, context in (("precision", precise), ("recall", complete)):
        families = mine_families(graph, measure, 0.3, [1])
        for relation in families:
            assert families[relation] == {frozenset({label}) for label in context.neighbors(relation)}


# ---- by hand ----------------------------------------------------------------------------------------------------


@pytest.fixture
def people() -> Graph:
    """alice was born and lives somewhere, bob and carol only live there."""
    return graph_of(
        [("alice", "born", "x"), ("alice", "lives", "x"), ("bob", "lives", "x"), ("carol", "lives", "x")]
    )


def test_precision_and_recall_keep_their_direction(people: Graph):
    precision = mine_families(people, "precision", threshold=0.3)
    assert precision["born"] == {frozenset({"lives"})}  # 1 of 3 who live somewhere
    assert precision["lives"] == {frozenset({"born"})}  # 1 of 1
    recall = mine_families(people, "recall", threshold=0.5)
    assert recall["born"] == {frozenset({"lives"})}  # 1 of 1 who was born
    assert recall["lives"] == set()  # 1 of 3
    assert precision["born^-1"] == {frozenset({"lives^-1"})}


def test_the_threshold_is_strict_on_the_exact_ratio(people: Graph):
    assert len(mine_families(people, threshold=1 / 3)["born"]) == 0
    assert len(mine_families(people, threshold=math.nextafter(1 / 3, 0))["born"]) == 1
    ten = world(a="qx", **{f"e{n}": "x" for n in range(9)})
    assert len(mine_families(ten, threshold=0.1)["q"]) == 0  # 1 / 10


@given(st.integers(1, 200), st.fractions(0, Fraction(99, 100), max_denominator=300))
def test_the_least_relevant_count_is_exact(most: int, threshold: Fraction):
    least = least_relevant(most, float(threshold))
    for total in range(1, most + 1):
        assert least[total] == next(m for m in range(total + 1) if m / total > float(threshold))


def test_the_empty_set_counts_all_entities(people: Graph):
    lonely = graph_of(list(people.triples), hermits=4)
    for graph, num_entities in ((people, 4), (lonely, 8)):
        exact = 3 / num_entities  # alice, bob, carol
        assert frozenset() not in mine_families(graph, threshold=exact, sizes=[0])["lives"]
        assert list(mine_families(graph, threshold=exact - 0.01, sizes=[0])["lives"]) == [frozenset()]
    assert len(mine_families(lonely, "recall", 0.99, [0])["lives"]) == 1
    unused = graph_of(list(people.triples), unused=["dies"])
    assert len(mine_families(unused, "recall", 0.0, [0])["dies"]) == 0


def test_a_relation_that_everybody_has_is_counted_once():
    everybody = graph_of([("a", "self", "a"), ("b", "self", "b"), ("a", "likes", "a")])
    families = mine_families(everybody, threshold=0.0, sizes=range(5))
    assert families["likes"] == {
        frozenset(chosen)
        for size in range(4)
        for chosen in itertools.combinations(("self", "self^-1", "likes^-1"), size)
    }
    assert len(families["likes"]) == 8


def test_members_come_by_size_then_by_sorted_labels():
    families = mine_families(world(e="qcab"), sizes=[2, 1])
    assert [sorted(member) for member in families["q"]] == [
        ["a"],
        ["b"],
        ["c"],
        ["a", "b"],
        ["a", "c"],
        ["b", "c"],
    ]
    assert families["q"].member_ids(2).dtype == np.uint16
    labels = families.relations.directed
    assert [[labels[x] for x in row] for row in families["q"].member_ids(2)] == [
        ["a", "b"],
        ["a", "c"],
        ["b", "c"],
    ]
    assert len(families["q"].member_ids(3)) == 0


def test_membership_takes_any_iterable_of_labels_and_knows_what_is_no_set():
    family = mine_families(world(e="qab"))["q"]
    assert {"a", "b"} in family
    assert ["b", "a", "a"] in family
    assert ("a",) in family
    assert {"a", "unheard of"} not in family
    assert {"a", "q"} not in family
    assert {"a", "a^-1"} not in family
    assert "a" not in family
    assert 7 not in family
    assert frozenset() not in family


def test_an_unknown_relation_has_an_empty_family(people: Graph):
    family = mine_families(people)["unheard of"]
    assert len(family) == 0
    assert list(family) == []
    assert {"lives"} not in family
    assert select_relations(mine_families(people), {"lives"}, "unheard of") == frozenset()


def test_families_are_a_collection_of_relations(people: Graph):
    families = mine_families(people)
    assert list(families) == ["born", "lives", "born^-1", "lives^-1"]
    assert len(families) == 4
    assert "born" in families
    assert "dies" not in families
    assert families.total == sum(len(families[relation]) for relation in families) == 4
    assert repr(families) == "ContextFamilies(precision > 0.1, sizes 1-4, 4 directed relations, 4 entities)"
    assert (
        repr(mine_families(people, "recall", 0, [3, 1])["born"]) == "Family('born', recall > 0, sizes 1, 3)"
    )


def test_huge_families_are_counted_exactly_and_read_lazily():
    letters = [f"r{number:02}" for number in range(41)]
    graph = graph_of([("e", letter, f"thing of {letter}") for letter in letters])
    families = mine_families(graph, threshold=0, sizes=range(10**15))
    family = families["r40"]
    assert len(family) == 2**40
    assert families.total == 41 * 2**40 + 41  # a thing has nothing but the inverse: the empty set
    first = list(itertools.islice(family, 45))
    assert first[:3] == [frozenset(), frozenset({"r00"}), frozenset({"r01"})]
    assert first[41:43] == [frozenset({"r00", "r01"}), frozenset({"r00", "r02"})]
    assert set(letters[:20]) in family


def test_families_that_outgrow_len_are_still_searched():
    letters = [f"r{number:02}" for number in range(80)]
    graph = graph_of([("e", letter, f"thing of {letter}") for letter in letters])
    families = mine_families(graph, sizes=range(1, 80))
    with pytest.raises(ConfigError, match=r"sizes up to 79 .* 2\^63 .* smaller sizes"):
        len(families["r00"])
    assert next(iter(families["r00"])) == {"r01"}
    assert set(letters[1:40]) in families["r00"]
    assert select_relations(families, letters[:50], "r00") == set(letters[1:50])
    assert len(mine_families(graph, sizes=range(1, 6))["r00"]) == sum(
        math.comb(79, size) for size in range(1, 6)
    )


# ---- CNFGenerate by hand ----------------------------------------------------------------------------------------


def test_selection_takes_the_most_similar_member():
    families = mine_families(world(e="qabc", f="qd"), "recall", 0.4)
    assert select_relations(families, "abx", "q") == {"a", "b"}  # {a, b}: 2/3; {a, b, c}: 2/4
    assert select_relations(families, "abcq", "q") == {"a", "b", "c"}  # 3/4
    assert select_relations(families, "dz", "q") == {"d"}
    assert select_relations(families, "xz", "q") == frozenset()
    assert select_relations(families, "", "q") == frozenset()


def test_relations_that_nobody_knows_count_in_the_union():
    families = mine_families(world(e="qyzklm", f="qx"), "recall", 0.4, sizes=(1, 5))
    assert select_relations(families, "xyz", "q") == {
        "y",
        "z",
    }  # {y, z, k, l, m}: 2/6, {x}: 1/3; the larger share
    assert select_relations(families, "yz", "q") == {"y"}  # 2/5 against 1/2
    strangers = ["one", "two", "three"]
    assert select_relations(families, ["y", "z", *strangers], "q") == {"y", "z"}  # 2/8 against 1/5


def test_ties_end_at_the_sorted_labels_of_the_member():
    families = mine_families(world(e="qab", f="qac", g="qbz"), "recall", 0.3, sizes=[2])
    assert families["q"] == {frozenset("ab"), frozenset("ac"), frozenset("bz")}
    assert select_relations(families, "bc", "q") == {"b"}  # (a, b), (a, c) and (b, z) are all 1/3
    assert select_relations(families, "cz", "q") == {"c"}  # (a, c) before (b, z)


def test_only_wanted_pairs_are_filled_and_answers_share_rows():
    graph = world(e="qab", f="qb")
    families: RelationSelector = mine_families(graph, threshold=0.4)
    assert families.depends_on_entity
    sets = relation_sets(graph)
    wanted = np.zeros((len(sets.words), sets.num_directed), dtype=bool)
    empty = families.selection_table(sets.words, wanted)
    assert empty.rows.shape == (1, 1)
    assert not empty.rows.any()
    assert not empty.row_of.any()
    wanted[:, graph.relation_id("q")] = True
    table = families.selection_table(sets.words, wanted)
    assert table.row_of.dtype == np.int32
    assert len(np.unique(table.rows, axis=0)) == len(table.rows)
    assert not table.row_of[~wanted].any()


def test_a_graph_without_triples_has_no_families():
    nobody = Graph.from_triples(Triples.from_labels([]))
    hermit = Graph.from_triples(
        Triples(Vocabulary(("h",)), Vocabulary((), "relation"), np.empty((0, 3), np.int32))
    )
    for graph in (nobody, hermit):
        families = mine_families(graph, sizes=range(3))
        assert families.total == 0
        assert list(families["r"]) == []
        assert select_relations(families, {"r"}, "r") == frozenset()


# ---- what is refused --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"measure": "accuracy"}, "measure is 'accuracy'; it is 'precision' or 'recall'"),
        ({"threshold": 1.0}, r"threshold is 1.0.*\[0, 1\)"),
        ({"threshold": -0.1}, "threshold is -0.1"),
        ({"threshold": math.nan}, "threshold is nan"),
        ({"threshold": "0.1"}, "threshold is '0.1'"),
        ({"sizes": [1, -2]}, "sizes holds -2"),
        ({"sizes": range(-1, 3)}, "sizes holds -1"),
        ({"sizes": range(3, -2, -1)}, "sizes holds -1"),
        ({"sizes": 3}, "sizes is 3"),
        ({"sizes": [1.5]}, r"sizes is \[1.5\]"),
        ({"sizes": "12"}, "sizes is '12'"),
    ],
)
def test_bad_arguments_are_named(people: Graph, arguments: dict[str, object], message: str):
    with pytest.raises(ConfigError, match=message):
        mine_families(people, **arguments)  # type: ignore[arg-type]


def test_sizes_are_sorted_distinct_and_possible():
    assert checked_sizes([3, 1, 3, 9], most=5) == (1, 3)
    assert checked_sizes(iter([2]), most=5) == (2,)
    assert checked_sizes(range(9, 0, -4), most=6) == (1, 5)
    assert checked_sizes(np.arange(3), most=5) == (0, 1, 2)


@pytest.mark.benchmark_data
@pytest.mark.parametrize("measure", MEASURES)
def test_a_benchmark_graph_lists_what_it_counts(measure: str):
    from contextpool.graph.graph import read_graph

    graph = read_graph(benchmark_folder() / "grail" / "fb237_v1" / "train.txt")
    families = mine_families(graph, measure, sizes=range(4, 6))
    listed = [sum(len(families[relation].member_ids(size)) for size in (4, 5)) for relation in families]
    assert listed == [len(families[relation]) for relation in families]
