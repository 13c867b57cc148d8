"""The one question that Algorithms 1 and 3 answer: which relations may leave an entity?

An entity with relation set NR_e (after hiding) that the walk reached by rho at the previous hop asks with
q = inverse(rho); at the first hop q is the query relation. The answer depends on (NR_e, q) alone, and a
graph has few distinct NR_e, so it is a table, and the walk does not care which algorithm made it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from contextpool.graph.relation_sets import Words, pack_bits
from contextpool.graph.relations import RelationVocabulary


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
