"""The functions that models call, each by the backend for its device, or by one that is named.

`reference` defines them; every backend gives the same within rounding.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from contextpool.kernels import reference
from contextpool.kernels.backend import Backend, chosen_backend, use_backend
from contextpool.kernels.hop import Hop
from contextpool.kernels.reference import FULL, Message, Reduction, Stream, UpdateWeights

__all__ = [
    "FULL", "Backend", "Message", "Reduction", "Stream", "UpdateWeights", "aggregate", "chosen_backend",
    "edge_attention", "edge_values", "next_states", "node_scores", "triton_takes", "use_backend",
]  # fmt: skip

MAX_LAYER_WIDTH = 512
"""Columns that a node may receive in the fused layer."""
MAX_ATTENTION_WIDTH = 64
MAX_SCORE_WIDTH = 128


def aggregate(
    hop: Hop,
    state: Tensor,
    streams: list[Stream],
    *,
    message: Message,
    reductions: tuple[Reduction, ...],
    boundary: Tensor | None = None,
    edge_weight: Tensor | None = None,
    backend: Backend = "auto",
) -> tuple[list[Tensor], list[Tensor]]:
    """Messages along the edges of a hop, reduced at their targets, once per stream: `reference.aggregate`."""
    chosen = chosen_backend(backend, state)
    if chosen == "triton":
        from contextpool.kernels import triton  # loaded where it is needed

        run = triton.aggregate
    elif chosen == "cpu":
        from contextpool.kernels import cpu  # numba is loaded where it is needed

        run = cpu.aggregate
    else:
        run = reference.aggregate
    return run(
        hop,
        state,
        streams,
        message=message,
        reductions=reductions,
        boundary=boundary,
        edge_weight=edge_weight,
    )


def triton_takes(dim: int, reductions: Sequence[Reduction]) -> bool:
    """Whether the fused layer can take states of `dim` columns: powers of two that fit a multiprocessor."""
    powers = all(size & (size - 1) == 0 for size in (dim, len(reductions)))
    has_mean = "std" not in reductions or "mean" in reductions
    return powers and has_mean and dim >= 16 and dim * len(reductions) <= MAX_LAYER_WIDTH


def next_states(
    hop: Hop,
    state: Tensor,
    streams: list[Stream],
    weights: UpdateWeights,
    *,
    message: Message,
    reductions: tuple[Reduction, ...],
    boundary: Tensor | None = None,
    edge_weight: Tensor | None = None,
    short_cut: bool,
    backend: Backend = "auto",
) -> Tensor:
    """A layer, states [num_sources, D] -> [num_targets, D]: `update_states` of what `aggregate` gives."""
    if chosen_backend(backend, state) == "triton" and triton_takes(state.size(1), reductions):
        from contextpool.kernels import triton  # loaded where it is needed

        return triton.next_states(
            hop,
            state,
            streams,
            weights,
            message=message,
            reductions=reductions,
            boundary=boundary,
            edge_weight=edge_weight,
            short_cut=short_cut,
        )
    results, degrees = aggregate(
        hop,
        state,
        streams,
        message=message,
        reductions=reductions,
        boundary=boundary,
        edge_weight=edge_weight,
        backend=backend,
    )
    return reference.update_states(state, results, degrees, weights, short_cut=short_cut)


def edge_values(table: Tensor, query: Tensor, relation: Tensor, *, backend: Backend = "auto") -> Tensor:
    """The value of every edge in a table by query and relation, as gates are: `reference.edge_values`.

    Gradients are added up by `index_add`, on CUDA without those that are zero: edges that nobody walks would all wait
    for one place.
    """
    if _by_atomics(backend, table):
        from contextpool.kernels import triton_heads  # loaded where it is needed

        return triton_heads.edge_values(table, query, relation)
    return reference.edge_values(table, query, relation)


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
    """A number in (0, 1) for every edge, from its source, its relation and its query: `reference.edge_attention`."""
    given = (by_node, by_relation, last, last_bias, source, relation, query)
    if by_node.size(1) <= MAX_ATTENTION_WIDTH and _by_atomics(backend, by_node):
        from contextpool.kernels import triton_heads  # loaded where it is needed

        return triton_heads.edge_attention(*given)
    return reference.edge_attention(*given)


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
    """The scoring head, an MLP over (state, query) for every node: `reference.node_scores`."""
    given = (state, by_query, node_query, weight, last, last_bias)
    fits = all(
        16 <= size <= MAX_SCORE_WIDTH and size & (size - 1) == 0 for size in (state.size(1), len(weight))
    )
    if fits and _by_atomics(backend, state):
        from contextpool.kernels import triton_heads  # loaded where it is needed

        return triton_heads.node_scores(*given)
    return reference.node_scores(*given)


def _by_atomics(backend: Backend, given: Tensor) -> bool:
    """Whether to use Triton's kernels, which add in a varying order: not where torch is set to be deterministic."""
    return chosen_backend(backend, given) == "triton" and not torch.are_deterministic_algorithms_enabled()
