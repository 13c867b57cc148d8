"""`update_states` on CUDA: one fused pass forward, two backward; nothing wider than the states is written between."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from triton import cdiv

from contextpool.kernels import _triton_update as kernels
from contextpool.kernels.triton import stacked
from contextpool.kernels.update import MIN_SCALE, UpdateWeights


class Tiling(NamedTuple):
    """How a pass is cut: rows a program takes at once, numbers of a matrix at once, warps, loads ahead."""

    rows: int
    numbers: int
    warps: int = 4
    stages: int = 1

    def options(self, dim: int, width: int) -> dict[str, int]:
        """For states of `dim` columns and `width` columns received: more at once than registers hold is slow."""
        columns = min(width, max(16, self.numbers // dim))
        return {"BLOCK": self.rows, "C": columns, "num_warps": self.warps, "num_stages": self.stages}


FORWARD, FORWARD_WIDE = Tiling(64, 4096), Tiling(64, 2048, stages=2)
BACKWARD = Tiling(32, 4096)
WEIGHTS = Tiling(64, 4096)
"""Products alone gain from more rows, the backward pass holds so much beside that it wants fewer. More than 32 columns
forward gain from loads ahead."""
PROGRAMS = 264
"""Two for each multiprocessor of the largest cards: as many partial sums are added at the end."""


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
    bf16 = torch.is_autocast_enabled(state.device.type)
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
        torch.bfloat16 if bf16 else torch.float32,
        *results,
    )
    return result


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
        num_streams, num_rows, num_reductions, dim = received.shape
        state = state.contiguous()
        width = num_reductions * dim
        ctx.options = {
            "NUM_STREAMS": num_streams,
            "D": dim,
            "W": width,
            "SCALERS": weights.scalers,
            "PRECISION": "tf32x3" if torch.get_float32_matmul_precision() == "highest" else "tf32",
        }
        ctx.flags = {"HAS_NORM": norm_weight is not None, "SHORT_CUT": short_cut}
        ctx.norm_eps, ctx.log_degree = weights.norm_eps, weights.log_degree
        needs_grad = any(ctx.needs_input_grad)
        update = torch.empty(num_rows if needs_grad else 0, dim, dtype=torch.float32, device=state.device)
        result = torch.empty(num_rows, dim, dtype=dtype, device=state.device)
        tiling = FORWARD if dim <= 32 else FORWARD_WIDE
        if num_rows:
            kernels.update_forward[(cdiv(num_rows, tiling.rows),)](
                state, received, degree, own_weight, own_bias, weight,
                own_bias if norm_weight is None else norm_weight, own_bias if norm_bias is None else norm_bias,
                weights.log_degree, update, result, sizes, num_rows, weights.norm_eps, MIN_SCALE,
                KEEP=needs_grad, **ctx.options, **ctx.flags, **tiling.options(dim, width),
            )  # fmt: skip
        ctx.save_for_backward(
            state, weight, own_weight, own_bias, norm_weight, norm_bias, degree, sizes, update, received
        )
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        state, weight, own_weight, own_bias, norm_weight, norm_bias, degree, sizes, update, received = (
            ctx.saved_tensors
        )
        num_streams, num_rows, num_reductions, dim = received.shape
        width = num_reductions * dim
        grad = grad.contiguous()
        grad_update = torch.empty_like(update)
        grad_state = torch.empty(state.shape, dtype=torch.float32, device=state.device)
        grad_received = torch.empty_like(received)
        few = max(1, min(PROGRAMS, cdiv(num_rows, WEIGHTS.rows)))
        many = max(1, min(2 * PROGRAMS, cdiv(num_rows, BACKWARD.rows)))
        vectors = torch.empty(many, 3 * dim, dtype=torch.float32, device=state.device)
        matrices = torch.empty(few, dim * dim + weight.numel(), dtype=torch.float32, device=state.device)
        kernels.update_backward[(many,)](
            grad, update, degree, own_weight, weight,
            own_bias if norm_weight is None else norm_weight, own_bias if norm_bias is None else norm_bias,
            ctx.log_degree, grad_update, grad_state, grad_received, vectors,
            sizes, num_rows, ctx.norm_eps, MIN_SCALE, **ctx.options, **ctx.flags,
            **BACKWARD.options(dim, width),
        )  # fmt: skip
        tiling = WEIGHTS.options(dim, width)
        kernels.update_weights[(few, num_streams * (width // tiling["C"]) + 1)](
            grad_update, state, received, degree, ctx.log_degree, matrices, sizes, num_rows, matrices.size(1),
            MIN_SCALE, **ctx.options, **tiling,
        )  # fmt: skip
        to_bias, to_norm_weight, to_norm_bias = vectors.sum(dim=0).chunk(3)
        to_own, to_weight = matrices.sum(dim=0).split([dim * dim, weight.numel()])
        of_norm = (to_norm_weight, to_norm_bias) if norm_weight is not None else (None, None)
        of_rest = (grad_state.to(state.dtype), to_weight.view_as(weight), to_own.view_as(own_weight), to_bias)
        return *of_rest, *of_norm, None, None, None, None, None, *grad_received.unbind(0)
