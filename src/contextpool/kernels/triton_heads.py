"""What a model does for each edge or node beside aggregation, on CUDA: gates, attention, scores, known answers.

Each is one kernel forward and one backward, and nothing of the size [edges, columns] is in memory between. Adding
up gradients by torch instead spends most of a step: all edges of a relation add to the same few numbers.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable
from triton import cdiv, next_power_of_2


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


LOOKUP_BLOCK = 512
"""Edges of a program."""


def edge_values(table: Tensor, query: Tensor, relation: Tensor) -> Tensor:
    """See `reference.edge_values`."""
    result: Tensor = _Lookup.apply(table, query, relation)
    return result


class _Lookup(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, table: Tensor, query: Tensor, relation: Tensor) -> Tensor:
        numbers = torch.empty(len(query), dtype=table.dtype, device=table.device)
        ctx.shape, ctx.dtype = table.shape, table.dtype
        ctx.save_for_backward(query, relation)
        if len(query):
            look_up[(cdiv(len(query), LOOKUP_BLOCK),)](
                table.contiguous(), query, relation, numbers, len(query), table.size(1), BLOCK=LOOKUP_BLOCK
            )
        return numbers

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        query, relation = ctx.saved_tensors
        sums = torch.zeros(ctx.shape, dtype=torch.float32, device=grad.device)
        if len(query):
            add_up[(cdiv(len(query), LOOKUP_BLOCK),)](
                grad.contiguous(), query, relation, sums, len(query), sums.size(1), BLOCK=LOOKUP_BLOCK
            )
        return sums.to(ctx.dtype), None, None


@triton.jit
def _attention_input(
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
    hidden, _, _, _ = _attention_input(
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
    hidden, at_node, at_relation, both = _attention_input(
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


ATTENTION_TILE = 1024
"""Elements of an [E, A] tile."""


def edge_attention(
    by_node: Tensor,
    by_relation: Tensor,
    last: Tensor,
    last_bias: Tensor,
    source: Tensor,
    relation: Tensor,
    query: Tensor,
) -> Tensor:
    """See `reference.edge_attention`; computes in float32 whatever the inputs are stored in."""
    result: Tensor = _Attention.apply(by_node, by_relation, last, last_bias, source, relation, query)
    return result


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        by_node: Tensor,
        by_relation: Tensor,
        last: Tensor,
        last_bias: Tensor,
        source: Tensor,
        relation: Tensor,
        query: Tensor,
    ) -> Tensor:
        by_node, by_relation, last = by_node.contiguous(), by_relation.contiguous(), last.contiguous()
        attention = torch.empty(len(source), dtype=torch.float32, device=by_node.device)
        a_pad = next_power_of_2(by_node.size(1))
        ctx.options = {"A_PAD": a_pad, "BLOCK": ATTENTION_TILE // a_pad, "num_warps": 4}
        ctx.sizes = (len(source), by_node.size(1), by_relation.size(1))
        if len(source):
            attention_forward[(cdiv(len(source), ctx.options["BLOCK"]),)](
                by_node, by_relation, last, last_bias, source, relation, query, attention, *ctx.sizes, **ctx.options
            )  # fmt: skip
        ctx.save_for_backward(by_node, by_relation, last, last_bias, source, relation, query, attention)
        return attention

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        by_node, by_relation, last, last_bias, source, relation, query, attention = ctx.saved_tensors
        device, width = by_node.device, by_node.size(1)
        grad_node = torch.zeros(by_node.shape, dtype=torch.float32, device=device)
        grad_relation = torch.zeros(by_relation.shape, dtype=torch.float32, device=device)
        programs = cdiv(len(source), ctx.options["BLOCK"])
        parts = torch.empty(programs, width + 1, dtype=torch.float32, device=device)
        if programs:
            attention_backward[(programs,)](
                grad.contiguous(), by_node, by_relation, last, source, relation, query, attention,
                grad_node, grad_relation, parts, *ctx.sizes, **ctx.options,
            )  # fmt: skip
        to_last, to_bias = parts.sum(dim=0).split([width, 1])
        inputs = (by_node, by_relation, last, last_bias)
        found = (grad_node, grad_relation, to_last.view_as(last), to_bias.view_as(last_bias))
        cast = (result.to(given.dtype) for result, given in zip(found, inputs, strict=True))
        return *cast, None, None, None


@triton.jit
def _score_input(
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
    _, _, hidden = _score_input(state, weight, by_query, node_query, rows, row_ok, D, H, PRECISION)
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
        states, query, hidden = _score_input(
            state, weight, by_query, node_query, rows, row_ok, D, H, PRECISION
        )
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


SCORE_PROGRAMS = 264


def _rows_at_once(dim: int) -> int:
    """Rows a program takes at once; wider states leave registers for fewer."""
    return 64 if dim <= 32 else 32


def node_scores(
    state: Tensor, by_query: Tensor, node_query: Tensor, weight: Tensor, last: Tensor, last_bias: Tensor
) -> Tensor:
    """See `reference.node_scores`."""
    result: Tensor = _Score.apply(state, by_query.float(), node_query, weight, last, last_bias)
    return result


class _Score(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        state: Tensor,
        by_query: Tensor,
        node_query: Tensor,
        weight: Tensor,
        last: Tensor,
        last_bias: Tensor,
    ) -> Tensor:
        state, by_query, weight = state.contiguous(), by_query.contiguous(), weight.contiguous()
        score = torch.empty(len(state), dtype=torch.float32, device=state.device)
        ctx.options = {
            "D": state.size(1),
            "H": by_query.size(1),
            "BLOCK": _rows_at_once(state.size(1)),
            "PRECISION": "tf32x3" if torch.get_float32_matmul_precision() == "highest" else "tf32",
            "num_warps": 4,
            "num_stages": 1,
        }
        if len(state):
            score_forward[(cdiv(len(state), ctx.options["BLOCK"]),)](
                state, weight, by_query, node_query, last, last_bias, score, len(state), **ctx.options
            )
        ctx.save_for_backward(state, by_query, node_query, weight, last, last_bias)
        return score

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        state, by_query, node_query, weight, last, last_bias = ctx.saved_tensors
        programs = max(1, min(SCORE_PROGRAMS, cdiv(len(state), ctx.options["BLOCK"])))
        shares = [weight.numel(), last.numel(), 1]
        parts = torch.empty(programs, sum(shares), dtype=torch.float32, device=state.device)
        grad_state = torch.empty(state.shape, dtype=torch.float32, device=state.device)
        grad_by_query = torch.zeros_like(by_query)
        score_backward[(programs,)](
            grad.contiguous(), state, weight, by_query, node_query, last, grad_state, grad_by_query, parts,
            len(state), parts.size(1), **ctx.options,
        )  # fmt: skip
        to_weight, to_last, to_bias = parts.sum(dim=0).split(shares)
        shaped = (to_weight.view_as(weight), to_last.view_as(last), to_bias.view_as(last_bias))
        return grad_state.to(state.dtype), grad_by_query, None, *shaped


@triton.jit
def _mark_kernel(begin, end, entity, answer, mask, num_entities, BLOCK: tl.constexpr):
    """Marks the entities of row b's list other than its own answer."""
    row = tl.program_id(0).to(tl.int64)
    place = tl.load(begin + row)
    last = tl.load(end + row)
    own = tl.load(answer + row)
    while place < last:
        places = place + tl.arange(0, BLOCK)
        ok = places < last
        found = tl.load(entity + places, mask=ok, other=0).to(tl.int64)
        one = tl.zeros([BLOCK], dtype=tl.int8) + 1
        tl.store(mask + row * num_entities + found, one, mask=ok & (found != own))
        place += BLOCK


def known_mask(begin: Tensor, end: Tensor, entity: Tensor, answer: Tensor, num_entities: int) -> Tensor:
    """[B, N] true where entity[begin[b]:end[b]] names another entity than answer[b]."""
    mask = torch.zeros(len(begin), num_entities, dtype=torch.int8, device=begin.device)
    if len(begin):
        _mark_kernel[(len(begin),)](begin, end, entity, answer, mask, num_entities, BLOCK=256)
    return mask.view(torch.bool)
