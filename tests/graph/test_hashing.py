"""Random bits from numbers: alike wherever they are made, and as good as drawn."""

from __future__ import annotations

import numpy as np
import torch

from contextpool.graph.hashing import mixed


def literal(value: int) -> int:
    """MurmurHash3's last step, on Python's integers."""
    value &= 0xFFFFFFFF
    value ^= value >> 16
    value = value * 0x85EBCA6B % 2**32
    value ^= value >> 13
    value = value * 0xC2B2AE35 % 2**32
    return value ^ value >> 16


def test_arrays_and_tensors_give_what_plain_integers_give() -> None:
    values = [0, 1, 2, 12345, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**40 + 7]
    expected = [literal(value) for value in values]
    assert mixed(np.array(values)).tolist() == expected
    assert mixed(torch.tensor(values)).tolist() == expected


def test_no_two_numbers_of_32_bits_collide_and_bits_are_even() -> None:
    found = mixed(torch.arange(200_000))
    assert len(found.unique()) == len(found)
    assert int(found.min()) >= 0
    assert int(found.max()) < 2**32
    for bit in range(32):
        assert abs(float(((found >> bit) & 1).double().mean()) - 0.5) < 0.01
