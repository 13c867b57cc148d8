"""Refusals that the functions of this stage share."""

from __future__ import annotations

import torch
from torch import Tensor

from contextpool.errors import DataError


def check_ids(name: str, ids: Tensor, limit: int) -> None:
    """Refuse anything but a list of whole numbers in [0, limit)."""
    if ids.dim() != 1:
        raise DataError(f"{name} has shape {tuple(ids.shape)}; it has to be one list of ids.")
    if ids.is_floating_point() or ids.is_complex() or ids.dtype == torch.bool:
        raise DataError(f"{name} has dtype {ids.dtype}; ids are integers.")
    if len(ids) == 0:
        return
    lowest, highest = torch.stack(torch.aminmax(ids)).tolist()
    if lowest < 0 or highest >= limit:
        raise DataError(f"{name} runs from {lowest:,} to {highest:,}, but has to lie in [0, {limit:,}).")


def check_same_length(names: str, one: Tensor, other: Tensor) -> None:
    """Refuse two columns of different lengths."""
    if len(one) != len(other):
        raise DataError(
            f"{names} have {len(one):,} and {len(other):,} entries; they are columns of one table."
        )
