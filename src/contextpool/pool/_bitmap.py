"""Sets of small integers as two levels of bits, for compiled code.

Marking a member costs O(1); taking all of them out in order costs O(members + capacity / 4096).
(numba's cache watches the file of the caller alone: after a change here, remove __pycache__.)
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from numba.core import types
from numba.extending import intrinsic


@intrinsic
def lowest_bit(typing_context: Any, word: Any) -> Any:
    """The position of the lowest bit that is set in a word that is not 0."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], context.get_constant(types.boolean, True))

    return types.int64(types.int64), generate


@numba.njit(cache=True, nogil=True, inline="always")
def new_bitmap(capacity):  # type: ignore[no-untyped-def]
    """An empty set: bits [capacity / 64] and summary [capacity / 4096]; summary bit w says that bits[w] is not 0."""
    num_words = (capacity >> 6) + 1
    return np.zeros(num_words, dtype=np.int64), np.zeros((num_words >> 6) + 1, dtype=np.int64)


@numba.njit(cache=True, nogil=True, forceinline=True)
def mark(bits, summary, member):  # type: ignore[no-untyped-def]
    word = member >> 6
    if bits[word] == 0:
        summary[word >> 6] |= np.int64(1) << (word & 63)
    bits[word] |= np.int64(1) << (member & 63)


@numba.njit(cache=True, nogil=True, forceinline=True)
def take_all(bits, summary, members):  # type: ignore[no-untyped-def]
    """Move the members, ascending, to the front of `members`; how many there were. The bitmap is empty afterwards."""
    count = 0
    for s in range(len(summary)):
        group = summary[s]
        summary[s] = 0
        while group != 0:
            word = (s << 6) + lowest_bit(group)
            group &= group - 1
            rest = bits[word]
            bits[word] = 0
            while rest != 0:
                members[count] = (word << 6) + lowest_bit(rest)
                rest &= rest - 1
                count += 1
    return count
