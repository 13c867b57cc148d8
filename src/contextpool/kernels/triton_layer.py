"""`layer_states` on CUDA: aggregation and update as one function, so that nothing passes between them that need not.

Backward, aggregation adds to the gradient of the states that the update began, instead of to zeros that autograd then
adds to it. Rows that nothing arrived at are neither written by aggregation nor read by the update: with context that
is most rows of a view.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from contextpool.kernels.reference import STD_EPSILON, Message, Reduction, Stream, check
from contextpool.kernels.triton import AggregateLaunch, check_dim, stacked_weights
from contextpool.kernels.triton_update import LeftOut, Parameters, UpdatePass, result_type
from contextpool.kernels.update import UpdateWeights
from contextpool.pool.propagation import Hop

TOGETHER = False
"""Whether aggregation and update are one function."""
LEAVE_OUT = False
"""Whether rows that nothing arrived at stay unwritten between them."""


def takes(reductions: tuple[Reduction, ...]) -> bool:
    """Whether a layer is done here; a deviation without the mean needs room that the update knows nothing of."""
    return TOGETHER and ("std" not in reductions or "mean" in reductions)


def layer_states(
    hop: Hop,
    state: Tensor,
    streams: list[Stream],
    weights: UpdateWeights,
    message: Message,
    reductions: tuple[Reduction, ...],
    boundary: Tensor | None,
    edge_weight: Tensor | None,
    short_cut: bool,
) -> Tensor:
    """See `layer.layer_states`."""
    check(message, reductions)
    check_dim(state)
    launch = AggregateLaunch(
        hop,
        tuple(stream.view for stream in streams),
        message,
        reductions,
        state.size(1),
        leave_out=LEAVE_OUT,
    )
    result: Tensor = _Layer.apply(
        state,
        stacked_weights(streams),
        boundary,
        edge_weight,
        launch,
        weights,
        short_cut,
        result_type(state),
        torch.stack(list(weights.received_weight)),
        weights.own_weight,
        weights.own_bias,
        weights.norm_weight,
        weights.norm_bias,
    )
    return result


def _left_out(launch: AggregateLaunch, boundary: Tensor | None) -> LeftOut | None:
    """What the update has to know of rows that aggregation does not write."""
    if not launch.leave_out:
        return None
    at_std = launch.reductions.index("std") if "std" in launch.reductions else -1
    if boundary is None:
        return LeftOut(0, 0, at_std, 0.0)
    return LeftOut(len(boundary), 1, at_std, math.sqrt(STD_EPSILON))


class _Layer(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        state: Tensor,
        relation_weight: Tensor,
        boundary: Tensor | None,
        edge_weight: Tensor | None,
        launch: AggregateLaunch,
        weights: UpdateWeights,
        short_cut: bool,
        dtype: torch.dtype,
        *parameters: Tensor | None,
    ) -> Tensor:
        given = Parameters(*parameters)  # type: ignore[arg-type]
        read = launch.contiguous(state, relation_weight, boundary, edge_weight)
        keep = any(ctx.needs_input_grad)
        received, degree, ties = launch.forward(*read, keep_ties=keep)
        run = ctx.update = UpdatePass(
            received.shape, weights, degree, launch.sizes, short_cut, _left_out(launch, boundary)
        )
        result, update = run.forward(read[0], received, given, dtype, keep)
        ctx.launch = launch
        ctx.save_for_backward(*read, received, degree, ties, update, *given)
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        *read, received, degree, ties, update, weight, own, bias, gamma, beta = ctx.saved_tensors
        given = Parameters(weight, own, bias, gamma, beta)
        begun, grad_received, grads = ctx.update.backward(grad, update, read[0], received, given)
        found = ctx.launch.gradients(grad_received, *read, received, degree, ties, grad_state=begun)
        return *found, None, None, None, None, *grads
