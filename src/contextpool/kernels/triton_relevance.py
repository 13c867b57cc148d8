"""The Triton kernels behind what context says to each query of a batch: decisions of views, relevance, candidates.

Query b does not count the fact of edge hidden[b]; -1 leaves nothing out.
"""

from __future__ import annotations

import triton
import triton.language as tl


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
def _gone_pairs(hidden, query, edge_inverse, edge_pair, only_one):
    """Pairs (entity, relation) that a query's hidden fact was the only one of, at its head and at its tail; or -1."""
    hiding = tl.load(hidden + query)
    place = tl.maximum(hiding, 0)
    back = tl.load(edge_inverse + place)
    gone = tl.load(edge_pair + place).to(tl.int64)
    gone = tl.where((hiding >= 0) & (tl.load(only_one + place) != 0), gone, -1)
    gone_back = tl.load(edge_pair + back).to(tl.int64)
    gone_back = tl.where((hiding >= 0) & (tl.load(only_one + back) != 0), gone_back, -1)
    return gone, gone_back


@triton.jit(do_not_specialize=["num_relations", "num_entities"])
def features_kernel(
    query_relation,
    relevance,  # [B, 5, 2R] float32
    hidden,
    edge_pair,
    edge_inverse,
    only_one,
    entity_start,
    pair_relation,
    result,  # [B, 7, N] float32, rows as `candidates.raw_features` has them
    num_relations,
    num_entities,
    BLOCK: tl.constexpr,
):
    """What candidates' features are made of: one pass over the relations of each entity, without the hidden fact's."""
    query = tl.program_id(1).to(tl.int64)
    entity = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    ok = entity < num_entities
    num_directed = 2 * num_relations
    first = tl.load(query_relation + query)
    second = tl.where(first < num_relations, first + num_relations, first - num_relations)
    gone, gone_back = _gone_pairs(hidden, query, edge_inverse, edge_pair, only_one)
    pair = tl.load(entity_start + entity, mask=ok, other=0)
    end = tl.load(entity_start + entity + 1, mask=ok, other=0)
    best = tl.zeros([BLOCK], dtype=tl.float32)
    precisions = tl.zeros([BLOCK], dtype=tl.float32)
    best_recall = tl.zeros([BLOCK], dtype=tl.float32)
    recalls = tl.zeros([BLOCK], dtype=tl.float32)
    support = tl.zeros([BLOCK], dtype=tl.float32)
    count = tl.zeros([BLOCK], dtype=tl.float32)
    has_back = tl.zeros([BLOCK], dtype=tl.float32)
    row = relevance + (query * 5 + 2) * num_directed
    left = tl.max(end - pair, axis=0)
    while left > 0:
        active = ok & (pair < end) & (pair != gone) & (pair != gone_back)
        relation = tl.load(pair_relation + pair, mask=active, other=0)
        precision = tl.load(row + relation, mask=active, other=0.0)
        recall = tl.load(row + num_directed + relation, mask=active, other=0.0)
        having = tl.load(row + 2 * num_directed + relation, mask=active, other=0.0)
        support = tl.where(
            precision > best, having, tl.where(precision == best, tl.maximum(support, having), support)
        )
        best = tl.maximum(best, precision)
        precisions += precision
        best_recall = tl.maximum(best_recall, recall)
        recalls += recall
        count += active.to(tl.float32)
        has_back = tl.maximum(has_back, (active & (relation == second)).to(tl.float32))
        pair += 1
        left -= 1
    goal = result + query * 7 * num_entities + entity
    tl.store(goal, best, mask=ok)
    tl.store(goal + num_entities, precisions, mask=ok)
    tl.store(goal + 2 * num_entities, best_recall, mask=ok)
    tl.store(goal + 3 * num_entities, recalls, mask=ok)
    tl.store(goal + 4 * num_entities, support, mask=ok)
    tl.store(goal + 5 * num_entities, count, mask=ok)
    tl.store(goal + 6 * num_entities, has_back, mask=ok)
