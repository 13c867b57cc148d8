"""A search by Optuna: its samplers, its pruners, its storage. Optuna is asked and told here, on the host.

A study is two files: `NAME.journal`, Optuna's own storage, and `NAME.jsonl` with what the search is and a line for
each trial, which the pages are made from. By default one process asks, trains and tells; `ask` writes a list of trials
to train elsewhere (`python -m lab run --trials`), and `tell` takes what came of it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from contextpool import experiment
from contextpool.errors import ConfigError, ContextPoolError, DataError, MissingExtraError
from contextpool.experiment import fingerprint
from contextpool.recipe import Recipe
from lab.jobs import Finished, Line, LineFile, run_jobs, throttled
from lab.recipes import canonical, recipe_of, recipe_text
from lab.selection import Selection, selection_dataset
from lab.space import Space, check_space, combinations, suggested, with_drawn

RUN_TRIAL = "lab.tune:run_trial"
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
    began = time.perf_counter()
    training = experiment.Experiment(recipe, data, task.line["seed"], task.device)
    training.fit(None, throttled(report))
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


class PrunedError(ContextPoolError):
    """Optuna thinks that a trial is not worth finishing."""


@dataclass(frozen=True)
class SearchConfig:
    """Everything that the result of a search depends on."""

    base: Recipe
    """What is not searched stays as it is here."""
    model: str
    """Name of the model with its suffix."""
    space: Space
    select: Selection = "validation"
    sampler: str = "tpe"
    """tpe, random, or grid: every combination of choices."""
    pruner: str = "none"
    """none, median or halving; only where trials are trained one at a time, in this process."""
    seed: int = 0
    """Seeds the draws, the trainings, and the split of a pseudo-inductive selection."""

    def header(self) -> Line:
        """The first line of the file: a search goes on only with what it was begun with."""
        return {
            "kind": "search",
            "dataset": self.base.dataset,
            "model": self.model,
            "select": self.select,
            "sampler": self.sampler,
            "seed": self.seed,
            "rung_epochs": [self.base.train.epochs],
            "base": canonical(self.base.to_dict()),
            "space": self.space,
            "dataset_sha256": fingerprint(selection_dataset(self.base.dataset, self.select, self.seed)),
        }


@dataclass
class Watcher:
    """What a progress bar wants to know."""

    note: Callable[[str], None] = lambda message: None
    begun: Callable[[int], None] = lambda trial: None
    progress: Callable[[int, Any], None] = lambda trial, state: None
    finished: Callable[[Line], None] = lambda line: None


class Search:
    """A search in its two files, open for this process alone. A context manager."""

    def __init__(self, config: SearchConfig, path: str | Path, watcher: Watcher | None = None) -> None:
        check_space(config.space, config.base)
        header = json.loads(
            json.dumps(config.header())
        )  # a dataset that is not there is refused before a file is made
        self.config, self.watcher, self.path = config, watcher or Watcher(), Path(path)
        self._queue = combinations(config.space) if config.sampler == "grid" else []
        optuna = _optuna()
        self._file = LineFile(path)
        try:
            self._begin(header)
            self._states, self.study = optuna.trial.TrialState, self._load(optuna)
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> Search:
        """Itself."""
        return self

    def __exit__(self, *error: object) -> None:
        """Close."""
        self._file.close()

    def _begin(self, header: Line) -> None:
        if self._file.repaired:
            self.watcher.note(self._file.repaired)
        if not self._file.lines:
            self._file.append({**header, "date": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")})
        there = self._file.lines[0]
        differing = [key for key in header if there.get(key) != header[key]]
        if differing:
            raise DataError(
                f"{self.path}: a search with another {', '.join(differing)} is in this file. Go on with that one by "
                "its own options, or name another file with --file."
            )

    def _load(self, optuna: Any) -> Any:
        """The study. What was begun here and has no line was cut off, and is drawn again as it was."""
        from optuna.storages import JournalStorage
        from optuna.storages.journal import JournalFileBackend

        seed = self.config.seed
        samplers = {"tpe": optuna.samplers.TPESampler, "random": optuna.samplers.RandomSampler}
        pruners = {
            "none": optuna.pruners.NopPruner,
            "median": optuna.pruners.MedianPruner,
            "halving": partial(optuna.pruners.SuccessiveHalvingPruner, min_resource=1, reduction_factor=3),
        }
        if self.config.sampler not in (*samplers, "grid") or self.config.pruner not in pruners:
            raise ConfigError("the sampler is tpe, random or grid; the pruner none, median or halving.")
        storage = JournalStorage(JournalFileBackend(str(self.path.with_suffix(".journal"))))
        study = optuna.create_study(
            storage=storage,
            study_name=self.path.stem,
            direction="maximize",
            load_if_exists=True,
            # draws that depend on how many trials there are, not on how often the search was begun
            sampler=samplers.get(self.config.sampler, optuna.samplers.RandomSampler)(
                seed=seed + len(self.trials)
            ),
            pruner=pruners[self.config.pruner](),
        )
        if not study.trials:
            for params in self._queue:
                study.enqueue_trial(params)
        told = {line["trial"] for line in self.trials}
        for trial in study.get_trials(states=(optuna.trial.TrialState.RUNNING,)):
            if trial.number not in told and "listed" not in trial.user_attrs:
                study.tell(trial.number, state=optuna.trial.TrialState.FAIL)
                study.enqueue_trial(trial.params)
        return study

    @property
    def trials(self) -> list[Line]:
        """The lines of trials that have ended."""
        return [line for line in self._file.lines if line["kind"] == "trial"]

    @property
    def budget(self) -> int | None:
        """Trials of a grid; None where there is no end of them."""
        return len(self._queue) or None

    def listed(self, count: int) -> list[Line]:
        """Lines of new trials to train elsewhere; a grid gives at most what is left of it."""
        if self.budget is not None:
            count = min(count, len(self.study.get_trials(states=(self._states.WAITING,))))
        return [self.ask(listed=True)[1] for _ in range(count)]

    def ask(self, *, listed: bool = False) -> tuple[Any, Line]:
        """A new trial of Optuna's, and its line in a list of trials."""
        trial = self.study.ask()
        values = suggested(trial, self.config.space)
        if listed:
            trial.set_user_attr("listed", True)
        line: Line = {
            "kind": "trial",
            "trial": trial.number,
            "epochs": self.config.base.train.epochs,
            "seed": self.config.seed,
            "values": values,
            "select": self.config.select,
            "split_seed": self.config.seed,
            "settings": with_drawn(self.config.base, values).to_dict(),
        }
        return trial, line

    def tell(self, lines: Iterable[Line]) -> None:
        """Keep the lines of trials that have ended, and tell Optuna of those it does not know yet."""
        known = {line["trial"] for line in self.trials}
        states = self._states
        for line in lines:
            if line["trial"] not in known:
                self._file.append({key: value for key, value in line.items() if key != "settings"})
            if line["trial"] >= len(self.study.trials):
                raise DataError(f"trial {line['trial']} was never asked for in this search.")
            if self.study.trials[line["trial"]].state != states.RUNNING:
                continue
            if line["valid_mrr"] is None:
                state = states.PRUNED if str(line["error"]).startswith(PrunedError.__name__) else states.FAIL
                self.study.tell(line["trial"], state=state)
            else:
                self.study.tell(line["trial"], line["valid_mrr"])
            self.watcher.finished(line)

    def run(
        self, trials: int, *, device: str = "cpu", jobs: int = 1, time_limit: float | None = None
    ) -> None:
        """Ask, train and tell until there are so many trials, or all of a grid."""
        end = time.monotonic() + (float("inf") if time_limit is None else time_limit)
        running: dict[int, Any] = {}
        reported: dict[int, int] = {}

        def next_trial() -> Trial | None:
            if len(self.trials) + len(running) >= (self.budget or trials) or time.monotonic() >= end:
                return None
            trial, line = self.ask()
            running[trial.number] = trial
            self.watcher.begun(trial.number)
            return Trial(line, device)

        def progress(task: Trial, state: Any) -> None:
            number = task.line["trial"]
            self.watcher.progress(number, state)
            if jobs > 1 or state.mrr is None or reported.get(number) == state.epoch:
                return
            reported[number] = state.epoch
            running[number].report(state.mrr, state.epoch)
            if running[number].should_prune():
                raise PrunedError(f"in epoch {state.epoch}, with a validation MRR of {state.mrr:.4f}")

        for ended in run_jobs(RUN_TRIAL, next_trial, jobs, progress):
            del running[ended.argument.line["trial"]]
            if ended.error is not None:
                self.watcher.note(f"trial {ended.argument.line['trial']} failed: {ended.error}")
            self.tell([trial_line(ended)])

    @property
    def best(self) -> Line | None:
        """The trial with the highest validation MRR, ties to the earlier one."""
        scored = [line for line in self.trials if line["valid_mrr"] is not None]
        return min(scored, key=lambda line: (-line["valid_mrr"], line["trial"]), default=None)

    def recipe(self, best: Line) -> tuple[Recipe, dict[str, Any]]:
        """The recipe of a trial, and what the search cost."""
        config = self.config
        key = "/".join((config.base.dataset, config.model, config.select, config.sampler, str(config.seed)))
        return with_drawn(config.base, best["values"]), {
            "key": key,
            "trials": len(self.trials),
            "trainings": len(self.trials),
            "seconds": round(sum(line.get("seconds") or 0.0 for line in self.trials), 1),
            "trial": best["trial"],
            "valid_mrr": best["valid_mrr"],
        }

    def recipe_text(self, best: Line) -> str:
        """The recipe of a trial as a file, with where it comes from."""
        recipe, cost = self.recipe(best)
        comment = (
            f"Found by `python -m lab tune` on {recipe.dataset} for {self.config.model}: trial {cost['trial']} of "
            f"{cost['trials']}, {cost['seconds']:.0f} s, {self.config.select} MRR {cost['valid_mrr']:.4f}."
        )
        return recipe_text(recipe, comments=(comment,))


def _optuna() -> Any:
    try:
        import optuna
    except ImportError:
        raise MissingExtraError("optuna", "tune", "Searching") from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna
