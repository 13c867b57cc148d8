"""What a walk returns: for every query a set of directed edges, per hop."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class EdgeSet:
    """One set of edges for each of B queries, K in all, sorted by (query, edge); each at most once a query."""

    edge_query: Tensor  # [K] int32
    edge: Tensor  # [K] int32, ids of the graph's directed edges
    num_queries: int

    def __len__(self) -> int:
        return len(self.edge)

    @property
    def query_start(self) -> Tensor:
        """[B + 1] int64 the edges of query b are edge[query_start[b]:query_start[b + 1]]."""
        queries = torch.arange(self.num_queries + 1, dtype=torch.int32, device=self.edge_query.device)
        return torch.searchsorted(self.edge_query, queries)

    def for_query(self, query: int) -> Tensor:
        """[k] int32 the edges of one query, ascending."""
        bounds = self.edge_query.new_tensor([query, query + 1])
        first, last = torch.searchsorted(self.edge_query, bounds).tolist()
        return self.edge[first:last]

    def union(self, other: EdgeSet) -> EdgeSet:
        """Edges that a query has in either set. Linear on the CPU, one sort elsewhere."""
        if self.edge.device.type == "cpu":
            from contextpool.pool import _walk_cpu  # numba is loaded where it is needed

            return _walk_cpu.union(self, other)
        return union_by_sorting(self, other)


@dataclass(frozen=True, eq=False)
class PooledBatch:
    """The query-specific graphs of a batch (Algorithm 2): `hops[l - 1]` is G_context^l of every query."""

    hops: tuple[EdgeSet, ...]

    @property
    def num_hops(self) -> int:
        return len(self.hops)

    @property
    def num_queries(self) -> int:
        return self.hops[0].num_queries

    def union(self) -> EdgeSet:
        """The edges of all hops, each once a query: G_context."""
        return reduce(EdgeSet.union, self.hops)

    def for_query(self, query: int) -> tuple[Tensor, ...]:
        """The edges of one query: a tensor of ids for each hop."""
        return tuple(hop.for_query(query) for hop in self.hops)


def union_by_sorting(one: EdgeSet, other: EdgeSet) -> EdgeSet:
    """Edges that a query has in either set, on any device."""
    keys = [(part.edge_query.long() << 32) | part.edge for part in (one, other)]  # both in one number
    distinct = torch.unique(torch.cat(keys))
    return EdgeSet((distinct >> 32).int(), (distinct & (2**32 - 1)).int(), one.num_queries)


def joined(parts: Sequence[tuple[Tensor, Tensor]], num_queries: int, device: torch.device) -> EdgeSet:
    """(query, edge) parts that follow one another, as one set."""
    if not parts:
        empty = torch.empty(0, dtype=torch.int32, device=device)
        return EdgeSet(empty, empty, num_queries)
    return EdgeSet(
        torch.cat([query for query, _ in parts]), torch.cat([edge for _, edge in parts]), num_queries
    )
