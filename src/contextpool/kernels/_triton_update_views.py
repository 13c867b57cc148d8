"""The part of an update that is over views, for the rows that they have; names and shapes as in `_triton_update`."""

from __future__ import annotations

import triton
import triton.language as tl

from contextpool.kernels._triton_update import project_back, projected, view_of


@triton.jit
def _rows_at(block, order, last, BLOCK: tl.constexpr):
    """Rows of one block of a list, and which of them there are."""
    slot = block * BLOCK + tl.arange(0, BLOCK)
    inside = slot < last
    return tl.load(order + slot, mask=inside, other=0).to(tl.int64), inside


@triton.jit(do_not_specialize=["first_stream", "order_stride", "listed_stride", "num_rows"])
def view_forward(
    received,
    degree,
    weight,
    log_degree,
    nothing,  # [W] what the other rows hold
    of_views,  # [V, M, D] result, for the rows that a view has
    of_nothing,  # [V, D] result for all others
    order,
    stream_view,
    listed,
    first_stream,
    order_stride,
    listed_stride,
    num_rows,
    smallest,
    SCALERS: tl.constexpr,
    BLOCK: tl.constexpr,
    D: tl.constexpr,
    W: tl.constexpr,
    C: tl.constexpr,
    PRECISION: tl.constexpr,
):
    number = tl.program_id(1).to(tl.int64)
    stream = first_stream + number
    order, last = view_of(stream, stream_view, order, listed, order_stride, listed_stride)
    columns = tl.arange(0, D)
    log_mean = tl.load(log_degree)
    block = tl.program_id(0)
    while block * BLOCK < last:
        rows, inside = _rows_at(block, order, last, BLOCK)
        total = projected(
            tl.zeros([BLOCK, D], dtype=tl.float32), received, degree, weight, stream, rows, inside, num_rows, log_mean,
            smallest, SCALERS, D, W, C, PRECISION,
        )  # fmt: skip
        goal = of_views + (number * num_rows + rows)[:, None] * D + columns[None, :]
        tl.store(goal, total, mask=inside[:, None])
        block += tl.num_programs(0)
    if tl.program_id(0) == 0:  # their degree is as good as 1, and log 1 = 0
        held = tl.zeros([D], dtype=tl.float32)
        matrices = weight + stream * SCALERS * D * W + columns[None, :] * W
        for first in range(0, W, C):
            wide = first + tl.arange(0, C)
            usual = tl.load(nothing + wide)[:, None]
            held += tl.sum(usual * tl.load(matrices + wide[:, None]), axis=0)
            if SCALERS == 3:
                held += tl.sum(usual * tl.load(matrices + wide[:, None] + 2 * D * W), axis=0) / smallest
        tl.store(of_nothing + number * D + columns, held)


@triton.jit(do_not_specialize=["first_stream", "order_stride", "listed_stride", "num_rows"])
def view_backward(
    grad_update,
    degree,
    weight,
    log_degree,
    grad_received,  # written for the rows that a view has
    order,
    stream_view,
    listed,
    first_stream,
    order_stride,
    listed_stride,
    num_rows,
    smallest,
    SCALERS: tl.constexpr,
    BLOCK: tl.constexpr,
    D: tl.constexpr,
    W: tl.constexpr,
    C: tl.constexpr,
    PRECISION: tl.constexpr,
):
    stream = first_stream + tl.program_id(1).to(tl.int64)
    order, last = view_of(stream, stream_view, order, listed, order_stride, listed_stride)
    columns = tl.arange(0, D)
    log_mean = tl.load(log_degree)
    block = tl.program_id(0)
    while block * BLOCK < last:
        rows, inside = _rows_at(block, order, last, BLOCK)
        back = tl.load(grad_update + rows[:, None] * D + columns[None, :], mask=inside[:, None], other=0.0)
        project_back(
            back, grad_received, degree, weight, stream, rows, inside, num_rows, log_mean, smallest,
            SCALERS, D, W, C, PRECISION,
        )  # fmt: skip
        block += tl.num_programs(0)
