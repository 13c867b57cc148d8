"""A layer: what the nodes receive (`aggregate`) and what they make of it (`update_states`), in one."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from contextpool.kernels.interface import Backend, Message, Reduction, Stream, aggregate, chosen_backend
from contextpool.kernels.update import UpdateWeights, update_states
from contextpool.pool.propagation import Hop

TRITON_MAX_WIDTH = 512


def triton_takes(dim: int, reductions: Sequence[Reduction]) -> bool:
    """Whether the fused layer is made for states of so many columns: powers of two, within what a processor holds."""
    powers = all(size & (size - 1) == 0 for size in (dim, len(reductions)))
    has_mean = "std" not in reductions or "mean" in reductions
    return powers and has_mean and dim >= 16 and dim * len(reductions) <= TRITON_MAX_WIDTH


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
    """States [num_sources, D] -> [num_targets, D]: `update_states` of what `aggregate` gives."""
    if chosen_backend(backend, state) == "triton" and triton_takes(state.size(1), reductions):
        from contextpool.kernels import triton_layer  # loaded where it is needed

        return triton_layer.next_states(
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
    return update_states(state, results, degrees, weights, short_cut=short_cut)
