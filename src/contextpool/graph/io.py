"""From a file, a database or another library to a Graph, and from a Graph to a Dataset."""

from __future__ import annotations

from typing import Any

from contextpool.graph.graph import Graph
from contextpool.triples.dataset import Dataset
from contextpool.triples.sources import Tell, read_source
from contextpool.triples.split import split_triples


def read_graph(source: Any, *, tell: Tell | None = None, **options: Any) -> Graph:
    """Read a graph: a triple file (head TAB relation TAB tail; `.gz` and `.zst` too), RDF, a table, a query.

    `source` is a path, an address such as "sqlite:shop.db?query=SELECT h, r, t FROM facts", a DataFrame, an Arrow
    table or a NetworkX graph; docs/own-data.md tells the options of each. `tell` hears what was left out.
    """
    return Graph.from_triples(read_source(source, tell=tell, **options))


def split(graph: Graph, *, inductive: bool = True, seed: int = 0) -> Dataset:
    """Make a Dataset from one graph: two entity-disjoint halves, or held-out facts of the same graph."""
    return split_triples(graph.as_triples(), inductive=inductive, seed=seed)
