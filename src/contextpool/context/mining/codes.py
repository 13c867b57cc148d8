"""Relations numbered as they are met, and counts by those numbers turned into counts by sorted label.

A stream does not know R before its end, so relation k is `2 k` as it stands and `2 k + 1` inverted until then.
"""

from __future__ import annotations

import hashlib

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from contextpool.context.cooccurrence import Cooccurrence, Counts, check_relation_count
from contextpool.context.mining.source import MAX_RELATION_ID
from contextpool.graph.relations import RelationVocabulary


class RelationCodes:
    """Labels or ids of relations -> 0, 1, 2, ... in the order of their first batch."""

    def __init__(self) -> None:
        self.labels: list[str] = []
        self._code_of_label: dict[str, int] = {}
        self._code_of_id: npt.NDArray[np.int32] | None = None  # [MAX_RELATION_ID + 1], -1 where unmet

    @property
    def num_directed(self) -> int:
        """2R of what was met so far."""
        return 2 * len(self.labels)

    def encode(self, column: pa.Array) -> npt.NDArray[np.int32]:
        """[rows] the code of each relation; too many distinct ones are refused at once."""
        codes = (
            self._of_ids(column.to_numpy()) if pa.types.is_integer(column.type) else self._of_labels(column)
        )
        check_relation_count(self.num_directed)
        return codes

    def _of_ids(self, ids: npt.NDArray[np.int64]) -> npt.NDArray[np.int32]:
        if self._code_of_id is None:
            self._code_of_id = np.full(MAX_RELATION_ID + 1, -1, dtype=np.int32)
        present = np.flatnonzero(np.bincount(ids))
        for relation in present[self._code_of_id[present] < 0].tolist():
            self._code_of_id[relation] = self._add(str(relation))
        return self._code_of_id[ids]

    def _of_labels(self, column: pa.Array) -> npt.NDArray[np.int32]:
        encoded = column.dictionary_encode()
        labels = encoded.dictionary.to_pylist()
        known = [
            self._code_of_label[label] if label in self._code_of_label else self._add(label)
            for label in labels
        ]
        codes: npt.NDArray[np.int32] = np.array(known, dtype=np.int32)[encoded.indices.to_numpy()]
        return codes

    def _add(self, label: str) -> int:
        self._code_of_label[label] = code = len(self.labels)
        self.labels.append(label)
        return code


def by_sorted_label(both: Counts, labels: list[str], num_entities: int) -> Cooccurrence:
    """Counts [2R, 2R] over codes 2 k + inverted, as counts over the sorted vocabulary: r in R, then r^-1."""
    order = np.array(sorted(range(len(labels)), key=labels.__getitem__), dtype=np.int64)
    place = np.concatenate([2 * order, 2 * order + 1])
    relations = RelationVocabulary(tuple(labels[code] for code in order.tolist()))
    return Cooccurrence(relations, np.ascontiguousarray(both[np.ix_(place, place)]), num_entities)


def checksum(counts: Cooccurrence) -> str:
    """sha256 over the labels and the matrix, little-endian int64: equal for equal counts, whoever made them."""
    digest = hashlib.sha256("\n".join(counts.relations.forward).encode())
    digest.update(counts.both.astype("<i8").tobytes())
    return digest.hexdigest()
