"""What hiding a fact changes in the families of Algorithm 1, without mining anew.

Hiding (h, x, t) can take x out of NR_h and inverse(x) out of NR_t. Only sets that hold a lost relation, or are
asked with one, have other counts. An answer stays as it is unless its member stops being one, or a set that
becomes a member is at least as similar. The first is looked up; the second takes a walk over the subsets of NR_h
and NR_t that hold what was lost. Everything is numbered by label.
"""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np
import numpy.typing as npt

from contextpool.context.family_search import SearchRule, count_bits, mark_eligible
from contextpool.context.itemsets import Ints, Places, Transactions, holds, is_in
from contextpool.graph.relation_sets import Words

ONE = np.uint64(1)


class Questions(NamedTuple):
    """P pairs of a relation set and a query in it, each with the member that answers while nothing is left out."""

    sets: Transactions
    """The S relation sets asked about. Pair p asks with sets.items[p]; the pairs of a set lie side by side."""
    row: Ints
    """[P] the relation set of each pair."""
    by_query: Ints
    """[P] the pairs in the order of sets.holders."""
    member: Words
    """[P, W] the most similar member; no bits where no member is similar."""
    both: Ints
    """[P] entities having the member and the query."""
    total: Ints
    """[P] what `both` is divided by: entities having the member (precision) or the query (recall)."""
    similarity: npt.NDArray[np.float64]
    """[P] Jaccard; 0 where no member is similar."""


class Losses(NamedTuple):
    """C entities (one, or two) that lose relations."""

    row: Ints
    """[C] their relation sets among the transactions."""
    before: Words  # [C, W]
    after: Words  # [C, W]
    item: Ints
    """[L] the relations that are lost,"""
    loser: Ints
    """[L] and which of the C entities loses each."""


class _Walk(NamedTuple):
    """A walk over sets of items; row d of an array belongs to the node with d + 1 items."""

    chosen: Words  # [K, W]
    tids: Places
    """[K, D] the relation sets that hold the chosen items."""
    num_tids: Ints  # [K]
    entities: Ints
    """[K] entities having the chosen items."""
    following: Ints
    """[K] place of the next item to try."""
    entities_with: Ints
    """[2R] scratch, zero between visits."""


@numba.njit(cache=True, nogil=True)
def count_members(data, by_recall, sets, row, member):  # type: ignore[no-untyped-def]
    """`both` [P] and `total` [P] of `Questions`, by a look at every relation set that holds the query or member."""
    both, total = np.zeros(len(row), dtype=np.int64), np.zeros(len(row), dtype=np.int64)
    for pair in range(len(row)):
        query, first = np.int64(sets.items[pair]), _first_item(member[pair])
        if first < 0:
            continue
        for k in range(data.holder_start[first], data.holder_start[first + 1]):
            tid = data.holders[k]
            if _contains(data.words[tid], member[pair]):
                total[pair] += data.weight[tid]
                if holds(data.words, tid, query):
                    both[pair] += data.weight[tid]
        if by_recall:
            total[pair] = data.support[query]
    return both, total


def without_losses(data: Transactions, losses: Losses) -> Transactions:
    """The transactions as they would be: sets of losers have an entity less, and their new sets follow the others.

    O(sum of set sizes) time. A set that nobody has any more stays, with weight 0.
    """
    weight = np.concatenate([data.weight, np.ones(len(losses.row), dtype=np.int64)])
    np.subtract.at(weight, losses.row, 1)
    support = data.support.copy()
    np.subtract.at(support, losses.item, 1)
    words = np.concatenate([data.words, losses.after])
    item_start, items, holder_start, holders = _with_new_sets(data, losses.after)
    return Transactions(words, weight, item_start, items, holder_start, holders, support)


@numba.njit(cache=True, nogil=True)
def _with_new_sets(data, after):  # type: ignore[no-untyped-def]
    """item_start, items, holder_start and holders of the transactions followed by the sets `after` [C, W]."""
    num_sets, num_items = len(data.weight), len(data.support)
    size = len(data.items)
    for loser in range(len(after)):
        for w in range(after.shape[1]):
            size += count_bits(after[loser, w])
    item_start, items = np.empty(num_sets + len(after) + 1, dtype=np.int64), np.empty(size, dtype=np.int32)
    item_start[: num_sets + 1] = data.item_start
    items[: len(data.items)] = data.items
    used = len(data.items)
    for loser in range(len(after)):
        for item in range(num_items):
            if is_in(after[loser], item):
                items[used] = item
                used += 1
        item_start[num_sets + loser + 1] = used
    holder_start, holders = np.empty(num_items + 1, dtype=np.int64), np.empty(size, dtype=np.int32)
    _place_holders(data, after, holder_start, holders)
    return item_start, items, holder_start, holders


@numba.njit(cache=True, nogil=True)
def _place_holders(data, after, holder_start, holders):  # type: ignore[no-untyped-def]
    used = 0
    for item in range(len(data.support)):
        holder_start[item] = used
        for k in range(data.holder_start[item], data.holder_start[item + 1]):
            holders[used] = data.holders[k]
            used += 1
        for loser in range(len(after)):
            if is_in(after[loser], item):
                holders[used] = len(data.weight) + loser
                used += 1
    holder_start[len(data.support)] = used


def rule_without(rule: SearchRule, data: Transactions, losses: Losses) -> SearchRule:
    """The rule over transactions without the losses.

    What a member can hold only becomes less, but for the families by recall of lost relations: less is asked of them.
    """
    if not rule.by_recall:
        return rule
    eligible, scratch = rule.eligible.copy(), np.empty(len(data.support), dtype=np.int64)
    for item in losses.item:
        mark_eligible(data, True, rule.least, item, scratch, eligible[item])
    return rule._replace(eligible=eligible)


@numba.njit(cache=True, nogil=True)
def changed_pairs(data, rule, questions, losses, size_wanted):  # type: ignore[no-untyped-def]
    """[P] booleans: the pairs whose answer may change. `size_wanted` [K + 1] says which sizes members have."""
    marked = np.zeros(len(questions.row), dtype=np.bool_)
    if len(size_wanted) < 2:  # no family has members but, perhaps, the empty set, which answers nothing
        return marked
    _mark_lost_members(rule, questions, losses, marked)
    if rule.by_recall:
        _mark_lower_bars(data, rule, questions, losses, marked)
        return marked
    least_entities = np.searchsorted(
        rule.least, 2
    )  # with fewer, one entity having the query is enough already
    walk = _Walk(
        np.zeros((len(size_wanted), data.words.shape[1]), dtype=np.uint64),
        np.empty((len(size_wanted), len(data.weight)), dtype=np.int32),
        np.zeros(len(size_wanted), dtype=np.int64),
        np.zeros(len(size_wanted), dtype=np.int64),
        np.zeros(len(size_wanted), dtype=np.int64),
        np.zeros(len(data.support), dtype=np.int64),
    )
    for k in range(len(losses.item)):
        before = losses.before[losses.loser[k]]
        _mark_new_members(
            data, rule, questions, losses, losses.item[k], before, size_wanted, least_entities, walk, marked
        )
    return marked


@numba.njit(cache=True, nogil=True)
def _mark_lost_members(rule, questions, losses, marked):  # type: ignore[no-untyped-def]
    """Pairs whose member is none any more."""
    for pair in range(len(marked)):
        if questions.similarity[pair] == 0:
            continue
        query, member = np.int64(questions.sets.items[pair]), questions.member[pair]
        both = questions.both[pair] - _num_losing(losses, member, query)
        total = questions.total[pair]
        if rule.by_recall:
            total -= _num_losing_item(losses, query)
        else:
            total -= _num_losing(losses, member, -1)
        marked[pair] = both < rule.least[total]


@numba.njit(cache=True, nogil=True)
def _mark_lower_bars(data, rule, questions, losses, marked):  # type: ignore[no-untyped-def]
    """Recall divides by the entities having the query: one less, and any set may become a member."""
    for k in range(len(losses.item)):
        query = losses.item[k]
        had = data.support[query]
        if rule.least[had - _num_losing_item(losses, query)] < rule.least[had]:
            for place in range(questions.sets.holder_start[query], questions.sets.holder_start[query + 1]):
                marked[questions.by_query[place]] = True


@numba.njit(cache=True, nogil=True)
def _mark_new_members(  # type: ignore[no-untyped-def]
    data, rule, questions, losses, lost, before, size_wanted, least_entities, walk, marked
):
    """Precision divides by the entities having the set: visit every subset of NR_e that holds `lost`."""
    depth, items = 0, _items_but(before, lost)
    _choose_first(data, lost, walk)
    if walk.entities[0] < least_entities:
        return
    _visit(data, rule, questions, losses, size_wanted, walk, depth, marked)
    while depth >= 0:
        if depth + 2 == len(size_wanted) or walk.following[depth] == len(items):
            depth -= 1
            continue
        item = items[walk.following[depth]]
        walk.following[depth] += 1
        _choose(data, item, walk, depth)
        if walk.entities[depth + 1] >= least_entities:  # they only become fewer as a set grows
            depth += 1
            _visit(data, rule, questions, losses, size_wanted, walk, depth, marked)


@numba.njit(cache=True, nogil=True)
def _choose_first(data, lost, walk):  # type: ignore[no-untyped-def]
    start, end = data.holder_start[lost], data.holder_start[lost + 1]
    walk.tids[0, : end - start] = data.holders[start:end]
    walk.num_tids[0] = end - start
    walk.entities[0] = data.support[lost]
    walk.following[0] = 0
    walk.chosen[0] = 0
    walk.chosen[0, lost >> 6] = ONE << np.uint64(lost & 63)


@numba.njit(cache=True, nogil=True)
def _choose(data, item, walk, depth):  # type: ignore[no-untyped-def]
    """Row depth + 1: the chosen items and `item`."""
    kept, entities = 0, np.int64(0)
    for k in range(walk.num_tids[depth]):
        tid = walk.tids[depth, k]
        if holds(data.words, tid, item):
            walk.tids[depth + 1, kept] = tid
            kept += 1
            entities += data.weight[tid]
    walk.num_tids[depth + 1] = kept
    walk.entities[depth + 1] = entities
    walk.following[depth + 1] = walk.following[depth]
    walk.chosen[depth + 1] = walk.chosen[depth]
    walk.chosen[depth + 1, item >> 6] |= ONE << np.uint64(item & 63)


@numba.njit(cache=True, nogil=True)
def _visit(data, rule, questions, losses, size_wanted, walk, depth, marked):  # type: ignore[no-untyped-def]
    """For every query whose family the chosen set joins: mark the pairs that it may answer from now on."""
    chosen, total = walk.chosen[depth], walk.entities[depth]
    fewer = total - _num_losing(losses, chosen, -1)
    if not size_wanted[depth + 1] or rule.least[fewer] == rule.least[total]:
        return
    _tally(data, walk, depth)
    for query in range(len(walk.entities_with)):
        both = walk.entities_with[query]
        walk.entities_with[query] = 0
        if both == 0 or both >= rule.least[total] or is_in(chosen, query):
            continue
        if both - _num_losing(losses, chosen, query) >= rule.least[fewer]:
            _mark_answered(questions, chosen, depth + 1, query, marked)


@numba.njit(cache=True, nogil=True)
def _tally(data, walk, depth):  # type: ignore[no-untyped-def]
    """Entities having the chosen items and each other one."""
    for k in range(walk.num_tids[depth]):
        tid = walk.tids[depth, k]
        for place in range(data.item_start[tid], data.item_start[tid + 1]):
            walk.entities_with[data.items[place]] += data.weight[tid]


@numba.njit(cache=True, nogil=True)
def _mark_answered(questions, chosen, size, query, marked):  # type: ignore[no-untyped-def]
    """Pairs of the query whose relation set is at least as similar to the chosen set as to its member."""
    sets = questions.sets
    for place in range(sets.holder_start[query], sets.holder_start[query + 1]):
        pair, row, shared = questions.by_query[place], sets.holders[place], 0
        for w in range(len(chosen)):
            shared += count_bits(chosen[w] & sets.words[row, w])
        num_known = sets.item_start[row + 1] - sets.item_start[row]
        similarity = shared / (num_known + size - shared)
        if shared > 0 and similarity >= questions.similarity[pair]:
            marked[pair] = True


@numba.njit(cache=True, nogil=True)
def _num_losing(losses, words, item):  # type: ignore[no-untyped-def]
    """How many entities stop having all of `words` [W] and `item` (-1: words alone)."""
    losing = 0
    for loser in range(len(losses.row)):
        had, has = True, True
        for w in range(len(words)):
            wanted = words[w]
            if item >> 6 == w:
                wanted |= ONE << np.uint64(item & 63)
            had &= wanted & ~losses.before[loser, w] == 0
            has &= wanted & ~losses.after[loser, w] == 0
        losing += had and not has
    return losing


@numba.njit(cache=True, nogil=True)
def _num_losing_item(losses, item):  # type: ignore[no-untyped-def]
    losing = 0
    for k in range(len(losses.item)):
        losing += losses.item[k] == item
    return losing


@numba.njit(cache=True, nogil=True)
def _contains(words, part):  # type: ignore[no-untyped-def]
    missing = np.uint64(0)
    for w in range(len(words)):
        missing |= part[w] & ~words[w]
    return missing == 0


@numba.njit(cache=True, nogil=True)
def _first_item(words):  # type: ignore[no-untyped-def]
    """The lowest item of a set [W]; -1 where it is empty."""
    for w in range(len(words)):
        if words[w] != 0:
            return 64 * w + count_bits((words[w] & (~words[w] + ONE)) - ONE)
    return -1


@numba.njit(cache=True, nogil=True)
def _items_but(words, item):  # type: ignore[no-untyped-def]
    """The items of a set [W], ascending, but for one."""
    items, count = np.empty(64 * len(words), dtype=np.int64), 0
    for other in range(len(items)):
        if other != item and is_in(words, other):
            items[count] = other
            count += 1
    return items[:count]
