"""One training on one dataset: graphs, model, loop, calibration, evaluation, refit; and how long it will take."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import torch

from contextpool.card import model_card, selection_queries
from contextpool.context.counts import Statistics
from contextpool.errors import ConfigError
from contextpool.evaluate.calibration import fit_calibration
from contextpool.evaluate.ranks import Scorer
from contextpool.evaluate.references import (
    evaluation_figures,
)
from contextpool.evaluate.report import EvaluationReport, evaluate_scorer
from contextpool.evaluation import (
    compare_with_references,
)
from contextpool.graph.graph import Graph
from contextpool.models.base import LinkPredictor
from contextpool.models.registry import model_class
from contextpool.predict import Predictor
from contextpool.pretraining import (
    check_resumed,
    load_start,
)
from contextpool.processes import current
from contextpool.provenance import facts_fingerprint
from contextpool.recipe import SCRATCH, Recipe
from contextpool.train.budget import (
    Budget,
    Pace,
    Work,
    on_trial,
    plan_told,
    refit_config,
    timed,
    too_slow,
    within,
)
from contextpool.train.course import EveryQuery
from contextpool.train.learning import learn_from_graph
from contextpool.train.loop import Trainer, Validate
from contextpool.train.progress import OnEvent, Outcome, ProgressCallback, asking_progress
from contextpool.train.queries import TrainingQueries
from contextpool.train.run_folder import Results, RunFolder
from contextpool.triples.dataset import Dataset
from contextpool.triples.filters import KnownAnswers
from contextpool.triples.reader import Tell
from contextpool.triples.store import Triples


class Experiment:
    """One training: graphs, model, loop, calibration, evaluation, refit."""

    def __init__(
        self,
        recipe: Recipe,
        dataset: Dataset,
        seed: int,
        device: torch.device | str,
        *,
        evaluated: bool = False,
        resumed: bool = False,
    ) -> None:
        """A model for every relation of the dataset; `evaluated` asks the evaluation queries once, at the end.

        What is `resumed` has the weights that it started from in a checkpoint.
        """
        self.resumed = resumed
        self.recipe, self.seed, self.device = recipe.resolved(), seed, torch.device(device)
        self.evaluated = evaluated or recipe.train.refit
        self.dataset = dataset.with_every_relation().with_queries(recipe.train.queries)
        self.graph = Graph.from_triples(self.dataset.training_graph).to(self.device)
        self.model = self._new_model()
        counts = self.recipe.context is not None or self.model.reads_relations
        self.statistics = Statistics.of(self.graph) if counts else None
        self.predictor = self._new_predictor()
        self.outcome: Outcome | None = None
        """What training came to; None before it, and for a model with nothing to train."""

    def _new_model(self) -> LinkPredictor:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            kind = model_class(self.recipe.model)
            model = kind.for_graph(self.graph, self.recipe.model_config(), self.recipe.context)
        if self.recipe.start is not None and not self.resumed:
            load_start(model, self.recipe, self.graph.relation_vocabulary)
        return model.to(self.device)

    def _new_predictor(self) -> Predictor:
        own = self.graph.relation_vocabulary if self.model.keeps_relations else None
        counted = self.statistics if self.model.keeps_relations else None  # else those of the graph at hand
        return Predictor(self.model, own, self.recipe.context, counted, device=self.device)

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
            outcome = self._train(told)
        self.outcome = outcome
        fitted = fit_calibration(
            self._selection_scorer,
            selection_queries(self.recipe, self.dataset),
            self.dataset.validation_filter,
            device=self.device,
            seed=self.seed,
        )
        self.predictor.calibration = fitted.calibration
        if self.evaluated:
            facts = self.recipe.train.test_facts
            watch = None if progress is None else asking_progress(progress, "evaluating")
            reports = compare_with_references(
                self.predictor, self.dataset, facts=facts, seed=self.seed, progress=watch
            )
            self.predictor.evaluation = evaluation_figures(reports)
        if self.recipe.train.refit:
            self._refit(outcome, told)
        if run is not None:
            self._write(run, outcome, fitted.to_dict())
        return self.predictor

    def _train(self, told: Mapping[str, Any]) -> Outcome:
        trainer = self._trainer(self.model, told)
        check_resumed(self.recipe, self.resumed, trainer.resume())
        return trainer.fit()

    def _trainer(self, model: LinkPredictor, told: Mapping[str, Any]) -> Trainer:
        queries = TrainingQueries.of(self.dataset.training_queries, self.graph, self.dataset.training_filter)
        builder = model.builder(self.graph, self.recipe.context, self.statistics)
        course = EveryQuery(queries, builder, self.recipe.train)
        options: dict[str, Any] = {
            "pretrained": self.recipe.start is not None,
            "processes": current(),
            **told,
        }
        return Trainer(model, course, self.recipe.train, self._validate(), **options)

    def _refit(self, outcome: Outcome | None, told: Mapping[str, Any]) -> None:
        """Go on from the selected weights with every fact of the graph that was split; rules are learned anew."""
        whole, train = self.dataset.whole, self.recipe.train
        assert whole is not None, "checked before"
        steps = train.epoch_length(2 * len(self.dataset.training_queries))
        self.graph = Graph.from_triples(whole).to(self.device)
        self.statistics = None if self.statistics is None else Statistics.of(self.graph)
        fitted = True
        if type(self.model).learn is not LinkPredictor.learn:
            self.model = self._new_model()
            for _ in self.model.learn(self.graph, self.seed):
                pass
        elif outcome is not None and (outcome.best_epoch or self.recipe.start is None):
            queries = TrainingQueries.of(whole, self.graph, KnownAnswers.of(whole))
            builder = self.model.builder(self.graph, self.recipe.context, self.statistics)
            config = refit_config(train, max(1, outcome.best_epoch) * steps, len(queries))
            course = EveryQuery(queries, builder, config)
            trainer = Trainer(self.model, course, config, None, kept_as="refit", processes=current(), **told)
            trainer.resume()
            trainer.fit()
        else:  # weights that no epoch made better have seen nothing of the graph, unless they keep its counts
            fitted = self.model.keeps_relations
        before, self.predictor = self.predictor, self._new_predictor()
        self.predictor.calibration, self.predictor.evaluation = before.calibration, before.evaluation
        self.predictor.fitted_on = facts_fingerprint(whole) if fitted else None

    # time

    def plan(self, budget: Budget | None, tell: Tell | None, pace: Pace | None = None) -> None:
        """Tell how long all will take, at a `pace` that is timed unless it is known; with a budget choose what fits."""
        if not any(True for _ in self.model.parameters()):
            if budget is not None and hasattr(self.model.settings, "seconds"):
                raise ConfigError(
                    f"{self.recipe.model} has a budget of its own, and no steps: say model.seconds instead of minutes."
                )
            return
        train, test = self.recipe.train, len(self.dataset.evaluation_queries()) if self.evaluated else 0
        queries, valid = 2 * len(self.dataset.training_queries), len(self.dataset.validation_queries)
        work, began = Work(queries, valid, test), time.perf_counter()
        pace = pace or self._timed(math.inf if budget is None else budget.left)
        if budget is not None:
            spent = budget.spent + current().from_first(lambda: time.perf_counter() - began)
            budget = replace(budget, spent=spent)
            train = within(train, pace, work, budget)
            self.recipe = replace(self.recipe, train=train)
        if tell is not None:
            gpu = torch.cuda.is_available() and self.device.type == "cpu"
            tell(plan_told(train, pace, work, budget=budget, shorter=budget is None, gpu=gpu))

    def _timed(self, left: float = math.inf) -> Pace:
        """Seconds of a step and of a question; the first of each, which compiles, is not timed.

        Nothing is timed twice once steps turn out to be too slow for the seconds left.
        """
        agree = current().from_first

        def fits(seconds: float, counted: int) -> bool:
            return agree(lambda: not too_slow(seconds, left) if counted else seconds <= left)

        model = copy.deepcopy(self.model)
        trainer = self._trainer(model, {"seed": self.seed})
        few = self.dataset.validation_queries.sample(max(1, self.recipe.train.batch_size // 2))
        ask = partial(self._selection_report, few)
        step = timed(lambda: trainer.take_steps(1), goes_on=fits)
        rounds = agree(lambda: 0 if too_slow(step, left) else 2)
        question = timed(ask, rounds) / (2 * len(few))
        return Pace(*agree(lambda: [step, question]))

    def _validate(self) -> Validate:
        """Validation MRR on the selection queries: never an inference query."""

        def validate(model: LinkPredictor) -> float:
            return self._selection_report(selection_queries(self.recipe, self.dataset)).mrr

        return validate

    def _selection_report(self, queries: Triples) -> EvaluationReport:
        return evaluate_scorer(
            self._selection_scorer,
            queries,
            self.dataset.validation_filter,
            batch_size=self.recipe.train.batch_size,
            device=self.device,
            processes=current(),
        )

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
            "evaluation": self.predictor.evaluation,
            "fitted_on": self.predictor.fitted_on,
        }
        statistics = self.predictor.statistics
        results = Results(
            {name: value.detach().cpu() for name, value in self.model.state_dict().items()},
            self.recipe.model,
            metrics,
            model_card(self.recipe, self.dataset, self.seed, metrics, run.config.get("seen_by_start", ())),
            None if self.predictor.relations is None else self.graph.relations,
            None if statistics is None else statistics.to_tensors(),
            "".join(f"{line}\n" for line in self.model.rules_text(self.graph.relation_vocabulary)),
        )
        run.write_results(results)


TRIAL_QUESTIONS, SCRATCH_TIMES = 1600, 2.5
"""What a start is trained with on trial, and how many times as much from scratch, where a question takes less time."""
TRIAL_SHARE = 0.1
"""Of the time for all, that each may take."""


@dataclass(frozen=True)
class Judged:
    """Which of two ways to train goes on."""

    recipe: Recipe
    mrr: Mapping[str, float]
    """Validation MRR after a short training, by what it starts from; empty where there was no time to try both."""
    pace: Pace | None = None
    """Of the one that goes on, where it was timed."""

    def told(self) -> str:
        chosen = self.recipe.start or SCRATCH
        if not self.mrr:
            return f"too little time to try training from scratch, too: starts from {chosen}"
        (other,) = (start for start in self.mrr if start != chosen)
        return (
            f"after about as long a training on trial, {chosen} validates better (MRR {self.mrr[chosen]:.3f}) than "
            f"{other} ({self.mrr[other]:.3f}): training starts from {chosen} (--from {other} would not)"
        )


def judged(
    scratch: Recipe,
    started: Recipe,
    dataset: Dataset,
    seed: int,
    device: torch.device | str,
    budget: Budget | None = None,
    progress: ProgressCallback | None = None,
) -> Judged:
    """Try both for about as long, and judge them by the same validation facts; the weights are not kept.

    With a budget each takes at most `TRIAL_SHARE` of what is left of it. Without, so many questions are asked, whatever
    they take: the same seed chooses the same.
    """
    tried = [Experiment(recipe, dataset, seed, device) for recipe in (scratch, started)]
    work = Work(2 * len(dataset.training_queries), len(dataset.validation_queries), 0)
    each: float | None = None
    paces: list[Pace | None] = [None, None]
    if budget is not None:
        each, pace = TRIAL_SHARE * budget.left, tried[1]._timed(budget.left)
        if too_slow(pace.step, each):
            return Judged(started, {}, pace)
        paces = [tried[0]._timed(budget.left), pace]
    questions = [round(SCRATCH_TIMES * TRIAL_QUESTIONS), TRIAL_QUESTIONS]
    trains = on_trial([made.recipe.train for made in tried], questions, work, paces, each)
    if trains is None:
        return Judged(started, {}, paces[1])
    found = {}
    for made, train in zip(tried, trains, strict=True):
        made.recipe = replace(made.recipe, train=train)
        told = progress if current().is_first else None
        outcome = made._train({"seed": seed, "run": None, "progress": told, "on_event": None})
        found[made.recipe.start or SCRATCH] = outcome.best_mrr
    best = max(found, key=lambda start: found[start])
    return Judged(*((scratch, found, paces[0]) if best == SCRATCH else (started, found, paces[1])))
