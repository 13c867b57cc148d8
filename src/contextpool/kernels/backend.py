"""Which code runs: Triton on CUDA, numba on the CPU, or the plain definition. This is decided here alone."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Literal, get_args

import torch
from torch import Tensor

from contextpool.errors import ConfigError

Backend = Literal["auto", "reference", "cpu", "triton"]

_preferred: ContextVar[Backend] = ContextVar("contextpool_backend", default="auto")


@cache
def has_triton() -> bool:
    """Whether Triton is installed; it is loaded where it is needed."""
    return importlib.util.find_spec("triton") is not None


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


def _check(backend: str) -> None:
    if backend not in get_args(Backend):
        raise ConfigError(f"backend is {backend!r}; it is one of {', '.join(get_args(Backend))}.")
