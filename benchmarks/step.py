"""One training step, {reference, fast} x {plain, context} x settings, in one run and as ratios.

A step is what training does: hide the query edges, walk, pool, forward, backward, update; real batches in real
order, averaged over `--steps` of them after a warm-up. Prints milliseconds, peak memory, the fewest bytes that
aggregation has to move (every state and result once) with its share of the measured copy bandwidth, and the bytes
of all gathers, which is what has to come from memory or cache.

    python benchmarks/step.py --device cuda --steps 200
    python benchmarks/step.py --scaling --device cuda
    python benchmarks/step.py --mixture anygraph-1.toml --device cuda --steps 500
"""

from __future__ import annotations

import argparse
import gc
import json
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

import contextpool as cp
from contextpool.context.config import NO_CONTEXT, PRESETS, ContextConfig
from contextpool.context.counts import Statistics
from contextpool.graph.graph import Graph
from contextpool.kernels.interface import use_backend
from contextpool.models.nbfnet import NBFNet, NBFNetConfig
from contextpool.models.redgnn import REDGNN, REDGNNConfig
from contextpool.pool.propagation import Propagation
from contextpool.pretraining import Mixture, Pretraining
from contextpool.recipe import read_recipe
from contextpool.train.config import TrainConfig
from contextpool.train.course import EveryQuery
from contextpool.train.graphed import STEPS_BEFORE
from contextpool.train.loop import Trainer
from contextpool.train.queries import TrainingQueries

SETTINGS = ("grail/fb237_v1", "grail/fb237_v4", "grail/WN18RR_v3", "grail/nell_v3")
FLOAT = 4


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--settings", nargs="*", default=list(SETTINGS))
    parser.add_argument("--backends", nargs="*", default=["fast", "reference"], choices=["fast", "reference"])
    parser.add_argument("--model", default="nbfnet", choices=["nbfnet", "redgnn"])
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--reference-steps", type=int, default=20)
    parser.add_argument("--warm-up", type=int, default=20)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--dim", type=int, default=32)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--deterministic", action="store_true")
    parser.add_argument(
        "--scaling", action="store_true", help="how cost grows with edges, batch and layers instead"
    )
    parser.add_argument(
        "--mixture", metavar="RECIPE", help="steps of a pre-training instead, drawing and building included"
    )
    parser.add_argument(
        "--most-edges", type=int, default=7, help="the power of ten that --scaling goes up to"
    )
    parser.add_argument(
        "--soft", action="store_true", help="context is gate and arrive in place of two pooled views"
    )
    parser.add_argument("--profile", action="store_true", help="the kernels of a few steps beside the table")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--output", type=Path, help="append one JSON line per row")
    return parser.parse_args()


def copy_bandwidth(device: torch.device) -> float:
    """Bytes read plus written per second by a large copy."""
    size = 2**28 if device.type == "cuda" else 2**25
    source = torch.rand(size, device=device)
    target = torch.empty_like(source)
    best = min(seconds_of(lambda: target.copy_(source), device) for _ in range(10))
    return 2 * FLOAT * size / best


def seconds_of(work: Any, device: torch.device) -> float:
    synchronize(device)
    start = time.perf_counter()
    work()
    synchronize(device)
    return time.perf_counter() - start


def free(device: torch.device) -> None:
    """What the last row left behind must not count for the next one."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


def synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def context_of(options: argparse.Namespace) -> ContextConfig:
    return replace(NO_CONTEXT, gate=True, arrive=True) if options.soft else PRESETS["paper"]


def trainer_of(
    options: argparse.Namespace,
    graph: Graph,
    queries: TrainingQueries,
    context: ContextConfig | None,
    layers: int,
    batch: int,
) -> Trainer:
    torch.manual_seed(0)
    if options.model == "nbfnet":
        model: Any = NBFNet.for_graph(graph, NBFNetConfig(dim=options.dim, layers=layers), context)
    else:
        model = REDGNN(graph.num_relations, REDGNNConfig(dim=options.dim, layers=layers), context)
    builder = model.builder(graph, context, Statistics.of(graph) if context else None)
    torch.use_deterministic_algorithms(options.deterministic)
    config = TrainConfig(batch_size=batch)
    return Trainer(model.to(graph.device), EveryQuery(queries, builder, config), config, lambda _: 0.0)


def measured(trainer: Trainer, steps: int, warm_up: int) -> dict[str, float]:
    """Peak memory is of what was allocated at once, recording the step included; reserved is what the process holds."""
    device = trainer.device
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    trainer.take_steps(warm_up)
    seconds = seconds_of(lambda: trainer.take_steps(steps), device)
    peak, reserved = float("nan"), float("nan")
    if device.type == "cuda":
        peak, reserved = (
            amount / 2**30
            for amount in (torch.cuda.max_memory_allocated(device), torch.cuda.memory_reserved(device))
        )
    return {"ms": 1e3 * seconds / steps, "peak_gib": peak, "reserved_gib": reserved}


def bytes_of(trainer: Trainer, dim: int, num_streams: int, reductions: int) -> tuple[float, float]:
    """Of a step's aggregation, forward and backward: the fewest, and with every gather counted."""
    (graph,) = trainer.course.graphs
    batch = graph.queries.batch(torch.arange(min(trainer.config.batch_size, len(graph.queries))))
    walk = graph.builder.build(batch.head, batch.relation, batch.hidden_edge).propagation
    return fewest_bytes(walk, dim, num_streams, reductions), gathered_bytes(walk, dim, num_streams)


def fewest_bytes(walk: Propagation, dim: int, num_streams: int, reductions: int) -> float:
    """Forward reads states and edges and writes results; backward reads both again and writes gradients of states."""
    total = 0
    for hop in walk.hops:
        states = hop.num_sources * dim * FLOAT
        results = num_streams * reductions * hop.num_targets * dim * FLOAT
        total += 2 * (states + results + hop.num_edges * 9) + results + states
    return float(total)


def gathered_bytes(walk: Propagation, dim: int, num_streams: int) -> float:
    """A state and a relation weight for every message forward; both again, and both gradients added, backward."""
    messages = 0
    for hop in (hop.walked for hop in walk.hops):
        views = sum(int(hop.in_view(view).sum()) for view in range(num_streams - 1))
        messages += hop.num_edges + views
    return float(6 * messages * dim * FLOAT)


def rows(options: argparse.Namespace) -> list[dict[str, Any]]:
    device = torch.device(options.device)
    bandwidth = copy_bandwidth(device)
    print(
        f"{machine(device)}; copy {bandwidth / 1e9:,.0f} GB/s; "
        f"batch {options.batch}, d {options.dim}, L {options.layers}"
    )
    found = []
    for setting in options.settings:
        data = cp.load_dataset(setting)
        graph = Graph.from_triples(data.training_graph).to(device)
        queries = TrainingQueries.of(data.training_queries, graph, data.training_filter)
        for name, context in (("plain", None), ("context", context_of(options))):
            for backend in options.backends:
                trainer = trainer_of(options, graph, queries, context, options.layers, options.batch)
                steps = options.steps if backend == "fast" else options.reference_steps
                warm_up = options.warm_up if backend == "fast" else 3
                with use_backend("auto" if backend == "fast" else "reference"):
                    row = {"setting": setting, "model": options.model, "context": name, "backend": backend}
                    row |= measured(trainer, steps, warm_up) | {
                        "steps": steps,
                        "epoch_steps": trainer.steps_per_epoch,
                    }
                fewest, gathers = bytes_of(trainer, options.dim, trainer.model.context.num_streams, 4)
                row |= {"fewest_gb": fewest / 1e9, "gathered_gb": gathers / 1e9}
                row["bandwidth_share"] = fewest / (row["ms"] / 1e3) / bandwidth
                found.append(row)
                show(row, options.output)
                if options.profile and backend == "fast":
                    profile(trainer)
                del trainer
                free(device)
    return found


def show(row: dict[str, Any], output: Path | None) -> None:
    print(
        f"{row['setting']:18} {row['context']:8} {row['backend']:10} {row['ms']:9.2f} ms  {row['peak_gib']:5.2f} GiB "
        f"({row['reserved_gib']:5.2f} held)  "
        f"fewest {row['fewest_gb']:6.2f} GB ({100 * row['bandwidth_share']:4.1f} % of copy)  "
        f"gathers {row['gathered_gb']:6.2f} GB",
        flush=True,
    )
    if output is not None:
        with output.open("a") as file:
            file.write(json.dumps(row) + "\n")


def ratios(found: Sequence[dict[str, Any]]) -> None:
    by_key = {(row["setting"], row["context"], row["backend"]): row for row in found}
    for (setting, context, backend), row in by_key.items():
        slow = by_key.get((setting, context, "reference"))
        if backend == "fast" and slow is not None:
            print(f"{setting:18} {context:8} reference / fast: {slow['ms'] / row['ms']:6.1f} times the time, "
                  f"{slow['peak_gib'] / row['peak_gib']:5.1f} times the memory")  # fmt: skip


def profile(trainer: Trainer) -> None:
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as record

    steps = 10
    with record(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as recorded:
        trainer.take_steps(steps)
    kernels = [event for event in recorded.key_averages() if event.device_type.name == "CUDA"]
    kernels.sort(key=lambda event: -event.self_device_time_total)
    total = sum(event.self_device_time_total for event in kernels)
    print(
        f"    on the device {total / steps / 1e3:.2f} ms a step, "
        f"{sum(event.count for event in kernels) / steps:.0f} kernels"
    )
    for event in kernels[:18]:
        print(
            f"    {event.self_device_time_total / steps / 1e3:7.3f} ms {event.count / steps:6.1f} x {event.key[:90]}"
        )


def scaling(options: argparse.Namespace) -> None:
    """Synthetic graphs of 10^4 .. 10^`most_edges` edges, and fb237_v1 with other batches and layers."""
    print(machine(torch.device(options.device)))
    for exponent in range(4, options.most_edges + 1):
        edges_row(options, exponent)
    data = cp.load_dataset("grail/fb237_v1")
    graph = Graph.from_triples(data.training_graph).to(options.device)
    queries = TrainingQueries.of(data.training_queries, graph, data.training_filter)
    for batch in (1, 4, 16, 64, 256):
        scaling_row(options, graph, queries, ("batch", batch), layers=6, batch=batch)
    for layers in (1, 2, 3, 4, 6, 8):
        scaling_row(options, graph, queries, ("layers", layers), layers=layers, batch=64)


def edges_row(options: argparse.Namespace, exponent: int) -> None:
    graph = random_graph(10**exponent // 2, torch.device(options.device))
    scaling_row(options, graph, queries_over(graph), ("edges", 10**exponent), layers=3, batch=16)


def scaling_row(
    options: argparse.Namespace,
    graph: Graph,
    queries: TrainingQueries,
    point: tuple[str, int],
    *,
    layers: int,
    batch: int,
) -> None:
    """On a card half of `--steps`, and as many before as it takes to record one that fits most batches."""
    on_card = graph.device.type == "cuda"
    steps, warm_up = (options.steps // 2, options.warm_up + STEPS_BEFORE) if on_card else (10, 3)
    free(graph.device)
    row = measured(
        trainer_of(options, graph, queries, context_of(options), layers, batch), max(1, steps), warm_up
    )
    kind, value = point
    memory = f", {row['peak_gib']:6.2f} GiB" if on_card else ""
    print(f"{kind:6} {value:10,}: {row['ms']:9.2f} ms{memory} (batch {batch}, {layers} layers)", flush=True)
    note(options.output, {"scaling": kind, "value": value} | row)


def random_graph(num_triples: int, device: torch.device) -> Graph:
    """About ten triples an entity, 100 relations, tails by a power law."""
    generator = torch.Generator().manual_seed(0)
    num_entities = max(10, num_triples // 10)
    head = torch.randint(num_entities, (num_triples,), generator=generator)
    tail = (num_entities * torch.rand(num_triples, generator=generator) ** 2).long()
    relation = torch.randint(100, (num_triples,), generator=generator)
    from contextpool.triples.labels import Vocabulary
    from contextpool.triples.store import Triples, distinct_rows

    ids = distinct_rows(torch.stack([head, relation, tail], dim=1).int().numpy())
    entities = Vocabulary.of([f"e{number:08}" for number in range(num_entities)])
    relations = Vocabulary.of([f"r{number:03}" for number in range(100)], "relation")
    return Graph.from_triples(Triples(entities, relations, ids)).to(device)


def queries_over(graph: Graph) -> TrainingQueries:
    from contextpool.triples.filters import KnownAnswers

    triples = graph.as_triples()
    return TrainingQueries.of(triples, graph, KnownAnswers.of(triples))


def mixture(options: argparse.Namespace) -> None:
    """Steps of a pre-training: the first ones, in which each graph's step is recorded, and those after `--warm-up`."""
    recipe = read_recipe(options.mixture)
    assert recipe.mixture is not None
    began = time.perf_counter()
    training = Pretraining(recipe, Mixture.read(recipe.mixture), 0, options.device)
    trainer, read = training.trainer(), time.perf_counter() - began
    print(
        f"{machine(trainer.device)}; {len(trainer.course.graphs)} graphs, {np.mean(training.course.queries):.0f} "
        f"queries a step, read in {read:.1f} s"
    )
    for what, steps in (("first", options.warm_up), ("then", options.steps), ("again", options.steps)):
        row = {"mixture": options.mixture, "what": what, "steps": steps} | measured(trainer, steps, 0)
        print(f"{what:6} {steps:6,} steps: {row['ms']:8.2f} ms, {row['peak_gib']:6.2f} GiB", flush=True)
        note(options.output, row)
    if options.profile:
        profile(trainer)


def note(output: Path | None, row: dict[str, Any]) -> None:
    if output is not None:
        with output.open("a") as file:
            file.write(json.dumps(row) + "\n")


def machine(device: torch.device) -> str:
    name = (
        torch.cuda.get_device_name(device)
        if device.type == "cuda"
        else f"{torch.get_num_threads()} CPU threads"
    )
    return f"{name}, torch {torch.__version__}"


def main() -> None:
    options = arguments()
    if options.mixture:
        mixture(options)
    elif options.scaling:
        scaling(options)
    else:
        ratios(rows(options))


if __name__ == "__main__":
    main()
