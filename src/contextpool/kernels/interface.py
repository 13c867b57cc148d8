"""`aggregate` with the backend chosen by device, or by name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Literal, get_args

import torch
from torch import Tensor

from contextpool.errors import ConfigError
from contextpool.kernels import reference
from contextpool.kernels.reference import FULL, Message, Reduction, Stream
from contextpool.pool._backend import has_triton
from contextpool.pool.propagation import Hop

Backend = Literal["auto", "reference", "cpu", "triton"]

__all__ = [
    "FULL", "Backend", "Message", "Reduction", "Stream", "aggregate", "chosen_backend", "use_backend",
]  # fmt: skip

_preferred: ContextVar[Backend] = ContextVar("contextpool_backend", default="auto")


@contextmanager
def use_backend(backend: Backend) -> Iterator[None]:
    """A block in which "auto" means this backend."""
    _check(backend)
    token = _preferred.set(backend)
    try:
        yield
    finally:
        _preferred.reset(token)


def chosen_backend(backend: Backend, state: Tensor) -> Literal["reference", "cpu", "triton"]:
    """Which code runs for states like these: Triton on CUDA where it is installed, numba on the CPU."""
    _check(backend)
    if backend == "auto":
        backend = _preferred.get()
    if backend != "auto":
        return backend
    if state.device.type == "cuda" and state.dtype != torch.float64 and has_triton():
        return "triton"
    if state.device.type == "cpu" and state.is_floating_point():
        return "cpu"
    return "reference"


def aggregate(
    hop: Hop,
    state: Tensor,
    streams: list[Stream],
    *,
    message: Message,
    reductions: tuple[Reduction, ...],
    boundary: Tensor | None = None,
    edge_weight: Tensor | None = None,
    backend: Backend = "auto",
) -> tuple[list[Tensor], list[Tensor]]:
    """See `reference.aggregate`, the definition; every backend gives the same within rounding."""
    chosen = chosen_backend(backend, state)
    if chosen == "triton":
        from contextpool.kernels import triton  # loaded where it is needed

        run = triton.aggregate
    elif chosen == "cpu":
        from contextpool.kernels import cpu  # numba is loaded where it is needed

        run = cpu.aggregate
    else:
        run = reference.aggregate
    return run(
        hop,
        state,
        streams,
        message=message,
        reductions=reductions,
        boundary=boundary,
        edge_weight=edge_weight,
    )


def _check(backend: str) -> None:
    if backend not in get_args(Backend):
        raise ConfigError(f"backend is {backend!r}; it is one of {', '.join(get_args(Backend))}.")
