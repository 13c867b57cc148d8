"""The Triton kernels behind `kernels.relations`: queries [B, D], maps of D columns to `width`, S of them."""
# mypy: allow-untyped-defs, allow-incomplete-defs

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["num_queries"])
def relations_forward(
    query,  # [B, D]
    table,  # [S, 2] int64 addresses of weight [width, D] and bias [width]
    result,  # [S, B, width]
    num_queries,
    width,
    D: tl.constexpr,
    BLOCK_B: tl.constexpr,
    BLOCK_J: tl.constexpr,
    PRECISION: tl.constexpr,
):
    stream = tl.program_id(1).to(tl.int64)
    weight = tl.load(table + 2 * stream).to(tl.pointer_type(tl.float32))
    bias = tl.load(table + 2 * stream + 1).to(tl.pointer_type(tl.float32))
    columns = tl.arange(0, D)
    rows = tl.arange(0, BLOCK_B)
    places = tl.program_id(0) * BLOCK_J + tl.arange(0, BLOCK_J)
    row_ok = (rows < num_queries)[:, None]
    place_ok = places < width
    queries = tl.load(query + rows[:, None] * D + columns[None, :], mask=row_ok, other=0.0)
    turned = tl.load(weight + places[None, :] * D + columns[:, None], mask=place_ok[None, :], other=0.0)
    mapped = tl.dot(queries, turned, input_precision=PRECISION)
    mapped += tl.load(bias + places, mask=place_ok, other=0.0)[None, :]
    goal = result + (stream * num_queries + rows[:, None]) * width + places[None, :]
    tl.store(goal, mapped, mask=row_ok & place_ok[None, :])


@triton.jit(do_not_specialize=["num_queries"])
def relations_backward(
    grad,  # [S, B, width]
    query,
    table,
    grad_weight,  # [S, width, D]
    grad_bias,  # [S, width]
    parts,  # [S * programs, B, D] of the query's gradient
    num_queries,
    width,
    D: tl.constexpr,
    BLOCK_B: tl.constexpr,
    BLOCK_J: tl.constexpr,
    PRECISION: tl.constexpr,
):
    stream = tl.program_id(1).to(tl.int64)
    weight = tl.load(table + 2 * stream).to(tl.pointer_type(tl.float32))
    columns = tl.arange(0, D)
    rows = tl.arange(0, BLOCK_B)
    row_ok = (rows < num_queries)[:, None]
    queries = tl.load(query + rows[:, None] * D + columns[None, :], mask=row_ok, other=0.0)
    to_query = tl.zeros([BLOCK_B, D], dtype=tl.float32)
    first = tl.program_id(0) * BLOCK_J
    while first < width:
        places = first + tl.arange(0, BLOCK_J)
        place_ok = places < width
        given = grad + (stream * num_queries + rows[:, None]) * width + places[None, :]
        back = tl.load(given, mask=row_ok & place_ok[None, :], other=0.0)  # [B, J]
        at_weight = places[:, None] * D + columns[None, :]
        direct = tl.load(weight + at_weight, mask=place_ok[:, None], other=0.0)
        to_query = tl.dot(back, direct, to_query, input_precision=PRECISION)
        to_weight = tl.dot(tl.trans(back), queries, input_precision=PRECISION)
        tl.store(grad_weight + stream * width * D + at_weight, to_weight, mask=place_ok[:, None])
        tl.store(grad_bias + stream * width + places, tl.sum(back, axis=0), mask=place_ok)
        first += tl.num_programs(0) * BLOCK_J
    part = (stream * tl.num_programs(0) + tl.program_id(0)) * num_queries + rows[:, None]
    tl.store(parts + part * D + columns[None, :], to_query, mask=row_ok)
