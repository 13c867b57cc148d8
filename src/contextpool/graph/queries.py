"""Triples as questions in both directions: (head, relation, ?) and (tail, inverse relation, ?)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from contextpool.graph.relations import inverse
from contextpool.triples.filters import KnownAnswers
from contextpool.triples.store import Ids, Triples

Integers = npt.NDArray[np.int64]


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
        is_tail = self.relation < known.num_relations
        tail_rows, head_rows = np.flatnonzero(is_tail), np.flatnonzero(~is_tail)
        forward = inverse(self.relation[head_rows], known.num_relations)
        row_of_tail, tails = known.tails_of(self.entity[tail_rows], self.relation[tail_rows])
        row_of_head, heads = known.heads_of(forward, self.entity[head_rows])
        rows = np.append(tail_rows[row_of_tail], head_rows[row_of_head])
        return rows, np.append(tails, heads).astype(np.int64)

    def known_rows(self, known: KnownAnswers) -> tuple[Integers, Integers, Ids]:
        """The same without expanding: those of query q are entity[begin[q]:end[q]], as begin, end [Q], entity [A]."""
        is_tail = self.relation < known.num_relations
        relation = np.where(is_tail, self.relation, inverse(self.relation, known.num_relations))
        begin, end = known.bounds(self.entity, relation, is_tail)
        return begin, end, np.concatenate([known.tails.answer, known.heads.answer])
