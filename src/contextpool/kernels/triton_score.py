"""`node_scores` on CUDA: the hidden layer of the scoring head never leaves the processor."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from triton import cdiv

from contextpool.kernels import _triton_score as kernels

PROGRAMS = 264


def _rows_at_once(dim: int) -> int:
    """Wider states leave registers for fewer."""
    return 64 if dim <= 32 else 32


def node_scores(
    state: Tensor, by_query: Tensor, node_query: Tensor, weight: Tensor, last: Tensor, last_bias: Tensor
) -> Tensor:
    """See `score.node_scores`."""
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
            kernels.score_forward[(cdiv(len(state), ctx.options["BLOCK"]),)](
                state, weight, by_query, node_query, last, last_bias, score, len(state), **ctx.options
            )
        ctx.save_for_backward(state, by_query, node_query, weight, last, last_bias)
        return score

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        state, by_query, node_query, weight, last, last_bias = ctx.saved_tensors
        programs = max(1, min(PROGRAMS, cdiv(len(state), ctx.options["BLOCK"])))
        shares = [weight.numel(), last.numel(), 1]
        parts = torch.empty(programs, sum(shares), dtype=torch.float32, device=state.device)
        grad_state = torch.empty(state.shape, dtype=torch.float32, device=state.device)
        grad_by_query = torch.zeros_like(by_query)
        kernels.score_backward[(programs,)](
            grad.contiguous(), state, weight, by_query, node_query, last, grad_state, grad_by_query, parts,
            len(state), parts.size(1), **ctx.options,
        )  # fmt: skip
        to_weight, to_last, to_bias = parts.sum(dim=0).split(shares)
        shaped = (to_weight.view_as(weight), to_last.view_as(last), to_bias.view_as(last_bias))
        return grad_state.to(state.dtype), grad_by_query, None, *shaped
