"""The Triton kernels behind `kernels.triton_attention`; tiles are [E, A]: edges, columns padded to a power of two."""

from __future__ import annotations

import triton
import triton.language as tl

from contextpool.kernels._triton_lookup import place_of


@triton.jit
def _hidden(
    by_node, by_relation, source, relation, query, edge, ok, columns, column_ok, width, num_relations
):
    """What the ReLU takes [E, A], and where its two parts stand."""
    node = tl.load(source + edge, mask=ok, other=0).to(tl.int64)
    number = place_of(query, relation, edge, ok, num_relations)
    at_node = node[:, None] * width + columns[None, :]
    at_relation = number[:, None] * width + columns[None, :]
    both = ok[:, None] & column_ok[None, :]
    one = tl.load(by_node + at_node, mask=both, other=0.0).to(tl.float32)
    other = tl.load(by_relation + at_relation, mask=both, other=0.0).to(tl.float32)
    return one + other, at_node, at_relation, both


@triton.jit(do_not_specialize=["num_edges", "width", "num_relations"])
def attention_forward(
    by_node,  # [M, A]
    by_relation,  # [B, R, A]
    last,  # [A]
    last_bias,  # [1]
    source,  # [K]
    relation,
    query,
    attention,  # [K] float32
    num_edges,
    width,
    num_relations,
    BLOCK: tl.constexpr,
    A_PAD: tl.constexpr,
):
    edge = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    ok = edge < num_edges
    columns = tl.arange(0, A_PAD)
    column_ok = columns < width
    hidden, _, _, _ = _hidden(
        by_node, by_relation, source, relation, query, edge, ok, columns, column_ok, width, num_relations
    )
    factor = tl.load(last + columns, mask=column_ok, other=0.0).to(tl.float32)
    rectified = tl.maximum(hidden, 0.0, propagate_nan=tl.PropagateNan.ALL)
    logit = tl.sum(rectified * factor[None, :], axis=1) + tl.load(last_bias).to(tl.float32)
    tl.store(attention + edge, tl.sigmoid(logit), mask=ok)


@triton.jit(do_not_specialize=["num_edges", "width", "num_relations"])
def attention_backward(
    grad,  # [K]
    by_node,
    by_relation,
    last,
    source,
    relation,
    query,
    attention,
    grad_node,  # [M, A] float32
    grad_relation,  # [B, R, A] float32
    parts,  # [programs, A + 1] float32: what each program has for `last` and for its bias
    num_edges,
    width,
    num_relations,
    BLOCK: tl.constexpr,
    A_PAD: tl.constexpr,
):
    """Adds with atomics; an edge whose attention nobody used adds nothing."""
    edge = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    ok = edge < num_edges
    columns = tl.arange(0, A_PAD)
    column_ok = columns < width
    value = tl.load(attention + edge, mask=ok, other=0.0)
    due = tl.load(grad + edge, mask=ok, other=0.0).to(tl.float32) * value * (1.0 - value)  # [E]
    ok = ok & (due != 0.0)
    hidden, at_node, at_relation, both = _hidden(
        by_node, by_relation, source, relation, query, edge, ok, columns, column_ok, width, num_relations
    )
    factor = tl.load(last + columns, mask=column_ok, other=0.0).to(tl.float32)
    back = tl.where(both & (hidden > 0.0), due[:, None] * factor[None, :], 0.0)
    tl.atomic_add(grad_node + at_node, back, mask=both, sem="relaxed")
    tl.atomic_add(grad_relation + at_relation, back, mask=both, sem="relaxed")
    to_last = tl.sum(tl.maximum(hidden, 0.0) * tl.where(ok, due, 0.0)[:, None], axis=0)
    mine = parts + tl.program_id(0).to(tl.int64) * (width + 1)
    tl.store(mine + columns, to_last, mask=column_ok)
    tl.store(mine + width, tl.sum(due, axis=0))
