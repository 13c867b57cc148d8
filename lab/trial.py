"""One training of a search."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from contextpool import experiment
from contextpool.errors import ConfigError
from contextpool.recipe import Recipe
from lab.selection import Selection, selection_dataset
from lab.space import with_drawn


@dataclass(frozen=True)
class Task:
    """A recipe with drawn values in it, to be trained for some epochs and scored by its selection queries."""

    kind: str
    """trial, or confirm: a finalist trained again with another seed"""
    trial: int
    rung: int
    epochs: int
    seed: int
    base: Recipe
    values: Mapping[str, Any]
    select: Selection
    split_seed: int
    device: str

    @property
    def recipe(self) -> Recipe:
        """What is trained."""
        recipe = with_drawn(self.base, self.values)
        return replace(recipe, train=replace(recipe.train, epochs=self.epochs))


def run_trial(task: Task, report: Any) -> dict[str, Any]:
    """Train and give the validation MRR of the best epoch; reads nothing of the inference side."""
    data = selection_dataset(task.base.dataset, task.select, task.split_seed)
    recipe = task.recipe
    told = time.monotonic()

    def progress(state: Any) -> None:
        nonlocal told
        if time.monotonic() - told >= 0.2:
            told = time.monotonic()
            report(state)

    began = time.perf_counter()
    training = experiment.Experiment(recipe, data, task.seed, task.device)
    training.fit(None, progress)
    if training.outcome is None:
        raise ConfigError(
            f"the model {recipe.model!r} has nothing to train, so there is nothing to search for."
        )
    return {
        "valid_mrr": training.outcome.best_mrr,
        "best_epoch": training.outcome.best_epoch,
        "epochs_trained": training.outcome.epochs,
        "seconds": round(time.perf_counter() - began, 3),
        "parameters": sum(weight.numel() for weight in training.model.parameters()),
    }
