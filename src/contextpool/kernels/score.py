"""The scoring head: an MLP over (state, query) for every node."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from contextpool.kernels.interface import Backend, chosen_backend

MAX_WIDTH = 128


def node_scores(
    state: Tensor,
    by_query: Tensor,
    node_query: Tensor,
    weight: Tensor,
    last: Tensor,
    last_bias: Tensor,
    *,
    backend: Backend = "auto",
) -> Tensor:
    """Scores [M]: last . relu(weight state + by_query[node_query]) + last_bias.

    `state` is [M, D], `by_query` [B, H], `node_query` [M], `weight` [H, D], `last` [1, H], `last_bias` [1].

    `by_query` is the query's part of the first product, the same for all nodes of a query.
    """
    fixed_order = torch.are_deterministic_algorithms_enabled()
    if chosen_backend(backend, state) == "triton" and not fixed_order and _fits(state.size(1), len(weight)):
        from contextpool.kernels import triton_score  # loaded where it is needed

        return triton_score.node_scores(state, by_query, node_query, weight, last, last_bias)
    hidden = functional.linear(state, weight) + by_query.index_select(0, node_query)
    return functional.linear(torch.relu(hidden), last, last_bias).squeeze(1).float()


def _fits(dim: int, hidden: int) -> bool:
    return all(16 <= size <= MAX_WIDTH and size & (size - 1) == 0 for size in (dim, hidden))
