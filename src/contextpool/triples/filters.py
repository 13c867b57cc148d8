"""Which answers are already known to be true: masks for training, filters for ranking."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from contextpool.errors import DataError
from contextpool.triples.store import Ids, Triples, distinct_rows

Positions = npt.NDArray[np.int64]
_AnyIds = npt.NDArray[np.integer[Any]]


@dataclass(frozen=True, eq=False)
class AnswerRows:
    """Compressed rows: the answers to query `key[q]` are `answer[start[q]:start[q + 1]]`, ascending."""

    key: Positions
    """[Q] entity * R + relation of each query that has an answer; ascending."""
    start: Positions
    """[Q + 1]"""
    answer: Ids
    """[T] entity ids."""

    @classmethod
    def of(cls, keys: Positions, answers: Ids) -> AnswerRows:
        """From the key [T] and the answer [T] of each distinct triple. O(T log T)."""
        order = np.lexsort((answers, keys))
        key, first = np.unique(keys[order], return_index=True)
        start = np.append(first, len(keys)).astype(np.int64)
        return cls(key, start, np.ascontiguousarray(answers[order]))

    def bounds(self, keys: Positions) -> tuple[Positions, Positions]:
        """Where the answers to each key [B] begin and end; nothing in between for a query without any."""
        if len(self.key) == 0:
            nothing = np.zeros(len(keys), dtype=np.int64)
            return nothing, nothing
        position = np.minimum(np.searchsorted(self.key, keys), len(self.key) - 1)
        found = self.key[position] == keys
        return self.start[position], self.start[position + found]

    def one(self, key: int) -> Ids:
        begin, end = self.bounds(np.array([key], dtype=np.int64))
        return self.answer[begin[0] : end[0]]

    def many(self, keys: Positions) -> tuple[Positions, Ids]:
        """Every (row of `keys`, answer) pair, [K] and [K], by row and then by answer."""
        begin, end = self.bounds(keys)
        counts = end - begin  # [B]
        row = np.repeat(np.arange(len(keys), dtype=np.int64), counts)  # [K]
        within = np.arange(len(row), dtype=np.int64) - np.repeat(np.cumsum(counts) - counts, counts)
        return row, self.answer[begin[row] + within]


@dataclass(frozen=True, eq=False)
class KnownAnswers:
    """The tails of every (head, relation, ?) and the heads of every (?, relation, tail) among some triples.

    Ids are those of the vocabularies of the parts; relations are forward ones, in [0, R). O(T) memory, and
    O(log T) to find a query.
    """

    num_entities: int
    num_relations: int
    tails: AnswerRows
    heads: AnswerRows

    @classmethod
    def of(cls, *parts: Triples) -> KnownAnswers:
        """From triples that share their vocabularies; what several parts hold counts once."""
        if not parts:
            raise DataError("known answers of nothing: give at least one set of triples.")
        first = parts[0]
        for part in parts[1:]:
            if not _same_vocabularies(first, part):
                raise DataError("known answers: the parts have to share their vocabularies.")
        ids = distinct_rows(np.concatenate([part.ids for part in parts]))  # [T, 3]
        head, relation, tail = ids[:, 0], ids[:, 1], ids[:, 2]
        num_relations = len(first.relations)
        return cls(
            len(first.entities),
            num_relations,
            AnswerRows.of(_keys(head, relation, num_relations), tail),
            AnswerRows.of(_keys(tail, relation, num_relations), head),
        )

    def __len__(self) -> int:
        """The number of known triples."""
        return len(self.tails.answer)

    def known_tails(self, head_id: int, relation_id: int) -> Ids:
        """The known answers to (head, relation, ?), ascending."""
        return self.tails.one(self._key(head_id, relation_id))

    def known_heads(self, relation_id: int, tail_id: int) -> Ids:
        """The known answers to (?, relation, tail), ascending."""
        return self.heads.one(self._key(tail_id, relation_id))

    def tails_of(self, heads: _AnyIds, relations: _AnyIds) -> tuple[Positions, Ids]:
        """Queries (heads [B], relations [B], ?) -> row [K] and entity [K] of each known answer."""
        return self.tails.many(self._checked_keys(heads, relations))

    def heads_of(self, relations: _AnyIds, tails: _AnyIds) -> tuple[Positions, Ids]:
        """Queries (?, relations [B], tails [B]) -> row [K] and entity [K] of each known answer."""
        return self.heads.many(self._checked_keys(tails, relations))

    def bounds(
        self, entities: _AnyIds, relations: _AnyIds, is_tail: npt.NDArray[np.bool_]
    ) -> tuple[Positions, Positions]:
        """Where the answers to each query [B] begin and end, in the tails' answers followed by the heads'.

        Query b asks for tails of (entity, relation, ?) where is_tail[b], for heads of (?, relation, entity) elsewhere.
        """
        keys = self._checked_keys(entities, relations)
        tail_begin, tail_end = self.tails.bounds(keys)
        head_begin, head_end = self.heads.bounds(keys)
        before = len(self.tails.answer)
        begin = np.where(is_tail, tail_begin, head_begin + before)
        return begin, np.where(is_tail, tail_end, head_end + before)

    def _key(self, entity_id: int, relation_id: int) -> int:
        return int(self._checked_keys(np.array([entity_id]), np.array([relation_id]))[0])

    def _checked_keys(self, entities: _AnyIds, relations: _AnyIds) -> Positions:
        """[B] keys; an id out of range is an error, since its key would be that of another query."""
        if entities.shape != relations.shape or entities.ndim != 1:
            raise DataError(f"queries of shapes {entities.shape} and {relations.shape}; both have to be [B].")
        _check_range("entity", entities, self.num_entities)
        _check_range("relation", relations, self.num_relations)
        return _keys(entities, relations, self.num_relations)


def _keys(entities: _AnyIds, relations: _AnyIds, num_relations: int) -> Positions:
    return entities.astype(np.int64) * num_relations + relations


def _check_range(kind: str, ids: _AnyIds, count: int) -> None:
    if len(ids) and not (ids.min() >= 0 and ids.max() < count):
        wrong = ids[(ids < 0) | (ids >= count)][0]
        raise DataError(f"{kind} id {wrong} is out of range: there are {count:,}, numbered from 0.")


def _same_vocabularies(one: Triples, other: Triples) -> bool:
    same_entities = one.entities is other.entities or one.entities.labels == other.entities.labels
    return same_entities and (
        one.relations is other.relations or one.relations.labels == other.relations.labels
    )
