"""One training, measured: the line of a results file, with ranks by distance of the answer and by support."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from contextpool import experiment
from contextpool.evaluate.metrics import RankMetrics
from contextpool.evaluate.ranks import batch_size_for, in_canonical_order
from contextpool.evaluate.report import EvaluationReport
from contextpool.predict import Predictor
from contextpool.train.run_folder import RunFolder
from contextpool.triples.audit import components, hops_between, undirected_links
from contextpool.triples.catalog import load_dataset
from contextpool.triples.dataset import Dataset
from contextpool.triples.store import Triples
from lab.jobs import throttled
from lab.recipes import Cell, Key, fingerprint

MOST_HOPS = 6
FARTHER, NEVER = f"{MOST_HOPS + 1}+", "never"
DISTANCES = (*(str(hop) for hop in range(MOST_HOPS + 1)), FARTHER, NEVER)
"""Hops from the head to the answer in the message graph, along edges in either direction; `never` means no path."""
SUPPORTS = ("0", "1-9", "10-99", "100-999", "1000+")
"""Facts of the query relation in the training graph."""

Places = npt.NDArray[np.int64]
Sums = dict[str, dict[str, float]]
"""bucket -> {"sum": of reciprocal ranks, "count": of ranks}; buckets without a rank are left out."""


@dataclass(frozen=True, eq=False)
class QuerySlices:
    """The bucket of each of T query triples, in the order of `queries`."""

    distance: Places
    """[T] place in `DISTANCES`"""
    support: Places
    """[T] place in `SUPPORTS`"""

    @classmethod
    def of(cls, dataset: Dataset, queries: Triples) -> QuerySlices:
        """For queries over the inference graph; relations are supported by the training graph."""
        distance = distance_places(dataset.inference_graph, queries)
        return cls(distance, support_places(dataset.training_graph, queries))

    def by_distance(self, report: EvaluationReport) -> Sums:
        return sums_by_bucket(report, np.tile(self.distance, 2), DISTANCES)

    def by_support(self, report: EvaluationReport) -> Sums:
        return sums_by_bucket(report, np.tile(self.support, 2), SUPPORTS)


def distance_places(graph: Triples, queries: Triples) -> Places:
    """[T] place in `DISTANCES`. O(edges * T / 64) time a hop."""
    head, tail = queries.ids[:, 0].astype(np.int64), queries.ids[:, 2].astype(np.int64)
    links = undirected_links(graph)
    hops = hops_between(links, head, tail, MOST_HOPS)
    component = components(links)
    apart = component[head] != component[tail]
    return np.where(apart, len(DISTANCES) - 1, hops)


def support_places(graph: Triples, queries: Triples) -> Places:
    """[T] place in `SUPPORTS`; both have the same relations."""
    facts = np.bincount(graph.ids[:, 1], minlength=len(graph.relations))  # [R]
    return np.digitize(facts[queries.ids[:, 1]], [1, 10, 100, 1000]).astype(np.int64)


def sums_by_bucket(report: EvaluationReport, place: Places, names: tuple[str, ...]) -> Sums:
    """Reciprocal ranks by the bucket of each rank: `place` [2T] in `names`."""
    sums = np.bincount(place, 1 / report.ranks, len(names))
    counts = np.bincount(place, minlength=len(names))
    return {
        name: {"sum": float(sums[bucket]), "count": int(counts[bucket])}
        for bucket, name in enumerate(names)
        if counts[bucket]
    }


FIRST = (
    *("setting", "dataset", "protocol", "model", "recipe", "seed", "mrr", "hits@1", "hits@10"),
    *("valid_mrr", "epochs", "train_seconds", "device", "commit", "date"),
)
"""The keys that every line begins with."""
METRICS = ("mrr", "hits@1", "hits@3", "hits@10", "hits@10_50", "mr")


@dataclass(frozen=True)
class Task:
    """A cell, where to train it, and where to leave its run folder."""

    cell: Cell
    device: str = "cpu"
    runs: str | None = None
    """Folder of run folders: a training that is cut off goes on there the next time."""
    commit: str | None = None
    """The commit of the code, where git cannot tell."""


@dataclass(frozen=True)
class Trained:
    """A predictor and what its training came to."""

    predictor: Predictor
    valid_mrr: float | None
    best_epoch: int | None
    epochs: int
    seconds: float


def measure(task: Task, report: Any) -> dict[str, Any]:
    """Train and evaluate one cell: the line, with the keys of `FIRST` in front."""
    data = _dataset(task.cell.key.dataset)
    if task.device.startswith("cuda"):
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(task.device)
    trained = _train(task, data, throttled(report))
    evaluated = _evaluate(trained.predictor, data)
    figures = evaluated.realistic.to_dict()
    machine = experiment.machine(task.device)
    line = {
        "setting": "inductive" if data.inductive else "transductive",
        "protocol": "P1",
        **task.cell.key._asdict(),
        **figures,
        "valid_mrr": trained.valid_mrr,
        "epochs": trained.epochs,
        "train_seconds": round(trained.seconds, 3),
        "device": _device_name(machine),
        "commit": _code(machine["commit"]) or task.commit,
        "date": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        **_other_rules(evaluated),
        "p2": _second_protocol(evaluated, data),
        "best_epoch": trained.best_epoch,
        "parameters": sum(weight.numel() for weight in trained.predictor.model.parameters()),
        "evaluate_seconds": evaluated.seconds,
        "queries_per_second": evaluated.queries_per_second,
        "gpu_bytes": torch.cuda.max_memory_allocated(task.device) if machine["device"] == "cuda" else None,
        "by_distance": _slices(task.cell.key.dataset).by_distance(evaluated),
        "by_support": _slices(task.cell.key.dataset).by_support(evaluated),
        "fingerprint": fingerprint(task.cell.recipe.to_dict()),
        "settings": task.cell.recipe.to_dict(),
        "dataset_sha256": experiment.fingerprint(data),
        "torch": machine["torch"],
        "threads": machine["threads"],
    }
    return {key: line[key] for key in [*FIRST, *(key for key in line if key not in FIRST)]}


def _device_name(machine: Mapping[str, Any]) -> str:
    """Such as: NVIDIA H200, or cpu (x86_64)."""
    name = str(machine["device_name"])
    return name if machine["device"] != "cpu" else f"cpu ({name})"


@cache
def _code(commit: str | None) -> str | None:
    """The commit, with a plus where the sources are not as it has them."""
    if commit is None:
        return None
    package = str(Path(experiment.__file__).parent)
    changed = subprocess.run(
        ["git", "-C", package, "status", "--porcelain", "--", "."],
        capture_output=True,
        text=True,
        check=False,
    )
    return f"{commit}+" if changed.stdout.strip() else commit


@lru_cache(maxsize=32)
def _dataset(name: str) -> Dataset:
    """Read once a process, however many seeds are trained on it."""
    return load_dataset(name)


@lru_cache(maxsize=32)
def _slices(name: str) -> QuerySlices:
    """The slices of the evaluation queries, in the order in which reports list the queries."""
    data = _dataset(name)
    return QuerySlices.of(data, in_canonical_order(data.evaluation_queries("P1")))


def _train(task: Task, data: Dataset, progress: experiment.ProgressCallback) -> Trained:
    """As `contextpool train` does it, with a run folder or without."""
    if task.runs is not None:
        return _train_in_folder(task, data, run_folder(task.runs, task.cell), progress)
    began = time.perf_counter()
    training = experiment.Experiment(task.cell.recipe, data, task.cell.key.seed, task.device)
    predictor, seconds = training.fit(None, progress), time.perf_counter() - began
    outcome = training.outcome
    if outcome is None:
        return Trained(predictor, None, None, 0, seconds)
    return Trained(predictor, outcome.best_mrr, outcome.best_epoch, outcome.epochs, seconds)


def run_folder(runs: str | Path, cell: Cell) -> Path:
    """Where a cell's run folder is: one for each dataset, model, recipe and seed."""
    dataset, model, recipe, seed = cell.key
    return (
        Path(runs) / dataset.strip("./").replace("/", "_") / f"{model}-{recipe.replace('#', '-')}-seed{seed}"
    )


def _train_in_folder(
    task: Task, data: Dataset, folder: Path, progress: experiment.ProgressCallback
) -> Trained:
    """Begin the run, or go on with it: the same weights come out."""
    began = time.perf_counter()
    before = 0.0
    if (folder / "config.json").exists():
        before = seconds_of(RunFolder.open(folder).events())
        predictor = experiment.resume(folder, data, device=task.device, progress=progress)
    else:
        recipe, seed = task.cell.recipe, task.cell.key.seed
        predictor = experiment.run_recipe(
            recipe, data, seed=seed, output=folder, device=task.device, progress=progress
        )
    stored = RunFolder.open(folder).read_json("metrics.json")
    seconds = before + time.perf_counter() - began
    return Trained(predictor, stored["valid_mrr"], stored["best_epoch"], stored["epochs"], seconds)


def seconds_of(events: Iterable[Mapping[str, Any]]) -> float:
    """What the epochs of a run took, over all the times it was begun; what was cut off is not counted."""
    longest: dict[int, float] = {}
    for event in events:
        if event.get("event") == "epoch":
            begun = round(
                float(event["time"]) - float(event["seconds"])
            )  # the same within one go, but for rounding
            begun = next((known for known in (begun - 1, begun, begun + 1) if known in longest), begun)
            longest[begun] = max(longest.get(begun, 0.0), float(event["seconds"]))
    return sum(longest.values())


def _evaluate(predictor: Predictor, data: Dataset) -> EvaluationReport:
    """P1, in the batches that `contextpool evaluate` takes."""
    size = min(64, batch_size_for(len(data.inference_entities), 10**9, 16))
    return experiment.evaluate(predictor, data, batch_size=size)


def _other_rules(report: EvaluationReport) -> dict[str, dict[str, float]]:
    return {"optimistic": _chosen(report.optimistic), "pessimistic": _chosen(report.pessimistic)}


def _chosen(metrics: RankMetrics) -> dict[str, float]:
    figures = metrics.to_dict()
    return {name: figures[name] for name in METRICS}


def _second_protocol(report: EvaluationReport, data: Dataset) -> dict[str, Any]:
    """P2, the inference graph's test alone, out of the ranks that are there."""
    test = report.restricted_to(data.evaluation_queries("P2"))
    return {**_chosen(test.realistic), "num_queries": test.num_queries, **_other_rules(test)}


def key_and_line(lines: Iterable[Mapping[str, Any]]) -> dict[Key, Mapping[str, Any]]:
    """Lines by their key; of two with the same key the later one."""
    return {Key.of(line): line for line in lines}
