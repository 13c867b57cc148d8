"""Pre-training: one model on a mixture of graphs, so that it can be asked about any other, or trained on from there."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from contextpool.context.counts import Statistics
from contextpool.errors import CheckpointError, ConfigError, DataError
from contextpool.graph.graph import Graph
from contextpool.graph.relations import RelationVocabulary
from contextpool.interop.hub import PACKAGED, local_folder
from contextpool.models.base import LinkPredictor
from contextpool.models.registry import model_class
from contextpool.pool.batch import BatchBuilder
from contextpool.predict import Predictor
from contextpool.processes import current
from contextpool.provenance import facts_sha256
from contextpool.recipe import MIXTURE, Recipe, read_recipe
from contextpool.stored import load, stored_recipe
from contextpool.train.config import MixedGraph, MixtureConfig
from contextpool.train.course import MixedGraphs, TrainingGraph
from contextpool.train.loop import Trainer
from contextpool.train.progress import OnEvent, Outcome, Progress
from contextpool.train.queries import TrainingQueries
from contextpool.train.run_folder import Results, RunFolder
from contextpool.triples.catalog import graph_title, read_training_graph
from contextpool.triples.filters import KnownAnswers
from contextpool.triples.store import Triples

UNCALIBRATED = {"calibration": None, "reason": "it is fitted on the graph at hand"}


@dataclass(frozen=True, eq=False)
class Mixture:
    """The graphs of a mixture, read."""

    graphs: tuple[MixedGraph, ...]
    """Called what they are, not where they lie."""
    facts: tuple[Triples, ...]
    checksums: tuple[str, ...]
    """sha256 over the facts of each (`provenance.facts_sha256`)."""

    @classmethod
    def read(cls, config: MixtureConfig) -> Mixture:
        """All graphs that are not left out."""
        facts = tuple(read_training_graph(graph.name) for graph in config.used)
        titles = distinct_titles([graph_title(graph.name) for graph in config.used])
        graphs = [replace(graph, name=title) for graph, title in zip(config.used, titles, strict=True)]
        return cls(tuple(graphs), facts, tuple(facts_sha256(one) for one in facts))

    @classmethod
    def of_run(cls, config: Mapping[str, Any], run: str | Path, recipe: str | Path | None) -> Mixture:
        """The graphs that a run was begun on, found by their checksums among those of the recipe that is given.

        Without a recipe, among what the run names, but only in the catalog and the data folders: a run folder may come
        from anybody.
        """
        stored = Recipe.from_dict(config["recipe"]).mixture
        given = stored if recipe is None else read_recipe(recipe).mixture
        rows = config.get("graphs")
        if stored is None or not isinstance(rows, list) or len(rows) != len(stored.graphs):
            raise CheckpointError(f"{run}: config.json does not list the graphs of its recipe. Use a copy.")
        if given is None:
            raise ConfigError(
                f"{run} was trained on a mixture of graphs, and {recipe} has none. Give its recipe."
            )
        found: dict[str, Triples] = {}
        for graph in given.graphs:
            facts = read_training_graph(graph.name, for_run=None if recipe is not None else run)
            found[facts_sha256(facts)] = facts
        checksums = tuple(str(row["sha256"]) for row in rows)
        for graph, checksum in zip(stored.graphs, checksums, strict=True):
            if checksum not in found:
                raise DataError(
                    f"{run}: the graph {graph.name!r} does not hold the facts that this run was begun on. Resume with "
                    "the same files, or train anew into another folder."
                )
        return cls(stored.graphs, tuple(found[checksum] for checksum in checksums), checksums)

    @property
    def name(self) -> str:
        return MIXTURE

    @property
    def sha256(self) -> str:
        """Over the checksums of all."""
        return hashlib.sha256("".join(self.checksums).encode()).hexdigest()

    def described(self) -> list[dict[str, Any]]:
        """As config.json has it."""
        rows = zip(self.graphs, self.facts, self.checksums, strict=True)
        return [
            {"name": graph.name, "facts": len(facts), "relations": len(facts.relations), "sha256": checksum}
            for graph, facts, checksum in rows
        ]


def started_recipe(recipe: Recipe, start: str | Path, *, keep_context: bool = False) -> Recipe:
    """The recipe with a start, whose settings and context it takes, but for settings that the recipe has of its own."""
    stored = recipe_of_start(start)
    if stored.model != recipe.model:
        raise ConfigError(
            f"start is {str(start)!r}, a run of {stored.model}, and the model is {recipe.model}. Start from another "
            "run, or leave the model out."
        )
    context = recipe.context if keep_context else stored.context
    return replace(recipe, start=str(start), settings={**stored.settings, **recipe.settings}, context=context)


def recipe_of_start(start: str | Path) -> Recipe:
    """What it was trained by."""
    return stored_recipe(RunFolder.open(local_folder(start)))


def start_title(start: str) -> str:
    """What a run calls the one it started from: never where it lies."""
    return start if start in PACKAGED else Path(start).resolve().name


def load_start(model: LinkPredictor, recipe: Recipe, relations: RelationVocabulary | None) -> None:
    """Give a new model the weights that a recipe starts from; refused where they are of another model."""
    assert recipe.start is not None
    start = load(recipe.start)
    if start.relations is not None and start.relations != relations:
        raise ConfigError(
            f"start is {recipe.start!r}, whose weights belong to other relations than the training graph has. Start "
            "from a model that takes any relation: anygraph-1."
        )
    try:
        model.load_state_dict(start.model.state_dict())
    except RuntimeError:
        raise ConfigError(
            f"start is {recipe.start!r}, whose weights do not fit the model's settings and context. Leave those out: "
            "they are the start's."
        ) from None


def seen_by_start(start: str | Path, dataset: str) -> list[str]:
    """Graphs of a benchmark's family that the start was trained on: figures on it are then not those of new graphs."""
    run = RunFolder.open(local_folder(start))
    metrics = run.read_json("metrics.json")
    listed = metrics.get("graphs") or metrics.get("figures", {}).get("graphs") or ()
    family = dataset.rsplit("_v", 1)[0]
    return [str(graph["name"]) for graph in listed if str(graph["name"]).rsplit("_v", 1)[0] == family]


def check_resumed(recipe: Recipe, resumed: bool, found: bool) -> None:
    """A run that was cut off before its first checkpoint has not got the weights that it starts from."""
    if resumed and recipe.start is not None and not found:
        raise CheckpointError(
            f"the run was cut off before its first checkpoint, and a run folder is not trusted to say where the "
            f"weights of {recipe.start!r} are. Train it again (--overwrite)."
        )


def distinct_titles(titles: list[str]) -> list[str]:
    """A title that occurs again gets a number."""
    return [
        title if title not in titles[:place] else f"{title} ({titles[:place].count(title) + 1})"
        for place, title in enumerate(titles)
    ]


class Pretraining:
    """One pre-training: model, graphs, loop. There is nothing to select on: the last weights are kept."""

    def __init__(
        self,
        recipe: Recipe,
        mixture: Mixture,
        seed: int,
        device: torch.device | str,
        model: LinkPredictor | None = None,
        *,
        resumed: bool = False,
    ) -> None:
        """`model` takes the place of a new one. What is `resumed` has its weights in a checkpoint."""
        assert recipe.mixture is not None
        self.resumed = resumed
        self.recipe, self.mixture, self.seed, self.device = recipe, mixture, seed, torch.device(device)
        self.model = (self._new_model() if model is None else model).to(self.device)
        graphs = [self._training_graph(facts) for facts in mixture.facts]
        shares = [graph.share for graph in mixture.graphs]
        self.course = MixedGraphs(graphs, shares, recipe.mixture, recipe.train)
        self.predictor = Predictor(self.model, None, recipe.context, None, device=self.device)

    def _new_model(self) -> LinkPredictor:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            model = model_class(self.recipe.model)(0, self.recipe.model_config(), self.recipe.context)
        if self.recipe.start is not None and not self.resumed:
            load_start(model, self.recipe, None)
        return model

    def _training_graph(self, facts: Triples) -> TrainingGraph:
        graph = Graph.from_triples(facts).to(self.device)
        queries = TrainingQueries.of(facts, graph, KnownAnswers.of(facts))
        return TrainingGraph.of(queries, self.builder(graph))

    def builder(self, graph: Graph) -> BatchBuilder:
        """What makes batches over one of the graphs."""
        return self.model.builder(graph, self.recipe.context, Statistics.of(graph))

    def trainer(
        self,
        run: RunFolder | None = None,
        progress: Callable[[Progress], None] | None = None,
        on_event: OnEvent | None = None,
    ) -> Trainer:
        """The loop over all its steps."""
        processes = current()
        return Trainer(
            self.model,
            self.course,
            self.recipe.train,
            None,
            seed=self.seed,
            pretrained=self.recipe.start is not None,
            run=run,
            progress=progress if processes.is_first else None,
            on_event=on_event,
            processes=processes,
        )

    def fit(
        self,
        run: RunFolder | None,
        progress: Callable[[Progress], None] | None = None,
        on_event: OnEvent | None = None,
    ) -> Predictor:
        """Train from wherever the run stands to the end, and write the results."""
        began, trainer = time.perf_counter(), self.trainer(run, progress, on_event)
        check_resumed(self.recipe, self.resumed, trainer.resume())
        outcome = trainer.fit()
        if run is not None:
            self._write(run, outcome, seconds_in(run.events(), time.perf_counter() - began))
        return self.predictor

    def _write(self, run: RunFolder, outcome: Outcome, seconds: float) -> None:
        rows = [
            {**row, "share_of_steps": round(float(share), 6), "queries_a_step": queries}
            for row, share, queries in zip(
                self.mixture.described(), self.course.probability, self.course.queries, strict=True
            )
        ]
        metrics = {
            "valid_mrr": None,
            "best_epoch": None,
            "epochs": outcome.epochs,
            "steps": self.course.total_steps,
            "loss": outcome.history[-1]["loss"],
            "seconds": round(seconds, 1),
            "history": outcome.history,
            "graphs": rows,
            "calibration": UNCALIBRATED,
        }
        weights = {name: value.detach().cpu() for name, value in self.model.state_dict().items()}
        size = sum(weight.numel() for weight in weights.values())
        card = pretraining_card(self.recipe, self.seed, size, metrics)
        run.write_results(Results(weights, self.recipe.model, metrics, card))


def seconds_in(events: Iterable[Mapping[str, Any]], here: float) -> float:
    """What all processes that trained a run took, by its log; `here` where the log has none."""
    total = last = 0.0
    for event in events:
        seconds = event.get("seconds")
        if event.get("event") == "epoch" and isinstance(seconds, int | float):
            total, last = total + (0.0 if seconds >= last else last), float(seconds)
    return total + last or here


def pretraining_card(recipe: Recipe, seed: int, size: int, metrics: Mapping[str, Any]) -> str:
    """README.md of a pre-trained run."""
    start = "random weights" if recipe.start is None else recipe.start
    graphs = "".join(
        f"| {row['name']} | {row['facts']:,} | {row['relations']:,} | {100 * row['share_of_steps']:.1f} "
        f"| {row['sha256']} |\n"
        for row in metrics["graphs"]
    )
    return (
        f"# {recipe.model} on {len(metrics['graphs'])} graphs\n\n"
        f"A contextpool run: {recipe.model}, {size:,} weights, seed {seed}, from {start}. "
        f"{metrics['steps']:,} steps in {metrics['seconds']:,.0f} seconds, last loss {metrics['loss']:.3f}.\n\n"
        "The model knows neither entities nor relations: it answers on any graph. A figure on a graph of a family "
        "that is listed here is not one on a graph the model has never seen.\n\n"
        '```python\nimport contextpool as cp\n\npredictor = cp.load(".")\n'
        'predictor.predict(cp.read_graph("new.tsv"), head="...", relation="...")\n```\n\n'
        "| graph | facts | relations | % of steps | sha256 of the sorted facts |\n|---|---:|---:|---:|---|\n"
        f"{graphs}"
    )
