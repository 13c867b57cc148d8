"""Whatever holds a graph becomes a `Graph`, and what was made of the same facts is kept.

| given | is |
|---|---|
| `Graph`, `Triples` | itself |
| `str`, `Path` | a source of `read_graph` (docs/own-data.md), a mapped graph, or a dataset (its inference graph) |
| `Dataset` | its inference graph |
| pandas or polars DataFrame, Arrow table | three columns: head, relation, tail |
| NetworkX DiGraph, MultiDiGraph | the relation is the edge's key, or its attribute `relation` |
| PyG `Data`, `HeteroData` | edge types are relations; labels as `Graph.from_pyg` takes them |
| an iterable | of (head, relation, tail) labels |

A table or a list may be changed by who holds it, so such a source is read whenever it is given, and what was made of
equal facts before is found by their sha256; a file is read again when its size or its time has changed.
"""

from __future__ import annotations

import hashlib
import json
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Mapping
from pathlib import Path
from threading import Lock
from typing import Any, Generic, Literal, TypeVar

from contextpool.errors import ConfigError
from contextpool.graph.graph import Graph, read_graph
from contextpool.graph.mapped import is_mapped, open_graph
from contextpool.triples.catalog import load_dataset, whole_graph
from contextpool.triples.dataset import Dataset
from contextpool.triples.reader import Tell, read_triples
from contextpool.triples.sources.address import FILE_KINDS, Address
from contextpool.triples.store import Triple, Triples

Made = TypeVar("Made")
GraphLike = Graph | Triples | Dataset | str | Path | Iterable[Triple] | Any
"""Anything of the table above."""
REMEMBERED_GRAPHS = 4
"""How many graphs are kept with what was counted about them; the oldest one is dropped first."""
Part = Literal["training", "inference"]


class Newest(Generic[Made]):
    """A cache that several threads may read. What failed to be made is tried again by the next who asks."""

    def __init__(self, size: int = REMEMBERED_GRAPHS) -> None:
        self._size, self._lock = size, Lock()
        self._places: OrderedDict[Hashable, _Place[Made]] = OrderedDict()

    def get(self, key: Hashable, make: Callable[[], Made]) -> Made:
        """The value for a key, made if it is not there yet."""
        with self._lock:
            place = self._places.pop(key, None) or _Place()
            self._places[key] = place
            while len(self._places) > self._size:
                self._places.popitem(last=False)
        with place.lock:
            if not place.made:
                place.made.append(make())
            return place.made[0]


class _Place(Generic[Made]):
    """One entry of the cache. Threads that ask for it while it is being made wait for its lock."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.made: list[Made] = []


class Graphs:
    """`as_graph` with a memory: equal facts give the same `Graph`, so nothing is prepared twice."""

    def __init__(self) -> None:
        self._of_file: Newest[Graph] = Newest()
        self._of_facts: Newest[Graph] = Newest()

    def get(self, source: GraphLike) -> Graph:
        """The graph of anything that holds one."""
        if isinstance(source, Graph):
            return source
        state = _file_state(source)
        if state is None:
            return self._same(as_graph(source))
        return self._of_file.get(state, lambda: self._same(as_graph(source)))

    def _same(self, graph: Graph) -> Graph:
        return self._of_facts.get(graph_digest(graph), lambda: graph)


def as_graph(source: GraphLike, *, part: Part = "inference", tell: Tell | None = None) -> Graph:
    """The graph of anything that holds one (see the table above); `part` is that of a dataset.

    `tell` hears which graph of a dataset it is, and what a reader left out.
    """
    if isinstance(source, Graph):
        return source
    if isinstance(source, str | Path | Address):
        return _named(source, part, tell)
    if isinstance(source, Dataset):
        return Graph.from_triples(_part(source, part))
    if hasattr(source, "edge_index") or hasattr(source, "edge_types"):
        from contextpool.interop.pyg_data import graph_of_pyg

        return graph_of_pyg(source)
    if _is_object(source):
        return read_graph(source, tell=tell)
    if isinstance(source, Iterable) and not isinstance(source, Mapping | bytes):
        return _listed(source)
    raise _no_graph(source)


def graph_digest(graph: Graph) -> str:
    """sha256 over a graph's labels and facts; a mapped one has it written down."""
    stored = getattr(graph, "digest", None)
    if isinstance(stored, str):
        return stored
    digest = hashlib.sha256(json.dumps([graph.entities, graph.relations]).encode())
    digest.update(graph.as_triples().ids.tobytes())
    return digest.hexdigest()


def _named(source: str | Path | Address, part: Part, tell: Tell | None) -> Graph:
    address = source if isinstance(source, Address) else whole_graph(source)
    if address is not None:
        return Graph.from_triples(read_triples(address, tell=tell))
    assert not isinstance(source, Address)
    if is_mapped(source):
        return open_graph(source)
    dataset = load_dataset(source, on_unknown="keep", tell=tell)  # whether a model knows them is seen later
    if tell is not None:
        tell(f"using the {part} graph of {dataset.name}")
    return Graph.from_triples(_part(dataset, part))


def _part(dataset: Dataset, part: Part) -> Triples:
    if part == "inference":
        return dataset.inference_graph
    graph = dataset.training_graph
    return graph.with_vocabularies(graph.entities, dataset.trained_relations)


def _is_object(source: Any) -> bool:
    """A table or a network, by what it can do."""
    return any(hasattr(source, name) for name in ("__arrow_c_stream__", "iloc", "is_multigraph"))


def _listed(source: Iterable[Any]) -> Graph:
    triples = source if isinstance(source, Triples) else list(source)
    if isinstance(triples, list) and not triples:
        raise ConfigError(
            "graph: the iterable gives no triples. Is it a generator that was read before? Make a list of it."
        )
    return Graph.from_triples(triples)


def _no_graph(source: Any) -> ConfigError:
    kind = type(source)
    name = kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"
    return ConfigError(
        f"graph is a value of type {name}; it has to be a Graph, a path or an address, a dataset's name, a DataFrame "
        "or Arrow table of three columns, a NetworkX graph, PyG's Data or HeteroData, or a list of triples."
    )


def _file_state(source: Any) -> Hashable | None:
    """What tells that a file is as it was; None for what is no single file, which is read whenever it is given."""
    address = whole_graph(source) if isinstance(source, str | Path) else None
    if address is None or address.kind not in FILE_KINDS:
        return None
    try:
        found = address.path.stat()
    except (OSError, ValueError):
        return None
    return str(source), found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns
