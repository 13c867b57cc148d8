"""`lookup.edge_values` on CUDA: one kernel forward, one backward."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from triton import cdiv

from contextpool.kernels import _triton_lookup as kernels

BLOCK = 512
"""Edges of a program."""


def edge_values(table: Tensor, query: Tensor, relation: Tensor) -> Tensor:
    """See `lookup.edge_values`."""
    result: Tensor = _Lookup.apply(table, query, relation)
    return result


class _Lookup(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, table: Tensor, query: Tensor, relation: Tensor) -> Tensor:
        numbers = torch.empty(len(query), dtype=table.dtype, device=table.device)
        ctx.shape, ctx.dtype = table.shape, table.dtype
        ctx.save_for_backward(query, relation)
        if len(query):
            kernels.look_up[(cdiv(len(query), BLOCK),)](
                table.contiguous(), query, relation, numbers, len(query), table.size(1), BLOCK=BLOCK
            )
        return numbers

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        query, relation = ctx.saved_tensors
        sums = torch.zeros(ctx.shape, dtype=torch.float32, device=grad.device)
        if len(query):
            kernels.add_up[(cdiv(len(query), BLOCK),)](
                grad.contiguous(), query, relation, sums, len(query), sums.size(1), BLOCK=BLOCK
            )
        return sums.to(ctx.dtype), None, None
