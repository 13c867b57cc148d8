"""Members of a family of Algorithm 1 in the order of their sorted labels, found one after the other.

One depth-first walk serves listing a family (every member) and CNFGenerate (the first member with a given
number of relations in NR_e). It stops when it has found enough and goes on where it stopped.
"""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np
import numpy.typing as npt

from contextpool.context.itemsets import Ints, Places, Transactions, holds, is_in, least_relevant
from contextpool.graph.relation_sets import Words

Members = npt.NDArray[np.uint16]

ONE = np.uint64(1)
PAIRS = np.uint64(0x5555555555555555)
NIBBLES = np.uint64(0x3333333333333333)
BYTES = np.uint64(0x0F0F0F0F0F0F0F0F)
SUM_OF_BYTES = np.uint64(0x0101010101010101)


class Goal(NamedTuple):
    """Which members are looked for: `size` items, of which `num_inside` are in the set `inside`."""

    query: int
    """The item whose family it is; it is in no member."""
    inside: Words
    """[W] NR_e as bits; all bits where any member will do."""
    num_inside: int
    size: int


class SearchRule(NamedTuple):
    """What a member is."""

    by_recall: bool
    least: Ints
    """[N + 1] from `least_relevant`."""
    eligible: Words
    """[2R, W] for each query the items that a member of its family can hold."""


class SearchState(NamedTuple):
    """Where a walk stands; row d of an array belongs to the node with d chosen items."""

    depth: Ints
    """[1] depth of the present node; -1 once the walk is over."""
    chosen: Ints
    """[K]"""
    num_inside: Ints
    """[K] chosen items that are in `inside`."""
    candidates: Words
    """[K, W] items that are still to be tried."""
    having: Places
    """[K, D] relation sets that hold the chosen items and the query."""
    num_having: Ints
    lacking: Places
    """[K, D] relation sets that hold the chosen items but not the query. Row 0 is not kept: nearly all do."""
    num_lacking: Ints
    overlap: Ints
    """[D] items of each relation set that are in `inside`."""


def search_rule(data: Transactions, by_recall: bool, threshold: float) -> SearchRule:
    """O(sum of squared set sizes) time."""
    least = least_relevant(int(data.weight.sum()), threshold)
    return SearchRule(by_recall, least, _eligible_items(data, by_recall, least))


def new_search(data: Transactions, largest: int) -> SearchState:
    """A state for members of at most `largest` items (at least 1)."""
    num_sets, num_words = data.words.shape

    def per_depth() -> Ints:
        return np.zeros(largest, dtype=np.int64)

    def rows() -> Places:
        return np.empty((largest, num_sets), dtype=np.int32)

    return SearchState(
        np.full(1, -1, dtype=np.int64), per_depth(), per_depth(),
        np.zeros((largest, num_words), dtype=np.uint64),
        rows(), per_depth(), rows(), per_depth(),
        np.zeros(num_sets, dtype=np.int64),
    )  # fmt: skip


@numba.njit(cache=True, nogil=True)
def _eligible_items(data, by_recall, least):  # type: ignore[no-untyped-def]
    """[2R, W] the items of `mark_eligible` for every query."""
    eligible = np.zeros((len(data.support), data.words.shape[1]), dtype=np.uint64)
    both = np.empty(len(data.support), dtype=np.int64)
    for query in range(len(data.support)):
        mark_eligible(data, by_recall, least, query, both, eligible[query])
    return eligible


@numba.njit(cache=True, nogil=True)
def mark_eligible(data, by_recall, least, query, both, eligible):  # type: ignore[no-untyped-def]
    """Items [W] that occur with the query and, since recall only falls as a set grows, have it themselves.

    `both` [2R] is scratch.
    """
    both[:] = 0
    for k in range(data.holder_start[query], data.holder_start[query + 1]):
        tid = data.holders[k]
        for place in range(data.item_start[tid], data.item_start[tid + 1]):
            both[data.items[place]] += data.weight[tid]
    both[query] = 0
    eligible[:] = 0
    enough = least[data.support[query]] if by_recall else 1
    for item in range(len(both)):
        if both[item] >= enough:
            eligible[item >> 6] |= ONE << np.uint64(item & 63)


@numba.njit(cache=True, nogil=True)
def begin_listing(data, rule, goal, state):  # type: ignore[no-untyped-def]
    """Start a walk to every member of `goal.size` items; `goal.inside` has all bits."""
    for tid in range(len(data.weight)):
        state.overlap[tid] = data.item_start[tid + 1] - data.item_start[tid]
    _begin(data, rule, goal, state)


@numba.njit(cache=True, nogil=True)
def select_for_set(data, rule, state, inside, queries, kinds, members):  # type: ignore[no-untyped-def]
    """CNFGenerate for one NR_e and some queries [P]: members [P, W] become the most similar ones as bits.

    `kinds` [C, 2] are (items in NR_e, size of the member), the most similar first, so the first member found
    is the most similar one, and the first of those by label.
    """
    found = np.empty((1, len(state.chosen)), dtype=np.uint16)
    _measure_overlap(data, inside, state)
    for place in range(len(queries)):
        query = queries[place]
        most_inside, most_outside = _split_bits(rule.eligible[query], inside)
        if rule.by_recall:
            most_inside = _most_shared(data, rule, state, query, inside, most_inside, found)
        for k in range(len(kinds)):
            goal = Goal(query, inside, kinds[k, 0], kinds[k, 1])
            if goal.num_inside > most_inside or goal.size - goal.num_inside > most_outside:
                continue
            _begin(data, rule, goal, state)
            if find_members(data, rule, goal, state, found) == 1:
                _write_member(found[0], goal, members[place])
                break


@numba.njit(cache=True, nogil=True)
def _most_shared(data, rule, state, query, inside, most, found):  # type: ignore[no-untyped-def]
    """The most items, up to `most`, that NR_e can share with a member by recall: its subsets are relevant, too."""
    for shared in range(1, min(most, len(state.chosen)) + 1):
        goal = Goal(query, inside, shared, shared)
        _begin(data, rule, goal, state)
        if find_members(data, rule, goal, state, found) == 0:
            return shared - 1
    return most


@numba.njit(cache=True, nogil=True)
def find_members(data, rule, goal, state, found):  # type: ignore[no-untyped-def]
    """Fill `found` [B, size] with the next members by label; returns how many there were."""
    count, depth = 0, state.depth[0]
    while depth >= 0 and count < len(found):
        item = _next_item(state.candidates[depth])
        if item < 0:
            depth -= 1
            continue
        state.chosen[depth] = item
        if depth + 1 < goal.size:
            depth += _descend(data, rule, goal, state, depth, item)
        elif _completes(data, rule, goal, state, depth, item):
            for place in range(goal.size):
                found[count, place] = state.chosen[place]
            count += 1
    state.depth[0] = depth
    return count


@numba.njit(cache=True, nogil=True)
def _measure_overlap(data, inside, state):  # type: ignore[no-untyped-def]
    """How many items of `inside` each relation set has."""
    state.overlap[:] = 0
    for item in range(len(data.support)):
        if is_in(inside, item):
            for place in range(data.holder_start[item], data.holder_start[item + 1]):
                state.overlap[data.holders[place]] += 1


@numba.njit(cache=True, nogil=True)
def _begin(data, rule, goal, state):  # type: ignore[no-untyped-def]
    """Stand at the empty set; only relation sets with room for a whole member count."""
    kept = 0
    for place in range(data.holder_start[goal.query], data.holder_start[goal.query + 1]):
        tid = data.holders[place]
        state.having[0, kept] = tid
        kept += _has_room(data, goal, state, tid)
    state.num_having[0] = kept
    state.num_inside[0] = 0
    state.depth[0] = 0
    _find_candidates(data, rule, goal, state, np.int64(0), np.int64(-1))


@numba.njit(cache=True, nogil=True)
def _has_room(data, goal, state, tid):  # type: ignore[no-untyped-def]
    """Whether a relation set holds enough items inside and outside NR_e, the query aside."""
    inside = state.overlap[tid]
    outside = data.item_start[tid + 1] - data.item_start[tid] - inside
    if holds(data.words, tid, goal.query):
        query_is_inside = is_in(goal.inside, goal.query)
        inside -= query_is_inside
        outside -= not query_is_inside
    return inside >= goal.num_inside and outside >= goal.size - goal.num_inside


@numba.njit(cache=True, nogil=True)
def _find_candidates(data, rule, goal, state, depth, last):  # type: ignore[no-untyped-def]
    """Items after `last` that occur with the chosen ones and the query, and that the goal still has room for."""
    need_inside = goal.num_inside - state.num_inside[depth]
    need_outside = goal.size - depth - need_inside
    may_be_inside, may_be_outside = 0, 0
    for w in range(len(goal.inside)):
        word = np.uint64(0)
        for k in range(state.num_having[depth]):
            word |= data.words[state.having[depth, k], w]
        word &= rule.eligible[goal.query, w] & _after(last, w)
        inside, outside = word & goal.inside[w], word & ~goal.inside[w]
        may_be_inside += count_bits(inside)
        may_be_outside += count_bits(outside)
        state.candidates[depth, w] = (inside if need_inside > 0 else np.uint64(0)) | (
            outside if need_outside > 0 else np.uint64(0)
        )
    if may_be_inside < need_inside or may_be_outside < need_outside:
        state.candidates[depth, :] = 0


@numba.njit(cache=True, nogil=True)
def _descend(data, rule, goal, state, depth, item):  # type: ignore[no-untyped-def]
    """Choose `item` and stand below; returns 0 where no member can be there."""
    both, kept = np.int64(0), np.int64(0)
    for k in range(state.num_having[depth]):
        tid = state.having[depth, k]
        if holds(data.words, tid, item):
            state.having[depth + 1, kept] = tid
            kept += 1
            both += data.weight[tid]
    state.num_having[depth + 1] = kept
    if rule.by_recall:  # it only falls as a set grows
        if both < rule.least[data.support[goal.query]]:
            return 0
    else:
        _keep_lacking(data, goal, state, depth, item)
    state.num_inside[depth + 1] = state.num_inside[depth] + is_in(goal.inside, item)
    _find_candidates(data, rule, goal, state, depth + 1, item)
    return 1


@numba.njit(cache=True, nogil=True)
def _keep_lacking(data, goal, state, depth, item):  # type: ignore[no-untyped-def]
    """The relation sets without the query that hold the chosen items and `item`."""
    kept = 0
    if depth == 0:
        for place in range(data.holder_start[item], data.holder_start[item + 1]):
            tid = data.holders[place]
            if not holds(data.words, tid, goal.query) and _has_room(data, goal, state, tid):
                state.lacking[1, kept] = tid
                kept += 1
    else:
        for k in range(state.num_lacking[depth]):
            tid = state.lacking[depth, k]
            state.lacking[depth + 1, kept] = tid
            kept += holds(data.words, tid, item)
    state.num_lacking[depth + 1] = kept


@numba.njit(cache=True, nogil=True)
def _completes(data, rule, goal, state, depth, item):  # type: ignore[no-untyped-def]
    """Whether the chosen items with `item` are a member (Definitions 4 to 6)."""
    both = _entities_with(data, state.having[depth], state.num_having[depth], item)
    if rule.by_recall:
        return both >= rule.least[data.support[goal.query]]
    if depth == 0:
        return both >= rule.least[data.support[item]]
    lacking = _entities_with(data, state.lacking[depth], state.num_lacking[depth], item)
    return both >= rule.least[both + lacking]


@numba.njit(cache=True, nogil=True)
def _entities_with(data, tids, num_tids, item):  # type: ignore[no-untyped-def]
    entities = np.int64(0)
    for k in range(num_tids):
        if holds(data.words, tids[k], item):
            entities += data.weight[tids[k]]
    return entities


@numba.njit(cache=True, nogil=True)
def _write_member(member, goal, words):  # type: ignore[no-untyped-def]
    """The items of a member as bits."""
    for place in range(goal.size):
        item = np.int64(member[place])
        words[item >> 6] |= ONE << np.uint64(item & 63)


@numba.njit(cache=True, nogil=True)
def _next_item(words):  # type: ignore[no-untyped-def]
    """Take the lowest bit out of `words` [W]; -1 where there is none."""
    for w in range(len(words)):
        word = words[w]
        if word != 0:
            words[w] = word & (word - ONE)
            return 64 * w + count_bits((word & (~word + ONE)) - ONE)
    return -1


@numba.njit(cache=True, nogil=True)
def _after(item, w):  # type: ignore[no-untyped-def]
    """Word w of the set of all items after `item`."""
    start = item + 1 - 64 * w  # the first bit that is set
    if start <= 0:
        return ~np.uint64(0)
    return np.uint64(0) if start >= 64 else ~np.uint64(0) << np.uint64(start)


@numba.njit(cache=True, nogil=True)
def _split_bits(words, inside):  # type: ignore[no-untyped-def]
    """How many items of `words` [W] are in `inside` [W], and how many are not."""
    num_inside, num_outside = 0, 0
    for w in range(len(words)):
        num_inside += count_bits(words[w] & inside[w])
        num_outside += count_bits(words[w] & ~inside[w])
    return num_inside, num_outside


@numba.njit(cache=True, nogil=True)
def count_bits(word):  # type: ignore[no-untyped-def]
    """How many bits are set: sums of 2, 4, then 8 bits, and the bytes added up by a product."""
    word = word - ((word >> ONE) & PAIRS)
    word = (word & NIBBLES) + ((word >> np.uint64(2)) & NIBBLES)
    word = (word + (word >> np.uint64(4))) & BYTES
    return np.int64((word * SUM_OF_BYTES) >> np.uint64(56))
