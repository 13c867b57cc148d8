"""Where Triton's kernels can run: on CUDA, or interpreted on the CPU (conftest.py sees to that)."""

from __future__ import annotations

import os

import pytest
import torch

from contextpool.kernels.backend import has_triton

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = "cpu" if INTERPRETED else "cuda"
needs_triton = pytest.mark.skipif(
    not has_triton() or not (INTERPRETED or torch.cuda.is_available()),
    reason="triton, and CUDA or TRITON_INTERPRET=1, are not here",
)


@pytest.fixture(autouse=True)
def few_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gradients of a layer are summed by 1,024 numbers, not by 32: the interpreter pays for each program."""
    if INTERPRETED and has_triton():
        monkeypatch.setattr("contextpool.kernels.triton_update.SUMS", 1024)
