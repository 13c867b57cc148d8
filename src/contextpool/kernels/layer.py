"""A whole layer, aggregation and update: on CUDA the two can share buffers, elsewhere they follow one another."""

from __future__ import annotations

from torch import Tensor

from contextpool.kernels.interface import Backend, Message, Reduction, Stream, aggregate, chosen_backend
from contextpool.kernels.update import UpdateWeights, triton_takes, update_states
from contextpool.pool.propagation import Hop


def layer_states(
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
    """[num_sources, D] -> [num_targets, D]: `update_states` of what `aggregate` gives."""
    if chosen_backend(backend, state) == "triton":
        from contextpool.kernels import triton_layer  # loaded where it is needed

        if triton_layer.takes(reductions) and triton_takes(state.size(1), len(reductions)):
            return triton_layer.layer_states(
                hop, state, streams, weights, message, reductions, boundary, edge_weight, short_cut
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
    return update_states(
        state, results, degrees, weights, short_cut=short_cut, sizes=hop.sizes, backend=backend
    )
