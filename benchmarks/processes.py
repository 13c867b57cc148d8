"""Training steps in 1, 2, ... processes of one machine: seconds a step, and what goes over the wire.

    python benchmarks/processes.py [--dataset world --processes 1 2 --steps 20 --micro-batches 4]
    python benchmarks/processes.py --evaluate 300 --dataset FOLDER

Each number of processes is started anew with gloo, its threads sharing the cores out, and takes the same steps: the
sum of its losses is printed, and has to be the same in every row. CPU seconds are of the first process.

With `--evaluate` the model in the package is asked so many facts of a dataset, by this process, by processes and
on Ray; the ranks have to be the same in every row. CPU seconds are of this process and of those that it waited for
(Ray's are not among them).
"""

from __future__ import annotations

import argparse
import os
import time

import numpy as np
import torch
from torch import multiprocessing

from contextpool.cli.launch import threads_each
from contextpool.evaluation import Evaluating
from contextpool.experiment import Experiment
from contextpool.predict.workers import Engine, Workers
from contextpool.processes import Processes
from contextpool.recipe import Recipe
from contextpool.stored import load
from contextpool.train.config import TrainConfig
from contextpool.train.course import EveryQuery
from contextpool.train.loop import Trainer
from contextpool.train.queries import TrainingQueries
from contextpool.triples.catalog import load_dataset

WARM_UP = 2
ENGINES: tuple[Engine, ...] = ("processes", "ray")


def take_steps(rank: int, size: int, port: int, options: argparse.Namespace) -> None:
    torch.set_num_threads(threads_each(size))
    if size > 1:
        store = torch.distributed.TCPStore("127.0.0.1", port, is_master=False)
        torch.distributed.init_process_group("gloo", store=store, rank=rank, world_size=size)
    config = TrainConfig(batch_size=64, micro_batches=max(options.micro_batches, size))
    settings = {"dim": 16, "layers": 3}
    recipe = Recipe(options.dataset, "nbfnet", settings, None, config)
    made = Experiment(recipe, load_dataset(options.dataset), 0, "cpu")
    queries = TrainingQueries.of(made.dataset.training_queries, made.graph, made.dataset.training_filter)
    builder = made.model.builder(made.graph, recipe.context, made.statistics)
    course = EveryQuery(queries, builder, config)
    trainer = Trainer(made.model, course, config, lambda _: 0.0, processes=Processes(rank, size))
    trainer.take_steps(WARM_UP)
    began, worked = time.perf_counter(), time.process_time()
    trainer.take_steps(options.steps)
    seconds, busy = time.perf_counter() - began, time.process_time() - worked
    if rank == 0:
        weights = sum(one.numel() for one in made.model.parameters())
        sent = 0 if size == 1 else 4 * weights * trainer.split.count / 1e6
        print(
            f"{size:9} {1000 * seconds / options.steps:9.1f} {1000 * busy / options.steps:9.1f} {sent:13.2f} "
            f"{trainer.position.loss_sum:18.6f}",
            flush=True,
        )
    if size > 1:
        torch.distributed.destroy_process_group()


def evaluate(options: argparse.Namespace) -> None:
    """Questions a second of one thread, of processes and on Ray, the start of the workers left out."""
    torch.set_num_threads(1)
    job = Evaluating(load(), load_dataset(options.dataset), facts=options.evaluate, names=("model",))
    job.work(("model", 0, 1))  # compiled
    chosen: list[Workers | None] = [None]
    chosen += [
        Workers(count, engine, worth_starting=0.0) for engine in ENGINES for count in options.processes
    ]
    print(f"{options.dataset}, {os.cpu_count()} cores, {len(job.ranking.asked):,} questions")
    print("who            count  questions/s  seconds  CPU         MRR", flush=True)
    expected = None
    for workers in chosen:
        began, busy = time.perf_counter(), cpu_seconds()
        report = job.reports(workers)["model"]
        expected = report.ranks if expected is None else expected
        assert np.array_equal(report.ranks, expected)
        who, count = ("this process", 1) if workers is None else (workers.engine, workers.processes)
        print(
            f"{who:14} {count:5} {report.queries_per_second:12.1f} {time.perf_counter() - began:8.1f} "
            f"{cpu_seconds() - busy:4.1f} {report.mrr:11.6f}",
            flush=True,
        )


def cpu_seconds() -> float:
    """Of this process and of its children that have ended."""
    return sum(os.times()[:4])


def main() -> None:
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # as the command line has it; children inherit it
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dataset", default="world")
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--micro-batches", type=int, default=4)
    parser.add_argument("--evaluate", type=int, default=0, metavar="FACTS")
    options = parser.parse_args()
    if options.evaluate:
        evaluate(options)
        return
    options.micro_batches = max(options.micro_batches, *options.processes)
    print(f"{options.dataset}, {os.cpu_count()} cores, {options.micro_batches} micro-batches of 64 queries")
    print("processes   ms/step       CPU  MB a message      sum of losses", flush=True)
    for size in options.processes:
        store = torch.distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        multiprocessing.spawn(take_steps, (size, store.port, options), nprocs=size)


if __name__ == "__main__":
    main()
