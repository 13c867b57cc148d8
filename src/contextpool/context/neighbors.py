"""Algorithm 3: the context neighbors of every query relation, one relation at a time."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import numpy.typing as npt

from contextpool.context.cooccurrence import Cooccurrence, count_cooccurrence
from contextpool.context.relevance import Ratios, neighborhood_precision, neighborhood_recall
from contextpool.context.selection import SelectionTable, mask_table
from contextpool.errors import ConfigError
from contextpool.graph.graph import Graph
from contextpool.graph.relation_sets import Words
from contextpool.graph.relations import RelationVocabulary

SelfPolicy = Literal["exclude", "keep"]


@dataclass(frozen=True, eq=False)
class ContextNeighbors:
    """CNF' of the paper: for each query relation, the neighbor relations whose relevance exceeds both thresholds."""

    counts: Cooccurrence
    min_precision: float = 0.1
    """Precision a neighbor has to exceed (the paper's R_0); strictly."""
    min_recall: float = 0.0
    """Recall a neighbor has to exceed; strictly."""
    self_policy: SelfPolicy = "exclude"
    """Whether a relation may be its own neighbor: Algorithm 3 excludes it, the selector of section 4.3 keeps it."""

    def __post_init__(self) -> None:
        for key, value in (("min_precision", self.min_precision), ("min_recall", self.min_recall)):
            if not 0 <= value < 1:
                raise ConfigError(
                    f"{key} is {value}; a neighbor has to exceed it, so it has to lie in [0, 1)."
                )
        if self.self_policy not in ("exclude", "keep"):
            raise ConfigError(f"self is {self.self_policy!r}; it is 'exclude' or 'keep'.")

    @property
    def relations(self) -> RelationVocabulary:
        return self.counts.relations

    @cached_property
    def precision_matrix(self) -> Ratios:
        """[query, neighbor]"""
        return neighborhood_precision(self.counts)

    @cached_property
    def recall_matrix(self) -> Ratios:
        """[query, neighbor]"""
        return neighborhood_recall(self.counts)

    @cached_property
    def mask(self) -> npt.NDArray[np.bool_]:
        """[query, neighbor] whether the neighbor may be walked for the query."""
        mask = (self.precision_matrix > self.min_precision) & (self.recall_matrix > self.min_recall)
        np.fill_diagonal(mask, self.self_policy == "keep" and self.counts.support > 0)
        return mask

    @property
    def depends_on_entity(self) -> bool:
        return False

    def selection_table(self, sets: Words, wanted: npt.NDArray[np.bool_]) -> SelectionTable:
        """CNFGenerate' of Algorithm 3: row q of the mask, whatever the entity."""
        return mask_table(self.mask)

    def precision(self, query: str, neighbor: str) -> float:
        """P(query | neighbor), Definition 5 for a single neighbor."""
        return float(self.precision_matrix[self.relations.id_of(query), self.relations.id_of(neighbor)])

    def recall(self, query: str, neighbor: str) -> float:
        """P(neighbor | query), Definition 6 for a single neighbor."""
        return float(self.recall_matrix[self.relations.id_of(query), self.relations.id_of(neighbor)])

    def support(self, relation: str) -> int:
        """Entities having the relation."""
        return int(self.counts.support[self.relations.id_of(relation)])

    def neighbors(self, query: str) -> list[str]:
        """Relation labels kept for a query relation: by precision, then recall, then label."""
        return [self.relations.directed[neighbor] for neighbor in self.ranked_neighbors(query)]

    def ranked_neighbors(self, query: str, by: Literal["precision", "recall"] = "precision") -> list[int]:
        """The ids behind `neighbors`; `by` says which of the two measures comes first."""
        row = self.relations.id_of(query)
        kept = np.flatnonzero(self.mask[row])
        measures = (self.precision_matrix[row, kept], self.recall_matrix[row, kept])
        first, second = measures if by == "precision" else measures[::-1]
        order = np.lexsort((self.relations.sort_rank[kept], -second, -first))
        return [int(neighbor) for neighbor in kept[order]]


def mine_context(
    graph: Graph, min_precision: float = 0.1, min_recall: float = 0.0, *, self: SelfPolicy = "exclude"
) -> ContextNeighbors:
    """Algorithm 3 on a graph. O(edges + sum of |NR_e|^2) time, O(R^2) memory, nothing trained."""
    return ContextNeighbors(count_cooccurrence(graph), min_precision, min_recall, self)
