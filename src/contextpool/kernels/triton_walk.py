"""The Triton kernels of a batch's walks: what is reached, the edges between, and pooling (Algorithm 2).

Flags are one byte (or one int32) a (query, entity) or (query, pair), with a bit per context view, so all views
are pooled at once. Query b does not see edge hidden[b] nor its inverse; -1 hides nothing. With DROPS, it does not see
the facts either that `EdgeDropout` drops.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _mixed(value):
    """`graph.hashing.mixed`: int64 -> int64 in [0, 2**32)."""
    value = value & 0xFFFFFFFF
    value = ((value ^ (value >> 16)) * 0x85EBCA6B) & 0xFFFFFFFF
    value = ((value ^ (value >> 13)) * 0xC2B2AE35) & 0xFFFFFFFF
    return value ^ (value >> 16)


@triton.jit
def _kept(ok, edge, query, edge_inverse, salt, threshold):
    """Which of the `ok` edges a query keeps under edge dropout."""
    back = tl.load(edge_inverse + edge, mask=ok, other=0)
    fact = tl.minimum(edge, back).to(tl.int64)
    return ok & (_mixed(_mixed(fact) ^ tl.load(salt + query)) >= threshold)


@triton.jit
def _seen(ok, edge, query, hidden, edge_inverse, salt, threshold, DROPS: tl.constexpr):
    """Which of the `ok` edges a query sees: neither hidden from it nor dropped."""
    hiding = tl.load(hidden + query)
    back = tl.load(edge_inverse + tl.maximum(hiding, 0))
    seen = ok & ((hiding < 0) | ((edge != hiding) & (edge != back)))
    if DROPS:
        seen = _kept(seen, edge, query, edge_inverse, salt, threshold)
    return seen


@triton.jit(do_not_specialize=["threshold", "hop", "num_entities", "num_edges"])
def reach_kernel(
    first_hop,  # [B, N] uint8, 255 where not reached yet
    edge_head,
    edge_tail,
    edge_inverse,
    hidden,  # [B] int64
    salt,  # [B] int64, or anything without DROPS
    threshold,
    hop,
    num_entities,
    num_edges,
    DROPS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Entities one edge away from those reached at `hop - 1`. Every edge looks from its head at its tail."""
    query = tl.program_id(1).to(tl.int64)
    edge = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    ok = _seen(edge < num_edges, edge, query, hidden, edge_inverse, salt, threshold, DROPS)
    row = first_hop + query * num_entities
    tail = tl.load(edge_tail + edge, mask=ok, other=0)
    head = tl.load(edge_head + edge, mask=ok, other=0)
    arrives = tl.load(row + tail, mask=ok, other=255).to(tl.int32) == hop - 1
    is_new = ok & arrives
    is_new = is_new & (tl.load(row + head, mask=is_new, other=0).to(tl.int32) == 255)
    tl.store(row + head, (tl.zeros([BLOCK], dtype=tl.int32) + hop).to(tl.uint8), mask=is_new)


@triton.jit(do_not_specialize=["num_nodes", "num_entities", "num_layers"])
def degree_kernel(
    node_place,  # [B * N] int64, node -> query * N + entity
    row_start,
    layer_sizes,  # [L + 1] int64
    degree,  # [B * N] int64
    num_nodes,
    num_entities,
    num_layers,
    BLOCK: tl.constexpr,
):
    """The length of each node's row; 0 for what was not reached."""
    node = (tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)).to(tl.int64)
    ok = node < num_nodes
    reached = ok & (node < tl.load(layer_sizes + num_layers))
    entity = tl.load(node_place + node, mask=reached, other=0) % num_entities
    length = tl.load(row_start + entity + 1, mask=reached, other=0) - tl.load(
        row_start + entity, mask=reached, other=0
    )
    tl.store(degree + node, length, mask=ok)


@triton.jit(
    do_not_specialize=["threshold", "num_nodes", "num_sources", "num_edges", "num_entities", "num_pairs"]
)
def fill_kernel(
    number,  # [B, N] int32, the node of each entity
    row_start,
    edge_head,
    edge_tail,
    edge_relation,
    edge_inverse,
    edge_arrival,
    pooled,  # [B, P] uint8, or anything without views
    hidden,
    salt,
    threshold,
    node_start,  # [B * N + 1] int64
    edge_source,  # [K] int32
    walked_relation,  # [K] int32
    edge_back,  # [K] int32
    edge_views,  # [K] uint8
    num_nodes,
    num_sources,
    num_edges,
    num_entities,
    num_pairs,
    HAS_VIEWS: tl.constexpr,
    DROPS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Writes the edges into each node, in the order of its own row: every edge looks from its head at its tail."""
    query = tl.program_id(1).to(tl.int64)
    edge = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    ok = edge < num_edges
    head = tl.load(edge_head + edge, mask=ok, other=0).to(tl.int64)
    row = number + query * num_entities
    node = tl.load(row + head, mask=ok, other=2147483647)
    ok = ok & (node < num_nodes)
    slot = (
        tl.load(node_start + node.to(tl.int64), mask=ok, other=0)
        + edge
        - tl.load(row_start + head, mask=ok, other=0)
    )
    tail = tl.load(edge_tail + edge, mask=ok, other=0)
    seen = _seen(ok, edge, query, hidden, edge_inverse, salt, threshold, DROPS)
    source = tl.load(row + tail, mask=seen, other=2147483647)
    source = tl.where(source < num_sources, source, 2147483647)
    back = tl.load(edge_inverse + edge, mask=ok, other=0)
    tl.store(edge_source + slot, source, mask=ok)
    tl.store(walked_relation + slot, tl.load(edge_relation + back, mask=ok, other=0), mask=ok)
    tl.store(edge_back + slot, edge, mask=ok)
    if HAS_VIEWS:
        arrival = tl.load(edge_arrival + edge, mask=seen, other=0)
        bits = tl.load(pooled + query * num_pairs + arrival, mask=seen, other=0)
        tl.store(edge_views + slot, bits, mask=ok)


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
