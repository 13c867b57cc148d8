"""How a layer turns what its nodes received into new states: products, PNA's degree scalers, norm, relu, short-cut."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

MIN_SCALE = 1e-2


@dataclass(frozen=True)
class UpdateWeights:
    """The parameters of an update; `scalers` is 3 with PNA's degree scalers, 1 without."""

    own_weight: Tensor  # [D, D]
    own_bias: Tensor  # [D]
    received_weight: Sequence[Tensor]  # per stream [scalers * D, reductions * D]
    norm_weight: Tensor | None  # [D]
    norm_bias: Tensor | None  # [D]
    log_degree: Tensor  # [] PNA's constant, the training graph's
    scalers: int
    norm_eps: float = 1e-5

    @classmethod
    def of(
        cls, own: nn.Linear, received: Sequence[nn.Linear], norm: nn.Module, log_degree: Tensor, scalers: int
    ) -> UpdateWeights:
        """From the modules of a layer; a norm that is no `LayerNorm` is none."""
        weights = [linear.weight for linear in received]
        if isinstance(norm, nn.LayerNorm):
            return cls(own.weight, own.bias, weights, norm.weight, norm.bias, log_degree, scalers, norm.eps)
        return cls(own.weight, own.bias, weights, None, None, log_degree, scalers)


def update_states(
    state: Tensor,
    results: Sequence[Tensor],
    degrees: Sequence[Tensor],
    weights: UpdateWeights,
    *,
    short_cut: bool,
) -> Tensor:
    """[num_sources, D], per stream [M, reductions, D] and degrees [M] -> relu(norm(update)) (+ state), [M, D].

    The update is own(state) plus, for every stream, received(result); with scalers its three parts are taken as
    they are, times log(degree) / log_degree, and divided by that. Nodes that are reached only now have state 0.
    """
    before = functional.pad(state, (0, 0, 0, len(results[0]) - len(state)))
    update = functional.linear(before, weights.own_weight, weights.own_bias)
    for matrix, result, degree in zip(weights.received_weight, results, degrees, strict=True):
        update = update + _scaled(functional.linear(result.flatten(1), matrix), degree, weights)
    if weights.norm_weight is not None:
        shape = weights.norm_weight.shape
        update = functional.layer_norm(
            update, shape, weights.norm_weight, weights.norm_bias, weights.norm_eps
        )
    after = torch.relu(update)
    return after + before if short_cut else after


def _scaled(projected: Tensor, degree: Tensor, weights: UpdateWeights) -> Tensor:
    """PNA's degree scalers are numbers per node: scaling the projection equals projecting scaled copies."""
    if weights.scalers == 1:
        return projected
    plain, amplified, damped = projected.chunk(3, dim=1)
    scale = (degree.clamp(min=1).log() / weights.log_degree).to(projected.dtype)[:, None]
    return plain + scale * amplified + damped / scale.clamp(min=MIN_SCALE)
