"""Every count of the audit against a slow twin made of plain Python sets."""

from __future__ import annotations

from collections import deque

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextpool.triples.audit import FactIndex, audit_dataset, audit_triples, hops_between, undirected_links
from contextpool.triples.audit_report import GraphStatistics, QueryStatistics
from contextpool.triples.dataset import Dataset
from contextpool.triples.store import Triples
from support import Triple, random_triples

seeds = st.integers(0, 2**32 - 1)


def graph_of(seed: int) -> tuple[list[Triple], GraphStatistics]:
    triples = random_triples(seed)
    return sorted(set(triples)), audit_triples(Triples.from_labels(triples), "random").graphs[0]


def steps_from(head: str, facts: set[Triple]) -> dict[str, int]:
    """Breadth first over edges taken both ways."""
    steps, queue = {head: 0}, deque([head])
    while queue:
        here = queue.popleft()
        beside = {t for h, _, t in facts if h == here} | {h for h, _, t in facts if t == here}
        for other in beside - set(steps):
            steps[other] = steps[here] + 1
            queue.append(other)
    return steps


@given(seeds)
def test_twins(seed: int) -> None:
    facts, graph = graph_of(seed)
    pairs_of: dict[str, set[tuple[str, str]]] = {}
    for head, relation, tail in facts:
        if head != tail:
            pairs_of.setdefault(relation, set()).add((head, tail))
    expected = set()
    for first, here in pairs_of.items():
        for second, there in pairs_of.items():
            turned = {(tail, head) for head, tail in there}
            for kind, other in (("inverse", turned), ("duplicate", there)):
                common = len(here & other)
                mirrors = common / len(here) > 0.8 and common / len(other) > 0.8
                if mirrors and first == second and kind == "inverse":
                    expected.add(("symmetric", first, second, common))
                elif mirrors and first < second:
                    expected.add((kind, first, second, common))
    assert {(twin.kind, twin.relation, twin.other, twin.matched) for twin in graph.twins} == expected
    assert [twin.matched for twin in graph.twins] == sorted(
        (twin.matched for twin in graph.twins), reverse=True
    )


@given(seeds, st.integers(1, 24))
def test_query_counts(seed: int, held_out: int) -> None:
    triples = sorted(set(random_triples(seed, most=40)))
    facts = set(triples[1::2]) or set(triples)
    known = {relation for _, relation, _ in facts}
    leaked = min(facts)
    queries = {leaked, *(query for query in triples[::2][:held_out] if query[1] in known)}
    train, test = (Triples.from_labels(sorted(part)) for part in (facts, queries))
    dataset = Dataset.from_one_graph("random", train=train, valid=test, test=test)
    report = audit_dataset(dataset)
    check_queries(report.held_out[-1], report.graphs[0], queries, facts)


def check_queries(
    part: QueryStatistics, graph: GraphStatistics, queries: set[Triple], facts: set[Triple]
) -> None:
    pairs = {(head, tail) for head, _, tail in facts}
    linked = {entity for pair in pairs for entity in pair}
    assert part.in_graph == part.trained_on == len(queries & facts)
    assert part.selected_on == len(queries)
    assert part.direct == sum((h, t) in pairs for h, _, t in queries)
    assert part.reverse == sum((t, h) in pairs for h, _, t in queries)
    assert part.without_edge == sum(not {h, t} <= linked for h, _, t in queries)
    both = [(twin.relation, twin.other, twin.kind) for twin in graph.twins]
    either = {*both, *((other, relation, kind) for relation, other, kind in both)}
    mirrored = {(r, x) for r, x, kind in either if kind != "duplicate"}
    copied = {(r, x) for r, x, kind in either if kind == "duplicate"}
    assert part.by_inverse == sum(
        any((t, x, h) in facts for y, x in mirrored if y == r) for h, r, t in queries
    )
    assert part.by_duplicate == sum(
        any((h, x, t) in facts for y, x in copied if y == r) for h, r, t in queries
    )
    steps = [steps_from(h, facts).get(t, 99) for h, _, t in queries]
    assert part.within == pytest.approx(
        [sum(step <= hop for step in steps) / len(steps) for hop in range(1, 7)]
    )
    assert part.connected == pytest.approx(sum(step < 99 for step in steps) / len(steps))


@given(seeds)
def test_hops_between_all_pairs(seed: int) -> None:
    graph = Triples.from_labels(random_triples(seed, most_entities=14, most=20))
    size, labels = len(graph.entities), graph.entities.labels
    heads, tails = np.divmod(np.arange(size * size), size)  # up to 196 pairs: more than one word of bits
    expected = [
        min(steps_from(labels[h], set(graph)).get(labels[t], 4), 4) for h, t in zip(heads, tails, strict=True)
    ]
    assert hops_between(undirected_links(graph), heads, tails, 3).tolist() == expected


@given(seeds)
def test_look_ups_of_every_possible_triple(seed: int) -> None:
    graph = Triples.from_labels(random_triples(seed))
    index = FactIndex.of(graph)
    size, relations = len(graph.entities), len(graph.relations)
    every = np.array([(h, r, t) for h in range(size) for r in range(relations) for t in range(size)])
    facts = {tuple(row) for row in graph.ids.tolist()}
    assert index.has_triple(*every.T).tolist() == [tuple(row) in facts for row in every.tolist()]
    pairs = {(h, t) for h, _, t in facts}
    assert index.has_pair(every[:, 0], every[:, 2]).tolist() == [
        (h, t) in pairs for h, _, t in every.tolist()
    ]
