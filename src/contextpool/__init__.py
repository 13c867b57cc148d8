"""contextpool: link prediction on knowledge graphs your model has never seen, with the evidence for every answer.

Names are imported when they are first used, so `import contextpool` and `contextpool --help` stay fast.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from contextpool.context.families import ContextFamilies, mine_families
    from contextpool.context.neighbors import ContextNeighbors, mine_context
    from contextpool.errors import ContextPoolError
    from contextpool.experiment import evaluate, load, train
    from contextpool.explain import Explanation
    from contextpool.graph.graph import Graph, read_graph, split
    from contextpool.pool.pooled import PooledGraph, pool
    from contextpool.predict import Predictor, Question, read_names
    from contextpool.triples.catalog import load_dataset
    from contextpool.triples.dataset import Dataset

__version__ = "0.1.0"
SHIPPED: str
"""The name of the model in the package, which `load()` loads."""

_HOME = {
    "ContextFamilies": "contextpool.context.families",
    "ContextNeighbors": "contextpool.context.neighbors",
    "ContextPoolError": "contextpool.errors",
    "Dataset": "contextpool.triples.dataset",
    "Explanation": "contextpool.explain",
    "Graph": "contextpool.graph.graph",
    "PooledGraph": "contextpool.pool.pooled",
    "Predictor": "contextpool.predict",
    "Question": "contextpool.predict",
    "SHIPPED": "contextpool.interop.hub",
    "load": "contextpool.experiment",
    "load_dataset": "contextpool.triples.catalog",
    "mine_context": "contextpool.context.neighbors",
    "mine_families": "contextpool.context.families",
    "read_graph": "contextpool.graph.graph",
    "read_names": "contextpool.predict",
    "split": "contextpool.graph.graph",
}

__all__ = [
    "ContextFamilies",
    "ContextNeighbors",
    "ContextPoolError",
    "Dataset",
    "Explanation",
    "Graph",
    "PooledGraph",
    "Predictor",
    "Question",
    "__version__",
    "evaluate",
    "load",
    "load_dataset",
    "mine_context",
    "mine_families",
    "pool",
    "read_graph",
    "read_names",
    "split",
    "train",
]


importlib.import_module("contextpool._numba_cache")  # before anything is compiled
_CALLABLE_PACKAGES = {"evaluate", "pool", "train"}


def __getattr__(name: str) -> Any:
    if name in _CALLABLE_PACKAGES:
        return importlib.import_module(f"contextpool.{name}")
    if name not in _HOME:
        raise AttributeError(f"module 'contextpool' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
