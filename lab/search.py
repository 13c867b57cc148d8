"""The search: trials in a file of lines, so that it can be cut off and goes on; ends with a recipe."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from contextpool.errors import DataError
from contextpool.experiment import fingerprint
from contextpool.recipe import Recipe
from lab.defaults import canonical
from lab.halving import Action, next_action, rung_epochs
from lab.lines import Line, LineFile
from lab.recipe_file import recipe_text
from lab.samplers import Sampler, Score, make_sampler
from lab.selection import Selection, selection_dataset
from lab.space import Space
from lab.trial import Task
from lab.workers import Finished, run_jobs

RUN_TRIAL = "lab.trial:run_trial"


@dataclass(frozen=True)
class SearchConfig:
    """Everything that the result of a search depends on, and how much of it to do."""

    base: Recipe
    """What is not searched stays as it is here."""
    model: str
    """Name of the model with its suffix, for the budget and the recipe."""
    space: Space
    select: Selection = "validation"
    sampler: str = "random"
    seed: int = 0
    """Of the draws, of the trainings, and of the halves of a pseudo-inductive selection."""
    trials: int = 20
    """Recipes that are drawn; a grid has as many as it has."""
    epochs: int | None = None
    """Of the highest rung; by default the base recipe's."""
    rungs: int = 3
    factor: int = 3
    """A rung has this many times the epochs of the one below, and one in so many trials reaches it."""
    finalists: int = 1
    """Best trials that are trained again with other seeds."""
    seeds: int = 3
    """How often each finalist is trained in all; the mean decides."""

    @property
    def num_trials(self) -> int:
        return len(self.space.combinations()) if self.sampler == "grid" else self.trials

    @property
    def rung_epochs(self) -> tuple[int, ...]:
        return rung_epochs(self.epochs or self.base.train.epochs, self.rungs, self.factor)

    def header(self) -> Line:
        """The first line of the file: a search goes on only with what it was begun with."""
        return {
            "kind": "search",
            "dataset": self.base.dataset,
            "model": self.model,
            "select": self.select,
            "sampler": self.sampler,
            "seed": self.seed,
            "rung_epochs": list(self.rung_epochs),
            "factor": self.factor,
            "base": canonical(self.base.to_dict()),
            "space": self.space.to_dict(),
        }


@dataclass
class Watcher:
    """What a progress bar wants to know."""

    note: Callable[[str], None] = lambda message: None
    begun: Callable[[Task], None] = lambda task: None
    progress: Callable[[Task, Any], None] = lambda task, state: None
    finished: Callable[[Task, Line], None] = lambda task, line: None


@dataclass(frozen=True)
class Winner:
    """The recipe that a search ended with, and what it cost."""

    recipe: Recipe
    tuning: dict[str, Any]
    valid_mrr: float
    """Mean over its seeds."""

    def text(self) -> str:
        """As a recipe file, with where it comes from."""
        told = self.tuning
        comments = (
            f"Found by `python -m lab tune` on {self.recipe.dataset} for {told['model']}: trial {told['trial']} of "
            f"{told['trials']}, {told['trainings']} trainings,",
            f"{told['seconds']:.0f} s, sampler {told['sampler']}, seed {told['seed']}, selected by {told['select']} "
            f"MRR {self.valid_mrr:.4f},",
            f"the mean over {len(told['valid_mrrs'])} seeds.",
        )
        return recipe_text(self.recipe, comments=comments, tuning=told)


@dataclass
class Progress:
    """Where a search stands."""

    trials: int
    trainings: int
    seconds: float
    complete: bool
    """Every trial was drawn and every promotion done."""
    best: Line | None = None
    winner: Winner | None = None
    failed: list[Line] = field(default_factory=list)


def tune(
    config: SearchConfig,
    path: str | Path,
    *,
    device: str = "cpu",
    jobs: int = 1,
    time_limit: float | None = None,
    finish: bool = False,
    watcher: Watcher | None = None,
) -> Progress:
    """Search, or go on with the search in the file. `finish`: no new trial, take the best of what there is."""
    watcher = watcher or Watcher()
    config.space.check(config.base)
    data = selection_dataset(
        config.base.dataset, config.select, config.seed
    )  # refused before a file is made for it
    with LineFile(path) as lines:
        if lines.repaired:
            watcher.note(lines.repaired)
        _check_header(lines, {**config.header(), "dataset_sha256": fingerprint(data)})
        search = _Search(config, lines, device, jobs, time_limit, watcher)
        if not finish:
            search.run(search.next_trial)
        if finish or search.is_complete():
            search.confirm()
        return search.progress()


def _check_header(lines: LineFile, wanted: Line) -> None:
    if not lines.lines:
        lines.append({**wanted, "date": _now()})
        return
    there, plain = lines.lines[0], json.loads(json.dumps(wanted))
    differing = [key for key in plain if there.get(key) != plain[key]]
    if differing:
        raise DataError(
            f"{lines.path}: a search with another {', '.join(differing)} is in this file. Go on with that one by its "
            "own options, or name another file with --file."
        )


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class _Search:
    """A search in progress. All it knows is in the lines and in what runs."""

    def __init__(
        self,
        config: SearchConfig,
        lines: LineFile,
        device: str,
        jobs: int,
        time_limit: float | None,
        watcher: Watcher,
    ) -> None:
        self.config, self.lines, self.device, self.jobs, self.watcher = config, lines, device, jobs, watcher
        self.sampler: Sampler = make_sampler(config.sampler, config.space, config.seed)
        self.num_trials = config.num_trials
        self.running: dict[Action, Task] = {}
        self.end = None if time_limit is None else time.monotonic() + time_limit

    @property
    def trials(self) -> list[Line]:
        return [line for line in self.lines.lines if line["kind"] == "trial"]

    @property
    def trainings(self) -> list[Line]:
        return [line for line in self.lines.lines if line["kind"] in ("trial", "confirm")]

    def finished(self) -> list[dict[int, float | None]]:
        """The scores of each rung."""
        rungs: list[dict[int, float | None]] = [{} for _ in self.config.rung_epochs]
        for line in self.trials:
            rungs[line["rung"]][line["trial"]] = line["valid_mrr"]
        return rungs

    def is_complete(self) -> bool:
        return self._next_action() is None

    def _next_action(self) -> Action | None:
        return next_action(self.finished(), self.running, self.num_trials, self.config.factor)

    def _out_of_time(self) -> bool:
        return self.end is not None and time.monotonic() >= self.end

    def next_trial(self) -> Task | None:
        """The next training of the search itself."""
        action = None if self._out_of_time() else self._next_action()
        if action is None:
            return None
        values = self._values_of(action.trial)
        epochs = self.config.rung_epochs[action.rung]
        return self._begin(self._task("trial", action, epochs, self.config.seed, values))

    def _values_of(self, trial: int) -> dict[str, Any]:
        drawn = next((line["values"] for line in self.trials if line["trial"] == trial), None)
        return self.sampler(trial, self._scores()) if drawn is None else drawn

    def _scores(self) -> list[Score]:
        """Each trial with its score on the highest rung that it reached, in the order of the trials."""
        best: dict[int, Line] = {}
        for line in self.trials:
            if line["valid_mrr"] is not None and line["rung"] >= best.get(line["trial"], line)["rung"]:
                best[line["trial"]] = line
        return [(best[trial]["values"], best[trial]["valid_mrr"]) for trial in sorted(best)]

    def _task(self, kind: str, action: Action, epochs: int, seed: int, values: Mapping[str, Any]) -> Task:
        return Task(
            kind,
            action.trial,
            action.rung,
            epochs,
            seed,
            self.config.base,
            values,
            self.config.select,
            self.config.seed,
            self.device,
        )

    def _begin(self, task: Task) -> Task:
        self.running[Action(task.trial, task.rung)] = task
        self.watcher.begun(task)
        return task

    def run(self, next_task: Callable[[], Task | None]) -> None:
        """Do what `next_task` gives until it gives nothing."""
        for ended in run_jobs(RUN_TRIAL, next_task, self.jobs, self.watcher.progress):
            self._record(ended)

    def _record(self, ended: Finished) -> None:
        task: Task = ended.argument
        self.running.pop(Action(task.trial, task.rung), None)
        line: Line = {
            "kind": task.kind,
            "trial": task.trial,
            "rung": task.rung,
            "epochs": task.epochs,
            "seed": task.seed,
            "valid_mrr": None,
            "values": dict(task.values),
            **(ended.value or {}),
            "error": ended.error,
            "device": task.device,
            "date": _now(),
        }
        self.lines.append(line)
        if ended.error is not None:
            self.watcher.note(f"trial {task.trial} failed: {ended.error}")
        self.watcher.finished(task, line)

    def finalists(self) -> list[Line]:
        """The best trials, each by the rung where it was best; ties to fewer epochs, then to the earlier trial."""
        scored = [line for line in self.trials if line["valid_mrr"] is not None]
        ranked = sorted(scored, key=lambda line: (-line["valid_mrr"], line["epochs"], line["trial"]))
        first: dict[int, Line] = {}
        for line in ranked:
            first.setdefault(line["trial"], line)
        return list(first.values())[: self.config.finalists]

    def confirm(self) -> None:
        """Train the finalists with other seeds."""
        waiting = [
            self._task("confirm", Action(line["trial"], line["rung"]), line["epochs"], seed, line["values"])
            for line in self.finalists()
            for seed in self._seeds()
            if seed not in self._by_seed(line)
        ]
        self.run(lambda: self._begin(waiting.pop(0)) if waiting and not self._out_of_time() else None)

    def _seeds(self) -> range:
        return range(self.config.seed, self.config.seed + self.config.seeds)

    def _by_seed(self, finalist: Line) -> dict[int, Line]:
        """What a finalist's recipe came to, by seed; a failed training counts as 0."""
        alike = [
            line
            for line in self.trainings
            if (line["trial"], line["epochs"]) == (finalist["trial"], finalist["epochs"])
        ]
        return {line["seed"]: line for line in alike if line["seed"] in self._seeds()}

    def winner(self) -> Winner | None:
        """The finalist with the highest mean; None before all of them were trained with all seeds."""
        finalists = self.finalists()
        if not finalists or any(len(self._by_seed(line)) < self.config.seeds for line in finalists):
            return None
        best = max(finalists, key=lambda line: (self._mean(line), -line["epochs"], -line["trial"]))
        action = Action(best["trial"], best["rung"])
        task = self._task("confirm", action, best["epochs"], self.config.seed, best["values"])
        return Winner(task.recipe, self._told(best), self._mean(best))

    def _mean(self, finalist: Line) -> float:
        values = [line["valid_mrr"] or 0.0 for line in self._by_seed(finalist).values()]
        return float(sum(values) / len(values))

    def _told(self, best: Line) -> dict[str, Any]:
        """What the search cost and how it chose."""
        config, by_seed = self.config, self._by_seed(best)
        return {
            "key": "/".join(
                (config.base.dataset, config.model, config.select, config.sampler, str(config.seed))
            ),
            "model": config.model,
            "select": config.select,
            "sampler": config.sampler,
            "seed": config.seed,
            "trials": len({line["trial"] for line in self.trials}),
            "trainings": len(self.trainings),
            "epochs": sum(line.get("epochs_trained") or 0 for line in self.trainings),
            "seconds": round(sum(line.get("seconds") or 0.0 for line in self.trainings), 1),
            "trial": best["trial"],
            "rung_epochs": list(config.rung_epochs),
            "valid_mrr": self._mean(best),
            "valid_mrrs": [by_seed[seed]["valid_mrr"] for seed in sorted(by_seed)],
            "best_epochs": [by_seed[seed].get("best_epoch") for seed in sorted(by_seed)],
        }

    def progress(self) -> Progress:
        complete, finalists = self.is_complete(), self.finalists()
        failed = [line for line in self.trainings if line["error"] is not None]
        if complete and not finalists:
            raise DataError(
                f"{self.lines.path}: every trial failed, the first with: {failed[0]['error']} Change the space or the "
                "base recipe, and name another file."
            )
        return Progress(
            trials=len({line["trial"] for line in self.trials}),
            trainings=len(self.trainings),
            seconds=sum(line.get("seconds") or 0.0 for line in self.trainings),
            complete=complete,
            best=finalists[0] if finalists else None,
            winner=self.winner(),
            failed=failed,
        )
