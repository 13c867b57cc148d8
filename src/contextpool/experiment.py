"""A recipe becomes a run becomes a Predictor; the only place that knows every stage."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from contextpool.context.config import NO_CONTEXT, ContextConfig
from contextpool.context.counts import Statistics
from contextpool.errors import CheckpointError, ConfigError, DataError
from contextpool.evaluate.calibration import Calibration, fit_calibration
from contextpool.evaluate.ranks import Scorer, batch_size_for
from contextpool.evaluate.references import constant_scorer, frequency_scorer
from contextpool.evaluate.report import EvaluationReport, evaluate_scorer
from contextpool.graph.graph import Graph
from contextpool.graph.relations import RelationVocabulary
from contextpool.interop.hub import local_folder
from contextpool.models.base import LinkPredictor
from contextpool.models.registry import model_class, name_of
from contextpool.models.walk import Walk
from contextpool.predict import Predictor
from contextpool.processes import Processes, current
from contextpool.provenance import fingerprint, machine
from contextpool.recipe import Recipe, checked, context_from
from contextpool.train.config import TrainConfig
from contextpool.train.learning import learn_from_graph
from contextpool.train.loop import Trainer, Validate
from contextpool.train.progress import OnEvent, Outcome, Progress
from contextpool.train.queries import TrainingQueries
from contextpool.train.run_folder import RunFolder
from contextpool.train.tracking import Tracker, chosen_tracker, tracked
from contextpool.triples.catalog import load_dataset
from contextpool.triples.dataset import Dataset, Protocol, joined
from contextpool.triples.store import Triples

ProgressCallback = Callable[[Progress], None]


def train(
    dataset: Dataset | str,
    model: str | type[LinkPredictor] = "nbfnet",
    context: bool | str | ContextConfig | Mapping[str, Any] | None = False,
    seed: int = 0,
    output: str | Path | None = None,
    *,
    device: torch.device | str = "cpu",
    settings: Mapping[str, Any] | None = None,
    train: TrainConfig | Mapping[str, Any] | None = None,
    overwrite: bool = False,
    progress: ProgressCallback | None = None,
    track: str | Tracker | None = None,
) -> Predictor:
    """Train a model on a dataset and return its Predictor; `output` is the run folder to write.

    `context` is True for the default context, "paper" for the paper's form, or settings that differ from the default.
    `track` sends the curves elsewhere, too: "tensorboard", "mlflow", "wandb", or a `Tracker`.
    """
    data = dataset if isinstance(dataset, Dataset) else load_dataset(dataset)
    name = model if isinstance(model, str) else name_of(model)
    chosen: TrainConfig = (
        train if isinstance(train, TrainConfig) else checked(TrainConfig, train or {}, "train")
    )
    recipe = Recipe(data.name, name, dict(settings or {}), _context_of(context), chosen)
    return run_recipe(
        recipe,
        data,
        seed=seed,
        output=output,
        device=device,
        overwrite=overwrite,
        progress=progress,
        track=track,
    )


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
    overwrite: bool = False,
    progress: ProgressCallback | None = None,
    track: str | Tracker | None = None,
) -> Predictor:
    """Train what a recipe says; with `output` the run can be resumed and loaded.

    In each of several processes (`processes.joined`, or a process group of torch) the same call trains together.
    """
    processes, recipe = current(), recipe.resolved()
    tracker = processes.on_first(lambda: chosen_tracker(track, output))
    data = dataset or processes.agreed(lambda: load_dataset(recipe.dataset))
    processes.agreed(lambda: _check_trainable(recipe, data, processes))  # before a folder is made for it
    config = {
        "recipe": recipe.to_dict(),
        "seed": seed,
        "machine": machine(device),
        "dataset_sha256": fingerprint(data),
    }
    if output is None:
        with tracked(tracker, config) as on_event:
            return Experiment(recipe, data, seed, device).fit(None, progress, on_event)
    opened = _opened(processes, lambda: RunFolder.create(output, config, overwrite=overwrite))
    with opened as run, tracked(tracker, config) as on_event:
        return Experiment(recipe, data, seed, device).fit(run, progress, on_event)


def resume(
    output: str | Path,
    dataset: Dataset | None = None,
    *,
    device: torch.device | str = "cpu",
    progress: ProgressCallback | None = None,
    track: str | Tracker | None = None,
) -> Predictor:
    """Go on with a run that was cut off; the same weights come out as from one that was not.

    Several processes may go on with what another number of them began.
    """
    processes = current()
    tracker = processes.on_first(lambda: chosen_tracker(track, output))
    with _opened(processes, lambda: RunFolder.open(output, writing=True)) as run:
        config = processes.from_first(lambda: {} if run is None else run.config)
        recipe = Recipe.from_dict(config["recipe"])
        data = dataset or processes.agreed(lambda: load_dataset(recipe.dataset))
        processes.agreed(lambda: _check_trainable(recipe, data, processes))
        processes.agreed(lambda: None if run is None else _tell_changes(run, data, device))
        with tracked(tracker, config) as on_event:
            return Experiment(recipe, data, int(config["seed"]), device).fit(run, progress, on_event)


def _opened(
    processes: Processes, open_run: Callable[[], RunFolder]
) -> AbstractContextManager[RunFolder | None]:
    """The run folder in the first process, nothing in the others."""
    run = processes.on_first(open_run)
    return nullcontext() if run is None else run


def _check_trainable(recipe: Recipe, dataset: Dataset, processes: Processes) -> None:
    """Settings, queries, and one process for a model that learns by looking: each would find something else."""
    recipe.model_config()
    chosen = dataset.with_queries(recipe.train.queries)
    if recipe.context is not None:
        graph, queries = chosen.training_graph, chosen.training_queries
        shared = len(graph) + len(queries) - len(joined([graph, queries]))
        recipe.context.check_training(shared, dataset.name)
    if processes.are_several and model_class(recipe.model).learn is not LinkPredictor.learn:
        raise ConfigError(
            f"model = {recipe.model!r} learns by looking at the graph, not by gradient, and does so in one process; "
            f"there are {processes.size}. Train it without --nproc or torchrun; its evaluation can be shared."
        )


def _tell_changes(run: RunFolder, dataset: Dataset, device: torch.device | str) -> None:
    """Refuse other facts; note in the log, and on stderr, whatever else may change the last bits of the result."""
    if run.config["dataset_sha256"] != fingerprint(dataset):
        raise DataError(
            f"{run.path}: the dataset {dataset.name!r} does not hold the facts that this run was begun on. "
            "Resume with the same files, or train anew into another folder."
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


class Experiment:
    """One training: graphs, model, loop, calibration."""

    def __init__(self, recipe: Recipe, dataset: Dataset, seed: int, device: torch.device | str) -> None:
        self.recipe, self.seed, self.device = recipe.resolved(), seed, torch.device(device)
        self.dataset = dataset.with_queries(recipe.train.queries)
        self.graph = Graph.from_triples(self.dataset.training_graph).to(self.device)
        self.model = self._new_model()
        counts = recipe.context is not None or self.model.reads_relations
        self.statistics = Statistics.of(self.graph) if counts else None
        self.predictor = Predictor(
            self.model, self.graph.relation_vocabulary, recipe.context, self.statistics, device=self.device
        )
        self.outcome: Outcome | None = None
        """What training came to; None before it, and for a model with nothing to train."""

    def _new_model(self) -> LinkPredictor:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            kind = model_class(self.recipe.model)
            model = kind.for_graph(self.graph, self.recipe.model_config(), self.recipe.context)
        return model.to(self.device)

    def fit(
        self,
        run: RunFolder | None,
        progress: ProgressCallback | None = None,
        on_event: OnEvent | None = None,
    ) -> Predictor:
        """Learn, train, calibrate, and write the run's results; of several processes only the first tells."""
        progress = progress if current().is_first else None
        told: dict[str, Any] = {"seed": self.seed, "run": run, "progress": progress, "on_event": on_event}
        outcome = learn_from_graph(self.model, self.graph, self._validate(), **told)
        if any(True for _ in self.model.parameters()):
            outcome = self._train(run, progress, on_event)
        self.outcome = outcome
        fitted = fit_calibration(
            self._selection_scorer,
            selection_queries(self.recipe, self.dataset),
            self.dataset.validation_filter,
            device=self.device,
            seed=self.seed,
        )
        self.predictor.calibration = fitted.calibration
        if run is not None:
            self._write(run, outcome, fitted.to_dict())
        return self.predictor

    def _train(
        self, run: RunFolder | None, progress: ProgressCallback | None, on_event: OnEvent | None
    ) -> Outcome:
        queries = TrainingQueries.of(self.dataset.training_queries, self.graph, self.dataset.training_filter)
        builder = self.model.builder(self.graph, self.recipe.context, self.statistics)
        trainer = Trainer(
            self.model,
            queries,
            builder,
            self.recipe.train,
            self._validate(),
            seed=self.seed,
            run=run,
            progress=progress,
            on_event=on_event,
            processes=current(),
        )
        trainer.resume()
        return trainer.fit()

    def _validate(self) -> Validate:
        """Validation MRR on the selection queries: never an inference query."""

        def validate(model: LinkPredictor) -> float:
            report = evaluate_scorer(
                self._selection_scorer,
                selection_queries(self.recipe, self.dataset),
                self.dataset.validation_filter,
                batch_size=self.recipe.train.batch_size,
                device=self.device,
                processes=current(),
            )
            return report.mrr

        return validate

    @cached_property
    def _selection_scorer(self) -> Scorer:
        """Over the graph that selection walks on; the model is evaluated as it is when it is asked."""
        return self.predictor.scorer(Graph.from_triples(self.dataset.validation_graph).to(self.device))

    def _write(self, run: RunFolder, outcome: Outcome | None, calibration: dict[str, Any]) -> None:
        metrics = {
            "valid_mrr": None if outcome is None else outcome.best_mrr,
            "best_epoch": None if outcome is None else outcome.best_epoch,
            "epochs": 0 if outcome is None else outcome.epochs,
            "history": [] if outcome is None else outcome.history,
            "calibration": calibration,
        }
        run.write_json("relations.json", list(self.graph.relations))
        if self.statistics is not None:
            run.save_tensors("context.safetensors", *self.statistics.to_tensors())
        weights = {name: value.detach().cpu() for name, value in self.model.state_dict().items()}
        run.save_tensors("model.safetensors", weights, {"model": self.recipe.model})
        rules = "".join(f"{line}\n" for line in self.model.rules_text(self.graph.relation_vocabulary))
        if rules:
            run.write_text("rules.txt", rules)
        run.write_text("README.md", model_card(self.recipe, self.dataset, self.seed, metrics))
        run.write_json("metrics.json", metrics)


def load(path: str | Path, *, device: torch.device | str = "cpu") -> Predictor:
    """The Predictor of a finished run, in a folder or at an address (`hf://user/name[@revision]`); needs no dataset."""
    run = RunFolder.open(local_folder(path))
    recipe = Recipe.from_dict(run.config["recipe"])
    relations = RelationVocabulary(tuple(run.read_json("relations.json")))
    weights, _ = run.load_tensors("model.safetensors")
    model = model_class(recipe.model)(relations.num_relations, recipe.model_config(), recipe.context)
    try:
        model.load_state_dict(weights)
    except RuntimeError as error:
        raise CheckpointError(f"{path}: the weights do not fit the recipe ({error}).") from error
    statistics = None
    if recipe.context is not None or model.reads_relations:
        statistics = Statistics.from_tensors(relations, *run.load_tensors("context.safetensors"))
    stored = run.read_json("metrics.json")["calibration"]["calibration"]
    calibration = None if stored is None else Calibration.from_dict(stored)
    return Predictor(model, relations, recipe.context, statistics, calibration, device=device)


def evaluate(
    predictor: Predictor,
    dataset: Dataset | str,
    *,
    protocol: Protocol = "P1",
    batch_size: int = 64,
    seed: int = 0,
) -> EvaluationReport:
    """How the predictor's answers rank on the dataset's evaluation queries; realistic ties, filtered."""
    data = dataset if isinstance(dataset, Dataset) else load_dataset(dataset)
    scorer, device = _scorer_of(predictor, data), predictor.device
    return _evaluated(scorer, data, protocol, batch_size=batch_size, device=device, seed=seed)


def compare_with_references(
    predictor: Predictor,
    dataset: Dataset | str,
    *,
    protocol: Protocol = "P1",
    memory_bytes: int = 10**9,
    seed: int = 0,
) -> dict[str, EvaluationReport]:
    """The model beside what needs no training: a constant, the most frequent answer, the walk with relevance."""
    data = dataset if isinstance(dataset, Dataset) else load_dataset(dataset)
    graph = Graph.from_triples(data.inference_graph).to(predictor.device)
    size = min(64, batch_size_for(graph.num_entities, memory_bytes, 16))
    scorers = {
        "model": _scorer_of(predictor, data),
        "walk x relevance": _scorer_of(training_free(data, device=predictor.device), data),
        "most frequent answer": frequency_scorer(graph),
        "constant": constant_scorer(graph.num_entities),
    }
    return {
        name: _evaluated(scorer, data, protocol, batch_size=size, device=predictor.device, seed=seed)
        for name, scorer in scorers.items()
    }


def training_free(dataset: Dataset, *, device: torch.device | str = "cpu") -> Predictor:
    """The walk with candidate relevance; all it takes from the training graph is counts."""
    graph = Graph.from_triples(dataset.training_graph)
    context = replace(NO_CONTEXT, arrive=True)
    model = Walk(graph.num_relations, None, context)
    return Predictor(model, graph.relation_vocabulary, context, Statistics.of(graph), device=device)


def _scorer_of(predictor: Predictor, data: Dataset) -> Scorer:
    """Over the inference graph, for relations as the dataset numbers them: it may have fewer than the model."""
    graph, _ = predictor.prepared(Graph.from_triples(data.inference_graph))
    scorer, labels = predictor.scorer(graph), RelationVocabulary.of(data.relations).directed
    model_id = torch.tensor([predictor.relations.id_of(label) for label in labels], device=predictor.device)
    return lambda query_head, query_relation: scorer(query_head, model_id[query_relation])


def _evaluated(scorer: Scorer, data: Dataset, protocol: Protocol, **options: Any) -> EvaluationReport:
    queries, known = data.evaluation_queries(protocol), data.evaluation_filter
    return evaluate_scorer(scorer, queries, known, processes=current(), **options)


def selection_queries(recipe: Recipe, dataset: Dataset) -> Triples:
    """What validation and calibration ask."""
    facts, number = dataset.validation_queries, recipe.train.valid_facts
    return facts.sample(number) if number else facts


def model_card(recipe: Recipe, dataset: Dataset, seed: int, metrics: Mapping[str, Any]) -> str:
    """README.md of a run."""
    context = "no context" if recipe.context is None else f"context with {recipe.context.num_views} views"
    valid = (
        "not trained"
        if metrics["valid_mrr"] is None
        else f"{metrics['valid_mrr']:.4f} (epoch {metrics['best_epoch']})"
    )
    return (
        f"# {recipe.model} on {dataset.name}\n\n"
        f"A contextpool run: {recipe.model}, {context}, seed {seed}.\n\n"
        f"- training graph: {len(dataset.training_graph):,} facts, {len(dataset.relations):,} relations\n"
        f"- training queries: {len(dataset.training_queries):,}, each hidden from itself\n"
        f"- selection: {len(selection_queries(recipe, dataset)):,} queries, validation MRR {valid}\n\n"
        "The model knows relations, never entities: it answers on graphs of new entities with these relations.\n\n"
        '```python\nimport contextpool as cp\n\npredictor = cp.load(".")\n'
        'predictor.predict(cp.read_graph("new.tsv"), head="...", relation="...")\n```\n'
    )


__all__ = ["Experiment", "evaluate", "load", "machine", "resume", "run_recipe", "train"]
