from __future__ import annotations

from itertools import pairwise

import pytest
import torch

from contextpool.errors import DataError, UnknownNameError
from contextpool.graph.graph import Graph
from contextpool.pool.hide import HiddenEdges

TRIPLES = [("a", "r", "b"), ("b", "s", "c"), ("c", "s", "c")]


def hidden_labels(graph: Graph, hidden: HiddenEdges) -> list[list[tuple[str, str, str]]]:
    bounds = pairwise(hidden.start.tolist())
    return [list(graph.edge_labels(hidden.edge[first:last].long())) for first, last in bounds]


def test_a_fact_is_hidden_both_ways_whichever_way_it_is_named() -> None:
    graph = Graph.from_triples(TRIPLES)
    hidden = HiddenEdges.from_triples(graph, [[("a", "r", "b")], [], [("b", "r^-1", "a")]])
    both = [("a", "r", "b"), ("b", "r^-1", "a")]
    assert hidden_labels(graph, hidden) == [both, [], both]
    assert hidden.num_queries == 3


def test_both_directions_of_a_self_loop_are_hidden() -> None:
    graph = Graph.from_triples(TRIPLES)
    hidden = HiddenEdges.from_triples(graph, [[("c", "s", "c")]])
    assert hidden_labels(graph, hidden) == [[("c", "s", "c"), ("c", "s^-1", "c")]]


def test_repetitions_and_order_leave_no_trace() -> None:
    graph = Graph.from_triples(TRIPLES)
    ways = [("c", "s", "c"), ("a", "r", "b"), ("b", "r^-1", "a"), ("a", "r", "b")]
    hidden = HiddenEdges.from_triples(graph, [ways])
    assert hidden.edge.tolist() == sorted(set(hidden.edge.tolist()))
    assert len(hidden.edge) == 4


def test_the_training_case_hides_the_edge_of_each_query() -> None:
    graph = Graph.from_triples(TRIPLES)
    edge = graph.edge_id("b", "r^-1", "a")
    hidden = HiddenEdges.one_per_query(graph, torch.tensor([-1, edge]))
    assert hidden_labels(graph, hidden) == [[], [("a", "r", "b"), ("b", "r^-1", "a")]]
    assert HiddenEdges.one_per_query(graph, torch.empty(0, dtype=torch.int32)).num_queries == 0


def test_a_part_keeps_the_rows_of_its_queries() -> None:
    graph = Graph.from_triples(TRIPLES)
    hidden = HiddenEdges.one_per_query(graph, torch.tensor([0, -1, 1, 2]))
    part = hidden.part(1, 3)
    assert hidden_labels(graph, part) == hidden_labels(graph, hidden)[1:3]
    assert part.keys.tolist() == [graph.num_edges + edge for edge in part.edge.tolist()]


def test_nothing_is_hidden_by_none() -> None:
    graph = Graph.from_triples(TRIPLES)
    assert hidden_labels(graph, HiddenEdges.none(graph, 2)) == [[], []]


def test_what_is_not_in_the_graph_cannot_be_hidden() -> None:
    graph = Graph.from_triples(TRIPLES)
    with pytest.raises(DataError, match="not in the graph"):
        HiddenEdges.from_triples(graph, [[("a", "s", "b")]])
    with pytest.raises(UnknownNameError, match="'z' is unknown"):
        HiddenEdges.from_triples(graph, [[("a", "r", "z")]])
    with pytest.raises(DataError, match="not a \\(head, relation, tail\\) triple"):
        HiddenEdges.from_triples(graph, [["ar"]])  # type: ignore[list-item]
    with pytest.raises(DataError, match=r"hidden edge runs from 6 to 6, but has to lie in \[0, 6\)"):
        HiddenEdges.one_per_query(graph, torch.tensor([6]))
    with pytest.raises(DataError, match="hidden edge runs from -2"):
        HiddenEdges.one_per_query(graph, torch.tensor([-2]))
    with pytest.raises(DataError, match="query of hidden edges runs from 1 to 1"):
        HiddenEdges.of_edges(graph, torch.tensor([1]), torch.tensor([0]), 1)
    with pytest.raises(DataError, match="have 2 and 1 entries"):
        HiddenEdges.of_edges(graph, torch.tensor([0, 0]), torch.tensor([0]), 1)
