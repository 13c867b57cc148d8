"""CNFGenerate of Algorithm 1 for many pairs of a relation set and a query at once."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from contextpool.context.family_search import SearchRule, new_search, select_for_set
from contextpool.context.itemsets import Ints, Transactions, share_out
from contextpool.graph.relation_sets import Words


class Pairs(NamedTuple):
    """P questions, numbered by label: which member of CNF[query] is most similar to the relation set NR_e?"""

    sets: Words
    """[S, W] relation sets; they need not occur in the training graph."""
    row: Ints
    """[P] row of `sets`, ascending."""
    query: Ints
    """[P] item."""
    num_unknown: int = 0
    """Relations that every NR_e has besides: in no member, but in the union that similarity divides by."""


def most_similar(data: Transactions, rule: SearchRule, pairs: Pairs, sizes: Sequence[int]) -> Words:
    """[P, W] for every pair the most similar member as bits; cut down to NR_e it is NR_max. On all cores.

    A pair costs a search of its family from the most similar kind of member downwards, up to the first hit:
    microseconds where families are dense or small, at worst a walk over the family a kind.
    """
    members = np.zeros((len(pairs.row), data.words.shape[1]), dtype=np.uint64)
    share_out(_runs(pairs.row), lambda: _searcher(data, rule, pairs, sizes, members))
    return members


def _searcher(
    data: Transactions, rule: SearchRule, pairs: Pairs, sizes: Sequence[int], members: Words
) -> Callable[[tuple[int, int]], None]:
    """Fills `members` [P, W] for one run of pairs at a time; a thread needs its own."""
    kept = tuple(size for size in sizes if 0 < size <= data.longest)
    state = new_search(data, max(kept, default=1))
    num_known = np.bitwise_count(pairs.sets).sum(axis=1, dtype=np.int64)

    def search(run: tuple[int, int]) -> None:
        place, row = slice(*run), pairs.row[run[0]]
        kinds = member_kinds(int(num_known[row]), pairs.num_unknown, kept)
        select_for_set(data, rule, state, pairs.sets[row], pairs.query[place], kinds, members[place])

    return search


@functools.lru_cache(maxsize=4096)
def member_kinds(num_known: int, num_unknown: int, sizes: tuple[int, ...]) -> Ints:
    """[C, 2] (relations shared with NR_e, size) of the members that share any, the most similar first.

    Jaccard similarity is shared / (|NR_e| + size - shared), so a kind has one; float64 tells all of them apart.
    Ties go to the larger intersection. Of two members equal in both neither is smaller.
    """
    kinds = [(shared, size) for size in sizes for shared in range(1, min(size, num_known) + 1)]
    table = np.array(kinds, dtype=np.int64).reshape(-1, 2)
    shared, size = table[:, 0], table[:, 1]
    similarity = shared / (num_known + num_unknown + size - shared)
    return table[np.lexsort((-shared, -similarity))]


def _runs(row: Ints) -> list[tuple[int, int]]:
    """First and last (exclusive) place of each run of equal rows."""
    starts = np.flatnonzero(np.diff(row, prepend=-1))
    return list(zip(starts.tolist(), [*starts[1:].tolist(), len(row)], strict=True)) if len(row) else []
