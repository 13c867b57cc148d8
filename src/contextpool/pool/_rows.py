"""Compressed rows with torch operations, on any device, without a loop over rows."""

from __future__ import annotations

from collections.abc import Iterator

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


def pieces(size: Tensor, limit: int) -> Iterator[tuple[int, int]]:
    """Ranges of rows that hold at most `limit` entries together; a row that is longer is a piece of its own."""
    ends = torch.cumsum(size, 0)
    if len(ends) == 0:
        return
    if int(ends[-1]) <= limit:
        yield 0, len(ends)
        return
    first, done = 0, 0
    while first < len(ends):
        last = int(torch.searchsorted(ends, done + limit, right=True))
        last = min(max(last, first + 1), len(ends))
        yield first, last
        first, done = last, int(ends[last - 1])


def without(keys: Tensor, unwanted: Tensor) -> Tensor | None:
    """[K] which of the ascending `keys` are not among the ascending `unwanted`; None where that is all of them.

    Looks up the few unwanted ones, not the many keys.
    """
    if len(unwanted) == 0 or len(keys) == 0:
        return None
    place = torch.searchsorted(keys, unwanted).clamp(max=len(keys) - 1)
    keep = torch.ones(len(keys), dtype=torch.bool, device=keys.device)
    keep[place[keys[place] == unwanted]] = False
    return keep
