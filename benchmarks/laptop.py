"""CoDEx-S on a laptop: what so many seconds of a processor give, from nothing trained to a training from scratch.

    python benchmarks/laptop.py run walk anygraph-1 fine-tuned:300 nbfnet:60 fast rotate:300 -o laptop.jsonl
    python benchmarks/laptop.py table laptop.jsonl
    python benchmarks/laptop.py step

`train` is the graph, `valid` is what is chosen by, `test` is asked once at the end of a row: both directions, filtered,
realistic ties. A row may have a budget in seconds, which are of the processor, with one thread: what an idle core takes
by the clock, on a machine that is not idle, too. They include validation, not the test. A pass over all questions is
twice the facts. Rows are appended, so that they can be run in pieces. `step` times steps with products by oneDNN, as
training has them where they are exact, and by what torch has otherwise, by turns.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from contextpool.evaluate.ranks import Scorer
from contextpool.evaluate.report import evaluate_scorer
from contextpool.evaluation import training_free
from contextpool.experiment import Experiment, load
from contextpool.graph.graph import Graph
from contextpool.interop.hub import SHIPPED
from contextpool.predict import Predictor
from contextpool.pretraining import seen_by_start, started_recipe
from contextpool.recipe import Recipe, shipped_recipe
from contextpool.train import loop
from contextpool.train.budget import Budget, Pace, Work, timed, within
from contextpool.triples.catalog import data_folders, load_dataset
from contextpool.triples.dataset import Dataset

BATCH = 32
ROTATE = {
    "dim": 128,
    "lr": 0.005,
    "batch_size": 128,
    "negatives": 16,
    "margin": 9.0,
    "rounds": 6,
    "valid_facts": 200,
}
"""Of PyKEEN's RotatE: common settings, not searched. It is validated after each of so many rounds, on so many facts."""


@dataclass
class Row:
    """What a row came to."""

    scorer: Scorer
    asked: int = 0
    """Directed questions that training saw."""
    valid_mrr: float | None = None
    curve: list[dict[str, float]] = field(default_factory=list)
    """Seconds of the processor and validation MRR, as training went on."""
    told: dict[str, Any] = field(default_factory=dict)
    """Settings that were chosen."""


def untrained(data: Dataset, predictor: Predictor) -> Row:
    return Row(predictor.scorer(Graph.from_triples(data.inference_graph)))


def trained(data: Dataset, recipe: Recipe, seconds: float | None, seed: int) -> Row:
    """As `contextpool train` does, but for a budget in seconds of the processor, and without calibration."""
    began = time.process_time()
    made = Experiment(recipe, data, seed, "cpu")
    if seconds is not None:
        work = Work(2 * len(data.training_queries), len(data.validation_queries), 0)
        pace = pace_of(made)
        chosen = within(recipe.train, pace, work, Budget(seconds, time.process_time() - began))
        made = Experiment(replace(recipe, train=chosen), data, seed, "cpu")
    curve: list[dict[str, float]] = []

    def heard(event: dict[str, Any]) -> None:
        if event["event"] == "epoch":
            cpu = round(time.process_time() - began, 1)
            curve.append({"cpu": cpu, "epoch": event["epoch"], "valid_mrr": round(event["valid_mrr"], 4)})
            print(f"  {curve[-1]}", flush=True)

    outcome = made._train({"seed": seed, "run": None, "progress": None, "on_event": heard})
    train = made.recipe.train
    steps = train.epoch_length(2 * len(data.training_queries)) * outcome.epochs
    asked = min(steps * train.batch_size, outcome.epochs * 2 * len(data.training_queries))
    told = {
        name: getattr(train, name) for name in ("lr", "batch_size", "epochs", "epoch_steps", "valid_facts")
    }
    predictor = made.predictor
    scorer = predictor.scorer(Graph.from_triples(data.inference_graph))
    return Row(scorer, asked, outcome.best_mrr, curve, told)


def pace_of(made: Experiment) -> Pace:
    """Seconds of the processor that a step and a question take."""
    other = Experiment(made.recipe, made.dataset, made.seed, "cpu")  # its weights are not kept
    trainer = other._trainer(other.model, {"seed": made.seed})
    few = made.dataset.validation_queries.sample(made.recipe.train.batch_size)

    def seconds(work: Callable[[], object]) -> float:
        return timed(work, clock=time.process_time)

    step = seconds(lambda: trainer.take_steps(1))
    return Pace(step, seconds(lambda: other._selection_report(few)) / (2 * len(few)))


def rotate(data: Dataset, seconds: float, seed: int) -> Row:
    """PyKEEN's RotatE; the weights that validate best are kept."""
    from pykeen.losses import NSSALoss
    from pykeen.models import RotatE
    from pykeen.training import SLCWATrainingLoop

    from contextpool.interop.pykeen import to_pykeen

    began, factory = time.process_time(), to_pykeen(data.training_graph)
    model = RotatE(
        triples_factory=factory,
        embedding_dim=ROTATE["dim"],
        loss=NSSALoss(margin=ROTATE["margin"], adversarial_temperature=1.0),
        random_seed=seed,
    )
    training = SLCWATrainingLoop(
        model=model,
        triples_factory=factory,
        optimizer=torch.optim.Adam(model.parameters(), lr=ROTATE["lr"]),
        negative_sampler_kwargs={"num_negs_per_pos": ROTATE["negatives"]},
    )
    entity = torch.tensor([factory.entity_to_id[label] for label in data.inference_entities.labels])
    relation = torch.tensor([factory.relation_to_id[label] for label in data.relations.labels])

    def scorer(head: Tensor, asked: Tensor) -> Tensor:
        pair, forward = (
            torch.stack([entity[head], relation[asked % len(relation)]], dim=1),
            asked < len(relation),
        )
        scores = torch.empty(len(head), factory.num_entities)
        if forward.any():
            scores[forward] = model.predict_t(pair[forward])
        if (~forward).any():
            scores[~forward] = model.predict_h(pair[~forward].flip(1))
        return scores[:, entity]

    curve: list[dict[str, float]] = []
    few = data.validation_queries.sample(int(ROTATE["valid_facts"]))
    best, kept, epochs, round_seconds, epoch_seconds = -1.0, model.state_dict(), 0, 0.0, 0.0
    while time.process_time() - began + round_seconds < seconds:
        before = time.process_time()
        count = max(1, int(seconds / ROTATE["rounds"] / epoch_seconds)) if epoch_seconds else 1
        training.train(
            factory, num_epochs=epochs + count, batch_size=ROTATE["batch_size"],
            use_tqdm=False, use_tqdm_batch=False, continue_training=epochs > 0,
        )  # fmt: skip
        epoch_seconds = (time.process_time() - before) / count
        epochs += count
        mrr = evaluate_scorer(scorer, few, data.validation_filter, batch_size=BATCH).mrr
        if mrr > best:
            best, kept = mrr, {name: value.clone() for name, value in model.state_dict().items()}
        round_seconds = time.process_time() - before
        curve.append(
            {"cpu": round(time.process_time() - began, 1), "epoch": epochs, "valid_mrr": round(mrr, 4)}
        )
        print(f"  {curve[-1]}", flush=True)
    model.load_state_dict(kept)
    return Row(scorer, epochs * 2 * len(data.training_graph), best, curve, ROTATE)


def row_of(name: str, data: Dataset, seconds: float | None, options: argparse.Namespace) -> Row:
    if name == "walk":
        return untrained(data, training_free(data))
    if name == SHIPPED:
        return untrained(data, load())
    if name == "rotate":
        return rotate(data, seconds or 300.0, options.seed)
    return trained(data, recipe_of(name, data), seconds, options.seed)


def recipe_of(name: str, data: Dataset) -> Recipe:
    """As `contextpool train` has it."""
    model, section = {
        "fine-tuned": ("anygraph", "own"), "nbfnet": ("nbfnet", "own"), "fast": ("nbfnet", "fast"),
    }[name]  # fmt: skip
    recipe = shipped_recipe(data.name, model, True, section)
    assert recipe is not None, "it is in the package"
    return recipe if recipe.start is None else started_recipe(recipe, recipe.start)


def run(options: argparse.Namespace) -> None:
    torch.set_num_threads(1)
    data = load_dataset(options.dataset)
    for wanted in options.rows:
        name, _, budget = wanted.partition(":")
        began, busy = time.perf_counter(), time.process_time()
        print(f"{wanted} ...", flush=True)
        row = row_of(name, data, float(budget) if budget else None, options)
        seconds, cpu = time.perf_counter() - began, time.process_time() - busy
        report = evaluate_scorer(
            row.scorer, data.evaluation_queries(), data.evaluation_filter, batch_size=BATCH
        )
        line = {
            "row": wanted,
            "dataset": data.name,
            "seed": options.seed,
            "seconds": round(seconds, 1),
            "cpu_seconds": round(cpu, 1),
            "test_cpu_seconds": round(time.process_time() - busy - cpu, 1),
            "questions": row.asked,
            "valid_mrr": row.valid_mrr,
            "test": {"mrr": report.mrr, "interval": list(report.intervals["mrr"])}
            | {f"hits@{k}": share for k, share in report.hits.items()},
            "curve": row.curve,
            "settings": row.told,
            "load": os.getloadavg()[0],
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        with options.output.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(line) + "\n")
        print_rows([line])


def print_rows(lines: list[dict[str, Any]]) -> None:
    for line in lines:
        test, valid = line["test"], line["valid_mrr"]
        low, high = test["interval"]
        print(
            f"| {line['row']} | {line['cpu_seconds']:.0f} | {line['seconds']:.0f} | {line['test_cpu_seconds']:.0f} "
            f"| {line['questions']:,} "
            f"| {'-' if valid is None else format(valid, '.3f')} | {test['mrr']:.3f} ({low:.3f}-{high:.3f}) "
            f"| {test['hits@1']:.3f} | {test['hits@10']:.3f} |",
            flush=True,
        )


def table(options: argparse.Namespace) -> None:
    lines = [json.loads(line) for line in options.lines.read_text("utf-8").splitlines()]
    print("| row | CPU s | s | test, CPU s | questions | valid MRR | test MRR (95 %) | Hits@1 | Hits@10 |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|---:|")
    print_rows(lines)
    for line in lines:
        if line["curve"]:
            points = ", ".join(f"{one['valid_mrr']:.3f} at {one['cpu']:.0f} s" for one in line["curve"])
            print(f"{line['row']}, validation: {points}")
    print(
        f"{SHIPPED} was pre-trained on {', '.join(seen_by_start(SHIPPED, 'pool/codex-s')) or 'none'} (train)."
    )


def step(options: argparse.Namespace) -> None:
    torch.set_num_threads(1)
    data = load_dataset(options.dataset)
    print("model, questions a step: CPU s a step, the median of five by turns, by oneDNN and otherwise")
    for name in ("fine-tuned", "nbfnet", "fast"):
        made = Experiment(recipe_of(name, data), data, 0, "cpu")
        trainer = made._trainer(made.model, {"seed": 0})
        trainer.take_steps(1)
        seconds: dict[bool, list[float]] = {True: [], False: []}
        with patch.object(loop, "medium_is_exact") as exact:
            for turn in range(10):
                exact.return_value = turn % 2 == 0
                began = time.process_time()
                trainer.take_steps(1)
                seconds[turn % 2 == 0].append(time.process_time() - began)
        fast, usual = median(seconds[True]), median(seconds[False])
        print(f"{name}, {made.recipe.train.batch_size}: {fast:.3f} {usual:.3f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    verbs = parser.add_subparsers(required=True)
    running = verbs.add_parser("run")
    running.add_argument(
        "rows", nargs="+", help="walk, anygraph-1, fine-tuned, nbfnet, fast, rotate; NAME:SECONDS"
    )
    running.add_argument("-o", "--output", type=Path, default=Path("laptop.jsonl"))
    running.add_argument("--seed", type=int, default=0)
    running.set_defaults(verb=run)
    printing = verbs.add_parser("table")
    printing.add_argument("lines", type=Path)
    printing.set_defaults(verb=table)
    timing = verbs.add_parser("step")
    timing.set_defaults(verb=step)
    here = [folder / "pool/codex-s" for folder in data_folders()]
    for one in (running, timing):
        one.add_argument("--dataset", default=next((str(path) for path in here if path.is_dir()), None))
    options = parser.parse_args()
    options.verb(options)


if __name__ == "__main__":
    main()
