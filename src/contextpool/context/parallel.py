"""What pairs of entities say of relations: which ones join the same two, and how many facts an entity has by each.

`counts` has entities: of those that have y, how many have x. That y(h, t) makes x(h, t) likely is not to be seen there, but
in the pairs that both join: precision over pairs is the share of the facts of y whose pair x joins, too, and recall the
share of those of x. All of it without the fact that a query must not see, exactly.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from contextpool.graph.graph import Graph
from contextpool.graph.relations import inverse

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
        """O(edges log edges), on the graph's device."""
        first = _opens_row(graph)
        support = torch.bincount(graph.edge_relation.long()[first], minlength=2 * graph.num_relations)
        return cls(count_parallels(graph), support)


class Parallels:
    """The counts as queries may know them."""

    def __init__(self, graph: Graph, counts: ParallelCounts) -> None:
        """Hidden edges are those of `graph`, whose relations the counts are numbered by."""
        self.graph, self.counts = graph, counts

    def numbers(self, head: Tensor, relation: Tensor, hidden_edge: Tensor | None) -> Tensor:
        """[B, NUMBERS, 2R] float32 of each relation y, for queries (head [B], relation [B]) without their hidden edges.

        Precision and recall of y for the query relation over pairs; the logarithm of how many facts of y an entity has
        that has any; the logarithm of how many edges of y leave the head, plus 1. hidden_edge [B], -1 for nothing.
        """
        if hidden_edge is None:
            hidden_edge = torch.full_like(head, -1)
        own, facts, support = self._without(relation, hidden_edge)
        asked = facts.gather(1, relation[:, None])
        rows = [
            own / facts.clamp(min=1),
            own / asked.clamp(min=1),
            torch.log(facts.clamp(min=1) / support.clamp(min=1)),
            torch.log1p(self._leaving(head, hidden_edge)),
        ]
        return torch.stack(rows, dim=1)

    def without(self, edge: int) -> ParallelCounts:
        """The counts if the fact of this edge were not in the graph: only rows and columns of its relation change."""
        hidden = torch.tensor([edge], device=self.graph.device)
        both = self.counts.both.clone()
        support = self.counts.support.clone()
        for one in (hidden, self.graph.edge_inverse[hidden].long()):
            relation = self.graph.edge_relation[one].long()
            own, _, support_of = self._without(relation, one)
            both[relation], both[:, relation] = own, own.T
            support[relation] = support_of[0, relation]
        return replace(self.counts, both=both, support=support)

    def _without(self, relation: Tensor, hidden_edge: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """[B, 2R] each: pairs that the query relation shares with each relation, facts of each, entities having each."""
        graph, counts = self.graph, self.counts
        own = counts.both[relation]  # a copy
        facts = counts.both.diagonal().expand_as(own).clone()
        support = counts.support.expand_as(own).clone()
        if not graph.num_edges:
            return own, facts, support
        edge, hides = hidden_edge.clamp(min=0), (hidden_edge >= 0)[:, None]
        ways = torch.stack([edge, graph.edge_inverse[edge].long()], dim=1)  # [B, 2]
        kinds = torch.stack([relation, inverse(relation, graph.num_relations)], dim=1)
        own -= self._lost(kinds, edge, hides)
        facts.scatter_add_(1, kinds, -hides.expand(-1, 2).to(facts.dtype))
        support.scatter_add_(1, kinds, -(self._alone[ways] & hides).to(support.dtype))
        return own, facts, support

    def _lost(self, kinds: Tensor, edge: Tensor, hides: Tensor) -> Tensor:
        """[B, 2R] int32 how many pairs the query relation kinds[:, 0] and each relation stop sharing.

        The pair (head, tail) is taken from all that join it; (tail, head) from the query relation's inverse as well,
        where the query relation joins that, too.
        """
        graph = self.graph
        head, tail = graph.edge_head[edge].long(), graph.edge_tail[edge].long()
        degree = graph.row_start.diff()
        turned = degree[tail] < degree[head]  # the shorter of the two rows is looked through
        near, far = torch.where(turned, tail, head), torch.where(turned, head, tail)
        place, there = self._row(near)
        there = there & hides & (graph.edge_tail[place] == far[:, None])
        found = graph.edge_relation[place].long()
        found = torch.where(turned[:, None], inverse(found, graph.num_relations), found)
        lost = torch.zeros(len(edge), 2 * graph.num_relations, dtype=torch.int32, device=graph.device)
        lost.scatter_add_(1, found, there.int())
        back = kinds[:, 1:]
        again = lost.gather(1, back) * (head != tail)[:, None]
        return lost.scatter_add_(1, back, again)

    def _leaving(self, head: Tensor, hidden_edge: Tensor) -> Tensor:
        """[B, 2R] float32 how many edges of each relation leave the head, the hidden fact not counted."""
        graph = self.graph
        count = torch.zeros(len(head), 2 * graph.num_relations, device=graph.device)
        if not graph.num_edges:
            return count
        place, there = self._row(head)
        edge = hidden_edge.clamp(min=0)
        for one in (edge, graph.edge_inverse[edge].long()):
            there = there & ~((hidden_edge >= 0)[:, None] & (place == one[:, None]))
        return count.scatter_add_(1, graph.edge_relation[place].long(), there.to(count.dtype))

    def _row(self, entity: Tensor) -> tuple[Tensor, Tensor]:
        """[B, K] edges of each entity, and where there is one: rows are as long as the longest."""
        start, end = self.graph.row_start[entity], self.graph.row_start[entity + 1]
        on_card = self.graph.device.type == "cuda"  # which the host does not wait for
        longest = self._longest if on_card else int((end - start).max()) if len(entity) else 0
        place = start[:, None] + torch.arange(longest, device=self.graph.device)
        there = place < end[:, None]
        return place.clamp(max=self.graph.num_edges - 1), there

    @cached_property
    def _longest(self) -> int:
        return int(self.graph.row_start.diff().max())

    @cached_property
    def _alone(self) -> Tensor:
        """[2T] whether no other edge leaves the same head by the same relation."""
        opens = _opens_row(self.graph)
        closes = torch.ones_like(opens)
        closes[:-1] = opens[1:]
        return opens & closes


def _opens_row(graph: Graph) -> Tensor:
    """[2T] whether an edge is the first of its head and relation."""
    opens = torch.ones(graph.num_edges, dtype=torch.bool, device=graph.device)
    head, relation = graph.edge_head, graph.edge_relation
    opens[1:] = (head[1:] != head[:-1]) | (relation[1:] != relation[:-1])
    return opens


def count_parallels(graph: Graph) -> Tensor:
    """[2R, 2R] int32 ordered pairs of entities that two relations both join."""
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
