"""How many threads compiled code may use, asked so that torch keeps its own number."""

from __future__ import annotations

import numba
import torch


def available_threads() -> int:
    """How many threads numba may use.

    Asked for the first time, numba starts its own threads, and where it finds torch's OpenMP library it sets torch's
    number to theirs: that is put back. So this is asked before any compiled code that works in parallel.
    """
    before = torch.get_num_threads()
    available: int = numba.get_num_threads()
    if torch.get_num_threads() != before:
        torch.set_num_threads(before)
    return available
