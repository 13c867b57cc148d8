"""`edge_attention` on CUDA: one kernel forward, one backward, nothing of the size [edges, A] in memory.

What torch does instead spends its time on gradients of relations: all edges of a relation add to the same few numbers.
Here every query has numbers of its own, and they are summed afterwards.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from triton import cdiv, next_power_of_2

from contextpool.kernels import _triton_attention as kernels

TILE = 1024
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
    """See `attention.edge_attention`; computes in float32 whatever the inputs are stored in."""
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
        ctx.options = {"A_PAD": a_pad, "BLOCK": TILE // a_pad, "num_warps": 4}
        ctx.sizes = (len(source), by_node.size(1), by_relation.size(1))
        if len(source):
            kernels.attention_forward[(cdiv(len(source), ctx.options["BLOCK"]),)](
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
            kernels.attention_backward[(programs,)](
                grad.contiguous(), by_node, by_relation, last, source, relation, query, attention,
                grad_node, grad_relation, parts, *ctx.sizes, **ctx.options,
            )  # fmt: skip
        to_last, to_bias = parts.sum(dim=0).split([width, 1])
        inputs = (by_node, by_relation, last, last_bias)
        found = (grad_node, grad_relation, to_last.view_as(last), to_bias.view_as(last_bias))
        cast = (result.to(given.dtype) for result, given in zip(found, inputs, strict=True))
        return *cast, None, None, None
