"""The value of every edge in a table by query and relation: gates of messages."""

from __future__ import annotations

import torch
from torch import Tensor

from contextpool.kernels.interface import Backend, chosen_backend


def edge_values(table: Tensor, query: Tensor, relation: Tensor, *, backend: Backend = "auto") -> Tensor:
    """[K] `table[query, relation]` of a table [B, R], for `query` and `relation` [K].

    Gradients are added up by `index_add`, on CUDA without those that are zero: edges that nobody walks would all wait
    for one place.
    """
    fixed_order = torch.are_deterministic_algorithms_enabled()
    if chosen_backend(backend, table) == "triton" and not fixed_order:
        from contextpool.kernels import triton_lookup  # loaded where it is needed

        return triton_lookup.edge_values(table, query, relation)
    return table.reshape(-1).index_select(0, query * table.size(1) + relation)
