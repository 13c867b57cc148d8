"""Distances and supports against a slow twin: plain breadth-first search and plain counting."""

from __future__ import annotations

from collections import Counter, deque

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextpool.evaluate.metrics import RankTable
from contextpool.evaluate.report import EvaluationReport
from contextpool.triples.dataset import Dataset
from contextpool.triples.store import Triples
from lab.measure import DISTANCES, SUPPORTS, QuerySlices

Triple = tuple[str, str, str]
ENTITIES = [f"e{number}" for number in range(12)]
TRIPLES = st.lists(
    st.tuples(st.sampled_from(ENTITIES), st.sampled_from(["r", "s"]), st.sampled_from(ENTITIES)),
    min_size=1,
    max_size=14,
    unique=True,
)


def slow_distance(facts: list[Triple], head: str, tail: str) -> str:
    near: dict[str, set[str]] = {}
    for one, _, other in facts:
        near.setdefault(one, set()).add(other)
        near.setdefault(other, set()).add(one)
    hops, waiting = {head: 0}, deque([head])
    while waiting:
        here = waiting.popleft()
        for there in near.get(here, set()) - set(hops):
            hops[there] = hops[here] + 1
            waiting.append(there)
    if tail not in hops:
        return "never"
    return str(hops[tail]) if hops[tail] <= 6 else "7+"


def slow_support(facts: list[Triple], relation: str) -> str:
    count = Counter(relation for _, relation, _ in facts)[relation]
    return next(
        name
        for least, name in ((1000, "1000+"), (100, "100-999"), (10, "10-99"), (1, "1-9"), (0, "0"))
        if count >= least
    )


def dataset_of(graph: list[Triple], inference: list[Triple], test: list[Triple]) -> Dataset:
    known = [("x", "r", "y"), ("x", "s", "y")]
    parts = [Triples.from_labels(part) for part in ([*graph, *known], inference, test)]
    return Dataset.from_two_graphs(
        "small",
        train=parts[0],
        validation=parts[0],
        inference_graph=parts[1],
        inference_valid=parts[2],
        inference_test=parts[2],
    )


@given(graph=TRIPLES, inference=TRIPLES, test=TRIPLES, data=st.data())
def test_sums_and_counts_equal_the_slow_ones(
    graph: list[Triple], inference: list[Triple], test: list[Triple], data: st.DataObject
) -> None:
    dataset = dataset_of(graph, inference, test)
    queries = dataset.evaluation_queries("P1")
    ranks = np.array(
        data.draw(st.lists(st.integers(1, 9), min_size=2 * len(queries), max_size=2 * len(queries))),
        dtype=float,
    )
    table = RankTable(ranks, ranks, np.full(len(ranks), 12))
    report, slices = EvaluationReport(queries, table), QuerySlices.of(dataset, queries)
    facts = [*graph, ("x", "r", "y"), ("x", "s", "y")]
    for found, names, bucket in (
        (slices.by_distance(report), DISTANCES, lambda h, r, t: slow_distance(inference, h, t)),
        (slices.by_support(report), SUPPORTS, lambda h, r, t: slow_support(list(set(facts)), r)),
    ):
        expected: dict[str, list[float]] = {}
        for place, triple in enumerate(queries):
            expected.setdefault(bucket(*triple), []).extend(1 / ranks[[place, place + len(queries)]])
        assert set(found) == set(expected) <= set(names)
        for name, values in expected.items():
            assert found[name]["count"] == len(values)
            assert found[name]["sum"] == pytest.approx(sum(values))
        assert sum(entry["sum"] for entry in found.values()) / len(ranks) == pytest.approx(report.mrr)


def test_the_buckets_of_support_begin_where_they_say() -> None:
    graph = [(f"h{number}", "r", "t") for number in range(9)]
    slices = QuerySlices.of(dataset_of(graph, graph, graph[:1]), Triples.from_labels(graph[:1]))
    assert SUPPORTS[slices.support[0]] == "10-99"  # nine and one more that every such dataset has
