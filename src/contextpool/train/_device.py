"""What the loop has to know of the device: how it computes, and how its numbers come back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from typing import Any

import torch
from torch import Tensor

from contextpool.graph.graph import Graph


class Launched:
    """A step whose loss and gradient norm may still be on their way from the device."""

    def __init__(self, step: int, loss: Tensor, norm: Tensor) -> None:
        self.step = step
        self._event: torch.cuda.Event | None = None
        self._numbers = torch.stack([loss, norm.to(loss.dtype)])
        if self._numbers.is_cuda:  # sent to the host without waiting
            there = torch.empty(2, dtype=self._numbers.dtype, pin_memory=True)
            self._numbers = there.copy_(self._numbers, non_blocking=True)
            self._event = torch.cuda.Event()
            self._event.record()

    def values(self) -> tuple[float, float]:
        """Loss and norm of the gradient."""
        if self._event is not None:
            self._event.synchronize()
        loss, norm = self._numbers.tolist()
        return loss, norm


@contextmanager
def arithmetic(device: torch.device) -> Iterator[None]:
    """TF32 products on CUDA; afterwards as it was before."""
    precision = torch.get_float32_matmul_precision()
    try:
        if device.type == "cuda":
            torch.set_float32_matmul_precision("high")
        yield
    finally:
        torch.set_float32_matmul_precision(precision)


def tensors_of(*values: Any) -> Iterator[Tensor]:
    """The tensors that dataclasses hold, the graph's own excepted."""
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, tuple):
            yield from tensors_of(*value)
        elif is_dataclass(value) and not isinstance(value, Graph):
            yield from tensors_of(*(getattr(value, field.name) for field in fields(value)))
