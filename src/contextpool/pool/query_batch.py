"""What a model reads of a batch of queries."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from contextpool.pool.propagation import Propagation


@dataclass(frozen=True, eq=False)
class QueryBatch:
    """B queries, ready for a model."""

    propagation: Propagation
    neighbor_relevance: Tensor | None = None
    """[B, 2R, 2] precision and recall of each relation for the query relation; None without gate."""
    candidate_relevance: Tensor | None = None
    """[B, N] how much each entity looks like an answer, in [0, 1]; None without arrive."""
    candidate_features: Tensor | None = None
    """[B, N, F] more that is known of each entity, see `candidates.FEATURES`; None without arrive_features."""
    candidate_mass: Tensor | None = None
    """[B, N] expected visits of a random walk from the head, see `walk_mass`; None without arrive_walk."""
    relation_precision: Tensor | None = None
    """[2R, 2R] precision[query, neighbor] of all relations, the same for all queries; None unless it is read."""
    own_relevance: Tensor | None = None
    """[B, 4, 2R] precision and recall for the query relation and for its inverse without the query's own fact: what
    takes the place of their rows and columns. None where nothing is left out.
    """

    @property
    def query_relation(self) -> Tensor:
        return self.propagation.query_relation


OF_QUERIES = (
    "neighbor_relevance",
    "candidate_relevance",
    "candidate_features",
    "candidate_mass",
    "own_relevance",
)
"""Fields with a row for each query."""
