"""Which code walks, and how much memory it may take beside input and result."""

from __future__ import annotations

import importlib.util
from functools import cache
from typing import Literal

from contextpool.errors import ConfigError
from contextpool.graph.graph import Graph

Backend = Literal["auto", "cpu", "torch"]
SCRATCH_BYTES = 2**30


@cache
def has_triton() -> bool:
    """Whether Triton is installed; it is loaded where it is needed."""
    return importlib.util.find_spec("triton") is not None


def runs_on_cpu(backend: Backend, graph: Graph) -> bool:
    """Whether the compiled backend is meant."""
    return backend == "cpu" or (backend == "auto" and graph.device.type == "cpu")


def check_choice(backend: str, num_hops: int, scratch_bytes: int) -> None:
    """Refuse settings out of their range."""
    if backend not in ("auto", "cpu", "torch"):
        raise ConfigError(f"backend is {backend!r}; it is 'auto', 'cpu' or 'torch'.")
    if num_hops < 1:
        raise ConfigError(f"num_hops is {num_hops}; a walk has at least one hop.")
    if scratch_bytes < 1:
        raise ConfigError(f"scratch_bytes is {scratch_bytes}; a walk needs some memory.")
