"""A graph in a folder, mapped into memory instead of read: opening it costs nothing, and only what is touched is read.

    graph.json            format, sizes, relations with their numbers of triples, where it came from; written last
    entity_start.npy      [N + 1] int64, and entity_label.npy [bytes] uint8: the labels, sorted
    row_start.npy         [N + 1] int64
    edge_head.npy, edge_relation.npy, edge_tail.npy, edge_inverse.npy    [2T] int32
    both.npy              [2R, 2R] int64 entities having both relations, the counts of `context.cooccurrence`

`context.map_graph` makes it. The arrays are those of `Graph`, so a mapped graph is one.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from contextpool.errors import DataError
from contextpool.graph.graph import Graph
from contextpool.graph.relations import RelationVocabulary
from contextpool.triples.mapped_labels import MappedLabels, MappedVocabulary

FORMAT = "contextpool graph 1"
DESCRIPTION = "graph.json"
EDGE_ARRAYS = ("row_start", "edge_head", "edge_relation", "edge_tail", "edge_inverse")


@dataclass(frozen=True, eq=False, repr=False)
class MappedGraph(Graph):
    """A graph whose arrays are files."""

    folder: Path
    description: dict[str, Any]
    both: npt.NDArray[np.int64]
    """[2R, 2R] entities having both relations."""

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
