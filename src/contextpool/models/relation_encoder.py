"""Relation vectors that borrow from similar relations: a small network over the graph of relations.

Its nodes are the 2R directed relations. Two of them are joined in four ways, by which of their ends meet at entities:
head-head, head-tail, tail-head and tail-tail, and every edge weighs what precision and what recall say (Definitions 5
and 6; the end of r where r arrives is the beginning of inverse(r)). A relation with few facts has counts as everybody
has, so it finds its likes by them long before its own vector is learned.

For a training query, the rows and columns of its relation x and of inverse(x) are those without its own fact; no
others change, so the shared [2R, 2R] matrix and a few rows for each query are all it takes.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from contextpool.graph.relations import inverse
from contextpool.pool.batch import QueryBatch

LEAST_WEIGHT = 1e-6
"""A relation that meets no other takes nothing from anybody."""


def vectors_of(enriched: Tensor, relation: Tensor) -> Tensor:
    """[B, D] the vector of relation b for query b, from [2R, D] or [B, 2R, D]."""
    if enriched.dim() == 2:
        return nn.functional.embedding(relation, enriched)
    return enriched.gather(1, relation[:, None, None].expand(-1, 1, enriched.size(2))).squeeze(1)


class RelationEncoder(nn.Module):
    """What to add to the vectors of relations. Starts at 0: without effect."""

    def __init__(self, num_relations: int, dim: int) -> None:
        super().__init__()
        self.num_relations = num_relations
        self.relation = nn.Embedding(2 * num_relations, dim)
        self.own = nn.ModuleList([nn.Linear(dim, dim)])  # lists of one: stored runs have these names
        self.others = nn.ModuleList([nn.Linear(8 * dim, dim, bias=False)])
        self.last = nn.Linear(dim, dim, bias=False)
        nn.init.zeros_(self.last.weight)

    def forward(self, batch: QueryBatch) -> Tensor:
        """[2R, D], or [B, 2R, D] where queries have facts to leave out."""
        graph = RelationGraph.of(batch, self.num_relations)
        state = self.relation.weight[None]  # [1, 2R, D]
        state = torch.relu(
            self.own[0](state) + self.others[0](graph.seen_by_relations(state))
        )  # [1 or B, 2R, D]
        added: Tensor = self.last(state)
        return added if graph.own_relation is not None else added[0]


@dataclass(frozen=True, eq=False)
class RelationGraph:
    """Weights between relations, diagonal 0: nobody borrows from itself."""

    num_relations: int
    """R"""
    precision: Tensor  # [2R, 2R]
    own_relation: Tensor | None
    """[B, 2] query relation and its inverse, whose rows and columns are a query's own; None where none are."""
    own_relevance: Tensor | None
    """[B, 4, 2R] precision and recall for the first, precision and recall for the second."""
    neighbors: Tensor | None = None
    """[2R] whose weights every neighbor has, in the shuffled control; None for its own."""

    @classmethod
    def of(cls, batch: QueryBatch, num_relations: int) -> RelationGraph:
        assert batch.relation_precision is not None, "this model needs batches with the relation graph"
        precision = batch.relation_precision.clone().fill_diagonal_(0.0)
        if batch.own_relevance is None:
            return cls(num_relations, precision, None, None, batch.neighbors)
        asked = batch.query_relation
        own = torch.stack([asked, inverse(asked, num_relations)], dim=1)
        return cls(num_relations, precision, own, batch.own_relevance, batch.neighbors)

    def _inverse(self, state: Tensor) -> Tensor:
        """[.., 2R, D] with relations and their inverses changed: the two halves."""
        return state.roll(self.num_relations, dims=1)

    def seen_by_relations(self, state: Tensor) -> Tensor:
        """[1 or B, 2R, D] -> [1 or B, 2R, 8 D]: the mean of those met in each way, by each weight."""
        ends = torch.cat([state, self._inverse(state), torch.ones_like(state[..., :1])], dim=2)
        if self.neighbors is not None:  # y stands where the neighbor is whose weights it has
            ends = ends[:, self.neighbors.argsort()]
        ways = [self._means(ends, place) for place in (0, 1)]  # by precision, by recall: head-head, head-tail
        return torch.cat([part for way in ways for part in (way, self._inverse(way))], dim=2)

    def _means(self, ends: Tensor, measure: int) -> Tensor:
        """[.., 2R, 2 D] from [.., 2R, 2 D + 1], whose last column sums the weights up."""
        matrix = self.precision if measure == 0 else self.precision.T  # recall[a, b] is precision[b, a]
        total = matrix @ ends if self.own_relation is None else self._own_sums(matrix, ends, measure)
        return total[..., :-1] / total[..., -1:].clamp(min=LEAST_WEIGHT)

    def _own_sums(self, matrix: Tensor, ends: Tensor, measure: int) -> Tensor:
        """Weighted sums [B, 2R, K] with the queries' own rows and columns in the place of the shared ones."""
        assert self.own_relation is not None
        assert self.own_relevance is not None
        own = self.own_relation[:, :, None]  # [B, 2, 1]
        ends = ends.expand(len(own), -1, -1)
        places = own.expand(-1, -1, ends.size(2))
        rows = self.own_relevance[:, measure::2].scatter(2, own, 0.0)  # [B, 2, 2R]
        columns = self.own_relevance[
            :, 1 - measure :: 2
        ]  # [B, 2, 2R] row of one measure, column of the other
        usual = matrix @ ends.scatter(1, places, 0.0)
        total = usual + columns.transpose(1, 2) @ ends.gather(1, places)
        return total.scatter(1, places, (rows @ ends).to(total.dtype))
