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
