"""`relation_weights` on CUDA: the linear maps of all streams in one kernel forward, and one backward.

A map of D columns to 2R * D for a few dozen queries is little work: as products, sums and copies of their own, most of
its time is starting them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from triton import cdiv, next_power_of_2

from contextpool.kernels import _triton_relations as kernels

TOGETHER = False
"""Whether the maps of all streams are one function."""
MOST_QUERIES = 128
BLOCK, PROGRAMS = 64, 66


def takes(query: Tensor, linears: Sequence[nn.Linear]) -> bool:
    """Whether the maps are of the kind that is done here; products in bfloat16 are torch's."""
    dim = query.size(1)
    plain = not torch.is_autocast_enabled(query.device.type) and len(query) <= MOST_QUERIES
    fits = 16 <= dim <= 64 and dim & (dim - 1) == 0 and len(query) > 0
    of_kind = (linear.weight.is_contiguous() and linear.weight.dtype == torch.float32 for linear in linears)
    return TOGETHER and plain and fits and query.dtype == torch.float32 and all(of_kind)


def relation_weights(query: Tensor, linears: Sequence[nn.Linear]) -> list[Tensor]:
    """Per stream [B, width]; all of them lie one after the other."""
    parameters = [one for linear in linears for one in (linear.weight, linear.bias)]
    result: Tensor = _Relations.apply(query, *parameters)
    return list(result.unbind(0))


@lru_cache(maxsize=256)
def _addresses(numbers: tuple[int, ...], device: torch.device) -> Tensor:
    return torch.tensor(numbers, dtype=torch.int64, device=device)


class _Relations(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, query: Tensor, *parameters: Tensor) -> Tensor:
        query = query.contiguous()
        num_streams, width = len(parameters) // 2, len(parameters[0])
        ctx.table = _addresses(tuple(one.data_ptr() for one in parameters), query.device)
        ctx.options = {
            "D": query.size(1),
            "BLOCK_B": max(16, next_power_of_2(len(query))),
            "BLOCK_J": BLOCK,
            "PRECISION": "tf32x3" if torch.get_float32_matmul_precision() == "highest" else "tf32",
            "num_warps": 4,
        }
        result = torch.empty(num_streams, len(query), width, dtype=torch.float32, device=query.device)
        kernels.relations_forward[(cdiv(width, BLOCK), num_streams)](
            query, ctx.table, result, len(query), width, **ctx.options
        )
        ctx.save_for_backward(query, *parameters)
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        query, *_ = ctx.saved_tensors
        num_streams, num_queries, width = grad.shape
        programs, dim = min(PROGRAMS, cdiv(width, BLOCK)), query.size(1)
        to_weight = torch.empty(num_streams, width, dim, dtype=torch.float32, device=grad.device)
        to_bias = torch.empty(num_streams, width, dtype=torch.float32, device=grad.device)
        parts = torch.empty(num_streams * programs, *query.shape, dtype=torch.float32, device=grad.device)
        kernels.relations_backward[(programs, num_streams)](
            grad.contiguous(), query, ctx.table, to_weight, to_bias, parts, num_queries, width, **ctx.options
        )
        pairs = zip(to_weight.unbind(0), to_bias.unbind(0), strict=True)
        return parts.sum(dim=0), *(one for pair in pairs for one in pair)
