from __future__ import annotations

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from contextpool.kernels.cpu_walk import mark, new_bitmap, take_all
from contextpool.kernels.hop import entries_of_rows

ROWS = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 6)), max_size=12)
"""(first entry, size) of each row."""


@given(ROWS)
def test_entries_of_rows_equal_plain_ranges(rows: list[tuple[int, int]]) -> None:
    first, size = (torch.tensor([row[k] for row in rows], dtype=torch.int64) for k in (0, 1))
    row, entry = entries_of_rows(first, size)
    expected = [(number, start + k) for number, (start, length) in enumerate(rows) for k in range(length)]
    assert list(zip(row.tolist(), entry.tolist(), strict=True)) == expected


@given(st.lists(st.integers(0, 20_000), max_size=200))
def test_a_bitmap_gives_its_members_back_in_order_and_is_empty_then(members: list[int]) -> None:
    bits, summary = new_bitmap(20_001)
    for member in members:
        mark(bits, summary, member)
    out = np.empty(20_001, dtype=np.int32)
    count = take_all(bits, summary, out)
    assert out[:count].tolist() == sorted(set(members))
    assert take_all(bits, summary, out) == 0
    assert not bits.any()


def test_a_bitmap_holds_its_last_member() -> None:
    for capacity in (1, 64, 65, 4096, 4097, 2**18):
        bits, summary = new_bitmap(capacity)
        mark(bits, summary, capacity - 1)
        out = np.empty(1, dtype=np.int32)
        assert take_all(bits, summary, out) == 1
        assert out.tolist() == [capacity - 1]
