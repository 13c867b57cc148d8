"""Triples that another tool numbered: its numbers and its labels, or labels made of the numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from contextpool.errors import DataError, shortened
from contextpool.triples.labels import Vocabulary, label_problem, relation_problem
from contextpool.triples.store import Triples, distinct_rows, renumbering


def numbered_labels(letter: str, count: int) -> list[str]:
    """e000 ... e123: labels for what has none, which sort as their numbers do, so ids stay as they are."""
    width = len(str(max(count - 1, 0)))
    return [f"{letter}{number:0{width}d}" for number in range(count)]


def triples_by_number(
    rows: npt.NDArray[np.int64], entities: Sequence[str], relations: Sequence[str]
) -> Triples:
    """From rows [T, 3] of head, relation, tail and the label of each number; ids follow the sorted labels.

    Labels that are not used stay in the vocabularies; duplicate rows collapse. O(T log T).
    """
    _refuse_bad_labels("entity", entities)
    _refuse_bad_labels("relation", relations)
    names, kinds = Vocabulary.of(entities), Vocabulary.of(relations, "relation")
    entity = renumbering(Vocabulary(tuple(entities)), names)
    relation = renumbering(Vocabulary(tuple(relations), "relation"), kinds)
    ids = np.stack([entity[rows[:, 0]], relation[rows[:, 1]], entity[rows[:, 2]]], axis=1)
    return Triples(names, kinds, distinct_rows(ids))


def _refuse_bad_labels(kind: str, labels: Sequence[Any]) -> None:
    problem_of = relation_problem if kind == "relation" else label_problem
    for number, label in enumerate(labels):
        problem = (
            problem_of(label) if isinstance(label, str) else f"is a {type(label).__name__}, not a string"
        )
        if problem:
            raise DataError(f"{kind} label {number}, {shortened(str(label))}, {problem}. Rename it.")
    if len(set(labels)) != len(labels):
        twice = min(label for label in labels if list(labels).count(label) > 1) if len(labels) < 1_000 else ""
        shown = f", such as {shortened(twice)}" if twice else ""
        raise DataError(
            f"{len(labels):,} {kind} labels, of which {len(set(labels)):,} differ{shown}. Rename some."
        )
