"""The update on CUDA: product, degree scalers, layer norm, relu and short-cut in one pass forward, two backward.

States have D columns, what a node received W = reductions * D, both powers of two; C of the W are taken at a time, so
that a product fits into a processor's registers. Nothing wider than the states is written between.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton import cdiv

from contextpool.kernels.reference import MIN_SCALE, UpdateWeights
from contextpool.kernels.triton_tensors import stack_of


@triton.jit
def _scale_of(degree, rows, ok, log_degree, smallest):
    """PNA's scaler and the inverse one, per row."""
    degrees = tl.load(degree + rows, mask=ok, other=1)
    scale = tl.log(tl.maximum(degrees, 1).to(tl.float32)) / log_degree
    return scale, 1.0 / tl.maximum(scale, smallest)


@triton.jit
def projected(
    total, received, degree, weight, stream, rows, ok, num_rows, log_mean, smallest,
    SCALERS: tl.constexpr, D: tl.constexpr, W: tl.constexpr, C: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """[rows, D] `total` with what the rows of a stream received, multiplied and scaled by their degrees."""
    stream_rows = rows + stream * num_rows.to(tl.int64)
    # a product with a weight [out, in] reads it as [in, out]
    matrices = weight + stream * SCALERS * D * W + tl.arange(0, D)[None, :] * W
    if SCALERS == 3:
        scale, inverse = _scale_of(degree, stream_rows, ok, log_mean, smallest)
    for first in range(0, W, C):
        wide = first + tl.arange(0, C)
        place = received + stream_rows[:, None] * W + wide[None, :]
        part = tl.load(place, mask=ok[:, None], other=0.0)
        matrix = matrices + wide[:, None]
        total = tl.dot(part, tl.load(matrix), total, input_precision=PRECISION)
        if SCALERS == 3:
            total += scale[:, None] * tl.dot(part, tl.load(matrix + D * W), input_precision=PRECISION)
            total += inverse[:, None] * tl.dot(part, tl.load(matrix + 2 * D * W), input_precision=PRECISION)
    return total


@triton.jit
def project_back(
    back, grad_received, degree, weight, stream, rows, ok, num_rows, log_mean, smallest,
    SCALERS: tl.constexpr, D: tl.constexpr, W: tl.constexpr, C: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Writes the gradients of what the rows of a stream received, from those of the update, `back` [rows, D]."""
    stream_rows = rows + stream * num_rows.to(tl.int64)
    matrices = weight + stream * SCALERS * D * W + tl.arange(0, D)[:, None] * W
    if SCALERS == 3:
        scale, inverse = _scale_of(degree, stream_rows, ok, log_mean, smallest)
        amplified = back * scale[:, None]
        damped = back * inverse[:, None]
    for first in range(0, W, C):
        wide = first + tl.arange(0, C)
        matrix = matrices + wide[None, :]
        part = tl.dot(back, tl.load(matrix), input_precision=PRECISION)
        if SCALERS == 3:
            part = tl.dot(amplified, tl.load(matrix + D * W), part, input_precision=PRECISION)
            part = tl.dot(damped, tl.load(matrix + 2 * D * W), part, input_precision=PRECISION)
        tl.store(grad_received + stream_rows[:, None] * W + wide[None, :], part, mask=ok[:, None])


@triton.jit
def _normalised(update, dim: tl.constexpr, eps):
    """Rows with mean 0 and variance 1, and 1 / their deviation."""
    mean = tl.sum(update, axis=1) / dim
    centred = update - mean[:, None]
    inverse = 1.0 / tl.sqrt(tl.sum(centred * centred, axis=1) / dim + eps)
    return centred * inverse[:, None], inverse


@triton.jit(do_not_specialize=["num_rows"])
def update_forward(
    state,  # [num_sources, D]
    received,  # [S, M, W], W = reductions * D
    degree,  # [S, M] int64
    own_weight,  # [D, D]
    own_bias,  # [D]
    weight,  # [S, SCALERS * D, W]
    norm_weight,
    norm_bias,
    log_degree,
    update,  # [M, D] what is normalised, for the backward pass
    result,  # [M, D]
    sizes,  # [2] int64: how many rows of the state and of the result there really are; the others become 0
    num_rows,
    eps,
    smallest,
    NUM_STREAMS: tl.constexpr,
    SCALERS: tl.constexpr,
    HAS_NORM: tl.constexpr,
    SHORT_CUT: tl.constexpr,
    KEEP: tl.constexpr,
    BLOCK: tl.constexpr,
    D: tl.constexpr,
    W: tl.constexpr,
    C: tl.constexpr,
    PRECISION: tl.constexpr,
):
    rows = (tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)).to(tl.int64)
    num_sources = tl.load(sizes)
    inside = rows < tl.load(sizes + 1)
    row_ok = inside[:, None]
    columns = tl.arange(0, D)
    place = rows[:, None] * D + columns[None, :]
    before = tl.load(state + place, mask=row_ok & (rows < num_sources)[:, None], other=0.0).to(tl.float32)
    total = tl.dot(
        before, tl.load(own_weight + columns[None, :] * D + columns[:, None]), input_precision=PRECISION
    )
    total += tl.load(own_bias + columns)[None, :]
    log_mean = tl.load(log_degree)
    for stream in range(NUM_STREAMS):
        total = projected(
            total, received, degree, weight, stream, rows, inside, num_rows, log_mean, smallest,
            SCALERS, D, W, C, PRECISION,
        )  # fmt: skip
    if KEEP:
        tl.store(update + place, total, mask=row_ok)
    after = total
    if HAS_NORM:
        normal, _ = _normalised(total, D, eps)
        after = normal * tl.load(norm_weight + columns)[None, :] + tl.load(norm_bias + columns)[None, :]
    after = tl.where(after < 0, 0.0, after)  # a NaN stays one
    if SHORT_CUT:
        after += before
    tl.store(result + place, tl.where(row_ok, after, 0.0), mask=(rows < num_rows)[:, None])


@triton.jit(do_not_specialize=["num_rows"])
def update_backward(
    grad,  # [M, D]
    update,
    degree,
    own_weight,
    weight,
    norm_weight,
    norm_bias,
    log_degree,
    grad_update,  # [M, D]
    grad_state,  # [num_sources, D]
    grad_received,  # [S, M, W]
    parts,  # [programs, 3, D] of the gradients of own_bias, norm_weight, norm_bias
    sizes,
    num_rows,
    eps,
    smallest,
    NUM_STREAMS: tl.constexpr,
    SCALERS: tl.constexpr,
    HAS_NORM: tl.constexpr,
    SHORT_CUT: tl.constexpr,
    BLOCK: tl.constexpr,
    D: tl.constexpr,
    W: tl.constexpr,
    C: tl.constexpr,
    PRECISION: tl.constexpr,
):
    program = tl.program_id(0)
    columns = tl.arange(0, D)
    log_mean = tl.load(log_degree)
    num_sources = tl.load(sizes)
    last_row = tl.load(sizes + 1)
    to_bias = tl.zeros([D], dtype=tl.float32)
    to_norm_weight = tl.zeros([D], dtype=tl.float32)
    to_norm_bias = tl.zeros([D], dtype=tl.float32)
    block = program
    while block * BLOCK < last_row:
        rows = (block * BLOCK + tl.arange(0, BLOCK)).to(tl.int64)
        inside = rows < last_row
        row_ok = inside[:, None]
        place = rows[:, None] * D + columns[None, :]
        passed = tl.load(grad + place, mask=row_ok, other=0.0).to(tl.float32)
        total = tl.load(update + place, mask=row_ok, other=0.0)
        if HAS_NORM:
            normal, inverse = _normalised(total, D, eps)
            gamma = tl.load(norm_weight + columns)[None, :]
            after = normal * gamma + tl.load(norm_bias + columns)[None, :]
            back = tl.where(after > 0, passed, 0.0)
            to_norm_weight += tl.sum(back * normal, axis=0)
            to_norm_bias += tl.sum(back, axis=0)
            inner = back * gamma
            along_ones = tl.sum(inner, axis=1) / D
            along_normal = tl.sum(inner * normal, axis=1) / D
            back = inverse[:, None] * (inner - along_ones[:, None] - normal * along_normal[:, None])
            back = tl.where(row_ok, back, 0.0)
        else:
            back = tl.where(total > 0, passed, 0.0)
        to_bias += tl.sum(back, axis=0)
        tl.store(grad_update + place, back, mask=row_ok)
        to_state = tl.dot(  # a weight [out, in], as it lies
            back, tl.load(own_weight + columns[:, None] * D + columns[None, :]), input_precision=PRECISION
        )
        if SHORT_CUT:
            to_state += passed
        tl.store(grad_state + place, to_state, mask=row_ok & (rows < num_sources)[:, None])
        for stream in range(NUM_STREAMS):
            project_back(
                back, grad_received, degree, weight, stream, rows, inside, num_rows, log_mean, smallest,
                SCALERS, D, W, C, PRECISION,
            )  # fmt: skip
        block += tl.num_programs(0)
    goal = parts + program * 3 * D + columns
    tl.store(goal, to_bias)
    tl.store(goal + D, to_norm_weight)
    tl.store(goal + 2 * D, to_norm_bias)


@triton.jit(do_not_specialize=["num_rows"])
def update_weights(
    grad_update,  # [M, D]
    state,  # [num_sources, D]
    received,  # [S, M, W]
    degree,
    log_degree,
    parts,  # [programs, width]: own_weight [D, D], weight [S, SCALERS * D, W]
    sizes,
    num_rows,
    part_width,
    smallest,
    NUM_STREAMS: tl.constexpr,
    SCALERS: tl.constexpr,
    BLOCK: tl.constexpr,
    D: tl.constexpr,
    W: tl.constexpr,
    C: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Part of a sum over rows for C columns of a stream, or for the state: transposed gradients times what was read."""
    program = tl.program_id(0)
    stream = tl.program_id(1) // (W // C)
    columns = tl.arange(0, D)
    wide = tl.program_id(1) % (W // C) * C + tl.arange(0, C)
    log_mean = tl.load(log_degree)
    goal = parts + program.to(tl.int64) * part_width
    block = program
    if stream == NUM_STREAMS:
        last_row = tl.load(sizes)
        own = tl.zeros([D, D], dtype=tl.float32)
        while block * BLOCK < last_row:
            rows = (block * BLOCK + tl.arange(0, BLOCK)).to(tl.int64)
            row_ok = (rows < last_row)[:, None]
            place = rows[:, None] * D + columns[None, :]
            back = tl.load(grad_update + place, mask=row_ok, other=0.0)
            before = tl.load(state + place, mask=row_ok, other=0.0).to(tl.float32)
            own = tl.dot(tl.trans(back), before, own, input_precision=PRECISION)
            block += tl.num_programs(0)
        tl.store(goal + columns[:, None] * D + columns[None, :], own)
    else:
        last_row = tl.load(sizes + 1)
        plain = tl.zeros([D, C], dtype=tl.float32)
        amplified = tl.zeros([D, C], dtype=tl.float32)
        damped = tl.zeros([D, C], dtype=tl.float32)
        while block * BLOCK < last_row:
            rows = (block * BLOCK + tl.arange(0, BLOCK)).to(tl.int64)
            inside = rows < last_row
            row_ok = inside[:, None]
            stream_rows = rows + stream.to(tl.int64) * num_rows
            back = tl.load(grad_update + rows[:, None] * D + columns[None, :], mask=row_ok, other=0.0)
            part = tl.load(received + stream_rows[:, None] * W + wide[None, :], mask=row_ok, other=0.0)
            plain = tl.dot(tl.trans(back), part, plain, input_precision=PRECISION)
            if SCALERS == 3:
                scale, inverse = _scale_of(degree, stream_rows, inside, log_mean, smallest)
                amplified = tl.dot(
                    tl.trans(back * scale[:, None]), part, amplified, input_precision=PRECISION
                )
                damped = tl.dot(tl.trans(back * inverse[:, None]), part, damped, input_precision=PRECISION)
            block += tl.num_programs(0)
        place = goal + D * D + stream * SCALERS * D * W + columns[:, None] * W + wide[None, :]
        tl.store(place, plain)
        if SCALERS == 3:
            tl.store(place + D * W, amplified)
            tl.store(place + 2 * D * W, damped)


@triton.jit(do_not_specialize=["num_vectors", "num_matrices"])
def sum_parts(
    vectors,  # [num_vectors, 3 * D]
    matrices,  # [num_matrices, width]
    sums,  # [3 * D + width]
    num_vectors,
    num_matrices,
    width,
    VECTORS: tl.constexpr,  # 3 * D
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Both tables summed over their rows, one after the other, in an order that is always the same."""
    first = tl.program_id(0) * BLOCK
    columns = first + tl.arange(0, BLOCK)
    of_vectors = columns < VECTORS
    of_matrices = (columns >= VECTORS) & (columns < VECTORS + width)
    total = tl.zeros([ROWS, BLOCK], dtype=tl.float32)
    start = 0
    if first < VECTORS:
        while start < num_vectors:
            row = start + tl.arange(0, ROWS)[:, None]
            place = vectors + row * VECTORS + columns[None, :]
            total += tl.load(place, mask=(row < num_vectors) & of_vectors[None, :], other=0.0)
            start += ROWS
    start = 0
    while start < num_matrices:
        row = start + tl.arange(0, ROWS)[:, None]
        place = matrices + row.to(tl.int64) * width + (columns - VECTORS)[None, :]
        total += tl.load(place, mask=(row < num_matrices) & of_matrices[None, :], other=0.0)
        start += ROWS
    tl.store(sums + columns, tl.sum(total, axis=0), mask=of_vectors | of_matrices)


class Tiling(NamedTuple):
    """How a pass is cut: rows a program takes at once, numbers of a matrix at once, warps, loads ahead."""

    rows: int
    numbers: int
    warps: int = 4
    stages: int = 1

    def options(self, dim: int, width: int) -> dict[str, int]:
        """Launch options for states of `dim` columns and `width` columns received; a tile has to fit the registers."""
        columns = min(width, max(16, self.numbers // dim))
        return {"BLOCK": self.rows, "C": columns, "num_warps": self.warps, "num_stages": self.stages}


FORWARD, FORWARD_WIDE = Tiling(64, 4096), Tiling(64, 2048, stages=2)
BACKWARD = Tiling(32, 2048, warps=2, stages=2)
WEIGHTS = Tiling(64, 4096)
"""Plain products gain from more rows at once; the backward pass holds more beside, so it takes fewer.
Forward, states of more than 32 columns gain from loading ahead."""
PROGRAMS = 264
"""Two for each multiprocessor of the largest cards: as many partial sums are added at the end."""
SUMS, SUM_ROWS = 32, 64
"""Columns of partial sums that one program adds up, and rows of them that it waits for at once."""


class Parameters(NamedTuple):
    """What an update learns."""

    received: Tensor  # [S, scalers * D, reductions * D]
    own: Tensor  # [D, D]
    own_bias: Tensor  # [D]
    norm: Tensor | None  # [D]
    norm_bias: Tensor | None  # [D]

    @classmethod
    def of(cls, weights: UpdateWeights) -> Parameters:
        received = stack_of(weights.received_weight)
        return cls(received, weights.own_weight, weights.own_bias, weights.norm_weight, weights.norm_bias)


class RowGradients(NamedTuple):
    """What a backward pass over the rows leaves, all float32."""

    to_state: Tensor  # [num_sources, D]
    to_received: Tensor  # [S, M, reductions, D]
    to_update: Tensor  # [M, D] before the norm
    parts: Tensor  # [programs, 3 D] of the gradients of own_bias, norm and norm_bias


class Update:
    """The passes of one update over received [S, M, reductions, D]; TF32 where torch's own float32 products are."""

    def __init__(
        self,
        weights: UpdateWeights,
        shape: tuple[int, int, int, int],
        sizes: Tensor,
        *,
        short_cut: bool,
    ) -> None:
        num_streams, self.num_rows, num_reductions, self.dim = shape
        self.num_streams, self.width = num_streams, num_reductions * self.dim
        self.sizes, self.log_degree, self.norm_eps = sizes, weights.log_degree, weights.norm_eps
        self.options = {
            "D": self.dim,
            "W": self.width,
            "SCALERS": weights.scalers,
            "PRECISION": "tf32x3" if torch.get_float32_matmul_precision() == "highest" else "tf32",
        }
        self.flags = {"HAS_NORM": weights.norm_weight is not None, "SHORT_CUT": short_cut}

    def forward(
        self,
        parameters: Parameters,
        state: Tensor,
        received: Tensor,
        degree: Tensor,
        *,
        keep: bool,
    ) -> tuple[Tensor, Tensor]:
        """New states [M, D], and what is normalised, for the backward pass: nothing unless `keep`."""
        matrices, own, own_bias, norm, norm_bias = parameters
        num_rows, dim = self.num_rows, self.dim
        update = torch.empty(num_rows if keep else 0, dim, dtype=torch.float32, device=state.device)
        result = torch.empty(num_rows, dim, dtype=torch.float32, device=state.device)
        if not num_rows:
            return result, update
        tiling = FORWARD if dim <= 32 else FORWARD_WIDE
        cut = tiling.options(dim, self.width)
        update_forward[(cdiv(num_rows, tiling.rows),)](
            state, received, degree, own, own_bias, matrices, own_bias if norm is None else norm,
            own_bias if norm_bias is None else norm_bias, self.log_degree, update, result, self.sizes,
            num_rows, self.norm_eps, MIN_SCALE, NUM_STREAMS=self.num_streams, KEEP=keep,
            **self.options, **self.flags, **cut,
        )  # fmt: skip
        return result, update

    def backward(
        self,
        parameters: Parameters,
        grad: Tensor,
        state: Tensor,
        received: Tensor,
        degree: Tensor,
        update: Tensor,
    ) -> RowGradients:
        """Gradients of the state and of what was received, and what those of the parameters are made of."""
        matrices, own, own_bias, norm, norm_bias = parameters
        num_rows, dim, device = self.num_rows, self.dim, state.device
        grad_update = torch.empty_like(update)
        grad_state = torch.empty(state.shape, dtype=torch.float32, device=device)
        grad_received = torch.empty_like(received)
        programs = max(1, min(2 * PROGRAMS, cdiv(num_rows, BACKWARD.rows)))
        vectors = torch.empty(programs, 3 * dim, dtype=torch.float32, device=device)
        cut = BACKWARD.options(dim, self.width)
        update_backward[(programs,)](
            grad.contiguous(), update, degree, own, matrices, own_bias if norm is None else norm,
            own_bias if norm_bias is None else norm_bias, self.log_degree, grad_update, grad_state, grad_received,
            vectors, self.sizes, num_rows, self.norm_eps, MIN_SCALE,
            NUM_STREAMS=self.num_streams, **self.options, **self.flags, **cut,
        )  # fmt: skip
        return RowGradients(grad_state, grad_received, grad_update, vectors)

    def backward_of_parameters(
        self, parameters: Parameters, rows: RowGradients, state: Tensor, received: Tensor, degree: Tensor
    ) -> Parameters:
        """Gradients of what the update learns; nothing else of a backward pass waits for them."""
        matrices, own, _, norm, _ = parameters
        dim = self.dim
        sums = self._sums_over_rows(matrices, rows.to_update, state, received, degree, rows.parts)
        to_bias, to_norm, to_norm_bias, to_own, to_received = sums.split(
            [dim, dim, dim, dim * dim, matrices.numel()]
        )
        of_norm = (None, None) if norm is None else (to_norm, to_norm_bias)
        return Parameters(to_received.view_as(matrices), to_own.view_as(own), to_bias, *of_norm)

    def _sums_over_rows(
        self,
        matrices: Tensor,
        grad_update: Tensor,
        state: Tensor,
        received: Tensor,
        degree: Tensor,
        vectors: Tensor,
    ) -> Tensor:
        """[3 D + D D + ...] the gradients of the vectors, whose parts are given, of own_weight and of the matrices."""
        programs = max(1, min(PROGRAMS, cdiv(self.num_rows, WEIGHTS.rows)))
        width = self.dim**2 + matrices.numel()
        parts = torch.empty(programs, width, dtype=torch.float32, device=state.device)
        cut = WEIGHTS.options(self.dim, self.width)
        update_weights[(programs, self.num_streams * (self.width // cut["C"]) + 1)](
            grad_update, state, received, degree, self.log_degree, parts, self.sizes,
            self.num_rows, width, MIN_SCALE, NUM_STREAMS=self.num_streams, **self.options, **cut,
        )  # fmt: skip
        sums = torch.empty(vectors.size(1) + width, dtype=torch.float32, device=state.device)
        sum_parts[(cdiv(len(sums), SUMS),)](
            vectors,
            parts,
            sums,
            len(vectors),
            len(parts),
            width,
            VECTORS=vectors.size(1),
            ROWS=SUM_ROWS,
            BLOCK=SUMS,
        )
        return sums
