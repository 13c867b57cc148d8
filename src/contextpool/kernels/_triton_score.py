"""The Triton kernels behind `kernels.score`: states [M, D], hidden layer [M, H], one score a node."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _hidden(
    state,
    weight,
    by_query,
    node_query,
    rows,
    row_ok,
    D: tl.constexpr,
    H: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """States [BLOCK, D], the queries [BLOCK] they belong to, and the hidden layer before its relu [BLOCK, H]."""
    columns = tl.arange(0, D)
    wide = tl.arange(0, H)
    states = tl.load(state + rows[:, None] * D + columns[None, :], mask=row_ok[:, None], other=0.0).to(
        tl.float32
    )
    query = tl.load(node_query + rows, mask=row_ok, other=0)
    turned = tl.load(weight + wide[None, :] * D + columns[:, None])  # [H, D] read as [D, H]
    hidden = tl.load(by_query + query[:, None] * H + wide[None, :], mask=row_ok[:, None], other=0.0)
    return states, query, tl.dot(states, turned, hidden, input_precision=PRECISION)


@triton.jit(do_not_specialize=["num_rows"])
def score_forward(
    state,  # [M, D]
    weight,  # [H, D]
    by_query,  # [B, H] float32
    node_query,  # [M]
    last,  # [H]
    last_bias,  # [1]
    score,  # [M] float32
    num_rows,
    BLOCK: tl.constexpr,
    D: tl.constexpr,
    H: tl.constexpr,
    PRECISION: tl.constexpr,
):
    rows = (tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)).to(tl.int64)
    row_ok = rows < num_rows
    _, _, hidden = _hidden(state, weight, by_query, node_query, rows, row_ok, D, H, PRECISION)
    hidden = tl.where(hidden < 0, 0.0, hidden)  # a NaN stays one
    result = tl.sum(hidden * tl.load(last + tl.arange(0, H))[None, :], axis=1) + tl.load(last_bias)
    tl.store(score + rows, result, mask=row_ok)


@triton.jit(do_not_specialize=["num_rows"])
def score_backward(
    grad,  # [M]
    state,
    weight,
    by_query,
    node_query,
    last,
    grad_state,  # [M, D] float32
    grad_by_query,  # [B, H] float32, zeros; added to atomically
    parts,  # [programs, H * D + H + 1] of the gradients of weight, last, last_bias
    num_rows,
    part_width,
    BLOCK: tl.constexpr,
    D: tl.constexpr,
    H: tl.constexpr,
    PRECISION: tl.constexpr,
):
    program = tl.program_id(0)
    columns = tl.arange(0, D)
    wide = tl.arange(0, H)
    out = tl.load(last + wide)[None, :]
    to_weight = tl.zeros([H, D], dtype=tl.float32)
    to_last = tl.zeros([H], dtype=tl.float32)
    to_bias = tl.zeros([BLOCK], dtype=tl.float32)
    block = program
    while block * BLOCK < num_rows:
        rows = (block * BLOCK + tl.arange(0, BLOCK)).to(tl.int64)
        row_ok = rows < num_rows
        states, query, hidden = _hidden(state, weight, by_query, node_query, rows, row_ok, D, H, PRECISION)
        passed = tl.load(grad + rows, mask=row_ok, other=0.0)
        to_bias += passed
        to_last += tl.sum(tl.where(hidden > 0, hidden, 0.0) * passed[:, None], axis=0)
        back = tl.where((hidden > 0) & row_ok[:, None], passed[:, None] * out, 0.0)  # [BLOCK, H]
        direct = tl.load(weight + wide[:, None] * D + columns[None, :])  # [H, D]
        to_state = tl.dot(back, direct, input_precision=PRECISION)
        tl.store(grad_state + rows[:, None] * D + columns[None, :], to_state, mask=row_ok[:, None])
        to_weight = tl.dot(tl.trans(back), states, to_weight, input_precision=PRECISION)
        lowest = tl.min(tl.where(row_ok, query, 2147483647), axis=0)
        highest = tl.max(tl.where(row_ok, query, 0), axis=0)
        if lowest == highest:  # nodes lie sorted, so most blocks belong to one query
            tl.atomic_add(grad_by_query + lowest * H + wide, tl.sum(back, axis=0), sem="relaxed")
        else:
            goal = grad_by_query + query[:, None] * H + wide[None, :]
            tl.atomic_add(goal, back, mask=row_ok[:, None], sem="relaxed")
        block += tl.num_programs(0)
    goal = parts + program.to(tl.int64) * part_width
    tl.store(goal + wide[:, None] * D + columns[None, :], to_weight)
    tl.store(goal + H * D + wide, to_last)
    tl.store(goal + H * D + H, tl.sum(to_bias, axis=0))
