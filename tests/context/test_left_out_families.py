"""Algorithm 1 as if a fact had never been mined, against mining anew without it: every fact of every graph."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from context.literal import Labels, cnf_generate, cnf_train, graph_of, neighbors_of
from contextpool.context import left_out_families
from contextpool.context.families import ContextFamilies, Measure, mine_families
from contextpool.context.left_out_families import (
    KEEPS,
    LeftOutFamilies,
    LostFact,
    Situation,
    SmallerSet,
)
from contextpool.errors import DataError
from contextpool.graph.graph import Graph
from contextpool.graph.io import read_graph
from contextpool.graph.relation_sets import RelationSets, Words, relation_sets, unpack_bits
from learning_worlds import one_thread as one_thread
from learning_worlds import without_fact
from support import amount, benchmark_folder

MEASURES: tuple[Measure, ...] = ("precision", "recall")
THRESHOLDS = (0.0, 0.1, 0.2, 0.25, 1 / 3, 0.49, 0.5, 2 / 3, 0.75, 0.99)
SIZES = (range(1, 6), (1,), (1, 2), (2, 4), (0, 3), ())
RELATIONS = ("a", "a]", "B", "é")

facts = st.lists(
    st.tuples(st.sampled_from("uvwxyz"), st.sampled_from(RELATIONS), st.sampled_from("uvwxyz")),
    min_size=1,
    max_size=14,
)


class LeftOut:
    """One edge of a graph, what is left without its fact, and the situation that it is in, by plain sets of labels."""

    def __init__(self, graph: Graph, sets: RelationSets, edge: int) -> None:
        self.smaller_graph = without_fact(graph, edge)
        self.full, self.left = neighbors_of(graph), neighbors_of(self.smaller_graph)
        self._graph, self._sets = graph, sets
        head, relation, tail = graph.edge_label(edge)
        if relation.endswith("^-1"):
            head, relation, tail = tail, relation[:-3], head
        self.losers = [e for e in dict.fromkeys((head, tail)) if self.full[e] != self.left[e]]
        ends = ((head, relation), (tail, relation + "^-1"))
        rows = [self.row_of(entity) if label not in self.left[entity] else KEEPS for entity, label in ends]
        fact = LostFact(graph.relation_id(relation), *rows, head == tail)
        smaller = (SmallerSet(self.row_of(entity), self._words(self.left[entity])) for entity in self.losers)
        self.situation = Situation(fact, tuple(smaller))

    def row_of(self, entity: str) -> int:
        return int(self._sets.set_of_entity[self._graph.entity_id(entity)])

    def _words(self, labels: Labels) -> bytes:
        number = sum(1 << self._graph.relation_id(label) for label in labels)
        return number.to_bytes(8 * self._sets.words.shape[1], "little")

    def questions(self) -> Iterator[tuple[int, str, str]]:
        """Row of the entity's set (S + place where it is smaller), entity, query: all that a walk may ask."""
        for entity in self._graph.entities:
            row = self.row_of(entity)
            if entity in self.losers:
                row = len(self._sets.words) + self.losers.index(entity)
            for query in sorted(self.full[entity]):
                yield row, entity, query


Answers = dict[tuple[int, str], Labels]
"""By (row of a set, query)."""


def usual_answers(families: ContextFamilies, sets: RelationSets) -> Answers:
    table = families.selection_table(sets.words, sets.members())
    rows, directed = as_labels(table.rows, families), families.relations.directed
    return {(s, directed[q]): rows[table.row_of[s, q]] for s, q in np.argwhere(sets.members()).tolist()}


def changed_answers(left_out: LeftOutFamilies, situation: Situation, families: ContextFamilies) -> Answers:
    changed = left_out.answers([situation])[situation]
    queries = [families.relations.directed[query] for query in changed.query]
    keys = zip(changed.set_row.tolist(), queries, strict=True)
    return dict(zip(keys, as_labels(changed.answer, families), strict=True))


def as_labels(words: Words, families: ContextFamilies) -> list[Labels]:
    directed = families.relations.directed
    rows = unpack_bits(words, len(directed))
    return [frozenset(directed[place] for place in np.flatnonzero(row)) for row in rows]


# ---- against the twin -------------------------------------------------------------------------------------------


@settings(max_examples=amount(200, 20_000))
@given(
    facts, st.integers(0, 2), st.sampled_from(MEASURES), st.sampled_from(THRESHOLDS), st.sampled_from(SIZES)
)
def test_every_answer_is_that_of_the_pseudo_code_without_the_fact(
    triples: list[tuple[str, str, str]],
    hermits: int,
    measure: Measure,
    threshold: float,
    sizes: tuple[int, ...],
) -> None:
    graph = graph_of(triples, hermits, unused=["unused"])
    families, sets = mine_families(graph, measure, threshold, sizes), relation_sets(graph)
    left_out, usual = LeftOutFamilies(families, sets), usual_answers(families, sets)
    for edge in range(graph.num_edges):
        case = LeftOut(graph, sets, edge)
        answers = usual | changed_answers(left_out, case.situation, families)
        literal = cnf_train(case.left, measure, threshold, sizes)
        for row, entity, query in case.questions():
            expected = cnf_generate(literal[query], case.left[entity])
            assert answers[row, query] == expected, (graph.edge_label(edge), entity, query)


# ---- against mining anew, where graphs are larger -----------------------------------------------------------------


def crowded_graph(seed: int) -> Graph:
    """Entities with many relations in common, so that counts are well above one; up to three words of bits."""
    rng = random.Random(seed)
    relations = [f"r{number}" for number in range(rng.choice([4, 8, 75]))]
    popular = rng.sample(relations, min(8, len(relations)))
    entities = [f"e{number}" for number in range(rng.randint(8, 40))]
    triples = [
        (rng.choice(entities), rng.choice(popular if rng.random() < 0.9 else relations), rng.choice(entities))
        for _ in range(rng.randint(20, 120))
    ]
    return graph_of(triples, unused=relations)


def num_changes(graph: Graph, families: ContextFamilies, edges: Iterable[int]) -> int:
    """Compare with families that are mined anew; how many answers of entities that lose nothing were other ones."""
    sets = relation_sets(graph)
    left_out, usual = LeftOutFamilies(families, sets), usual_answers(families, sets)
    changes = 0
    for edge in edges:
        case = LeftOut(graph, sets, edge)
        changed = changed_answers(left_out, case.situation, families)
        anew = replace(families, sets=relation_sets(case.smaller_graph))
        own = usual_answers(anew, anew.sets)
        for row, entity, query in case.questions():
            if query in case.left[entity]:
                place = int(anew.sets.set_of_entity[graph.entity_id(entity)])
                assert (usual | changed)[row, query] == own[place, query]
        changes += sum(row < len(sets.words) for row, _ in changed)
    return changes


@pytest.mark.parametrize("measure", MEASURES)
def test_every_answer_is_that_of_families_mined_anew(measure: Measure) -> None:
    changes = 0
    for seed in range(amount(40, 2_000)):
        graph, rng = crowded_graph(seed), random.Random(seed)
        families = mine_families(graph, measure, rng.choice(THRESHOLDS[1:]), rng.choice(SIZES[:4]))
        changes += num_changes(graph, families, rng.sample(range(graph.num_edges), 12))
    assert changes > 40  # hiding a fact does make a difference to others


@pytest.mark.benchmark_data
@pytest.mark.parametrize("measure", MEASURES)
@pytest.mark.parametrize("name", ["fb237_v1", "WN18RR_v1", "nell_v1"])
def test_every_answer_on_a_benchmark_is_that_of_families_mined_anew(measure: Measure, name: str) -> None:
    graph = read_graph(benchmark_folder() / "grail" / name / "train.txt")
    edges = random.Random(name).sample(range(graph.num_edges), amount(3, 100))
    num_changes(graph, mine_families(graph, measure), edges)


# ---- by hand ----------------------------------------------------------------------------------------------------


def test_one_fact_less_makes_and_unmakes_members() -> None:
    """p with q: 1 of 2 entities having p. Without f's p, 1 of 1; without e's, 0 of 1."""
    graph = graph_of(
        [("e", "q", "x"), ("e", "p", "x"), ("f", "p", "x"), ("g", "q", "x"), ("g", "s", "y"), ("g", "p", "x")]
    )
    sets, families = relation_sets(graph), mine_families(graph, "precision", 0.7, [1])
    left_out, usual = LeftOutFamilies(families, sets), usual_answers(families, sets)
    of_g = LeftOut(graph, sets, graph.edge_id("f", "p", "x"))
    row = of_g.row_of("g")
    assert usual[row, "q"] == {"s"}  # p: 2 of 3
    answers = usual | changed_answers(left_out, of_g.situation, families)
    assert answers[row, "q"] == {"p"}  # p: 2 of 2; as similar as s, and earlier by label
    of_e = LeftOut(graph, sets, graph.edge_id("e", "p", "x"))
    assert (usual | changed_answers(left_out, of_e.situation, families))[row, "q"] == {"s"}  # p: 1 of 2


# ---- what is remembered, and refused --------------------------------------------------------------------------------


def test_equal_situations_are_searched_once(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = graph_of([("a", "r", "x"), ("b", "r", "x"), ("c", "r", "y"), ("d", "r", "y")])
    sets = relation_sets(graph)
    left_out = LeftOutFamilies(mine_families(graph), sets)
    searched: list[Situation] = []
    find = LeftOutFamilies._find
    monkeypatch.setattr(LeftOutFamilies, "_find", lambda self, it: searched.append(it) or find(self, it))
    cases = [LeftOut(graph, sets, edge).situation for edge in range(graph.num_edges)]
    assert len(cases) == 8
    left_out.answers(cases)
    left_out.answers(cases)
    assert len(searched) == len(set(cases)) == 1


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = crowded_graph(1)
    sets, families = relation_sets(graph), mine_families(graph)
    situations = [LeftOut(graph, sets, edge).situation for edge in range(graph.num_edges)]
    roomy, tight = LeftOutFamilies(families, sets), LeftOutFamilies(families, sets)
    expected = roomy.answers(situations)
    assert roomy.remembered_bytes == sum(changed.num_bytes for changed in expected.values()) > 10_000
    monkeypatch.setattr(left_out_families, "CACHE_BYTES", 10_000)
    for _ in range(2):
        for situation in situations:
            found = tight.answers([situation])[situation]
            for one, other in zip(found, expected[situation], strict=True):
                assert np.array_equal(one, other)
            assert 0 < tight.remembered_bytes <= 10_000


def test_families_that_never_counted_the_fact_are_refused() -> None:
    graph = graph_of([("a", "r", "b"), ("a", "s", "b")])
    sets = relation_sets(graph)
    elsewhere = mine_families(graph_of([("a", "r", "b"), ("b", "s", "a")]))
    situation = LeftOut(graph, sets, 0).situation
    with pytest.raises(DataError, match=r"have never counted.*leave_one_out"):
        LeftOutFamilies(elsewhere, sets).answers([situation])
    alone = mine_families(graph)
    twice = Situation(situation.fact._replace(tail_set=situation.fact.head_set), ())
    with pytest.raises(DataError, match="have never counted"):
        LeftOutFamilies(alone, sets).answers([twice])
