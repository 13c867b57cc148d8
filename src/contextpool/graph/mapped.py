"""A graph in a folder, mapped into memory instead of read: opening it costs nothing, and only what is touched is read.

    graph.json            format, sizes, relations with their numbers of triples, where it came from; written last
    entity_start.npy      [N + 1] int64, and entity_label.npy [bytes] uint8: the labels, sorted
    row_start.npy         [N + 1] int64
    edge_head.npy, edge_relation.npy, edge_tail.npy, edge_inverse.npy    [2T] int32
    both.npy              [2R, 2R] int64 entities having both relations, the counts of `context.counts`

`context.map_graph` makes it. The arrays are those of `Graph`, so a mapped graph is one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, overload

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from contextpool.errors import DataError
from contextpool.graph.graph import Graph
from contextpool.graph.relations import RelationVocabulary
from contextpool.triples.labels import Vocabulary

FORMAT = "contextpool graph 1"
DESCRIPTION = "graph.json"
LABELS_AT_ONCE = 1 << 16
EDGE_ARRAYS = ("row_start", "edge_head", "edge_relation", "edge_tail", "edge_inverse")


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
        for low in range(0, len(self), LABELS_AT_ONCE):
            start = self.start[low : low + LABELS_AT_ONCE + 1].tolist()
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


@dataclass(frozen=True, eq=False, repr=False)
class MappedGraph(Graph):
    """A graph whose arrays are files."""

    folder: Path
    description: dict[str, Any]
    both: npt.NDArray[np.int64]
    """[2R, 2R] entities having both relations."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Another process maps the same files."""
        return open_graph, (self.folder,)

    @property
    def digest(self) -> str:
        """sha256 over labels and facts."""
        return str(self.description["sha256"])

    @property
    def triples_of_relation(self) -> dict[str, int]:
        """How many facts each relation has."""
        counted: dict[str, int] = self.description["relations"]
        return counted


def is_mapped(path: str | Path) -> bool:
    """Whether there is a graph in this folder."""
    return (Path(path) / DESCRIPTION).is_file()


def open_graph(folder: str | Path) -> MappedGraph:
    """Map the graph of a folder; its sizes are checked, its content is not read."""
    folder = Path(folder)
    description = _description(folder)
    relations = RelationVocabulary(tuple(description["relations"]))
    arrays = {name: _mapped(folder, name) for name in (*EDGE_ARRAYS, "entity_start", "entity_label", "both")}
    entities, edges = int(description["entities"]), 2 * int(description["triples"])
    expected: dict[str, tuple[int, ...]] = {"row_start": (entities + 1,), "entity_start": (entities + 1,)}
    expected |= dict.fromkeys(EDGE_ARRAYS[1:], (edges,))
    expected["both"] = (relations.num_directed, relations.num_directed)
    for name, shape in expected.items():
        if arrays[name].shape != shape:
            raise DataError(
                f"{folder / name}.npy holds {list(arrays[name].shape)}, {DESCRIPTION} says {list(shape)}. "
                "The folder is damaged: make it again with `contextpool data map`."
            )
    labels = MappedVocabulary(MappedLabels(arrays["entity_start"], arrays["entity_label"]))
    tensors = {name: _tensor(arrays[name]) for name in EDGE_ARRAYS}
    return MappedGraph(
        labels, relations, **tensors, folder=folder, description=description, both=arrays["both"]
    )


def _description(folder: Path) -> dict[str, Any]:
    try:
        content = json.loads((folder / DESCRIPTION).read_bytes())
        whole = content["format"] == FORMAT and {"entities", "triples", "relations", "sha256"} <= set(content)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"{folder}: there is no graph here ({error}). Make one with `contextpool data map`."
        ) from None
    if not whole:
        raise DataError(f"{folder / DESCRIPTION}: this is not a graph of this version; make it again.")
    return content  # type: ignore[no-any-return]


def _mapped(folder: Path, name: str) -> npt.NDArray[Any]:
    """Copy on write: nothing that is done with the array reaches the file."""
    path = folder / f"{name}.npy"
    if path.exists() and not path.is_file():
        raise DataError(f"{path}: this is no file. Make the graph again with `contextpool data map`.")
    try:
        if path.stat().st_size and np.load(path, mmap_mode="r").size == 0:
            return np.load(path)  # type: ignore[no-any-return]
        return np.load(path, mmap_mode="c")  # type: ignore[no-any-return]
    except (OSError, ValueError) as error:
        raise DataError(
            f"{path}: the file cannot be mapped ({error}). Make the graph again with `contextpool data map`."
        ) from None


def _tensor(array: npt.NDArray[Any]) -> Tensor:
    return torch.from_numpy(np.asarray(array))
