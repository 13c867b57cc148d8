"""`next_states` on CUDA: the state has one gradient, so nobody adds up two that are as long as the states."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from contextpool.kernels._tensors import aside, contiguous, like_inputs, needs_gradients
from contextpool.kernels.reference import Message, Reduction, Stream
from contextpool.kernels.triton import Launch, Values, weight_of
from contextpool.kernels.triton_update import Parameters, Update
from contextpool.kernels.update import UpdateWeights
from contextpool.pool.propagation import Hop


def next_states(
    hop: Hop,
    state: Tensor,
    streams: list[Stream],
    weights: UpdateWeights,
    *,
    message: Message,
    reductions: tuple[Reduction, ...],
    boundary: Tensor | None,
    edge_weight: Tensor | None,
    short_cut: bool,
) -> Tensor:
    """See `layer.next_states`."""
    launch = Launch(hop, state, streams, message, reductions, boundary, edge_weight)
    shape = (len(streams), hop.num_targets, launch.num_out, state.size(1))
    update = Update(weights, shape, launch.sizes, short_cut=short_cut)
    bf16 = torch.is_autocast_enabled(state.device.type)
    dtype = torch.bfloat16 if bf16 else torch.float32
    learned = (state, weight_of(streams), boundary, edge_weight, *Parameters.of(weights))
    result: Tensor = _Layer.apply(*learned, launch, update, dtype, needs_gradients(learned))
    return result


class _Layer(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        state: Tensor,
        weight: Tensor,
        boundary: Tensor | None,
        edge_weight: Tensor | None,
        received_weight: Tensor,
        own_weight: Tensor,
        own_bias: Tensor,
        norm_weight: Tensor | None,
        norm_bias: Tensor | None,
        launch: Launch,
        update: Update,
        dtype: torch.dtype,
        keep: bool,
    ) -> Tensor:
        sent = state.contiguous(), weight.contiguous(), contiguous(boundary), contiguous(edge_weight)
        out, degree, ties = launch.forward(*sent, keep_ties=keep)
        parameters = Parameters(received_weight.contiguous(), own_weight, own_bias, norm_weight, norm_bias)
        result, before_norm = update.forward(parameters, sent[0], out, degree, dtype, keep=keep)
        ctx.launch, ctx.update = launch, update
        ctx.save_for_backward(*sent, out, degree, ties, before_norm, *parameters)
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        launch: Launch = ctx.launch
        update: Update = ctx.update
        *aggregated, before_norm = ctx.saved_tensors[:8]
        state, out, degree = aggregated[0], aggregated[4], aggregated[5]
        parameters = Parameters(*ctx.saved_tensors[8:])
        rows = update.backward(parameters, grad, state, out, degree, before_norm)
        with aside(grad.device) as second_stream:
            with second_stream:  # it reads long tables, while aggregation gathers
                to_parameters = update.backward_of_parameters(parameters, rows, state, out, degree)
            gradients = launch.backward(Values(rows.to_received, *aggregated), onto=rows.to_state)
        return *like_inputs(gradients, aggregated), *to_parameters, None, None, None, None
