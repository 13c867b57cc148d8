"""Where Triton's kernels can run: on CUDA, or interpreted on the CPU (conftest.py sees to that)."""

from __future__ import annotations

import importlib.util
import os
from typing import Any

import pytest
import torch

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = "cpu" if INTERPRETED else "cuda"
needs_triton = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None or not (INTERPRETED or torch.cuda.is_available()),
    reason="triton, and CUDA or TRITON_INTERPRET=1, are not here",
)


def _let_loops_end_at_a_loaded_number() -> None:
    """Triton's interpreter makes an int of an array of one number, which numpy from 2.4 on refuses."""
    from triton.runtime import interpreter

    before = interpreter._patch_lang_tensor

    def patched(tensor: Any, scope: Any) -> None:
        before(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: self.handle.data.item())

    interpreter._patch_lang_tensor = patched


if INTERPRETED and importlib.util.find_spec("triton") is not None:
    _let_loops_end_at_a_loaded_number()
