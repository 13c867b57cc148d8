"""Inverse arithmetic, and only here: R relations become 2R, `inverse(inverse(r)) == r`; triples asked both ways."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import numpy as np
import numpy.typing as npt
from torch import Tensor

from contextpool.errors import UnknownNameError
from contextpool.triples.filters import KnownAnswers
from contextpool.triples.labels import INVERSE_SUFFIX, Vocabulary
from contextpool.triples.store import Ids, Triples

Integers = npt.NDArray[np.int64]
RelationId = TypeVar("RelationId", int, Tensor, npt.NDArray[np.int32], npt.NDArray[np.int64])


def inverse(relation: RelationId, num_relations: int) -> RelationId:
    """The inverse: `r + R` of a forward relation, `r - R` of an inverse one; for an int, an array or a tensor."""
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
        order = sorted(range(len(self.directed)), key=self.directed.__getitem__)
        ranks = np.empty(len(order), dtype=np.int64)
        ranks[order] = np.arange(len(order))
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

    def __repr__(self) -> str:
        return f"RelationVocabulary({self.num_relations:,} relations)"


@dataclass(frozen=True, eq=False)
class DirectedQueries:
    """Q queries (entity, relation in [0, 2R), ?), each with one answer."""

    entity: Integers
    relation: Integers
    answer: Integers

    @classmethod
    def of(cls, triples: Triples) -> DirectedQueries:
        """The T tail queries (h, r, ?) in the order of the triples, then the T head queries (t, r^-1, ?)."""
        head, relation, tail = triples.ids.T.astype(np.int64)
        back = inverse(relation, len(triples.relations))
        return cls(np.append(head, tail), np.append(relation, back), np.append(tail, head))

    def __len__(self) -> int:
        return len(self.entity)

    def select(self, rows: Integers) -> DirectedQueries:
        return DirectedQueries(self.entity[rows], self.relation[rows], self.answer[rows])

    def distinct(self, num_relations: int) -> tuple[Integers, Integers]:
        """A row of each distinct (entity, relation), in order of appearance, and the [Q] number of each."""
        key = self.entity * (2 * num_relations) + self.relation
        _, first, number = np.unique(key, return_index=True, return_inverse=True)
        order = np.argsort(first)
        place = np.empty_like(order)
        place[order] = np.arange(len(order))
        return first[order], place[number]

    def known_answers(self, known: KnownAnswers) -> tuple[Integers, Integers]:
        """Row [K] and entity [K] of every known answer, each query looked up in its own direction."""
        rows, entities = known.answers_to(self.entity, *self._undirected(known.num_relations))
        return rows, entities.astype(np.int64)

    def known_rows(self, known: KnownAnswers) -> tuple[Integers, Integers, Ids]:
        """The same without expanding: those of query q are entity[begin[q]:end[q]], as begin, end [Q], entity [A]."""
        begin, end = known.bounds(self.entity, *self._undirected(known.num_relations))
        return begin, end, known.answer

    def _undirected(self, num_relations: int) -> tuple[Integers, npt.NDArray[np.bool_]]:
        """[Q] the forward relation of each query, and whether it asks for tails."""
        is_tail = self.relation < num_relations
        return np.where(is_tail, self.relation, inverse(self.relation, num_relations)), is_tail
