"""Triples: distinct (head, relation, tail) as ids into two sorted vocabularies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from contextpool.errors import DataError, shortened
from contextpool.triples.labels import Vocabulary, check_triple, problem_in_role

Ids = npt.NDArray[np.int32]
Triple = tuple[str, str, str]


@dataclass(frozen=True, eq=False)
class Triples:
    """Distinct triples in sorted order. The order of the input and its duplicates leave no trace."""

    entities: Vocabulary
    relations: Vocabulary
    ids: Ids
    """[T, 3] head, relation, tail; rows sorted and distinct."""

    @classmethod
    def from_labels(cls, triples: Iterable[Triple]) -> Triples:
        """From (head, relation, tail) labels; each is checked as the reader would check it."""
        rows = list(triples)
        for number, triple in enumerate(rows):
            if not isinstance(triple, (tuple, list)) or len(triple) != 3:
                raise DataError(f"triples[{number}]: {triple!r} is not a (head, relation, tail) triple.")
            check_triple((triple[0], triple[1], triple[2]), f"triples[{number}]")
        entities = Vocabulary.of(label for head, _, tail in rows for label in (head, tail))
        relations = Vocabulary.of((relation for _, relation, _ in rows), "relation")
        ids = [(entities.index[h], relations.index[r], entities.index[t]) for h, r, t in rows]
        return cls(entities, relations, distinct_rows(np.array(ids, dtype=np.int32).reshape(-1, 3)))

    @classmethod
    def from_numbers(
        cls, rows: npt.NDArray[np.integer[Any]], entities: Sequence[str], relations: Sequence[str]
    ) -> Triples:
        """From rows [T, 3] that another numbering made, and the label of each of its numbers, distinct and checked.

        Ids follow the sorted labels. Labels that are not used stay in the vocabularies; duplicate rows collapse.
        """
        names, kinds = Vocabulary.of(entities), Vocabulary.of(relations, "relation")
        entity = renumbering(Vocabulary(tuple(entities)), names)
        relation = renumbering(Vocabulary(tuple(relations)), kinds)
        ids = np.stack([entity[rows[:, 0]], relation[rows[:, 1]], entity[rows[:, 2]]], axis=1)
        return cls(names, kinds, distinct_rows(ids))

    @property
    def triples(self) -> Triples:
        """Themselves: a graph and a part of a dataset are read alike, `for head, relation, tail in graph.triples`."""
        return self

    def __len__(self) -> int:
        return len(self.ids)

    def __iter__(self) -> Iterator[Triple]:
        return self._labelled(self.ids)

    def _labelled(self, ids: Ids) -> Iterator[Triple]:
        names, kinds = self.entities.labels, self.relations.labels
        for head, relation, tail in ids.tolist():
            yield names[head], kinds[relation], names[tail]

    def __getitem__(self, position: Any) -> Any:
        """The triple at a position, or the list of those of a slice."""
        if isinstance(position, slice):
            return list(self._labelled(self.ids[position]))
        return next(self._labelled(self.ids[position, None]))

    def __eq__(self, other: object) -> bool:
        """The same facts, whatever else the vocabularies hold; also a set of labels."""
        if not isinstance(other, Triples | Set):
            return NotImplemented
        return len(self) == len(other) and set(self) == set(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Triples({len(self):,} triples, {len(self.entities):,} entities, {len(self.relations):,} relations)"

    def with_vocabularies(self, entities: Vocabulary, relations: Vocabulary) -> Triples:
        """The same facts, numbered by other vocabularies, which have to hold every label used here."""
        moved = self._renumbered(entities, relations)
        if len(moved) and moved.min() < 0:
            raise DataError(
                f"{self._first_missing(moved)} is not in the vocabulary that it should be numbered by."
            )
        return Triples(entities, relations, distinct_rows(moved))

    def within(self, entities: Vocabulary, relations: Vocabulary) -> Triples:
        """Those of the facts whose labels are all in these vocabularies, numbered by them."""
        moved = self._renumbered(entities, relations)
        return Triples(entities, relations, distinct_rows(moved[(moved >= 0).all(axis=1)]))

    def _renumbered(self, entities: Vocabulary, relations: Vocabulary) -> Ids:
        """[T, 3] -1 where a label is gone."""
        entity, relation = renumbering(self.entities, entities), renumbering(self.relations, relations)
        head, kind, tail = self.ids.T
        return np.stack([entity[head], relation[kind], entity[tail]], axis=1)

    def _first_missing(self, moved: Ids) -> str:
        row = int(np.flatnonzero((moved < 0).any(axis=1))[0])
        head, relation, tail = self.ids[row].tolist()
        return f"triple {(self.entities.labels[head], self.relations.labels[relation], self.entities.labels[tail])}"

    def select(self, keep: npt.NDArray[np.bool_]) -> Triples:
        """The triples where `keep` [T] is true, with the vocabularies left as they are."""
        return Triples(self.entities, self.relations, self.ids[keep])

    def sample(self, number: int, seed: int = 0) -> Triples:
        """So many of the triples in their order, the same ones for the same seed; all where there are no more."""
        if number >= len(self):
            return self
        keep = np.zeros(len(self), dtype=bool)
        keep[np.random.default_rng(seed).choice(len(self), number, replace=False)] = True
        return self.select(keep)


def renumbering(old: Vocabulary, new: Vocabulary) -> Ids:
    """[len(old)] the new id of each old id; -1 where the label is gone."""
    if old.labels == new.labels:
        return np.arange(len(old), dtype=np.int32)
    return np.fromiter((new.index.get(label, -1) for label in old.labels), dtype=np.int32, count=len(old))


def distinct_rows(ids: Ids) -> Ids:
    """Rows sorted by (head, relation, tail), each once. O(T log T)."""
    if len(ids) == 0:
        return ids.reshape(0, 3)
    order = np.lexsort((ids[:, 2], ids[:, 1], ids[:, 0]))
    ordered = ids[order]
    first = np.ones(len(ordered), dtype=bool)
    first[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
    return np.ascontiguousarray(ordered[first])


def union(parts: Iterable[Triples]) -> Triples:
    """All facts of all parts, over the union of their vocabularies."""
    parts = list(parts)
    entities = Vocabulary.of(label for part in parts for label in part.entities.labels)
    relations = Vocabulary.of((label for part in parts for label in part.relations.labels), "relation")
    moved = [part.with_vocabularies(entities, relations).ids for part in parts]
    stacked = np.concatenate(moved) if moved else np.empty((0, 3), dtype=np.int32)
    return Triples(entities, relations, distinct_rows(stacked))


def numbered_labels(letter: str, count: int) -> list[str]:
    """e000 ... e123: labels for what has none, which sort as their numbers do, so ids stay as they are."""
    width = len(str(max(count - 1, 0)))
    return [f"{letter}{number:0{width}d}" for number in range(count)]


def triples_by_number(
    rows: npt.NDArray[np.int64], entities: Sequence[str], relations: Sequence[str]
) -> Triples:
    """`Triples.from_numbers` for labels that come from elsewhere: each is checked, and that no two are equal."""
    _refuse_bad_labels("entity", entities)
    _refuse_bad_labels("relation", relations)
    return Triples.from_numbers(rows, entities, relations)


def _refuse_bad_labels(kind: str, labels: Sequence[Any]) -> None:
    for number, label in enumerate(labels):
        is_text = isinstance(label, str)
        problem = problem_in_role(label, kind) if is_text else f"is a {type(label).__name__}, not a string"
        if problem:
            raise DataError(f"{kind} label {number}, {shortened(str(label))}, {problem}. Rename it.")
    if len(set(labels)) != len(labels):
        twice = min(label for label, count in Counter(labels).items() if count > 1)
        raise DataError(
            f"{len(labels):,} {kind} labels, of which {len(set(labels)):,} differ, such as {shortened(twice)}. "
            "Rename some."
        )
