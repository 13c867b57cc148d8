"""`aggregate` with the backend chosen by device, or by name."""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from contextpool.errors import ConfigError
from contextpool.kernels import reference
from contextpool.kernels.reference import FULL, Message, Reduction, Stream
from contextpool.pool.propagation import Hop

Backend = Literal["auto", "reference"]

__all__ = ["FULL", "Backend", "Message", "Reduction", "Stream", "aggregate"]


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
    """See `reference.aggregate`, the definition; every backend gives the same within rounding."""
    if backend not in ("auto", "reference"):
        raise ConfigError(f"backend is {backend!r}; it is 'auto' or 'reference'.")
    return reference.aggregate(
        hop,
        state,
        streams,
        message=message,
        reductions=reductions,
        boundary=boundary,
        edge_weight=edge_weight,
    )
