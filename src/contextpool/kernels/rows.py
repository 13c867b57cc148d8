"""Compressed rows with torch operations, on any device, without a loop over rows."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor


def entries_of_rows(first: Tensor, size: Tensor) -> tuple[Tensor, Tensor]:
    """Row i has the entries first[i]:first[i] + size[i]; all of them as (row [K], entry [K]), int64, in order."""
    ends = torch.cumsum(size, 0)
    total = int(ends[-1]) if len(ends) else 0
    row = numbers_of_rows(size, total)
    entry = torch.arange(total, device=size.device) + (first - (ends - size)).index_select(0, row)
    return row, entry


def numbers_of_rows(size: Tensor, total: int) -> Tensor:
    """[total] int64 the number of the row that each entry belongs to, for rows of the sizes [A] given.

    On the CPU torch wakes all its threads for this, however short the rows; numpy doesn't.
    """
    if size.device.type == "cpu":
        return torch.from_numpy(np.repeat(np.arange(len(size)), size.numpy()))
    return torch.repeat_interleave(torch.arange(len(size), device=size.device), size, output_size=total)
