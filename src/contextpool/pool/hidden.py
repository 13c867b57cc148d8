"""Which facts do not exist for which query: a query never sees its own answer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from contextpool.errors import DataError
from contextpool.graph.graph import Graph
from contextpool.pool._checks import check_ids, check_same_length
from contextpool.pool._rows import numbers_of_rows
from contextpool.triples.store import Triple


@dataclass(frozen=True, eq=False)
class HiddenEdges:
    """Edges hidden from each of B queries: those of query b are `edge[start[b]:start[b + 1]]`, ascending.

    Whatever is hidden is hidden in both directions. Make one with the class methods, which see to that.
    """

    start: Tensor  # [B + 1] int64
    edge: Tensor  # [H] int32
    num_edges: int
    """Edges of the graph that the ids belong to."""

    @classmethod
    def none(cls, graph: Graph, num_queries: int) -> HiddenEdges:
        """Nothing is hidden."""
        start = torch.zeros(num_queries + 1, dtype=torch.int64, device=graph.device)
        return cls(start, torch.empty(0, dtype=torch.int32, device=graph.device), graph.num_edges)

    @classmethod
    def of_edges(cls, graph: Graph, query: Tensor, edge: Tensor, num_queries: int) -> HiddenEdges:
        """From (query [H], edge [H]) in any order; one direction of a fact suffices, repetitions don't matter."""
        check_ids("query of hidden edges", query, num_queries)
        check_ids("hidden edge", edge, graph.num_edges)
        check_same_length("query and edge of hidden edges", query, edge)
        query, edge = query.to(graph.device).long(), edge.to(graph.device).long()
        both = torch.cat([edge, graph.edge_inverse[edge].long()])  # [2H]
        keys = torch.unique(query.repeat(2) * graph.num_edges + both)  # sorted by (query, edge)
        owner = torch.div(keys, max(graph.num_edges, 1), rounding_mode="floor")
        queries = torch.arange(num_queries + 1, device=graph.device)
        hidden_edge = keys - owner * graph.num_edges
        return cls(torch.searchsorted(owner, queries), hidden_edge.int(), graph.num_edges)

    @classmethod
    def one_per_query(cls, graph: Graph, edge: Tensor) -> HiddenEdges:
        """Training: query b is itself an edge of the graph, edge[b], and must not see it; -1 hides nothing."""
        edge = edge.to(graph.device)
        query = torch.nonzero(edge != -1).squeeze(1)
        return cls.of_edges(graph, query, edge[query], len(edge))

    @classmethod
    def from_triples(cls, graph: Graph, triples: Sequence[Iterable[Triple]]) -> HiddenEdges:
        """From the labels to hide from each query, in either direction; one that is not in the graph is an error."""
        query: list[int] = []
        edge: list[int] = []
        for number, hidden in enumerate(triples):
            found = [_edge_of_label(graph, triple) for triple in hidden]
            query += [number] * len(found)
            edge += found
        return cls.of_edges(graph, _ids(query), _ids(edge), len(triples))

    @property
    def num_queries(self) -> int:
        return len(self.start) - 1

    @cached_property
    def edge_query(self) -> Tensor:
        """[H] int64 the query that each hidden edge is hidden from."""
        return numbers_of_rows(self.start.diff(), len(self.edge))

    @cached_property
    def keys(self) -> Tensor:
        """[H] int64 query * 2T + edge, ascending."""
        return self.edge_query * self.num_edges + self.edge

    def part(self, first: int, last: int) -> HiddenEdges:
        """The rows of queries first..last - 1, renumbered from 0."""
        start = self.start[first : last + 1]
        lowest, highest = int(start[0]), int(start[-1])
        return HiddenEdges(start - lowest, self.edge[lowest:highest], self.num_edges)

    def to(self, device: torch.device | str) -> HiddenEdges:
        return HiddenEdges(self.start.to(device), self.edge.to(device), self.num_edges)


def hidden_or_none(hidden: HiddenEdges | None, graph: Graph, num_queries: int) -> HiddenEdges:
    """What a caller passed as `hidden`, checked against the graph and the number of queries, on its device."""
    if hidden is None:
        return HiddenEdges.none(graph, num_queries)
    if hidden.num_queries != num_queries:
        raise DataError(
            f"hidden has rows for {hidden.num_queries:,} queries, but there are {num_queries:,}. "
            "Give every query a row; an empty one hides nothing."
        )
    if hidden.num_edges != graph.num_edges:
        raise DataError(
            f"hidden was made for a graph of {hidden.num_edges:,} edges, this one has {graph.num_edges:,}. "
            "Make it again from the graph that is walked."
        )
    return hidden.to(graph.device)


def _edge_of_label(graph: Graph, triple: Triple) -> int:
    if not isinstance(triple, (tuple, list)) or len(triple) != 3:
        raise DataError(f"hide: {triple!r} is not a (head, relation, tail) triple of labels.")
    return graph.edge_id(*triple)


def _ids(values: list[int]) -> Tensor:
    return torch.tensor(values, dtype=torch.int64)
