"""A recipe becomes a run becomes a Predictor; the only place that knows every stage."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from contextpool.context.config import ContextConfig
from contextpool.errors import ConfigError, DataError, shortened
from contextpool.evaluation import (
    compare_with_references,
    evaluate,
    evaluated_on,
    split_alike,
    training_free,
    was_fitted_on,
)
from contextpool.models.base import LinkPredictor
from contextpool.models.registry import model_class, name_of
from contextpool.predict import Predictor
from contextpool.pretraining import (
    Mixture,
    Pretraining,
    recipe_of_start,
    seen_by_start,
    start_title,
    started_recipe,
)
from contextpool.processes import Processes, current
from contextpool.provenance import fingerprint, machine
from contextpool.recipe import Recipe, checked, context_from, shipped_recipe
from contextpool.stored import load, stored_recipe
from contextpool.train.budget import Budget
from contextpool.train.config import TrainConfig
from contextpool.train.progress import ProgressCallback, shown_progress
from contextpool.train.run_folder import RunFolder, refuse_old_run
from contextpool.train.tracking import Tracker, chosen_tracker, tracked
from contextpool.training import TRIAL_SHARE, Experiment, judged
from contextpool.triples.catalog import dataset_title, is_named, load_dataset
from contextpool.triples.dataset import Dataset, joined
from contextpool.triples.reader import Tell


def train(
    dataset: Dataset | str,
    model: str | type[LinkPredictor] | None = None,
    context: bool | str | ContextConfig | Mapping[str, Any] | None = False,
    seed: int = 0,
    output: str | Path | None = None,
    *,
    start: str | Path | None = None,
    device: torch.device | str = "cpu",
    settings: Mapping[str, Any] | None = None,
    train: TrainConfig | Mapping[str, Any] | None = None,
    minutes: float | None = None,
    refit: bool | None = None,
    overwrite: bool = False,
    progress: bool | ProgressCallback | None = None,
    track: str | Tracker | None = None,
) -> Predictor:
    """Train a model (nbfnet unless said otherwise) on a dataset and return its Predictor; `output` is the run folder.

    `start` is the run that it starts from, or "anygraph-1", the model in the package: training takes its model and
    context, and a few epochs; its own weights count as those of epoch 0, and are kept where no epoch is better.
    `context` is True for the default context, "paper" for the paper's form, or settings that differ from the default.
    `minutes` chooses epochs, and how many facts are asked to select and evaluate, so that all of it takes that long.
    `refit` evaluates the selected model on what was held out (`Predictor.evaluation`), then fits it on every fact: by
    default where `dataset` is one graph, such as "mine.tsv", not where it is a `Dataset`.
    `progress` is True for a bar, or a function that hears of every step.
    `track` sends the curves elsewhere, too: "tensorboard", "mlflow", "wandb", or a `Tracker`.
    """
    began = time.perf_counter()
    data = dataset if isinstance(dataset, Dataset) else load_dataset(dataset)
    if model is None:
        model = "nbfnet" if start is None else recipe_of_start(start).model
    name = model if isinstance(model, str) else name_of(model)
    chosen = train if isinstance(train, TrainConfig) else _train_config(train or {}, name, start is not None)
    if refit is None:
        refit = chosen.refit or (data is not dataset and data.whole is not None)
    recipe = Recipe(data.name, name, dict(settings or {}), _context_of(context), replace(chosen, refit=refit))
    if start is not None:
        recipe = started_recipe(recipe, start, keep_context=bool(context))
    with shown_progress() if progress is True else nullcontext(progress or None) as told:
        return run_recipe(
            recipe,
            data,
            seed=seed,
            output=output,
            device=device,
            minutes=minutes,
            began=began,
            overwrite=overwrite,
            progress=told,
            track=track,
        )


def _train_config(given: Mapping[str, Any], model: str, started: bool) -> TrainConfig:
    """What is given, and for the rest the defaults, which are others for a model that starts from a trained one."""
    usual = shipped_recipe("", model, True, "own") if started else None
    config: TrainConfig = checked(
        TrainConfig, {**({} if usual is None else asdict(usual.train)), **given}, "train"
    )
    return config


def _context_of(context: bool | str | ContextConfig | Mapping[str, Any] | None) -> ContextConfig | None:
    if isinstance(context, ContextConfig):
        return context
    return context_from(context) if context else None


def run_recipe(
    recipe: Recipe,
    dataset: Dataset | None = None,
    *,
    seed: int = 0,
    output: str | Path | None = None,
    device: torch.device | str = "cpu",
    minutes: float | None = None,
    began: float | None = None,
    evaluated: bool = False,
    overwrite: bool = False,
    otherwise: Recipe | None = None,
    progress: ProgressCallback | None = None,
    tell: Tell | None = None,
    track: str | Tracker | None = None,
) -> Predictor:
    """Train what a recipe says; with `output` the run can be resumed and loaded.

    `otherwise` is a recipe with a start, which takes its place where it is better after a short training of both.
    `evaluated` asks the evaluation queries once at the end, as every refit does before it (`Predictor.evaluation`).
    `minutes` began to run when `time.perf_counter` was `began`, by default now.
    `tell` hears beforehand how long it will take. In each of several processes (`processes.joined`, or a process group
    of torch) the same call trains together.
    """
    began = time.perf_counter() if began is None else began
    processes, recipe = current(), recipe.resolved()
    tracker = processes.on_first(lambda: chosen_tracker(track, output))
    data = dataset or processes.agreed(
        lambda: load_dataset(recipe.dataset) if recipe.mixture is None else Mixture.read(recipe.mixture)
    )
    processes.agreed(lambda: _check_trainable(recipe, data, processes))  # before a folder is made for it
    if output is not None:
        processes.on_first(lambda: refuse_old_run(Path(output), overwrite))  # before steps are timed
    if minutes is not None and isinstance(data, Mixture):
        raise ConfigError(
            "minutes are not for a mixture of graphs: say how many mixture.steps it is trained for."
        )
    trial = None
    if otherwise is not None and isinstance(data, Dataset):
        budget = _budget(minutes, began)
        trial = judged(recipe, otherwise, data, seed, device, budget, progress)
        recipe = trial.recipe.resolved()
        if tell is not None:
            tell(trial.told())
    training = _training(recipe, data, seed, device, evaluated)
    if isinstance(training, Experiment) and (minutes is not None or tell is not None):
        tried, pace = (0.0, None) if trial is None else (2 * TRIAL_SHARE, trial.pace)
        training.plan(_budget(minutes, began, tried), tell, pace)
    config = {
        "recipe": _titled(training.recipe, data).to_dict(),
        "seed": seed,
        "evaluated": evaluated,
        "split": None if isinstance(data, Mixture) else data.split,
        "machine": machine(device),
        "dataset_sha256": _sha256(data),
    }
    if isinstance(data, Mixture):
        config["graphs"] = data.described()
    elif recipe.start is not None:
        config["seen_by_start"] = seen_by_start(recipe.start, data.name)
    if trial is not None:
        config["trial"] = dict(trial.mrr)
    opened: AbstractContextManager[RunFolder | None] = nullcontext()
    if output is not None:
        opened = _opened(processes, lambda: RunFolder.create(output, config, overwrite=overwrite))
    with opened as run, tracked(tracker, config) as on_event:
        return training.fit(run, progress, on_event)


def _budget(minutes: float | None, began: float, tried: float = 0.0) -> Budget | None:
    """What is left of the minutes now, by the clock of the first process."""
    if minutes is None:
        return None
    return Budget(60 * minutes, current().from_first(lambda: time.perf_counter() - began), tried)


def _titled(recipe: Recipe, data: Dataset | Mixture) -> Recipe:
    """As a run stores it: what the data is called, not where it is."""
    recipe = replace(recipe, start=None if recipe.start is None else start_title(recipe.start))
    if isinstance(data, Mixture):
        assert recipe.mixture is not None
        return replace(recipe, mixture=replace(recipe.mixture, graphs=data.graphs, without=()))
    return replace(recipe, dataset=dataset_title(recipe.dataset))


def _sha256(data: Dataset | Mixture) -> str:
    return data.sha256 if isinstance(data, Mixture) else fingerprint(data)


def _training(
    recipe: Recipe,
    data: Dataset | Mixture,
    seed: int,
    device: torch.device | str,
    evaluated: bool,
    resumed: bool = False,
) -> Experiment | Pretraining:
    if isinstance(data, Mixture):
        return Pretraining(recipe, data, seed, device, resumed=resumed)
    return Experiment(recipe, data, seed, device, evaluated=evaluated, resumed=resumed)


def resume(
    output: str | Path,
    dataset: Dataset | Mixture | str | None = None,
    *,
    device: torch.device | str = "cpu",
    progress: ProgressCallback | None = None,
    track: str | Tracker | None = None,
) -> Predictor:
    """Go on with a run that was cut off; the same weights come out as from one that was not.

    The dataset has to be given unless the catalog has it: a run folder may come from anybody, and says nothing
    that is opened. It has to hold the facts that the run was begun on.
    Several processes may go on with what another number of them began.
    """
    processes = current()
    tracker = processes.on_first(lambda: chosen_tracker(track, output))
    with _opened(processes, lambda: RunFolder.open(output, writing=True)) as run:
        processes.agreed(lambda: None if run is None else stored_recipe(run))
        config = processes.from_first(lambda: {} if run is None else run.config)
        recipe = Recipe.from_dict(config["recipe"])
        data = processes.agreed(lambda: data_of(config, output, dataset))
        processes.agreed(lambda: _check_trainable(recipe, data, processes))
        processes.agreed(lambda: None if run is None else _tell_changes(run, data, device))
        evaluated = bool(config.get("evaluated", False))
        seed = int(config["seed"])
        training = _training(recipe, data, seed, device, evaluated, resumed=True)
        with tracked(tracker, config) as on_event:
            return training.fit(run, progress, on_event)


def data_of(
    config: Mapping[str, Any], run: str | Path, given: Dataset | Mixture | str | None
) -> Dataset | Mixture:
    """What a run was trained on: what the caller gives, or else a name of the catalog, which is ours."""
    if isinstance(given, Dataset | Mixture):
        return given
    if config["recipe"].get("mixture") is not None:
        return Mixture.of_run(config, run, given)
    if given is not None:
        return split_alike(config, given)
    name = config["recipe"]["dataset"]
    if not isinstance(name, str) or not is_named(name):
        raise DataError(
            f"{run} was trained on {shortened(str(name), 200)}, which is no name of the catalog, and a run folder is "
            f"not trusted to say what is opened. Give the dataset: contextpool resume {run} DATASET"
        )
    return load_dataset(name)


def _opened(
    processes: Processes, open_run: Callable[[], RunFolder]
) -> AbstractContextManager[RunFolder | None]:
    """The run folder in the first process, nothing in the others."""
    run = processes.on_first(open_run)
    return nullcontext() if run is None else run


def _check_trainable(recipe: Recipe, dataset: Dataset | Mixture, processes: Processes) -> None:
    """Settings, queries, and one process for a model that learns by looking: each would find something else."""
    recipe.check()
    if isinstance(dataset, Mixture):
        return
    chosen = dataset.with_queries(recipe.train.queries)
    if recipe.train.refit and dataset.whole is None:
        raise ConfigError(
            f"train.refit: {dataset.name} comes in parts; what is fitted on as a whole is one graph that was split. "
            "Leave the refit out (--no-refit, refit=False)."
        )
    if recipe.train.refit and recipe.context is not None and recipe.context.has_families:
        raise ConfigError(
            "train.refit: context.views has a view of Algorithm 1, which is not trained on facts of the graph that it "
            "was mined on. Leave the refit out (--no-refit, refit=False)."
        )
    if recipe.context is not None:
        graph, queries = chosen.training_graph, chosen.training_queries
        shared = len(graph) + len(queries) - len(joined([graph, queries]))
        recipe.context.check_training(shared, dataset.name)
    if processes.are_several and model_class(recipe.model).learn is not LinkPredictor.learn:
        raise ConfigError(
            f"model = {recipe.model!r} learns by looking at the graph, not by gradient, and does so in one process; "
            f"there are {processes.size}. Train it without --nproc or torchrun; its evaluation can be shared."
        )


def _tell_changes(run: RunFolder, dataset: Dataset | Mixture, device: torch.device | str) -> None:
    """Refuse other facts; note in the log, and on stderr, whatever else may change the last bits of the result."""
    if run.config["dataset_sha256"] != _sha256(dataset):
        raise DataError(
            f"{run.path}: the dataset {dataset.name!r} does not hold the facts that this run was begun on. "
            "Resume with the same files (of one graph, with the same split and seed), or train anew into another "
            "folder."
        )
    then, now = run.config["machine"], machine(device)
    then = {"processes": 1, **then}  # a run from before there could be several
    watched = ("device", "threads", "torch", "processes")
    changed = {key: [then.get(key), now[key]] for key in watched if then.get(key) != now[key]}
    if changed:
        run.append_event({"event": "resumed elsewhere", "changed": changed})
        told = ", ".join(f"{key} {before} -> {after}" for key, (before, after) in changed.items())
        print(
            f"{run.path}: resumed under other conditions ({told}); the last bits may differ.", file=sys.stderr
        )


__all__ = [
    "Experiment",
    "compare_with_references",
    "evaluate",
    "evaluated_on",
    "load",
    "machine",
    "resume",
    "run_recipe",
    "split_alike",
    "train",
    "training_free",
    "was_fitted_on",
]
