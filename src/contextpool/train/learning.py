"""Training of models that learn by looking at the graph instead of by gradient, such as those that learn rules."""

from __future__ import annotations

import time
from collections.abc import Callable

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
    """Let the model `learn`, then validate it; None for a model that has nothing to learn this way.

    Learning that is cut off starts again from the beginning.
    """
    step, began = None, time.perf_counter()
    for step in model.learn(graph, seed):
        if progress is not None and step.done < 1:
            progress(_as_progress(step))
    if step is None:
        return None
    found = {"epoch": 1, "valid_mrr": validate(model), **step.figures}
    tell({"event": "learned", **found, "seconds": round(time.perf_counter() - began, 3)}, run, on_event)
    if progress is not None:
        progress(_as_progress(step, found["valid_mrr"]))
    return Outcome(found["valid_mrr"], 1, 1, [found])


def _as_progress(step: Learning, mrr: float | None = None) -> Progress:
    """Shown as one epoch without a loss."""
    return Progress(1, 1, round(step.done * PARTS), PARTS, float("nan"), mrr, step.seconds_left)
