"""RED-GNN's attention: a number in (0, 1) for every edge, from its source, its relation and its query."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from contextpool.kernels.interface import Backend, chosen_backend

MAX_WIDTH = 64


def edge_attention(
    by_node: Tensor,
    by_relation: Tensor,
    last: Tensor,
    last_bias: Tensor,
    source: Tensor,
    relation: Tensor,
    query: Tensor,
    *,
    backend: Backend = "auto",
) -> Tensor:
    """Attention [K]: sigmoid(last . relu(by_node[source] + by_relation[query, relation]) + last_bias).

    `by_node` is [M, A], `by_relation` [B, R, A], `last` [1, A], `last_bias` [1]; `source`, `relation` and `query` [K].
    """
    fixed_order = torch.are_deterministic_algorithms_enabled()
    fits = by_node.size(1) <= MAX_WIDTH
    if chosen_backend(backend, by_node) == "triton" and not fixed_order and fits:
        from contextpool.kernels import triton_attention  # loaded where it is needed

        return triton_attention.edge_attention(by_node, by_relation, last, last_bias, source, relation, query)
    place = query * by_relation.size(1) + relation
    hidden = by_node.index_select(0, source) + by_relation.flatten(0, 1).index_select(0, place)
    return torch.sigmoid(functional.linear(torch.relu(hidden), last, last_bias).squeeze(1))
