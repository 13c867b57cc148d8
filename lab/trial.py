"""One training of a search, and lists of them: what `python -m lab run --trials` does, without Optuna."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from contextpool import experiment
from contextpool.errors import ConfigError
from lab.defaults import recipe_of
from lab.lines import Line, LineFile
from lab.selection import selection_dataset
from lab.workers import Finished, run_jobs

RUN_TRIAL = "lab.trial:run_trial"
RESULT = ("valid_mrr", "best_epoch", "epochs_trained", "seconds", "parameters")


@dataclass(frozen=True)
class Trial:
    """A line of a list of trials: number, seed, what selects, and the whole recipe; and where to train it."""

    line: Line
    device: str


def run_trial(task: Trial, report: Any) -> dict[str, Any]:
    """Train and give the validation MRR of the best epoch; reads nothing of the inference side."""
    recipe = recipe_of(task.line["settings"])
    data = selection_dataset(recipe.dataset, task.line["select"], task.line["split_seed"])
    told, epoch = time.monotonic(), 0

    def progress(state: Any) -> None:
        nonlocal told, epoch
        if time.monotonic() - told >= 0.2 or state.epoch != epoch:
            told, epoch = time.monotonic(), state.epoch
            report(state)

    began = time.perf_counter()
    training = experiment.Experiment(recipe, data, task.line["seed"], task.device)
    training.fit(None, progress)
    if training.outcome is None:
        raise ConfigError(
            f"the model {recipe.model!r} has nothing to train, so there is nothing to search for."
        )
    found = training.outcome
    weights = sum(weight.numel() for weight in training.model.parameters())
    seconds = round(time.perf_counter() - began, 3)
    return dict(zip(RESULT, (found.best_mrr, found.best_epoch, found.epochs, seconds, weights), strict=True))


def trial_line(ended: Finished) -> Line:
    """The line of a list with what came of it; the recipe, which the values and the header give, is left out."""
    task: Trial = ended.argument
    plain = {key: value for key, value in task.line.items() if key != "settings"}
    date = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    found = ended.value or {"valid_mrr": None}
    return {**plain, **found, "error": ended.error, "device": task.device, "date": date}


def run_trials(
    trials: Iterable[Line],
    results: str | Path,
    *,
    device: str = "cpu",
    jobs: int = 1,
    note: Callable[[str], None] = lambda message: None,
) -> list[Line]:
    """Train every trial of a list that has no line in the file of results yet; returns the new lines."""
    with LineFile(results) as lines:
        there = {line["trial"] for line in lines.lines}
        waiting = [Trial(line, device) for line in trials if line["trial"] not in there]
        made = []
        for ended in run_jobs(RUN_TRIAL, lambda: waiting.pop(0) if waiting else None, jobs):
            line = trial_line(ended)
            lines.append(line)
            made.append(line)
            note(f"trial {line['trial']}: {ended.error or format(line['valid_mrr'], '.4f')}")
    return made
