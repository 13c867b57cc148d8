"""Random bits as a function of what they are for: the same on every device, whoever asks, in whatever order."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import numpy.typing as npt
from torch import Tensor

MASK = 0xFFFFFFFF
FIRST = 0x85EBCA6B
SECOND = 0xC2B2AE35
"""Multipliers of MurmurHash3's last step (Appleby)."""

Numbers = TypeVar("Numbers", Tensor, npt.NDArray[np.int64])


def mixed(value: Numbers) -> Numbers:
    """int64 -> int64 in [0, 2**32): a permutation of the lowest 32 bits in which neighbors end far apart.

    Products run over 64 bits and wrap, which leaves their lowest 32 as they should be.
    """
    value = value & MASK
    value = ((value ^ (value >> 16)) * FIRST) & MASK
    value = ((value ^ (value >> 13)) * SECOND) & MASK
    return value ^ (value >> 16)
