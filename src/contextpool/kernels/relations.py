"""Weights of relations that depend on the query: a linear map of the query's vector for every stream."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from contextpool.kernels.interface import Backend, chosen_backend


def relation_weights(query: Tensor, linears: Sequence[nn.Linear], backend: Backend = "auto") -> list[Tensor]:
    """[B, D] and a map D -> 2R * D per stream -> per stream [B, 2R * D]."""
    if chosen_backend(backend, query) == "triton":
        from contextpool.kernels import triton_relations  # loaded where it is needed

        if triton_relations.takes(query, linears):
            return triton_relations.relation_weights(query, linears)
    return [linear(query) for linear in linears]
