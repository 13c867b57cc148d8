"""What pairs of entities say of relations: which ones join the same two, and how many facts an entity has by each.

`counts` has entities: of those that have y, how many have x. That y(h, t) makes x(h, t) likely is not to be seen there,
but in the pairs that both join: precision over pairs is the share of the facts of y whose pair x joins, too, and recall
the share of those of x. All of it without the fact that a query must not see, exactly.

On the CPU compiled loops count, in one pass over the rows of all heads, and for a query in two rows alone; elsewhere
tensors do the same.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import repeat
from typing import NamedTuple

import numba
import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from contextpool.context.counts import add_shares, check_relation_count, rows_by_thread
from contextpool.graph.graph import Graph
from contextpool.graph.mapped import MappedGraph
from contextpool.graph.relations import inverse

Int32s = npt.NDArray[np.int32]
NUMBERS = 4
"""Rows of `Parallels.numbers`."""


@dataclass(frozen=True, eq=False)
class ParallelCounts:
    """Integers over a whole graph."""

    both: Tensor
    """[2R, 2R] int32 ordered pairs that a and b both join; symmetric, its diagonal is how many facts each has."""
    support: Tensor
    """[2R] int64 entities having each relation."""

    @classmethod
    def of(cls, graph: Graph) -> ParallelCounts:
        """On the graph's device; a mapped graph has them written down."""
        if isinstance(graph, MappedGraph):
            return cls(torch.from_numpy(graph.joined), torch.from_numpy(graph.both.diagonal().copy()))
        check_relation_count(2 * graph.num_relations)
        opens = torch.ones(
            graph.num_edges, dtype=torch.bool, device=graph.device
        )  # the first of its head and relation
        opens[1:] = graph.edge_head[1:] != graph.edge_head[:-1]
        opens[1:] |= graph.edge_relation[1:] != graph.edge_relation[:-1]
        support = torch.bincount(graph.edge_relation[opens], minlength=2 * graph.num_relations)
        if graph.device.type != "cpu":
            return cls(count_joined_by_tensors(graph), support)
        starts, relations, tails = (
            one.numpy() for one in (graph.row_start, graph.edge_relation, graph.edge_tail)
        )
        both = count_joined(starts, relations, tails, 2 * graph.num_relations)
        return cls(torch.from_numpy(both), support)


class PairNumbers(NamedTuple):
    """What is said of B queries."""

    of_relations: Tensor
    """[B, NUMBERS, 2R] float32"""
    num_facts: Tensor
    """[B] facts of the query relation."""


class Parallels:
    """The counts as queries may know them."""

    def __init__(self, graph: Graph, counts: ParallelCounts) -> None:
        """Hidden edges are those of `graph`, whose relations the counts are numbered by."""
        self.graph, self.counts = graph, counts

    def numbers(self, head: Tensor, relation: Tensor, hidden_edge: Tensor | None) -> PairNumbers:
        """Of each relation y, for queries (head [B], relation [B]) without their hidden edges.

        Precision and recall of y for the query relation over pairs; the logarithm of how many facts of y an entity has
        that has any; the logarithm of how many edges of y leave the head, plus 1. hidden_edge [B], -1 for nothing: it
        is the query itself, so its relation is the query relation.
        """
        if hidden_edge is None:
            hidden_edge = torch.full_like(head, -1)
        own, facts, support, leaving = self._without(head, relation, hidden_edge)
        asked = facts.gather(1, relation[:, None])
        rows = [
            own / facts.clamp(min=1),
            own / asked.clamp(min=1),
            torch.log(facts.clamp(min=1) / support.clamp(min=1)),
            torch.log1p(leaving.float()),
        ]
        return PairNumbers(torch.stack(rows, dim=1), asked[:, 0])

    def _without(
        self, head: Tensor, relation: Tensor, hidden_edge: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """[B, 2R] each: pairs that the query relation shares with each relation, facts of each, entities having each,
        edges of each that leave the head.
        """
        counts, size = self.counts, self.graph.num_relations
        own = counts.both[relation]  # a copy
        facts = counts.both.diagonal().expand_as(own).clone()
        support = counts.support.expand_as(own).clone()
        found = self._rows(head, hidden_edge)
        kinds = torch.stack([relation, inverse(relation, size)], dim=1)  # [B, 2]
        own -= found.joining
        back = kinds[:, 1:]  # loses a pair by the hidden fact, and the other one by its inverse
        own.scatter_add_(1, back, -found.joining.gather(1, back) * found.leads_on[:, None])
        facts.scatter_add_(1, kinds, -(hidden_edge >= 0)[:, None].expand(-1, 2).to(facts.dtype))
        support.scatter_add_(1, kinds, -found.alone.to(support.dtype))
        return own, facts, support, found.leaving

    @cached_property
    def _rows(self) -> Callable[[Tensor, Tensor], Rows]:
        if self.graph.device.type == "cpu":
            return partial(rows_of_queries, self.graph)
        longest = int(self.graph.row_start.diff().max())  # once: the host waits for no batch
        return partial(rows_of_queries_by_tensors, self.graph, longest)


class Rows(NamedTuple):
    """What the graph holds at the heads and at the hidden facts of B queries."""

    leaving: Tensor
    """[B, 2R] int32 edges of each relation that leave the head, the hidden fact not counted."""
    joining: Tensor
    """[B, 2R] int32 whether each relation joins the hidden edge's head with its tail; 0 where nothing is hidden."""
    alone: Tensor
    """[B, 2] bool whether the hidden edge, and its inverse, is the only one of its head and relation."""
    leads_on: Tensor
    """[B] bool whether something is hidden that is no loop."""


def rows_of_queries(graph: Graph, head: Tensor, hidden_edge: Tensor) -> Rows:
    """For heads [B] and hidden edges [B]: O(edges of the head, and of the hidden edge's end that has fewer) a query."""
    num_queries, size = len(head), 2 * graph.num_relations
    leaving, joining = np.zeros((2, num_queries, size), dtype=np.int32)
    alone, leads_on = np.zeros((num_queries, 2), dtype=np.bool_), np.zeros(num_queries, dtype=np.bool_)
    columns = graph.row_start, graph.edge_head, graph.edge_relation, graph.edge_tail, graph.edge_inverse
    asked = (one.long().contiguous().numpy() for one in (head, hidden_edge))
    _look(*(one.numpy() for one in columns), *asked, leaving, joining, alone, leads_on)
    return Rows(*map(torch.from_numpy, (leaving, joining, alone, leads_on)))


def rows_of_queries_by_tensors(graph: Graph, longest: int, head: Tensor, hidden_edge: Tensor) -> Rows:
    """The same on any device, with two tensors [B, longest row of the graph]."""
    size, hides = 2 * graph.num_relations, hidden_edge >= 0
    leaving, joining = (
        torch.zeros(len(head), size, dtype=torch.int32, device=graph.device) for _ in range(2)
    )
    if not graph.num_edges:
        nowhere = torch.zeros_like(hides)
        return Rows(leaving, joining, nowhere[:, None].expand(-1, 2), nowhere)
    edge = hidden_edge.clamp(min=0)
    ways = torch.stack([edge, graph.edge_inverse[edge].long()], dim=1)  # [B, 2]
    place, there = _row(graph, head, longest)
    there &= ~(hides[:, None] & ((place == ways[:, :1]) | (place == ways[:, 1:])))
    leaving.scatter_add_(1, graph.edge_relation[place].long(), there.int())

    start, end = graph.edge_head[edge].long(), graph.edge_tail[edge].long()
    degree = [graph.row_start[one + 1] - graph.row_start[one] for one in (start, end)]
    turned = degree[1] < degree[0]  # the shorter of the two rows is looked through
    near, far = torch.where(turned, end, start), torch.where(turned, start, end)
    place, there = _row(graph, near, longest)
    there &= hides[:, None] & (graph.edge_tail[place] == far[:, None])
    found = graph.edge_relation[place].long()
    found = torch.where(turned[:, None], inverse(found, graph.num_relations), found)
    joining.scatter_add_(1, found, there.int())
    alone = hides[:, None].expand(-1, 2)
    for beside in (ways - 1, ways + 1):
        other = beside.clamp(0, graph.num_edges - 1)
        same = (graph.edge_head[other] == graph.edge_head[ways]) & (beside == other)
        alone = alone & ~(same & (graph.edge_relation[other] == graph.edge_relation[ways]))
    return Rows(leaving, joining, alone, hides & (start != end))


def _row(graph: Graph, entity: Tensor, longest: int) -> tuple[Tensor, Tensor]:
    """[B, longest] edges of each entity, and where there is one."""
    start, end = graph.row_start[entity], graph.row_start[entity + 1]
    place = start[:, None] + torch.arange(longest, device=graph.device)
    return place.clamp(max=graph.num_edges - 1), place < end[:, None]


def count_joined(
    starts: npt.NDArray[np.int64], relations: Int32s, tails: Int32s, num_directed: int
) -> Int32s:
    """[2R, 2R] int32 ordered pairs of entities that two relations both join, row after row: the edges may be mapped.

    O(edges, and for each pair the square of its relations) time; 4 bytes an entity, and as `count_rows`, a thread.
    """
    num_entities = len(starts) - 1
    bounds = rows_by_thread(starts, max(4 * num_entities, 8 * num_directed**2))
    shares = np.zeros((len(bounds) - 1, num_directed, num_directed), dtype=np.int32)
    with ThreadPoolExecutor(len(shares)) as threads:
        columns = (repeat(one) for one in (starts, relations, tails))
        assert len(list(threads.map(_count_joined, *columns, bounds, bounds[1:], shares))) == len(shares)
    both = np.zeros((num_directed, num_directed), dtype=np.int32)
    add_shares(shares, both)
    return both


def count_joined_by_tensors(graph: Graph) -> Tensor:
    """[2R, 2R] int32 the same on any device, by sorting all edges."""
    size, device = 2 * graph.num_relations, graph.device
    both = torch.zeros(size * size, dtype=torch.int32, device=device)
    key = graph.edge_head.long() * max(graph.num_entities, 1) + graph.edge_tail.long()
    pair, order = torch.sort(key, stable=True)
    relation = graph.edge_relation.long()[order]
    both.index_add_(0, relation * (size + 1), torch.ones_like(relation, dtype=torch.int32))
    place, step = torch.arange(len(pair), device=device), 1
    while True:  # each edge with the one that stands `step` after it among those of its pair
        place = place[place + step < len(pair)]
        place = place[pair[place] == pair[place + step]]
        if not len(place):
            return both.view(size, size)
        first, second = relation[place], relation[place + step]
        ones = torch.ones_like(place, dtype=torch.int32)
        both.index_add_(0, first * size + second, ones).index_add_(0, second * size + first, ones)
        step += 1


@numba.njit(cache=True, nogil=True)
def _count_joined(starts, relations, tails, first, last, both):  # type: ignore[no-untyped-def]
    """Add the pairs of the heads from first to last, each two relations on one side of the diagonal."""
    longest = 0
    for head in range(first, last):
        longest = max(longest, starts[head + 1] - starts[head])
    latest = np.full(len(starts) - 1, -1, dtype=np.int32)  # the last edge that led to each entity
    before = np.empty(longest, dtype=np.int32)  # for each edge of a row, the one before it to the same tail
    for head in range(first, last):
        begin, end = starts[head], starts[head + 1]
        for k in range(begin, end):
            both[relations[k], relations[k]] += 1
        if end - begin < 2 or relations[begin] == relations[end - 1]:
            continue  # edges are sorted by relation: one alone joins no pair twice
        for k in range(begin, end):
            other = latest[tails[k]]
            latest[tails[k]] = k
            before[k - begin] = other
            while other >= begin:
                both[relations[k], relations[other]] += 1
                other = before[other - begin]


@numba.njit(cache=True, nogil=True)
def _look(starts, heads, relations, tails, twins, head, hidden, leaving, joining, alone, leads_on):  # type: ignore[no-untyped-def]
    """Fill `Rows` for queries with heads [B] and hidden edges [B]."""
    half = leaving.shape[1] // 2
    for query in range(len(head)):
        edge = hidden[query]
        twin = twins[edge] if edge >= 0 else -1
        for k in range(starts[head[query]], starts[head[query] + 1]):
            if k != edge and k != twin:
                leaving[query, relations[k]] += 1
        if edge < 0:
            continue
        near, far = heads[edge], tails[edge]
        leads_on[query] = near != far
        turned = starts[far + 1] - starts[far] < starts[near + 1] - starts[near]
        if turned:
            near, far = far, near
        for k in range(starts[near], starts[near + 1]):
            if tails[k] == far:
                joining[query, (relations[k] + half * turned) % (2 * half)] += 1
        for way in range(2):
            k = twin if way else edge
            alone[query, way] = True
            for other in (k - 1, k + 1):
                if 0 <= other < len(heads) and heads[other] == heads[k] and relations[other] == relations[k]:
                    alone[query, way] = False
