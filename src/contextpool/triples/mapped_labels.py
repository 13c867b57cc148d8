"""Sorted labels in a file: read where they are needed, found by halving, never all held."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from contextpool.triples.labels import Vocabulary

CHUNK = 1 << 16


class MappedLabels(Sequence[str]):
    """N labels as UTF-8, one after the other, in ascending order; label k is data[start[k]:start[k + 1]]."""

    def __init__(self, start: npt.NDArray[np.int64], data: npt.NDArray[np.uint8]) -> None:
        self.start, self.data = start, data

    def __len__(self) -> int:
        return len(self.start) - 1

    @overload
    def __getitem__(self, place: int) -> str: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[str, ...]: ...
    def __getitem__(self, place: int | slice) -> str | tuple[str, ...]:
        if isinstance(place, slice):
            return tuple(self[one] for one in range(*place.indices(len(self))))
        if not -len(self) <= place < len(self):
            raise IndexError(f"label {place} of {len(self)}")
        return self._bytes(place % len(self)).decode("utf-8")

    def _bytes(self, place: int) -> bytes:
        return self.data[int(self.start[place]) : int(self.start[place + 1])].tobytes()

    def __iter__(self) -> Iterator[str]:
        for low in range(0, len(self), CHUNK):
            start = self.start[low : low + CHUNK + 1].tolist()
            block = self.data[start[0] : start[-1]].tobytes()
            for begin, end in pairwise(start):
                yield block[begin - start[0] : end - start[0]].decode("utf-8")

    def place_of(self, label: str) -> int | None:
        """By halving: UTF-8 sorts as its characters do."""
        wanted, low, high = label.encode("utf-8", "surrogatepass"), 0, len(self)
        while low < high:
            middle = (low + high) // 2
            if self._bytes(middle) < wanted:
                low = middle + 1
            else:
                high = middle
        return low if low < len(self) and self._bytes(low) == wanted else None


class MappedIndex(Mapping[str, int]):
    """Label -> place, as a dictionary would answer."""

    def __init__(self, labels: MappedLabels) -> None:
        self._labels = labels

    def __getitem__(self, label: str) -> int:
        place = self._labels.place_of(label) if isinstance(label, str) else None
        if place is None:
            raise KeyError(label)
        return place

    def __iter__(self) -> Iterator[str]:
        return iter(self._labels)

    def __len__(self) -> int:
        return len(self._labels)


@dataclass(frozen=True, eq=False)
class MappedVocabulary(Vocabulary):
    """A vocabulary whose labels stay in their file."""

    labels: Any  # MappedLabels: a sequence of labels, as the tuple is

    @cached_property
    def index(self) -> Any:
        return MappedIndex(self.labels)
