"""The Triton kernels behind `pool._triton_build`: pooling and leave-one-out decisions of a batch.

Flags are one byte (or one int32) a (query, entity) or (query, pair), with a bit per context view, so all views
are pooled at once. Query b does not see edge hidden[b] nor its inverse; -1 hides nothing. With DROPS, it does not see
the facts either that `dropout.EdgeDropout` drops.
"""

from __future__ import annotations

import triton
import triton.language as tl

from contextpool.pool._triton_walk import _seen


@triton.jit
def _has(words, entity, relation, num_words):
    """Whether an entity has relations, from the bits of its relation set."""
    word = tl.load(words + entity * num_words + relation // 64)
    return ((word >> (relation % 64).to(tl.int64)) & 1) != 0


@triton.jit
def _lost(had, had_first, had_second, relation, first, second, loses_first, loses_second):
    """How many of the pairs (first, relation) and (second, relation) an entity stops having."""
    has = had & ~((relation == first) & loses_first) & ~((relation == second) & loses_second)
    has_first = had_first & ~loses_first
    has_second = had_second & ~loses_second
    lost_first = (had & had_first).to(tl.int64) - (has & has_first).to(tl.int64)
    lost_second = (had & had_second).to(tl.int64) - (has & has_second).to(tl.int64)
    return lost_first, lost_second


@triton.jit(do_not_specialize=["num_relations", "num_words"])
def decide_kernel(
    query_relation,  # [B] int64
    hidden,  # [B] int64, the fact that counts nowhere
    edge_head,
    edge_tail,
    edge_inverse,
    only_one,  # [2T] bool, whether an edge is the only one of its pair
    words,  # [N, W] int64
    both,  # [2R, 2R] int64
    threshold,  # [V, 2] float64: precision, recall
    own_row,  # [B, 2, 2R] uint8, bit v: view v of (query relation, its inverse) allows x
    own_column,  # [B, 2, 2R] uint8, bit v: view v of x allows (query relation, its inverse)
    relevance,  # [B, 5, 2R] float32: precision and recall of x for the query relation and its inverse, support of x
    num_relations,
    num_words,
    NUM_VIEWS: tl.constexpr,
    KEEP_SELF: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Counts without the hidden fact, and what the thresholds make of them. Exact: integers and float64."""
    query = tl.program_id(0).to(tl.int64)
    relation = (tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)).to(tl.int64)
    num_directed = 2 * num_relations
    ok = relation < num_directed
    relation = tl.where(ok, relation, 0)
    first = tl.load(query_relation + query)
    second = tl.where(first < num_relations, first + num_relations, first - num_relations)
    both_first = tl.load(both + first * num_directed + relation)
    both_second = tl.load(both + second * num_directed + relation)
    support = tl.load(both + relation * num_directed + relation)
    support_first = tl.load(both + first * num_directed + first)
    support_second = tl.load(both + second * num_directed + second)
    hiding = tl.load(hidden + query)
    if hiding >= 0:
        head = tl.load(edge_head + hiding).to(tl.int64)
        tail = tl.load(edge_tail + hiding).to(tl.int64)
        back = tl.load(edge_inverse + hiding)
        loop = head == tail
        head_loses = tl.load(only_one + hiding) != 0
        tail_loses = tl.load(only_one + back) != 0
        had_first = _has(words, head, first, num_words)
        had_second = _has(words, head, second, num_words)
        no = loop & (head != tail)
        less_first, less_second = _lost(
            _has(words, head, relation, num_words), had_first, had_second,
            relation, first, second, head_loses, tail_loses & loop,
        )  # fmt: skip
        own_first, _ = _lost(
            had_first, had_first, had_second, first, first, second, head_loses, tail_loses & loop
        )
        _, own_second = _lost(
            had_second, had_first, had_second, second, first, second, head_loses, tail_loses & loop
        )
        tail_first = _has(words, tail, first, num_words)
        tail_second = _has(words, tail, second, num_words)
        more_first, more_second = _lost(
            _has(words, tail, relation, num_words), tail_first, tail_second,
            relation, first, second, no, tail_loses & (head != tail),
        )  # fmt: skip
        _, tail_own = _lost(
            tail_second, tail_first, tail_second, second, first, second, no, tail_loses & (head != tail)
        )
        both_first -= less_first + more_first
        both_second -= less_second + more_second
        support_first -= own_first
        support_second -= own_second + tail_own
    support = tl.where(
        relation == first, support_first, tl.where(relation == second, support_second, support)
    )
    supported = tl.maximum(support, 1).to(tl.float64)
    precision_first = both_first.to(tl.float64) / supported
    precision_second = both_second.to(tl.float64) / supported
    recall_first = both_first.to(tl.float64) / tl.maximum(support_first, 1).to(tl.float64)
    recall_second = both_second.to(tl.float64) / tl.maximum(support_second, 1).to(tl.float64)
    row_first = tl.zeros([BLOCK], dtype=tl.int32)
    row_second = tl.zeros([BLOCK], dtype=tl.int32)
    column_first = tl.zeros([BLOCK], dtype=tl.int32)
    column_second = tl.zeros([BLOCK], dtype=tl.int32)
    keep_first = tl.zeros([BLOCK], dtype=tl.int32) + (KEEP_SELF & (support_first > 0)).to(tl.int32)
    keep_second = tl.zeros([BLOCK], dtype=tl.int32) + (KEEP_SELF & (support_second > 0)).to(tl.int32)
    for view in tl.static_range(NUM_VIEWS):
        least = tl.load(threshold + 2 * view)
        least_recall = tl.load(threshold + 2 * view + 1)
        chosen = ((precision_first > least) & (recall_first > least_recall)).to(tl.int32)
        row_first |= tl.where(relation == first, keep_first, chosen) << view
        chosen = ((precision_second > least) & (recall_second > least_recall)).to(tl.int32)
        row_second |= tl.where(relation == second, keep_second, chosen) << view
        chosen = ((recall_first > least) & (precision_first > least_recall)).to(tl.int32)
        column_first |= tl.where(relation == first, keep_first, chosen) << view
        chosen = ((recall_second > least) & (precision_second > least_recall)).to(tl.int32)
        column_second |= tl.where(relation == second, keep_second, chosen) << view
    place = query * 2 * num_directed + relation
    tl.store(own_row + place, row_first.to(tl.uint8), mask=ok)
    tl.store(own_row + place + num_directed, row_second.to(tl.uint8), mask=ok)
    tl.store(own_column + place, column_first.to(tl.uint8), mask=ok)
    tl.store(own_column + place + num_directed, column_second.to(tl.uint8), mask=ok)
    place = query * 5 * num_directed + relation
    tl.store(relevance + place, precision_first.to(tl.float32), mask=ok)
    tl.store(relevance + place + num_directed, recall_first.to(tl.float32), mask=ok)
    tl.store(relevance + place + 2 * num_directed, precision_second.to(tl.float32), mask=ok)
    tl.store(relevance + place + 3 * num_directed, recall_second.to(tl.float32), mask=ok)
    tl.store(relevance + place + 4 * num_directed, support.to(tl.float32), mask=ok)


@triton.jit
def _allowed(mask, own_row, own_column, query, first, second, asked, neighbor, num_directed, ok):
    """Bits of the views in which `neighbor` may leave an entity that asks with `asked`."""
    place = own_row + query * 2 * num_directed + neighbor
    column = own_column + query * 2 * num_directed + asked
    asks_own = (asked == first) | (asked == second)
    is_own = (neighbor == first) | (neighbor == second)
    usual = tl.load(mask + asked * num_directed + neighbor, mask=ok & ~asks_own & ~is_own, other=0)
    in_column = tl.load(
        column + tl.where(neighbor == second, num_directed, 0), mask=ok & ~asks_own & is_own, other=0
    )
    in_row = tl.load(place + tl.where(asked == second, num_directed, 0), mask=ok & asks_own, other=0)
    return (usual | in_column | in_row).to(tl.int32)


@triton.jit(do_not_specialize=["num_relations", "num_pairs"])
def first_leave_kernel(
    query_head,
    query_relation,
    mask,
    own_row,
    own_column,
    entity_start,
    pair_relation,
    leaving,  # [B, P] int32, zeros
    pooled,  # [B, P] uint8, zeros
    num_relations,
    num_pairs,
    BLOCK: tl.constexpr,
):
    """Hop 1: the head asks with the query relation."""
    query = tl.program_id(0).to(tl.int64)
    num_directed = 2 * num_relations
    entity = tl.load(query_head + query)
    first = tl.load(query_relation + query)
    second = tl.where(first < num_relations, first + num_relations, first - num_relations)
    pair = tl.load(entity_start + entity)
    end = tl.load(entity_start + entity + 1)
    while pair < end:
        pairs = pair + tl.arange(0, BLOCK)
        ok = pairs < end
        neighbor = tl.load(pair_relation + pairs, mask=ok, other=0).to(tl.int64)
        asked = tl.zeros([BLOCK], dtype=tl.int64) + first
        bits = _allowed(mask, own_row, own_column, query, first, second, asked, neighbor, num_directed, ok)
        tl.store(leaving + query * num_pairs + pairs, bits, mask=ok)
        tl.store(pooled + query * num_pairs + pairs, bits.to(tl.uint8), mask=ok)
        pair += BLOCK


@triton.jit(do_not_specialize=["threshold", "num_edges", "num_pairs"])
def arrive_kernel(
    leaving,  # [B, P] int32
    edge_pair,
    edge_arrival,
    edge_inverse,
    hidden,
    salt,
    threshold,
    arriving,  # [B, P] int32, zeros
    num_edges,
    num_pairs,
    DROPS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Edges of the hop arrive at (tail, inverse relation); every edge looks back along its own inverse."""
    query = tl.program_id(1).to(tl.int64)
    edge = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    ok = _seen(edge < num_edges, edge, query, hidden, edge_inverse, salt, threshold, DROPS)
    row = query * num_pairs
    bits = tl.load(leaving + row + tl.load(edge_arrival + edge, mask=ok, other=0), mask=ok, other=0)
    some = ok & (bits != 0)
    pair = tl.load(edge_pair + edge, mask=some, other=0)
    tl.atomic_or(arriving + row + pair, bits, mask=some, sem="relaxed")


@triton.jit(do_not_specialize=["num_relations", "num_pairs"])
def leave_kernel(
    query_relation,
    mask,
    own_row,
    own_column,
    entity_start,
    pair_entity,
    pair_relation,
    arriving,
    leaving,
    pooled,
    num_relations,
    num_pairs,
    BLOCK: tl.constexpr,
):
    """Which pairs may be left by, given those arrived at: an OR over the pairs of the same entity."""
    query = tl.program_id(1).to(tl.int64)
    pairs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    ok = pairs < num_pairs
    num_directed = 2 * num_relations
    first = tl.load(query_relation + query)
    second = tl.where(first < num_relations, first + num_relations, first - num_relations)
    entity = tl.load(pair_entity + pairs, mask=ok, other=0)
    neighbor = tl.load(pair_relation + pairs, mask=ok, other=0).to(tl.int64)
    other = tl.load(entity_start + entity, mask=ok, other=0)
    end = tl.load(entity_start + entity + 1, mask=ok, other=0)
    row = query * num_pairs
    result = tl.zeros([BLOCK], dtype=tl.int32)
    left = tl.max(end - other, axis=0)
    while left > 0:
        active = ok & (other < end)
        bits = tl.load(arriving + row + other, mask=active, other=0)
        asking = active & (bits != 0)
        asked = tl.load(pair_relation + other, mask=asking, other=0).to(tl.int64)
        result |= bits & _allowed(
            mask, own_row, own_column, query, first, second, asked, neighbor, num_directed, asking
        )
        other += 1
        left -= 1
    tl.store(leaving + row + pairs, result, mask=ok)
    known = tl.load(pooled + row + pairs, mask=ok, other=0).to(tl.int32)
    tl.store(pooled + row + pairs, (known | result).to(tl.uint8), mask=ok)
