"""Whole epochs and whole evaluations: RED-GNN with two context views the published way, and what full graphs take.

python benchmarks/epoch.py --device cuda
python benchmarks/epoch.py --device cuda --full --steps 100
"""

from __future__ import annotations

import argparse
import time

import torch

import contextpool as cp
from contextpool.context.config import PRESETS
from contextpool.context.counts import Statistics
from contextpool.graph.graph import Graph
from contextpool.models.nbfnet import NBFNet, NBFNetConfig
from contextpool.models.redgnn import REDGNN, REDGNNConfig
from contextpool.train.config import TrainConfig
from contextpool.train.course import EveryQuery
from contextpool.train.loop import Trainer
from contextpool.train.queries import TrainingQueries


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dataset", default="grail/fb237_v1")
    parser.add_argument(
        "--full", action="store_true", help="seconds per epoch on full/WN18RR and full/FB15K237 instead"
    )
    parser.add_argument(
        "--steps", type=int, default=100, help="steps that an epoch of a full graph is told from"
    )
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    return parser.parse_args()


def synchronize(device: str) -> None:
    if device.startswith("cuda"):
        torch.cuda.synchronize()


def published_way(options: argparse.Namespace) -> None:
    """RED-GNN, d 32, L 3, batch 64, trained on valid.txt alone, two views; then ranked on the inference graph."""
    data = cp.load_dataset(options.dataset)
    settings = {"dim": 32, "layers": 3}
    config = TrainConfig(epochs=1, batch_size=64, queries="valid")
    predictor = cp.train(data, "redgnn", True, settings=settings, train=config, device=options.device)
    graph = Graph.from_triples(data.training_graph).to(options.device)
    context = PRESETS["paper"]
    model = REDGNN(graph.num_relations, REDGNNConfig(**settings), context).to(options.device)
    queries = TrainingQueries.of(data.with_queries("valid").training_queries, graph, data.training_filter)
    builder = model.builder(graph, context, Statistics.of(graph))
    trainer = Trainer(model, EveryQuery(queries, builder, config), config, lambda _: 0.0)
    trainer.take_steps(trainer.steps_per_epoch)
    times = []
    for _ in range(5):
        synchronize(options.device)
        start = time.perf_counter()
        trainer.take_steps(trainer.steps_per_epoch)
        synchronize(options.device)
        times.append(time.perf_counter() - start)
    print(f"{options.dataset}: redgnn + 2 views, {len(queries)} queries, {trainer.steps_per_epoch} steps: "
          f"{min(times):.3f} s an epoch (of five: {', '.join(f'{value:.3f}' for value in times)})")  # fmt: skip
    for name in ("first", "second", "third"):
        synchronize(options.device)
        start = time.perf_counter()
        report = cp.evaluate(predictor, data)
        seconds = time.perf_counter() - start
        print(
            f"  inductive evaluation, {name} time: {seconds:.3f} s, {len(report.ranks) / seconds:,.0f} queries a second"
        )


def full_graphs(options: argparse.Namespace) -> None:
    """NBFNet-PNA, d 32, L 6, batch 64, every training fact in both directions."""
    for name in ("full/WN18RR", "full/FB15K237"):
        data = cp.load_dataset(name)
        graph = Graph.from_triples(data.training_graph).to(options.device)
        queries = TrainingQueries.of(data.training_queries, graph, data.training_filter)
        for kind, context in (("plain", None), ("context", PRESETS["paper"])):
            model = NBFNet.for_graph(graph, NBFNetConfig(), context).to(options.device)
            builder = model.builder(graph, context, Statistics.of(graph) if context else None)
            config = TrainConfig(batch_size=64)
            trainer = Trainer(model, EveryQuery(queries, builder, config), config, lambda _: 0.0)
            trainer.take_steps(20)
            synchronize(options.device)
            start = time.perf_counter()
            trainer.take_steps(options.steps)
            synchronize(options.device)
            step = (time.perf_counter() - start) / options.steps
            peak = (
                torch.cuda.max_memory_reserved() / 2**30
                if options.device.startswith("cuda")
                else float("nan")
            )
            print(f"{name} {kind}: {1e3 * step:.1f} ms a step, {trainer.steps_per_epoch:,} steps: "
                  f"{step * trainer.steps_per_epoch:,.0f} s an epoch, {peak:.1f} GiB", flush=True)  # fmt: skip
            del trainer, model, builder


def main() -> None:
    options = arguments()
    if options.full:
        full_graphs(options)
    else:
        published_way(options)


if __name__ == "__main__":
    main()
