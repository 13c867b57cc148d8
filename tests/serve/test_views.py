"""/pool against `cp.pool`, and what stays as it is while thresholds move."""

from __future__ import annotations

from typing import Any

import pytest

from contextpool.context.neighbors import ContextNeighbors
from contextpool.graph.graph import walk_back
from contextpool.pool.pooled import pool
from contextpool.predict.asking import Asking
from contextpool.serve.registry import Registry
from contextpool.serve.views import FACTS_OF_THE_HEAD, PoolQuestion, pooled_view

THRESHOLDS = [(0.0, 0.0), (0.1, 0.0), (0.5, 0.3), (0.77, 0.0), (0.95, 0.9)]


@pytest.fixture(scope="module")
def asking(registry: Registry) -> Asking:
    return registry.snapshot.engine("demo", "world").asking


def view(asking: Asking, head: str, relation: str, tail: str | None = None, **options: Any) -> dict[str, Any]:
    graph = asking.graph
    question = PoolQuestion(
        graph.entity_id(head),
        graph.relation_id(relation),
        -1 if tail is None else graph.entity_id(tail),
        options.get("min_precision", 0.1),
        options.get("min_recall", 0.0),
        options.get("hops", 3),
        tuple(graph.entity_id(one) for one in options.get("focus", ())),
        options.get("limit", 500),
    )
    return pooled_view(asking, question)


def literal_hop(hops: list[set[tuple[str, str, str]]], fact: tuple[str, str, str]) -> int | None:
    """The first hop that holds a fact in either direction."""
    both = {fact, walk_back(fact)}
    return next((number for number, hop in enumerate(hops, start=1) if hop & both), None)


@pytest.mark.parametrize(("min_precision", "min_recall"), THRESHOLDS)
@pytest.mark.parametrize(
    ("head", "relation", "tail"),
    [("Belarus", "currency", None), ("Baku", "capital^-1", "Azerbaijan"), ("Euro", "currency^-1", None)],
)
def test_it_is_algorithm_2(
    asking: Asking, head: str, relation: str, tail: str | None, min_precision: float, min_recall: float
) -> None:
    found = view(asking, head, relation, tail, min_precision=min_precision, min_recall=min_recall)
    statistics = asking.builder.statistics
    assert statistics is not None
    context = ContextNeighbors(statistics.counts, min_precision, min_recall)
    hide = [] if tail is None else [(head, relation, tail)]
    expected = pool(asking.graph, context, head=head, relation=relation, hops=3, hide=hide)
    assert [one["kept"] for one in found["hops"]] == [len(hop) for hop in expected.hops]
    for one in found["facts"]:
        assert one["hop"] == literal_hop(expected.hops, (one["head"], one["relation"], one["tail"]))
    kept = {one["relation"] for one in found["context"] if one["kept"]}
    assert kept == set(context.neighbors(relation))


def test_what_is_shown_does_not_move_with_the_thresholds(asking: Asking) -> None:
    focus = ("Homyel'", "Belarusian Ruble")
    shown = [
        [
            (one["head"], one["relation"], one["tail"])
            for one in view(asking, "Belarus", "currency", min_precision=low, min_recall=high, focus=focus)[
                "facts"
            ]
        ]
        for low, high in THRESHOLDS
    ]
    assert all(facts == shown[0] for facts in shown)
    assert len(set(shown[0])) == len(shown[0])
    counts = [
        sum(one["kept"] for one in view(asking, "Belarus", "currency", min_precision=low)["hops"])
        for low in (0.0, 0.3, 0.6, 0.8, 0.99)
    ]
    assert counts == sorted(counts, reverse=True)
    assert counts[0] > counts[-1] == 0


def test_the_facts_of_the_head_and_between_those_in_focus_are_shown(asking: Asking) -> None:
    facts = {
        (one["head"], one["relation"], one["tail"])
        for one in view(asking, "Belarus", "currency", focus=("Homyel'", "Belarusian Ruble"))["facts"]
    }
    own = {fact for fact in asking.graph.triples if "Belarus" in (fact[0], fact[2])}
    assert own <= facts
    assert ("Homyel'", "pays_in", "Belarusian Ruble") in facts
    assert facts <= set(asking.graph.triples)


def test_an_entity_with_many_facts_shows_some_of_each_relation(asking: Asking) -> None:
    graph = asking.graph
    degree = (graph.row_start[1:] - graph.row_start[:-1]).tolist()
    head = graph.entities[degree.index(max(degree))]
    own_edges = range(*graph.row_start[graph.entity_id(head) :][:2].tolist())
    found = view(asking, head, "currency", limit=1000)["facts"]
    own = [one for one in found if head in (one["head"], one["tail"])]
    assert len(own) >= FACTS_OF_THE_HEAD
    shown = {one["relation"] + ("" if one["head"] == head else "^-1") for one in own}
    assert shown == {graph.edge_label(edge)[1] for edge in own_edges}
    assert len(view(asking, head, "currency", limit=7)["facts"]) == 7


def test_a_fact_that_is_asked_for_is_hidden(asking: Asking) -> None:
    asked = ("Azerbaijan", "capital", "Baku")
    assert asked in asking.graph.triples
    facts = [(one["head"], one["relation"], one["tail"]) for one in view(asking, *asked)["facts"]]
    assert asked not in facts
    assert ("Azerbaijan", "largest_city", "Baku") in facts


def test_where_nothing_is_relevant_nothing_is_kept(asking: Asking) -> None:
    found = view(asking, "Euro", "capital", min_precision=0.99)
    assert [(one["hop"], one["kept"]) for one in found["hops"]] == [(1, 0), (2, 0), (3, 0)]
    assert found["hops"][0]["reached"] > 0
    assert {one["hop"] for one in found["facts"]} == {None}
