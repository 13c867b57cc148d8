"""Where a run is, what it shows on the way, and what it comes to."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Position:
    """Where a run is; with the weights and the optimizer all that resuming needs."""

    epoch: int = 0
    """Epochs finished."""
    step: int = 0
    """Steps finished in the current epoch."""
    total_steps: int = 0
    best_mrr: float = -1.0
    best_epoch: int = 0
    stale_epochs: int = 0
    loss_sum: float = 0.0
    """Over the current epoch's steps."""
    history: list[dict[str, Any]] = field(default_factory=list)
    """One entry per finished epoch: loss and validation MRR."""


@dataclass(frozen=True)
class Progress:
    """What a progress bar shows."""

    epoch: int
    epochs: int
    step: int
    steps: int
    loss: float
    mrr: float | None
    seconds_left: float

    @property
    def shown_loss(self) -> str:
        """Empty where there is none, as for what learns rules."""
        return "" if math.isnan(self.loss) else f"loss {self.loss:.3f}"


@dataclass(frozen=True)
class Outcome:
    """What training came to; the model holds the weights of the best epoch."""

    best_mrr: float
    best_epoch: int
    epochs: int
    history: list[dict[str, Any]]
