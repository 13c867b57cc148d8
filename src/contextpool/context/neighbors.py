"""Algorithm 3, and the one question that it and Algorithm 1 answer: which relations may leave an entity?

An entity with relation set NR_e (after hiding) that the walk reached by rho at the previous hop asks with
q = inverse(rho); at the first hop q is the query relation. The answer depends on (NR_e, q) alone, and a
graph has few distinct NR_e, so it is a table, and the walk does not care which algorithm made it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt

from contextpool.context.counts import Cooccurrence, count_cooccurrence
from contextpool.context.relevance import Ratios, neighborhood_precision, neighborhood_recall
from contextpool.errors import ConfigError
from contextpool.graph.graph import Graph
from contextpool.graph.relation_sets import Words, pack_bits
from contextpool.graph.relations import RelationVocabulary

SelfPolicy = Literal["exclude", "keep"]


@dataclass(frozen=True, eq=False)
class SelectionTable:
    """`rows[row_of[s, q]]` are the relations (as bits) that may leave an entity whose set is s, asked with q.

    Rows are not cut down to NR_e: a relation that the entity does not have leads nowhere anyway.
    """

    row_of: npt.NDArray[np.int32]
    """[S, 2R] row for each (relation set, query relation); S = 1 where the set does not matter."""
    rows: Words
    """[K, W] bits over the 2R directed relations."""


class RelationSelector(Protocol):
    """What the walk needs of a mined context: `ContextNeighbors`, `ContextFamilies` or a plain mask."""

    @property
    def relations(self) -> RelationVocabulary: ...

    @property
    def depends_on_entity(self) -> bool:
        """Whether the answer depends on NR_e beyond the intersection with it (Algorithm 1 does)."""
        ...

    def selection_table(self, sets: Words, wanted: npt.NDArray[np.bool_]) -> SelectionTable:
        """The table for the relation sets [S, W]; only pairs where `wanted` [S, 2R] is true have to be filled."""
        ...


@dataclass(frozen=True, eq=False)
class MaskSelector:
    """A plain [query, neighbor] mask as selector: Algorithm 3, or all true for the walk without a filter."""

    relations: RelationVocabulary
    mask: npt.NDArray[np.bool_]  # [2R, 2R]
    depends_on_entity: bool = False

    @classmethod
    def everything(cls, relations: RelationVocabulary) -> MaskSelector:
        """No filter at all: every relation may follow every relation, itself included."""
        return cls(relations, np.ones((relations.num_directed, relations.num_directed), dtype=bool))

    def selection_table(self, sets: Words, wanted: npt.NDArray[np.bool_]) -> SelectionTable:
        return mask_table(self.mask)


def mask_table(mask: npt.NDArray[np.bool_]) -> SelectionTable:
    """A table that ignores the entity's set: row q of the mask."""
    return SelectionTable(np.arange(len(mask), dtype=np.int32)[None, :], pack_bits(mask))


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

    def __repr__(self) -> str:
        rule = f"precision > {self.min_precision:g}, recall > {self.min_recall:g}, self={self.self_policy!r}"
        size = f"{len(self.counts.both):,} directed relations, {self.counts.num_entities:,} entities"
        return f"ContextNeighbors({rule}, {size})"


def mine_context(
    graph: Graph, min_precision: float = 0.1, min_recall: float = 0.0, *, self: SelfPolicy = "exclude"
) -> ContextNeighbors:
    """Algorithm 3 on a graph. O(edges + sum of |NR_e|^2) time, O(R^2) memory, nothing trained."""
    return ContextNeighbors(count_cooccurrence(graph), min_precision, min_recall, self)
