"""Models that find what they need by looking at the graph: asked until they are done, their snapshots validated."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from contextpool.graph.graph import Graph
from contextpool.models.base import Learning, LinkPredictor
from contextpool.train.loop import Validate
from contextpool.train.progress import Outcome, Progress
from contextpool.train.run_folder import RunFolder

PARTS = 1_000
"""Steps that a progress bar is told there are."""


def learn_from_graph(
    model: LinkPredictor,
    graph: Graph,
    validate: Validate,
    *,
    seed: int = 0,
    run: RunFolder | None = None,
    progress: Callable[[Progress], None] | None = None,
    on_event: Callable[[dict[str, Any]], None] | None = None,
) -> Outcome | None:
    """Let the model `learn`; None for one that has nothing to learn this way.

    The model keeps what it found last: more of it is no overfitting, so no snapshot is preferred to a later one.
    Learning that is cut off starts again from the beginning.
    """
    history: list[dict[str, Any]] = []
    began = time.perf_counter()
    for step in model.learn(graph, seed):
        if step.snapshot:
            history.append({"epoch": len(history) + 1, "valid_mrr": validate(model), **step.figures})
            event = {"event": "snapshot", **history[-1], "seconds": round(time.perf_counter() - began, 3)}
            _tell({**event, "time": time.time()}, run, on_event)
        if progress is not None:
            progress(_as_progress(step, history))
    if not history:
        return None
    return Outcome(history[-1]["valid_mrr"], len(history), len(history), history)


def _tell(
    event: dict[str, Any], run: RunFolder | None, on_event: Callable[[dict[str, Any]], None] | None
) -> None:
    if run is not None:
        run.append_event(event)
    if on_event is not None:
        on_event(event)


def _as_progress(step: Learning, history: list[dict[str, Any]]) -> Progress:
    """As if it were one epoch; there is no loss."""
    mrr = history[-1]["valid_mrr"] if history else None
    return Progress(1, 1, round(step.done * PARTS), PARTS, float("nan"), mrr, step.seconds_left)
