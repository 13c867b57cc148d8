"""Which facts do not exist for which query: its own answer, and in training a share of the others.

A query never sees its own answer. Edge dropout: every training query walks a graph from which a share of the facts is
gone, another share each time. Whether fact f is gone for query b of a step is decided by a hash of (seed of the step,
b, f) against a threshold, so there is nothing to store, both directions of a fact share its fate, and every device
decides alike. What is dropped cannot be walked; the statistics, and which relations an entity has, stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from contextpool.errors import ConfigError, DataError
from contextpool.graph.graph import Graph
from contextpool.graph.hashing import mixed
from contextpool.kernels.hop import numbers_of_rows
from contextpool.pool.incidence import cached_per_graph
from contextpool.triples.store import Triple

FULL_SCALE = 2**32
"""A threshold of which every hash lies below."""


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


@dataclass(frozen=True)
class EdgeDropout:
    """How to drop in one step: fact f is gone for query b where mixed(mixed(f) ^ salts[b]) < threshold."""

    share: float
    """The expected share of the facts that are dropped."""
    seed: int
    """The seed of the training step."""
    first: int = 0
    """The number that the first query has within the step, of which this may be a share."""

    def __post_init__(self) -> None:
        if not 0 <= self.share < 1:
            raise ConfigError(f"the share of dropped edges is {self.share}; it has to lie in [0, 1).")

    @property
    def threshold(self) -> int:
        return int(self.share * FULL_SCALE)

    def salts(self, num_queries: int, device: torch.device) -> Tensor:
        """[B] int64 in [0, 2**32), one for each query of the step, from number `first` on."""
        low, high = self.seed % FULL_SCALE, self.seed // FULL_SCALE % FULL_SCALE
        number = torch.arange(self.first, self.first + num_queries, device=device)
        return mixed(mixed(number ^ low) ^ high)

    def dropped(self, graph: Graph, num_queries: int) -> Tensor:
        """[B, 2T] which edges are gone."""
        facts = graph.forward_edges  # [T]
        number = torch.minimum(facts, graph.edge_inverse[facts].long())
        salt = self.salts(num_queries, graph.device)
        gone = mixed(mixed(number)[None, :] ^ salt[:, None]) < self.threshold  # [B, T]
        return gone[:, _fact_of_edge(graph)]

    def hidden_edges(self, graph: Graph, anyway: HiddenEdges) -> HiddenEdges:
        """What is dropped, and what each query must not see anyway."""
        gone = self.dropped(graph, anyway.num_queries)
        gone[anyway.edge_query, anyway.edge.long()] = True
        start = torch.zeros(len(gone) + 1, dtype=torch.int64, device=graph.device)
        torch.cumsum(gone.sum(dim=1), 0, out=start[1:])
        return HiddenEdges(start, torch.nonzero(gone)[:, 1].int(), graph.num_edges)


@cached_per_graph
def _fact_of_edge(graph: Graph) -> Tensor:
    """[2T] the place of each edge's fact among the forward edges."""
    place = torch.empty(graph.num_edges, dtype=torch.int64, device=graph.device)
    order = torch.arange(graph.num_triples, device=graph.device)
    place[graph.forward_edges] = order
    place[graph.edge_inverse[graph.forward_edges].long()] = order
    return place


def check_ids(name: str, ids: Tensor, limit: int) -> None:
    """Refuse anything but a list of whole numbers in [0, limit)."""
    if ids.dim() != 1:
        raise DataError(f"{name} has shape {tuple(ids.shape)}; it has to be one list of ids.")
    if ids.is_floating_point() or ids.is_complex() or ids.dtype == torch.bool:
        raise DataError(f"{name} has dtype {ids.dtype}; ids are integers.")
    if len(ids) == 0:
        return
    lowest, highest = torch.stack(torch.aminmax(ids)).tolist()
    if lowest < 0 or highest >= limit:
        raise DataError(f"{name} runs from {lowest:,} to {highest:,}, but has to lie in [0, {limit:,}).")


def check_same_length(names: str, one: Tensor, other: Tensor) -> None:
    """Refuse two columns of different lengths."""
    if len(one) != len(other):
        raise DataError(
            f"{names} have {len(one):,} and {len(other):,} entries; they are columns of one table."
        )
