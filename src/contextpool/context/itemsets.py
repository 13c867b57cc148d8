"""Relation sets as transactions: what counting and searching itemsets (sets of relations) walk on.

Items are numbered by the sorted place of their label (`RelationVocabulary.sort_rank`), so ascending items
are sorted labels, and the first set found is the first one by label.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, TypeVar

import numba
import numpy as np
import numpy.typing as npt

from contextpool.context.threads import available_threads
from contextpool.errors import DataError
from contextpool.graph.relation_sets import RelationSets, Words, pack_bits, unpack_bits
from contextpool.graph.relations import RelationVocabulary

Ints = npt.NDArray[np.int64]
Places = npt.NDArray[np.int32]
Task = TypeVar("Task")
Result = TypeVar("Result")

MAX_ITEMS = 2**16
"""Items are kept as uint16."""
BLOCK_BYTES = 2**26


class Transactions(NamedTuple):
    """D distinct relation sets with their numbers of entities, by row and by column. Read-only to kernels."""

    words: Words
    """[D, W] item x is bit x % 64 of word x // 64."""
    weight: Ints
    """[D] entities having exactly this set."""
    item_start: Ints
    """[D + 1] the items of set t are items[item_start[t]:item_start[t + 1]], ascending."""
    items: Places
    """[sum of set sizes]"""
    holder_start: Ints
    """[2R + 1] the sets that hold item x are holders[holder_start[x]:holder_start[x + 1]], ascending."""
    holders: Places
    """[sum of set sizes]"""
    support: Ints
    """[2R] entities having each item."""

    @property
    def longest(self) -> int:
        """Items in the largest relation set."""
        return int(np.diff(self.item_start).max(initial=0))


def transactions(sets: RelationSets, relations: RelationVocabulary) -> Transactions:
    """The distinct relation sets of a graph, numbered by label. O(D 2R / 8 + sum of set sizes) memory."""
    num_items = relations.num_directed
    if num_items > MAX_ITEMS:
        raise DataError(
            f"{relations.num_relations:,} relations; itemsets hold at most {MAX_ITEMS // 2:,}. "
            "Are head and relation columns swapped?"
        )
    words = by_label(sets.words, relations)
    row, item = _memberships(words, num_items)
    order = np.argsort(item, kind="stable")
    support = np.bincount(item, weights=sets.weight[row], minlength=num_items).astype(np.int64)
    return Transactions(
        words,
        np.ascontiguousarray(sets.weight),
        _starts(row, len(words)),
        item.astype(np.int32),
        _starts(item, num_items),
        row[order].astype(np.int32),
        support,
    )


def least_relevant(num_entities: int, threshold: float) -> Ints:
    """[N + 1] for each n > 0 the least number of entities m for which m / n, in float64, exceeds the threshold.

    Rel(NR', r) > R_0 (Definitions 5, 6) reads `both >= least[n]`: `both` entities have NR' and r, and n have
    NR' (precision) or r (recall).
    """
    total = np.arange(num_entities + 1)
    least: Ints = np.maximum(np.floor(threshold * total).astype(np.int64) - 1, 0)
    for _ in range(4):  # the product is off by one at most
        least += least / np.maximum(total, 1) <= threshold
    return least


def by_label(words: Words, relations: RelationVocabulary) -> Words:
    """[S, W] bits numbered by relation id to bits numbered by sorted label."""
    return _renumbered(words, np.argsort(relations.sort_rank))


def by_id(words: Words, relations: RelationVocabulary) -> Words:
    """[S, W] bits numbered by sorted label to bits numbered by relation id."""
    return _renumbered(words, relations.sort_rank)


def _renumbered(words: Words, source: Ints) -> Words:
    """Bit x of a new row is bit source[x] [2R] of the old one."""
    blocks = [pack_bits(unpack_bits(block, len(source))[:, source]) for block in _blocks(words, len(source))]
    return np.concatenate(blocks) if blocks else words.copy()


def _memberships(words: Words, num_items: int) -> tuple[Ints, Ints]:
    """Row and item of every member of every set, by row, then item."""
    rows, items, first = [np.empty(0, np.int64)], [np.empty(0, np.int64)], 0
    for block in _blocks(words, num_items):
        row, item = np.nonzero(unpack_bits(block, num_items))
        rows.append(row + first)
        items.append(item)
        first += len(block)
    return np.concatenate(rows), np.concatenate(items)


def _blocks(words: Words, num_items: int) -> Iterator[Words]:
    """Rows in blocks whose booleans stay small."""
    rows = max(1, BLOCK_BYTES // max(1, num_items))
    for first in range(0, len(words), rows):
        yield words[first : first + rows]


def _starts(group: Ints, num_groups: int) -> Ints:
    """[G + 1] where each group starts once its members are sorted by group."""
    return np.concatenate([[0], np.cumsum(np.bincount(group, minlength=num_groups))]).astype(np.int64)


def share_out(
    tasks: Iterable[Task], make_worker: Callable[[], Callable[[Task], Result]]
) -> list[list[Result]]:
    """Each core makes one worker, which takes the next task until none is left; the results worker by worker.

    Workers call kernels that release the interpreter lock. Who takes which task is not determined, so
    results have to say what they belong to, or add.
    """
    waiting = list(tasks)
    queue = iter(waiting)  # a list iterator hands each task out once, whoever asks

    def work() -> list[Result]:
        worker = make_worker()
        return [worker(task) for task in queue]

    num_workers = min(available_threads(), len(waiting))
    if num_workers <= 1:
        return [work()]
    with ThreadPoolExecutor(num_workers) as pool:
        return [future.result() for future in [pool.submit(work) for _ in range(num_workers)]]


@numba.njit(cache=True, nogil=True, inline="always")
def holds(words, row, item):  # type: ignore[no-untyped-def]
    """Whether set `row` holds `item`."""
    return (words[row, item >> 6] >> np.uint64(item & 63)) & np.uint64(1) != 0


@numba.njit(cache=True, nogil=True, inline="always")
def is_in(words, item):  # type: ignore[no-untyped-def]
    """Whether `item` is in the set `words` [W]."""
    return (words[item >> 6] >> np.uint64(item & 63)) & np.uint64(1) != 0
