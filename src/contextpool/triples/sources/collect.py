"""Rows of labels become Triples: numbered as they come, each label checked once, errors with their row."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from contextpool.errors import DataError, shortened
from contextpool.triples.labels import label_problem, relation_problem
from contextpool.triples.reader import sorted_triples
from contextpool.triples.store import Ids, Triples

ROLES = ("head", "relation", "tail")
Where = Callable[[int], str]
"""How a message names a row, counted from 0: `edges.csv:7`, `the query's row 7`."""


class TripleCollector:
    """Takes rows or columns of labels until `triples` is asked for. Memory: 12 bytes a row and the labels."""

    def __init__(self, where: Where, advice: str = "Rename it.") -> None:
        self._where = where
        self._advice = advice
        self._entity_ids: dict[str, int] = {}
        self._relation_ids: dict[str, int] = {}
        self._blocks: list[Ids] = []
        self._rows = 0

    def add_rows(self, rows: Iterable[Sequence[Any]]) -> None:
        """Rows of three values: strings, or integers, which are labels in decimals."""
        entities, relations = self._entity_ids, self._relation_ids
        ids: list[int] = []
        for row, (head, relation, tail) in enumerate(rows, start=self._rows):
            head_id = entities.get(head) if type(head) is str else None
            relation_id = relations.get(relation) if type(relation) is str else None
            tail_id = entities.get(tail) if type(tail) is str else None
            ids.append(self._number(head, 0, row) if head_id is None else head_id)
            ids.append(self._number(relation, 1, row) if relation_id is None else relation_id)
            ids.append(self._number(tail, 2, row) if tail_id is None else tail_id)
        block = np.array(ids, dtype=np.int32).reshape(-1, 3)
        self._blocks.append(block)
        self._rows += len(block)

    def add_columns(self, columns: Sequence[pa.Array]) -> None:
        """Three columns of equal length, strings or integers, none null (`tables.label_columns` sees to it)."""
        numbered = [self._column(column, role) for role, column in enumerate(columns)]
        self._blocks.append(np.stack(numbered, axis=1))
        self._rows += len(columns[0])

    @property
    def rows(self) -> int:
        return self._rows

    def triples(self, empty: str) -> Triples:
        """Everything collected; nothing is an error, whose message is `empty`."""
        if self._rows == 0:
            raise DataError(empty)
        return sorted_triples(np.concatenate(self._blocks), self._entity_ids, self._relation_ids)

    def _column(self, column: pa.Array, role: int) -> npt.NDArray[np.int32]:
        encoded = column.dictionary_encode()
        codes: npt.NDArray[np.int32] = encoded.indices.to_numpy()
        _, first_row = np.unique(codes, return_index=True)  # every code occurs; sorted by code
        labels = encoded.dictionary.to_pylist()
        numbers = [
            self._number(label, role, self._rows + row)
            for label, row in zip(labels, first_row.tolist(), strict=True)
        ]
        by_code: npt.NDArray[np.int32] = np.array(numbers, dtype=np.int32)
        return by_code[codes]

    def _number(self, value: Any, role: int, row: int) -> int:
        """The label's id; a new label is checked first."""
        ids = self._relation_ids if role == 1 else self._entity_ids
        label = self._label(value, role, row)
        known = ids.get(label)
        if known is not None:
            return known
        problem = (relation_problem if role == 1 else label_problem)(label)
        if problem:
            raise DataError(
                f"{self._where(row)}: the {ROLES[role]} {shortened(label)} {problem}. {self._advice}"
            )
        ids[label] = len(ids)
        return ids[label]

    def _label(self, value: Any, role: int, row: int) -> str:
        if isinstance(value, str):
            return value
        if isinstance(value, (int, np.integer)) and not isinstance(value, bool):
            return str(int(value))
        what = "is missing (null)" if value is None else f"is {repr(value)[:80]}, a {type(value).__name__}"
        raise DataError(
            f"{self._where(row)}: the {ROLES[role]} {what}; labels are text or whole numbers. {self._advice}"
        )
