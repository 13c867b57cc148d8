"""Training of models that learn by looking at the graph instead of by gradient, such as those that learn rules."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from contextpool.graph.graph import Graph
from contextpool.models.base import Learning, LinkPredictor
from contextpool.train.loop import Validate
from contextpool.train.progress import OnEvent, Outcome, Progress, tell
from contextpool.train.run_folder import RunFolder

PARTS = 1_000
"""Steps of a progress bar."""


def learn_from_graph(
    model: LinkPredictor,
    graph: Graph,
    validate: Validate,
    *,
    seed: int = 0,
    run: RunFolder | None = None,
    progress: Callable[[Progress], None] | None = None,
    on_event: OnEvent | None = None,
) -> Outcome | None:
    """Let the model `learn` and validate its snapshots; None for a model that has nothing to learn this way.

    The model keeps what it found last: finding more is no overfitting, so no earlier snapshot is preferred.
    Learning that is cut off starts again from the beginning.
    """
    history: list[dict[str, Any]] = []
    began = time.perf_counter()
    for step in model.learn(graph, seed):
        if step.snapshot:
            history.append({"epoch": len(history) + 1, "valid_mrr": validate(model), **step.figures})
            seconds = round(time.perf_counter() - began, 3)
            tell({"event": "snapshot", **history[-1], "seconds": seconds}, run, on_event)
        if progress is not None:
            progress(_as_progress(step, history))
    if not history:
        return None
    return Outcome(history[-1]["valid_mrr"], len(history), len(history), history)


def _as_progress(step: Learning, history: list[dict[str, Any]]) -> Progress:
    """Shown as one epoch without a loss."""
    mrr = history[-1]["valid_mrr"] if history else None
    return Progress(1, 1, round(step.done * PARTS), PARTS, float("nan"), mrr, step.seconds_left)
