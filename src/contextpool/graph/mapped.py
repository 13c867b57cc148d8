"""A graph in a folder, mapped into memory instead of read: what is asked reads only what it touches.

    graph.json            format, sizes, relations with their numbers of triples, checksums; written last
    entity_start.npy      [N + 1] int64, and entity_label.npy [bytes] uint8: the labels, sorted
    row_start.npy         [N + 1] int64
    edge_head.npy, edge_relation.npy, edge_tail.npy, edge_inverse.npy    [2T] int32
    both.npy              [2R, 2R] int64 entities having both relations, the counts of `context.counts`
    joined.npy            [2R, 2R] int32 pairs that both relations join, the counts of `context.parallel`

`context.map_graph` makes it. The arrays are those of `Graph`, so a mapped graph is one. Compiled loops believe every
number in it, so a folder that this machine has not made or checked is read once from end to end: checksums, and every
number in its range. That is remembered in the cache folder, for as long as the files stay as they are.
"""

from __future__ import annotations

import codecs
import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
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
from contextpool.graph.relations import RelationVocabulary, inverse
from contextpool.triples.catalog import cache_folder
from contextpool.triples.files import NPY_ERRORS, open_bytes
from contextpool.triples.labels import Vocabulary, relation_problem

FORMAT = "contextpool graph 3"
DESCRIPTION = "graph.json"
LABELS_AT_ONCE = 1 << 16
EDGE_ARRAYS = ("row_start", "edge_head", "edge_relation", "edge_tail", "edge_inverse")
ARRAYS = (*EDGE_ARRAYS, "entity_start", "entity_label", "both", "joined")
BLOCK_BYTES = 1 << 22
MOST_BYTES_OF_DESCRIPTION = 1 << 26
MAKE_AGAIN = "The folder is damaged: make it again with `contextpool data map`."


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


@dataclass(frozen=True, eq=False, repr=False)
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
    joined: npt.NDArray[np.int32]
    """[2R, 2R] ordered pairs of entities that both relations join."""

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
    """Map the graph of a folder. One that this machine has neither made nor checked is read from end to end first."""
    folder = Path(folder)
    description = _description(folder)
    relations = RelationVocabulary(tuple(description["relations"]))
    entities, edges = description["entities"], 2 * description["triples"]
    arrays = {name: _mapped(folder, name) for name in ARRAYS}
    expected: dict[str, tuple[type, tuple[int, ...]]] = {
        "row_start": (np.int64, (entities + 1,)),
        "entity_start": (np.int64, (entities + 1,)),
        "entity_label": (np.uint8, (arrays["entity_label"].size,)),
        "both": (np.int64, (relations.num_directed, relations.num_directed)),
        "joined": (np.int32, (relations.num_directed, relations.num_directed)),
        **dict.fromkeys(EDGE_ARRAYS[1:], (np.int32, (edges,))),
    }
    for name, (kind, shape) in expected.items():
        found = arrays[name]
        if found.dtype != kind or found.shape != shape or not found.flags.c_contiguous:
            raise DataError(
                f"{folder / name}.npy holds {arrays[name].dtype} {list(arrays[name].shape)}, {DESCRIPTION} says "
                f"{np.dtype(kind)} {list(shape)}. {MAKE_AGAIN}"
            )
    if not _is_remembered(folder):
        _check(folder, description, arrays)
        remember(folder)
    labels = MappedVocabulary(MappedLabels(arrays["entity_start"], arrays["entity_label"]))
    tensors = {name: _tensor(arrays[name]) for name in EDGE_ARRAYS}
    both, joined = arrays["both"], arrays["joined"]
    return MappedGraph(
        labels, relations, **tensors, folder=folder, description=description, both=both, joined=joined
    )


def _description(folder: Path) -> dict[str, Any]:
    path = folder / DESCRIPTION
    try:
        with open_bytes(path) as stream:
            content = json.loads(stream.read(MOST_BYTES_OF_DESCRIPTION))
    except (DataError, OSError, ValueError, RecursionError) as error:
        raise DataError(
            f"{folder}: there is no graph here ({error}). Make one with `contextpool data map`."
        ) from None
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise DataError(
            f"{path}: this is not a graph of this version; make it again with `contextpool data map`."
        )
    if content.get("checksum") != checksum(content) or not _is_shaped(content):
        raise DataError(f"{path}: it does not say what was written. {MAKE_AGAIN}")
    return content


def _is_shaped(content: Mapping[str, Any]) -> bool:
    """Whether all is there that is read, of its kind and in its range."""
    relations, files = content.get("relations"), content.get("files")
    if not isinstance(relations, dict) or not isinstance(files, dict) or set(files) != set(ARRAYS):
        return False
    numbers = [content.get("entities"), content.get("triples"), *relations.values()]
    return (
        all(type(number) is int and 0 < number < 2**31 for number in numbers)
        and list(relations) == sorted(relations)
        and not any(map(relation_problem, relations))
        and isinstance(content.get("sha256"), str)
    )


def checksum(description: Mapping[str, Any]) -> str:
    """sha256 over everything else that a description says; the checksums of the arrays are a part of it."""
    rest = {name: value for name, value in description.items() if name != "checksum"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


def _mapped(folder: Path, name: str) -> npt.NDArray[Any]:
    """Copy on write: nothing that is done with the array reaches the file."""
    path = folder / f"{name}.npy"
    if path.exists() and not path.is_file():
        raise DataError(f"{path}: this is no file. Make the graph again with `contextpool data map`.")
    try:
        return np.lib.format.open_memmap(path, mode="c")
    except NPY_ERRORS as error:
        raise DataError(f"{path}: the file cannot be mapped ({error}). {MAKE_AGAIN}") from None


# what a stranger may have written


def _check(folder: Path, description: Mapping[str, Any], arrays: Mapping[str, Any]) -> None:
    """Refuse arrays that are not those of the description, or point where nothing is. O(bytes), block by block."""
    entities, edges, kinds = arrays["row_start"].size - 1, arrays["edge_tail"].size, arrays["both"].shape[0]
    heads = np.zeros(entities + 1, dtype=np.int64)

    def count(block: npt.NDArray[Any]) -> bool:
        heads[1 : 2 + int(block[-1])] += np.bincount(block, minlength=int(block[-1]) + 1)
        return True

    checks: dict[str, tuple[int, int, Callable[[npt.NDArray[Any]], bool]]] = {
        "row_start": (0, edges + 1, _ascends),
        "entity_start": (0, arrays["entity_label"].size + 1, _ascends),
        "entity_label": (0, 256, lambda block: True),
        "both": (0, entities + 1, lambda block: True),
        "joined": (0, edges + 1, lambda block: True),
        "edge_head": (0, entities, lambda block: _ascends(block) and count(block)),
        "edge_relation": (0, kinds, lambda block: True),
        "edge_tail": (0, entities, lambda block: True),
        "edge_inverse": (0, edges, lambda block: True),
    }
    for name in ARRAYS:
        digest, (least, most, holds) = hashlib.sha256(), checks[name]
        for block in _blocks(folder / f"{name}.npy", arrays[name], digest):
            if block.min() < least or block.max() >= most or not holds(block):
                raise DataError(f"{folder / name}.npy: a number is out of its range or order. {MAKE_AGAIN}")
        if digest.hexdigest() != description["files"][name]:
            raise DataError(f"{folder / name}.npy is not the file that was written. {MAKE_AGAIN}")
    starts, rows = arrays["entity_start"], arrays["row_start"]
    whole = (starts[0], starts[-1], rows[0]) == (0, arrays["entity_label"].size, 0)
    if not whole or not np.array_equal(np.cumsum(heads), rows):
        raise DataError(f"{folder}: rows or labels do not begin where they should. {MAKE_AGAIN}")
    _check_inverses(folder, arrays, kinds // 2)
    _check_labels(folder, arrays["entity_start"], arrays["entity_label"])


def _ascends(block: npt.NDArray[Any]) -> bool:
    return bool((block[1:] >= block[:-1]).all())


def _blocks(path: Path, array: Any, digest: Any) -> Iterator[npt.NDArray[Any]]:
    """The numbers of a file by and by, the last one of each block again in the next; `digest` gets all bytes.

    Read and not mapped, since mapped pages would count as memory in use.
    """
    with path.open("rb") as stream:
        digest.update(stream.read(array.offset))
        last = b""
        while block := stream.read(BLOCK_BYTES):
            digest.update(block)
            if len(block) % array.itemsize:
                raise DataError(f"{path}: the file ends within a number. {MAKE_AGAIN}")
            yield np.frombuffer(last + block, dtype=array.dtype)
            last = block[-array.itemsize :]


def _check_inverses(folder: Path, arrays: Mapping[str, Any], relations: int) -> None:
    """The inverse of every edge leads back, by the inverse relation."""
    head, tail, relation = (arrays[name] for name in ("edge_head", "edge_tail", "edge_relation"))
    step = BLOCK_BYTES // 8
    for low in range(0, len(head), step):
        here, back = slice(low, low + step), np.asarray(arrays["edge_inverse"][low : low + step])
        turned = inverse(relation[here].astype(np.int64), relations)
        if not ((head[back] == tail[here]) & (tail[back] == head[here]) & (relation[back] == turned)).all():
            raise DataError(f"{folder}: an edge's inverse does not lead back. {MAKE_AGAIN}")


def _check_labels(folder: Path, start: npt.NDArray[np.int64], data: npt.NDArray[np.uint8]) -> None:
    """Every label is UTF-8, and none begins within a letter."""
    decoder, places = codecs.getincrementaldecoder("utf-8")(), np.unique(start[:-1])
    try:
        for low in range(0, len(data), BLOCK_BYTES):
            block = np.asarray(data[low : low + BLOCK_BYTES])
            decoder.decode(block.tobytes(), final=low + BLOCK_BYTES >= len(data))
            begin, end = np.searchsorted(places, (low, low + len(block)))
            if (block[places[begin:end] - low] & 0xC0 == 0x80).any():
                raise DataError(f"{folder}: a label begins within a letter. {MAKE_AGAIN}")
    except UnicodeDecodeError:
        raise DataError(f"{folder}: a label is not UTF-8. {MAKE_AGAIN}") from None


def remember(folder: Path) -> None:
    """That this machine has made or checked what is there now; without a cache it is checked again."""
    place, seen = _memory_of(folder), _seen(folder)
    with suppress(OSError):
        place.parent.mkdir(parents=True, exist_ok=True)
        part = place.with_name(f"{place.name}.{os.getpid()}.part")
        part.write_text(seen, "utf-8")
        part.replace(place)


def _is_remembered(folder: Path) -> bool:
    try:
        return _memory_of(folder).read_text("utf-8") == _seen(folder)
    except (OSError, ValueError):
        return False


def _memory_of(folder: Path) -> Path:
    return cache_folder() / "checked" / hashlib.sha256(os.fsencode(folder.resolve())).hexdigest()


def _seen(folder: Path) -> str:
    """What changes with any of the files: nobody can set the time at which an inode changed."""
    found = [(folder / name).stat() for name in (DESCRIPTION, *(f"{name}.npy" for name in ARRAYS))]
    return json.dumps(
        [[one.st_dev, one.st_ino, one.st_size, one.st_mtime_ns, one.st_ctime_ns] for one in found]
    )


def _tensor(array: npt.NDArray[Any]) -> Tensor:
    return torch.from_numpy(np.asarray(array))
