"""Where a run stands, what it tells on the way, and what it ends with."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from contextpool.train.run_folder import RunFolder

OnEvent = Callable[[dict[str, Any]], None]
"""Called with each event that goes into the log of a run."""


@dataclass
class Position:
    """Where a run stands: all that resuming needs besides the weights and the optimizer."""

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
        """Empty where there is none, as for a model that learns rules."""
        return "" if math.isnan(self.loss) else f"loss {self.loss:.3f}"


@dataclass(frozen=True)
class Outcome:
    """The result of training; the model holds the weights of the best epoch."""

    best_mrr: float
    best_epoch: int
    epochs: int
    history: list[dict[str, Any]]


def tell(event: dict[str, Any], run: RunFolder | None, on_event: OnEvent | None) -> None:
    """Add the time to an event, write it to the run's log, and pass it on."""
    event["time"] = time.time()
    if run is not None:
        run.append_event(event)
    if on_event is not None:
        on_event(event)
