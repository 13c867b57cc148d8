"""Memory that nobody has written to, made loud: a kernel that reads it gives NaN, not the zeros that a new page has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

LOUD = 77
"""For whole numbers, which have no NaN."""


def poisoned(make: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """`make`, whose tensors hold no zeros by chance."""

    def made(*args: Any, **options: Any) -> Tensor:
        tensor = make(*args, **options)
        return tensor.fill_(float("nan") if tensor.is_floating_point() else LOUD)

    return made


@pytest.fixture(autouse=True)
def no_quiet_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """For every test of a module that imports this."""
    monkeypatch.setattr(torch, "empty", poisoned(torch.empty))
    monkeypatch.setattr(torch, "empty_like", poisoned(torch.empty_like))
    monkeypatch.setattr(Tensor, "new_empty", poisoned(Tensor.new_empty))
