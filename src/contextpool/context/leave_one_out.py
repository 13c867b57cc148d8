"""Co-occurrence counts as they would be without one fact, exactly, for a batch of hidden facts.

Hiding the edge (h, x, t) can take x out of NR_h and inverse(x) out of NR_t. Counts change where one of the two
is involved and nowhere else, so the rows of x and of inverse(x) say it all (counts are symmetric).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from contextpool.context.cooccurrence import Cooccurrence
from contextpool.graph.graph import Graph
from contextpool.graph.relation_sets import WORD_BITS, entity_words
from contextpool.graph.relations import inverse


@dataclass(frozen=True, eq=False)
class QueryCounts:
    """The rows of counts that B queries ask for, each without what it must not know."""

    both: Tensor
    """[B, 2, 2R] int64 entities having (the query relation, its inverse) and each relation."""
    support: Tensor
    """[B, 2R] int64 entities having each relation."""
    own: Tensor
    """[B, 2] int64 entities having (the query relation, its inverse)."""

    def with_neighbors(self, other: Tensor) -> QueryCounts:
        """The counts of neighbor other[y] in the place of those of y; other [2R]."""
        return replace(self, both=self.both[:, :, other], support=self.support[:, other])

    def precision(self, row: int) -> Tensor:
        """[B, 2R] P(query | neighbor); row 0 for the query relation, 1 for its inverse."""
        return self.both[:, row].double() / self.support.clamp(min=1)

    def recall(self, row: int) -> Tensor:
        """[B, 2R] P(neighbor | query); rows as for precision."""
        return self.both[:, row].double() / self.own[:, row, None].clamp(min=1)

    def relevance(self) -> Tensor:
        """[B, 4, 2R] float32: precision and recall for the query relation, then for its inverse."""
        rows = [self.precision(0), self.recall(0), self.precision(1), self.recall(1)]
        return torch.stack(rows, dim=1).float()


class CountsOf:
    """Counts and relation sets of one graph on a device, ready to be asked with facts left out."""

    def __init__(self, graph: Graph, counts: Cooccurrence) -> None:
        self.num_relations, self.num_entities = graph.num_relations, counts.num_entities
        self.both = torch.from_numpy(counts.both.copy()).to(graph.device)  # [2R, 2R]
        self.support = self.both.diagonal().clone()  # [2R]
        self._graph = graph
        self.words = torch.from_numpy(entity_words(graph).view("int64")).to(graph.device)  # [N, W]
        self.only_one = _is_only_edge_of_its_pair(graph)  # [2T]

    def relation_sets(self, entity: Tensor) -> Tensor:
        """[B, 2R] whether each of the entities [B] has each relation."""
        shifts = torch.arange(WORD_BITS, device=entity.device)
        bits = (self.words[entity][:, :, None] >> shifts) & 1  # [B, W, 64]
        return bits.flatten(1)[:, : 2 * self.num_relations] != 0

    def for_queries(self, query_relation: Tensor, hidden_edge: Tensor) -> QueryCounts:
        """Counts for queries [B], each without its hidden edge [B]; -1 hides nothing.

        The hidden edge is the query itself: its relation is the query relation.
        """
        rows = torch.stack([query_relation, inverse(query_relation, self.num_relations)], dim=1)  # [B, 2]
        both = self.both[rows]  # [B, 2, 2R], a copy
        support = self.support.expand(len(rows), -1).clone()
        hiding = torch.nonzero(hidden_edge >= 0).squeeze(1)
        if len(hiding):
            both[hiding] -= self._lost(rows[hiding], hidden_edge[hiding])
            support[hiding] = support[hiding].scatter(
                1, rows[hiding], both[hiding].gather(2, rows[hiding][:, :, None])[..., 0]
            )
        return QueryCounts(both, support, own=support.gather(1, rows))

    def _lost(self, rows: Tensor, edge: Tensor) -> Tensor:
        """[B, 2, 2R] how many entities (head, tail) stop having both relations when the edge is hidden."""
        head, tail = self._graph.edge_head[edge].long(), self._graph.edge_tail[edge].long()
        head_loses = self.only_one[edge]  # [B] the query relation
        tail_loses = self.only_one[self._graph.edge_inverse[edge].long()]  # [B] its inverse
        loop = head == tail
        nothing = torch.zeros_like(loop)
        lost = self._lost_by(head, rows, torch.stack([head_loses, tail_loses & loop], dim=1))
        by_tail = self._lost_by(tail, rows, torch.stack([nothing, tail_loses & ~loop], dim=1))
        return lost + by_tail

    def _lost_by(self, entity: Tensor, rows: Tensor, loses: Tensor) -> Tensor:
        """[B, 2, 2R] for one entity a query: pairs it had minus pairs it still has."""
        had = self.relation_sets(entity)  # [B, 2R]
        has = had.scatter(1, rows, had.gather(1, rows) & ~loses)
        before = had.gather(1, rows)[:, :, None] & had[:, None, :]
        after = has.gather(1, rows)[:, :, None] & has[:, None, :]
        return before.long() - after.long()

    def sets_without(self, hidden_edge: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Head [B], its relation set [B, 2R], tail [B], its relation set, both without the hidden edge [B] >= 0."""
        edge, back = hidden_edge, self._graph.edge_inverse[hidden_edge].long()
        head, tail = self._graph.edge_head[edge].long(), self._graph.edge_tail[edge].long()
        head_set, tail_set = self.relation_sets(head), self.relation_sets(tail)
        loop = head == tail
        for sets, first, second in ((head_set, edge, back), (tail_set, back, edge)):
            _drop(sets, self._graph.edge_relation[first].long(), self.only_one[first])
            _drop(sets, self._graph.edge_relation[second].long(), self.only_one[second] & loop)
        return head, head_set, tail, tail_set


def _drop(sets: Tensor, relation: Tensor, where: Tensor) -> None:
    rows = torch.nonzero(where).squeeze(1)
    sets[rows, relation[rows]] = False


def _is_only_edge_of_its_pair(graph: Graph) -> Tensor:
    """[2T] whether no other edge leaves the same head by the same relation."""
    head, relation = graph.edge_head, graph.edge_relation
    same_as_next = torch.zeros(graph.num_edges + 1, dtype=torch.bool, device=graph.device)
    same_as_next[1:-1] = (head[1:] == head[:-1]) & (relation[1:] == relation[:-1])
    return ~(same_as_next[:-1] | same_as_next[1:])
