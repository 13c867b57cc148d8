"""From a file to a Graph, and from a Graph to a Dataset."""

from __future__ import annotations

from pathlib import Path

from contextpool.graph.graph import Graph
from contextpool.triples.dataset import Dataset
from contextpool.triples.reader import read_triples
from contextpool.triples.split import split_triples


def read_graph(path: str | Path) -> Graph:
    """Read a triple file (head TAB relation TAB tail; `.gz` and `.zst` too) as a graph."""
    return Graph.from_triples(read_triples(path))


def split(graph: Graph, *, inductive: bool = True, seed: int = 0) -> Dataset:
    """Make a Dataset from one graph: two entity-disjoint halves, or held-out facts of the same graph."""
    return split_triples(graph.as_triples(), inductive=inductive, seed=seed)
