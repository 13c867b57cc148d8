"""The Triton kernels behind `pool.candidates`: what is known of every entity as an answer, by its relations.

Query b does not count the fact of edge hidden[b]; -1 leaves nothing out.
"""

from __future__ import annotations

import triton
import triton.language as tl


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


@triton.jit(do_not_specialize=["num_directed", "num_entities"])
def candidate_kernel(
    relevance,  # [B, 5, 2R] float32
    hidden,
    edge_pair,
    edge_inverse,
    only_one,
    entity_start,
    pair_relation,
    result,  # [B, N] float32
    num_directed,
    num_entities,
    BLOCK: tl.constexpr,
):
    """How much each entity looks like an answer: the best precision of its relations, without the hidden fact's."""
    query = tl.program_id(1).to(tl.int64)
    entity = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    ok = entity < num_entities
    gone, gone_back = _gone_pairs(hidden, query, edge_inverse, edge_pair, only_one)
    pair = tl.load(entity_start + entity, mask=ok, other=0)
    end = tl.load(entity_start + entity + 1, mask=ok, other=0)
    best = tl.zeros([BLOCK], dtype=tl.float32)
    row = relevance + (query * 5 + 2) * num_directed
    left = tl.max(end - pair, axis=0)
    while left > 0:
        active = ok & (pair < end) & (pair != gone) & (pair != gone_back)
        relation = tl.load(pair_relation + pair, mask=active, other=0)
        best = tl.maximum(best, tl.load(row + relation, mask=active, other=0.0))
        pair += 1
        left -= 1
    tl.store(result + query * num_entities + entity, best, mask=ok)


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
