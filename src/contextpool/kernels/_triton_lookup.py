"""The Triton kernels behind `kernels.triton_lookup`."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def place_of(query, relation, edge, ok, num_relations):
    """Where edges stand in a table [B, R]."""
    row = tl.load(query + edge, mask=ok, other=0).to(tl.int64)
    return row * num_relations + tl.load(relation + edge, mask=ok, other=0).to(tl.int64)


@triton.jit(do_not_specialize=["num_edges", "num_relations"])
def look_up(
    table,  # [B, R]
    query,  # [K]
    relation,  # [K]
    numbers,  # [K]
    num_edges,
    num_relations,
    BLOCK: tl.constexpr,
):
    edge = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    ok = edge < num_edges
    place = place_of(query, relation, edge, ok, num_relations)
    tl.store(numbers + edge, tl.load(table + place, mask=ok, other=0.0), mask=ok)


@triton.jit(do_not_specialize=["num_edges", "num_relations"])
def add_up(
    grad,  # [K]
    query,
    relation,
    sums,  # [B, R] float32
    num_edges,
    num_relations,
    BLOCK: tl.constexpr,
):
    """Adds with atomics; a gradient of zero is not added."""
    edge = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    ok = edge < num_edges
    due = tl.load(grad + edge, mask=ok, other=0.0).to(tl.float32)
    ok = ok & (due != 0.0)
    tl.atomic_add(sums + place_of(query, relation, edge, ok, num_relations), due, mask=ok, sem="relaxed")
