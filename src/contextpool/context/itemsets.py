"""Relation sets as transactions, which Algorithm 1 searches and counts itemsets (sets of relations) in.

Items are numbered by the sorted place of their label (`RelationVocabulary.sort_rank`), so ascending items
are sorted labels, and the first set found is the first one by label.

`count_families` says how many members every family has, without listing them, by one depth-first walk over sets S of
items; a node knows which distinct relation sets hold S. Items that all of those hold ("free" ones) change nothing when
they join S, so a node with n free items stands for 2^n sets at once, counted by binomials. Where a single relation set
is left all its items are free and the walk ends.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, TypeVar

import numba
import numpy as np
import numpy.typing as npt

from contextpool.context.counts import available_threads
from contextpool.errors import ConfigError, DataError
from contextpool.graph.relation_sets import RelationSets, Words, pack_bits, unpack_bits
from contextpool.graph.relations import RelationVocabulary

Ints = npt.NDArray[np.int64]
Places = npt.NDArray[np.int32]
Task = TypeVar("Task")
Result = TypeVar("Result")

MAX_ITEMS = 2**16
"""Items are kept as uint16."""
BLOCK_BYTES = 2**26
OPEN, CHOSEN, FREE = 0, 1, 2


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


class CountRule(NamedTuple):
    """What is counted."""

    by_recall: bool
    least: Ints
    """[N + 1] from `least_relevant`."""
    size_wanted: npt.NDArray[np.bool_]
    """[K + 1] for sizes 0 to K, the largest."""
    binomial: Ints
    """[largest relation set + 1, K + 1]"""
    order: Ints
    """[2R] the canonical order of items: a set is reached by adding items of ascending order."""


class CountState(NamedTuple):
    """One worker's walk; row d of an array belongs to the node with d chosen items."""

    counts: Ints
    """[2R, K + 1] the result: sets of each size in each item's family."""
    tids: Places
    """[K + 1, D] the relation sets that hold the chosen items."""
    num_tids: Ints
    candidates: Places
    """[K + 1, 2R] items that may be chosen next."""
    num_candidates: Ints
    freed: Places
    """[K + 1, 2R] items that became free here."""
    num_freed: Ints
    role: npt.NDArray[np.int8]
    """[2R] OPEN, CHOSEN or FREE at the present node."""
    seen: Places
    """[2R] scratch: items that occur at the present node."""
    sets_with: Ints
    """[2R] scratch, zero between visits: relation sets at this node that hold an item."""
    entities_with: Ints
    """[2R] scratch, zero between visits: their entities."""


def count_families(data: Transactions, by_recall: bool, threshold: float, sizes: Sequence[int]) -> Ints:
    """[2R, K + 1] members of each size in each family, in items by label. K is the largest size.

    Time is the sum over the visited nodes of the sizes of their relation sets; memory O(K (D + 2R)) a core.
    """
    kept = [size for size in sizes if size <= data.longest]
    _check_countable(data, kept)
    if not kept:
        return np.zeros((len(data.support), 1), dtype=np.int64)
    rule = _count_rule(data, by_recall, threshold, kept)
    root = _new_state(data, rule)
    num_free = _visit(data, rule, root, 0, -1, 0)  # the empty set, and sets of items that everybody has
    first_items = root.candidates[0, : root.num_candidates[0]]
    heaviest_first = first_items[np.argsort(-data.support[first_items], kind="stable")]

    def make_worker() -> Callable[[int], Ints]:
        state = _new_state(data, rule)
        state.role[:] = root.role

        def worker(item: int) -> Ints:
            _count_below(data, rule, state, item, num_free)
            return state.counts

        return worker

    workers = share_out(heaviest_first.tolist(), make_worker)
    return root.counts + sum((counts[-1] for counts in workers if counts), np.zeros_like(root.counts))


def _check_countable(data: Transactions, sizes: Sequence[int]) -> None:
    """Refuse sizes whose families could outgrow 64 bits; the bound counts a set once for each relation set."""
    lengths = np.bincount(np.diff(data.item_start)).tolist()
    bound = sum(many * math.comb(length, size) for length, many in enumerate(lengths) for size in sizes)
    if bound >= 2**63:
        raise ConfigError(
            f"sizes up to {max(sizes)} over relation sets of up to {len(lengths) - 1} relations may make more "
            "than 2^63 members of a family, more than len() can say. Choose smaller sizes; iteration, `in` and "
            "select_relations() work with these, too."
        )


def _count_rule(data: Transactions, by_recall: bool, threshold: float, sizes: Sequence[int]) -> CountRule:
    wanted = np.zeros(max(sizes) + 1, dtype=bool)
    wanted[list(sizes)] = True
    table = [[math.comb(n, k) for k in range(len(wanted))] for n in range(data.longest + 1)]
    binomial = np.minimum(np.array(table, dtype=object), 2**63 - 1).astype(np.int64)
    order = np.empty(len(data.support), dtype=np.int64)  # rare items first: their subtrees end soon
    order[np.lexsort((np.arange(len(order)), np.diff(data.holder_start)))] = np.arange(len(order))
    least = least_relevant(int(data.weight.sum()), threshold)
    return CountRule(by_recall, least, wanted, binomial, order)


def _new_state(data: Transactions, rule: CountRule) -> CountState:
    depths, num_items = len(rule.size_wanted), len(data.support)

    def rows(width: int) -> Places:
        return np.empty((depths, width), dtype=np.int32)

    def per_depth() -> Ints:
        return np.zeros(depths, dtype=np.int64)

    tids, num_tids = rows(len(data.weight)), per_depth()
    tids[0] = np.arange(len(data.weight))  # everybody has the empty set
    num_tids[0] = len(data.weight)
    return CountState(
        np.zeros((num_items, depths), dtype=np.int64),
        tids, num_tids,
        rows(num_items), per_depth(),
        rows(num_items), per_depth(),
        np.zeros(num_items, dtype=np.int8),
        np.empty(num_items, dtype=np.int32),
        np.zeros(num_items, dtype=np.int64),
        np.zeros(num_items, dtype=np.int64),
    )  # fmt: skip


@numba.njit(cache=True, nogil=True)
def _count_below(data, rule, state, first, num_free):  # type: ignore[no-untyped-def]
    """Count all sets whose first item in canonical order is `first`. `num_free` items are free at the root."""
    depth, item = np.int64(0), first
    chosen = np.empty(len(rule.size_wanted), dtype=np.int64)
    state.num_candidates[0] = 0
    while True:
        _descend(data, state, depth, item)
        depth += 1
        chosen[depth] = item
        num_free = _visit(data, rule, state, depth, item, num_free)
        while depth > 0 and state.num_candidates[depth] == 0:
            num_free = _leave(state, depth, chosen[depth], num_free)
            depth -= 1
        if depth == 0:
            break
        state.num_candidates[depth] -= 1
        item = np.int64(state.candidates[depth, state.num_candidates[depth]])


@numba.njit(cache=True, nogil=True)
def _descend(data, state, depth, item):  # type: ignore[no-untyped-def]
    """Choose `item`: keep the relation sets that hold it."""
    kept = 0
    for k in range(state.num_tids[depth]):
        tid = state.tids[depth, k]
        state.tids[depth + 1, kept] = tid
        kept += holds(data.words, tid, item)
    state.num_tids[depth + 1] = kept
    state.role[item] = CHOSEN


@numba.njit(cache=True, nogil=True)
def _leave(state, depth, item, num_free):  # type: ignore[no-untyped-def]
    """Undo a node; returns how many items are free above it."""
    for k in range(state.num_freed[depth]):
        state.role[state.freed[depth, k]] = OPEN
    state.role[item] = OPEN
    return num_free - state.num_freed[depth]


@numba.njit(cache=True, nogil=True)
def _visit(data, rule, state, depth, last, num_free):  # type: ignore[no-untyped-def]
    """Count the sets that a node stands for and find what may be chosen next; returns its free items."""
    num_seen, total = _tally(data, state, depth)
    num_free += _split(rule, state, depth, last, num_seen)
    alive = _credit(data, rule, state, depth, num_seen, total, num_free)
    if not alive and rule.by_recall:  # recall only falls as a set grows
        state.num_candidates[depth] = 0
    for k in range(num_seen):
        state.sets_with[state.seen[k]] = 0
        state.entities_with[state.seen[k]] = 0
    return num_free


@numba.njit(cache=True, nogil=True)
def _tally(data, state, depth):  # type: ignore[no-untyped-def]
    """Relation sets and entities at this node by item; returns how many items were seen, and all entities."""
    num_seen, total = 0, 0
    for k in range(state.num_tids[depth]):
        tid = state.tids[depth, k]
        total += data.weight[tid]
        for place in range(data.item_start[tid], data.item_start[tid + 1]):
            item = data.items[place]
            if state.sets_with[item] == 0:
                state.seen[num_seen] = item
                num_seen += 1
            state.sets_with[item] += 1
            state.entities_with[item] += data.weight[tid]
    return num_seen, total


@numba.njit(cache=True, nogil=True)
def _split(rule, state, depth, last, num_seen):  # type: ignore[no-untyped-def]
    """Items after `last` are free where every relation set holds them, else candidates; returns the newly free."""
    num_freed, num_candidates = 0, 0
    for k in range(num_seen):
        item = state.seen[k]
        if state.role[item] != OPEN or (last >= 0 and rule.order[item] < rule.order[last]):
            continue
        if state.sets_with[item] == state.num_tids[depth]:
            state.role[item] = FREE
            state.freed[depth, num_freed] = item
            num_freed += 1
        else:
            state.candidates[depth, num_candidates] = item
            num_candidates += 1
    state.num_freed[depth] = num_freed
    state.num_candidates[depth] = num_candidates if depth + 1 < len(rule.size_wanted) else 0
    return num_freed


@numba.njit(cache=True, nogil=True)
def _credit(data, rule, state, depth, num_seen, total, num_free):  # type: ignore[no-untyped-def]
    """Add the sets of this node to the family of every item they are relevant to; says whether there was one."""
    alive = False
    for k in range(num_seen):
        item = state.seen[k]
        if state.role[item] == CHOSEN:
            continue
        denominator = data.support[item] if rule.by_recall else total
        if state.entities_with[item] < rule.least[denominator]:
            continue
        alive = True
        others = num_free - (state.role[item] == FREE)  # r is no member of NR'
        for size in range(depth, min(depth + others, len(rule.size_wanted) - 1) + 1):
            if rule.size_wanted[size]:
                state.counts[item, size] += rule.binomial[others, size - depth]
    return alive
