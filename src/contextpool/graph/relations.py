"""Inverse arithmetic, and only here: R relations become 2R, `inverse(inverse(r)) == r`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import numpy as np
import numpy.typing as npt
from torch import Tensor

from contextpool.errors import UnknownNameError
from contextpool.triples.labels import INVERSE_SUFFIX, Vocabulary

RelationId = TypeVar("RelationId", int, Tensor, npt.NDArray[np.int32], npt.NDArray[np.int64])


def inverse(relation: RelationId, num_relations: int) -> RelationId:
    """R + R for a forward relation, r - R for an inverse one; for an int, an array or a tensor."""
    return (relation + num_relations) % (2 * num_relations)


def inverse_label(label: str) -> str:
    """`r^-1` for `r`, `r` for `r^-1`."""
    return label.removesuffix(INVERSE_SUFFIX) if label.endswith(INVERSE_SUFFIX) else label + INVERSE_SUFFIX


@dataclass(frozen=True)
class RelationVocabulary:
    """The R forward relation labels in sorted order, and the 2R directed relations they make."""

    forward: tuple[str, ...]

    @classmethod
    def of(cls, vocabulary: Vocabulary) -> RelationVocabulary:
        return cls(vocabulary.labels)

    @cached_property
    def directed(self) -> tuple[str, ...]:
        """[2R] labels: the forward ones, then `r^-1` in the same order."""
        return self.forward + tuple(label + INVERSE_SUFFIX for label in self.forward)

    @cached_property
    def index(self) -> dict[str, int]:
        return {label: position for position, label in enumerate(self.directed)}

    @cached_property
    def sort_rank(self) -> npt.NDArray[np.int64]:
        """[2R] the place of each directed relation in the sorted list of labels; where ties end."""
        ranks = np.empty(len(self.directed), dtype=np.int64)
        ranks[sorted(range(len(self.directed)), key=self.directed.__getitem__)] = np.arange(
            len(self.directed)
        )
        return ranks

    @property
    def num_relations(self) -> int:
        """R"""
        return len(self.forward)

    @property
    def num_directed(self) -> int:
        """2R"""
        return 2 * len(self.forward)

    def id_of(self, label: str) -> int:
        """The id in [0, 2R) of `r` or `r^-1`; an unknown label is an error that names the closest."""
        position = self.index.get(label)
        if position is None:
            raise UnknownNameError("relation", label, self.directed)
        return position

    def inverse(self, relation: RelationId) -> RelationId:
        return inverse(relation, self.num_relations)
