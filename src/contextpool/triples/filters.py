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
class KnownAnswers:
    """The tails of every (head, relation, ?) and the heads of every (?, relation, tail) among some triples.

    Ids are those of the vocabularies of the parts; relations are forward ones, in [0, R). The answers to query
    `key[q]` are `answer[start[q]:start[q + 1]]`, ascending. O(T) memory, and O(log T) to find a query.
    """

    num_entities: int
    num_relations: int
    key: Positions
    """[Q] (entity * R + relation) * 2, and 1 more where heads are asked for; ascending."""
    start: Positions
    """[Q + 1]"""
    answer: Ids
    """[2T] entity ids."""

    @classmethod
    def of(cls, *parts: Triples) -> KnownAnswers:
        """From triples that share their vocabularies; what several parts hold counts once. O(T log T)."""
        if not parts:
            raise DataError("known answers of nothing: give at least one set of triples.")
        first = parts[0]
        for part in parts[1:]:
            if not _same_vocabularies(first, part):
                raise DataError("known answers: the parts have to share their vocabularies.")
        ids = distinct_rows(np.concatenate([part.ids for part in parts]))  # [T, 3]
        head, relation, tail = ids[:, 0], ids[:, 1], ids[:, 2]
        num_relations = len(first.relations)
        tail_keys, head_keys = _keys(head, relation, num_relations), _keys(tail, relation, num_relations) + 1
        keys, answers = np.append(tail_keys, head_keys), np.append(tail, head)  # [2T]
        order = np.lexsort((answers, keys))
        key, begin = np.unique(keys[order], return_index=True)
        start = np.append(begin, len(keys)).astype(np.int64)
        return cls(len(first.entities), num_relations, key, start, np.ascontiguousarray(answers[order]))

    def __len__(self) -> int:
        """The number of known triples."""
        return len(self.answer) // 2

    def __repr__(self) -> str:
        return f"KnownAnswers({len(self):,} triples, {len(self.key):,} queries)"

    def bounds(
        self, entities: _AnyIds, relations: _AnyIds, is_tail: npt.NDArray[np.bool_]
    ) -> tuple[Positions, Positions]:
        """Where in `answer` the answers to each query [B] begin and end; nothing in between where there are none.

        Query b asks for tails of (entity, relation, ?) where is_tail[b], for heads of (?, relation, entity) elsewhere.
        An id out of range is an error, since its key would be that of another query.
        """
        if entities.shape != relations.shape or entities.ndim != 1:
            raise DataError(f"queries of shapes {entities.shape} and {relations.shape}; both have to be [B].")
        _check_range("entity", entities, self.num_entities)
        _check_range("relation", relations, self.num_relations)
        keys = _keys(entities, relations, self.num_relations) + ~is_tail
        if len(self.key) == 0:
            return np.zeros(len(keys), dtype=np.int64), np.zeros(len(keys), dtype=np.int64)
        position = np.minimum(np.searchsorted(self.key, keys), len(self.key) - 1)
        found = self.key[position] == keys
        return self.start[position], self.start[position + found]

    def answers_to(
        self, entities: _AnyIds, relations: _AnyIds, is_tail: npt.NDArray[np.bool_]
    ) -> tuple[Positions, Ids]:
        """Every (query, answer) pair, [K] and [K], by query and then by answer; queries as `bounds` takes them."""
        begin, end = self.bounds(entities, relations, is_tail)
        counts = end - begin  # [B]
        query = np.repeat(np.arange(len(begin), dtype=np.int64), counts)  # [K]
        within = np.arange(len(query), dtype=np.int64) - np.repeat(np.cumsum(counts) - counts, counts)
        return query, self.answer[begin[query] + within]


def _keys(entities: _AnyIds, relations: _AnyIds, num_relations: int) -> Positions:
    return 2 * (entities.astype(np.int64) * num_relations + relations)


def _check_range(kind: str, ids: _AnyIds, count: int) -> None:
    if len(ids) and not (ids.min() >= 0 and ids.max() < count):
        wrong = ids[(ids < 0) | (ids >= count)][0]
        raise DataError(f"{kind} id {wrong} is out of range: there are {count:,}, numbered from 0.")


def _same_vocabularies(one: Triples, other: Triples) -> bool:
    same_entities = one.entities is other.entities or one.entities.labels == other.entities.labels
    return same_entities and (
        one.relations is other.relations or one.relations.labels == other.relations.labels
    )
