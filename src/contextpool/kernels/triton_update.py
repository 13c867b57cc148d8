"""`update_states` on CUDA: a fused pass forward, one or two backward; nothing wider than states is written between."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from triton import cdiv

from contextpool.kernels import _triton_update as kernels
from contextpool.kernels.triton import stacked
from contextpool.kernels.update import MIN_SCALE, UpdateWeights

WARPS = 4
WIDE_BLOCK, NARROW_BLOCK = 64, 32
"""Rows of a tile: products alone gain from more, the backward pass holds so much beside that it wants fewer."""
PROGRAMS = 264
"""Two for each multiprocessor of the largest cards: as many partial sums are added at the end."""
MERGED = False
"""Whether the backward pass reads what was received once, for rows and weights, or once for each."""
MERGED_BLOCK, MERGED_WARPS, MERGED_STAGES, MERGED_SHARES = 32, 8, 2, 2
MERGED_PROGRAMS, MERGED_REGISTERS = 132, 128
"""Programs of each share of the columns. So many registers let two programs run on a multiprocessor."""


def update_states(
    state: Tensor,
    results: Sequence[Tensor],
    degrees: Sequence[Tensor],
    weights: UpdateWeights,
    *,
    short_cut: bool,
    sizes: Tensor | None = None,
) -> Tensor:
    """See `update.update_states`. Products are TF32 where torch's own float32 ones are."""
    result: Tensor = _Update.apply(
        state,
        torch.stack(list(weights.received_weight)),
        weights.own_weight,
        weights.own_bias,
        weights.norm_weight,
        weights.norm_bias,
        weights,
        stacked(degrees),
        sizes if sizes is not None else torch.tensor([len(state), len(results[0])], device=state.device),
        short_cut,
        result_type(state),
        *results,
    )
    return result


def result_type(state: Tensor) -> torch.dtype:
    """What states are stored in."""
    return torch.bfloat16 if torch.is_autocast_enabled(state.device.type) else torch.float32


class Parameters(NamedTuple):
    """What is learned, and gradients of it."""

    weight: Tensor  # [S, scalers * D, reductions * D]
    own_weight: Tensor
    own_bias: Tensor
    norm_weight: Tensor | None
    norm_bias: Tensor | None

    @property
    def norm(self) -> tuple[Tensor, Tensor]:
        """Weight and bias of the norm; where there is none, something to point at."""
        if self.norm_weight is None or self.norm_bias is None:
            return self.own_bias, self.own_bias
        return self.norm_weight, self.norm_bias


@dataclass(frozen=True)
class LeftOut:
    """Rows that aggregation did not write: from `num_boundary` on, with no more than the `least` messages of all."""

    num_boundary: int
    least: int
    at_std: int
    """Which reduction is the deviation, -1 for none: what it is where nothing arrived; the others are 0 there."""
    deviation: float


class UpdatePass:
    """What the kernels of one update share."""

    def __init__(
        self,
        shape: torch.Size,
        weights: UpdateWeights,
        degree: Tensor,
        sizes: Tensor,
        short_cut: bool,
        left_out: LeftOut | None = None,
    ) -> None:
        """`shape` [S, M, reductions, D] of what was received."""
        self.num_streams, self.num_rows, num_reductions, self.dim = shape
        self.degree, self.sizes = degree, sizes
        self.log_degree, self.norm_eps = weights.log_degree, weights.norm_eps
        self.shape = {
            "D": self.dim,
            "W": num_reductions * self.dim,
            "SCALERS": weights.scalers,
            "PRECISION": "tf32x3" if torch.get_float32_matmul_precision() == "highest" else "tf32",
            "LEFT_OUT": left_out is not None,
            "num_stages": 1,
        }
        self.flags = {"HAS_NORM": weights.norm_weight is not None, "SHORT_CUT": short_cut}
        self.unwritten = left_out or LeftOut(0, 0, -1, 0.0)
        self.block = WIDE_BLOCK if num_reductions * self.dim <= 128 else NARROW_BLOCK

    @property
    def _bounds(self) -> tuple[int, int]:
        return self.unwritten.num_boundary, self.unwritten.least

    def forward(
        self, state: Tensor, received: Tensor, given: Parameters, dtype: torch.dtype, keep: bool
    ) -> tuple[Tensor, Tensor]:
        """New states [M, D], and what the backward pass wants to have kept."""
        update = torch.empty(self.num_rows if keep else 0, self.dim, dtype=torch.float32, device=state.device)
        result = torch.empty(self.num_rows, self.dim, dtype=dtype, device=state.device)
        if self.num_rows:
            kernels.update_forward[(cdiv(self.num_rows, self.block),)](
                state, received, self.degree, given.own_weight, given.own_bias, given.weight, *given.norm,
                self.log_degree, update, result, self.sizes, self.num_rows, self.norm_eps, MIN_SCALE,
                *self._bounds, self.unwritten.deviation, AT_STD=self.unwritten.at_std, BLOCK=self.block,
                KEEP=keep, NUM_STREAMS=self.num_streams, num_warps=WARPS, **self.shape, **self.flags,
            )  # fmt: skip
        return result, update

    def backward(
        self, grad: Tensor, update: Tensor, state: Tensor, received: Tensor, given: Parameters
    ) -> tuple[Tensor, Tensor, Parameters]:
        """Gradients of the state, of what was received and of the parameters."""
        grad_state = torch.empty(state.shape, dtype=torch.float32, device=state.device)
        grad_received = torch.empty_like(received)
        run = self._backward_merged if MERGED else self._backward_in_two
        vectors, matrices = run(grad.contiguous(), update, state, received, given, grad_state, grad_received)
        to_bias, to_norm_weight, to_norm_bias = vectors.chunk(3)
        to_own, to_weight = matrices.split([self.dim * self.dim, given.weight.numel()])
        of_norm = (None, None) if given.norm_weight is None else (to_norm_weight, to_norm_bias)
        shaped = to_weight.view_as(given.weight), to_own.view_as(given.own_weight), to_bias
        return grad_state, grad_received, Parameters(*shaped, *of_norm)

    def _backward_in_two(
        self, grad: Tensor, update: Tensor, state: Tensor, received: Tensor, given: Parameters,
        grad_state: Tensor, grad_received: Tensor,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        """Gradients of rows, then of matrices; returned are those of vectors [3 * D] and of matrices, in a row."""
        few = max(1, min(PROGRAMS, cdiv(self.num_rows, self.block)))
        many = max(1, min(2 * PROGRAMS, cdiv(self.num_rows, NARROW_BLOCK)))
        grad_update = torch.empty_like(update)
        vectors = update.new_empty(many, 3 * self.dim)
        matrices = update.new_empty(few, self.dim * self.dim + given.weight.numel())
        kernels.update_backward[(many,)](
            grad, update, self.degree, given.own_weight, given.weight, *given.norm, self.log_degree,
            grad_update, grad_state, grad_received, vectors, self.sizes, self.num_rows, self.norm_eps, MIN_SCALE,
            *self._bounds, BLOCK=NARROW_BLOCK, NUM_STREAMS=self.num_streams, num_warps=WARPS,
            **self.shape, **self.flags,
        )  # fmt: skip
        kernels.update_weights[(few, self.num_streams + 1)](
            grad_update, state, received, self.degree, self.log_degree, matrices, self.sizes, self.num_rows,
            matrices.size(1), MIN_SCALE, *self._bounds, self.unwritten.deviation, AT_STD=self.unwritten.at_std,
            BLOCK=self.block, NUM_STREAMS=self.num_streams, num_warps=WARPS, **self.shape,
        )  # fmt: skip
        return vectors.sum(dim=0), matrices.sum(dim=0)

    def _backward_merged(
        self, grad: Tensor, update: Tensor, state: Tensor, received: Tensor, given: Parameters,
        grad_state: Tensor, grad_received: Tensor,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        """The same in one pass."""
        programs = max(1, min(MERGED_PROGRAMS, cdiv(self.num_rows, MERGED_BLOCK)))
        shares = [3 * self.dim, self.dim * self.dim + given.weight.numel()]
        parts = update.new_empty(programs, sum(shares))
        kernels.update_backward_merged[(programs, self.num_streams * MERGED_SHARES)](
            grad, update, state, received, self.degree, given.own_weight, given.weight, *given.norm,
            self.log_degree, grad_state, grad_received, parts, self.sizes, self.num_rows, parts.size(1),
            self.norm_eps, MIN_SCALE, *self._bounds, self.unwritten.deviation, AT_STD=self.unwritten.at_std,
            BLOCK=MERGED_BLOCK, STAGES=MERGED_STAGES, SHARES=MERGED_SHARES, num_warps=MERGED_WARPS,
            maxnreg=MERGED_REGISTERS, **self.shape, **self.flags,
        )  # fmt: skip
        vectors, matrices = parts.sum(dim=0).split(shares)
        return vectors, matrices


class _Update(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        state: Tensor,
        weight: Tensor,
        own_weight: Tensor,
        own_bias: Tensor,
        norm_weight: Tensor | None,
        norm_bias: Tensor | None,
        weights: UpdateWeights,
        degree: Tensor,
        sizes: Tensor,
        short_cut: bool,
        dtype: torch.dtype,
        *results: Tensor,
    ) -> Tensor:
        received = stacked(results)  # [S, M, N, D]
        state = state.contiguous()
        given = Parameters(weight, own_weight, own_bias, norm_weight, norm_bias)
        run = ctx.run = UpdatePass(received.shape, weights, degree, sizes, short_cut)
        result, update = run.forward(state, received, given, dtype, keep=any(ctx.needs_input_grad))
        ctx.save_for_backward(state, update, received, *given)
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        state, update, received, *given = ctx.saved_tensors
        grad_state, grad_received, grads = ctx.run.backward(grad, update, state, received, Parameters(*given))
        return grad_state.to(state.dtype), *grads, None, None, None, None, None, *grad_received.unbind(0)
