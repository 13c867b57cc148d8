"""Predict and explain: time to an answer, and answers a second, on the embedded world and on FB15k-237 v4.

    PYTHONPATH=src python benchmarks/predict.py [--questions 500 --explanations 20 --threads 2 --json]

Models are those of the shipped recipes (NBFNet with context) with the weights they start from: time does not depend on
what was learned. Graphs are the inference graphs of `world` and `grail/fb237_v4` (left out where it is not found).
Cold: a graph that is asked about for the first time, so that relations are numbered, counted and mined before the first
answer; the run is loaded and the code compiled. Cached: later questions about it, one at a time, each another
(head, relation). Before anything is timed, answers one by one and in a batch are found equal.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

import numpy as np
import torch

from contextpool.errors import ContextPoolError
from contextpool.experiment import Experiment
from contextpool.graph.graph import Graph
from contextpool.predict import Predictor
from contextpool.recipe import Recipe, shipped_recipe
from contextpool.triples.catalog import load_dataset
from contextpool.triples.dataset import Dataset

NAMES = ("world", "grail/fb237_v4")
COLD_TRIES = 5
BATCH = 64
COLUMNS = ("cold ms", "p50 ms", "p99 ms", "per s", "batched")
Query = tuple[str, str]


@dataclass(frozen=True)
class Measured:
    """Milliseconds, and questions a second."""

    name: str
    entities: int
    triples: int
    cold_ms: float
    """Median of the first answers on a new graph."""
    p50_ms: float
    p99_ms: float
    per_second: float
    """One at a time."""
    per_second_batched: float
    explain_p50_ms: float
    explain_p99_ms: float


def untrained(recipe: Recipe, data: Dataset) -> Predictor:
    return Experiment(recipe, data, seed=0, device="cpu").predictor


def milliseconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return 1000 * (time.perf_counter() - began)


def check_same(predictor: Predictor, graph: Graph, queries: list[Query]) -> None:
    """Scores alone and in a batch agree; also warms everything up."""
    together = predictor.predict_batch(graph, queries, batch_size=BATCH)
    for (head, relation), answers in zip(queries, together, strict=True):
        alone = predictor.predict(graph, head, relation)
        scores = ([one.score for one in answers], [one.score for one in alone])
        if not np.allclose(*scores, atol=1e-3):
            raise SystemExit(f"({head}, {relation}, ?) is answered otherwise in a batch than alone")


def measure(name: str, questions: int, explanations: int) -> Measured:
    data = load_dataset(name)
    recipe = shipped_recipe(name, "nbfnet", context=True)
    assert recipe is not None, f"there is no recipe for {name}"
    predictor, graph = untrained(recipe, data), Graph.from_triples(data.inference_graph)
    rng = random.Random(0)
    facts = list(data.evaluation_queries("P1"))
    queries = [(fact[0], fact[1]) for fact in rng.choices(facts, k=questions)]
    check_same(predictor, graph, queries[:BATCH])
    cold = []
    for head, relation in queries[:COLD_TRIES]:
        new = Graph.from_triples(data.inference_graph)
        cold.append(milliseconds(lambda new=new, q=(head, relation): predictor.predict(new, *q)))  # type: ignore[misc]
    single = [milliseconds(lambda q=query: predictor.predict(graph, *q)) for query in queries]  # type: ignore[misc]
    batched = milliseconds(lambda: predictor.predict_batch(graph, queries, batch_size=BATCH))
    explained = [
        milliseconds(lambda f=fact: predictor.explain(graph, *f))  # type: ignore[misc]
        for fact in rng.choices(facts, k=explanations)
    ]
    return Measured(
        name,
        graph.num_entities,
        graph.num_triples,
        float(np.median(cold)),
        *(float(np.percentile(single, share)) for share in (50, 99)),
        1000 * len(single) / sum(single),
        1000 * len(queries) / batched,
        *(float(np.percentile(explained, share)) for share in (50, 99)),
    )


def as_table(rows: list[Measured]) -> str:
    lines = [
        f"{platform.machine()}, {os.cpu_count()} cores, {torch.get_num_threads()} threads, torch {torch.__version__}",
        f"{'':16}{''.join(f'{column:>10}' for column in COLUMNS)}{'explain p50':>13}{'p99 ms':>10}",
    ]
    for row in rows:
        figures = (row.cold_ms, row.p50_ms, row.p99_ms, row.per_second, row.per_second_batched)
        shown = "".join(f"{figure:10,.1f}" for figure in figures)
        lines.append(f"{row.name:16}{shown}{row.explain_p50_ms:13,.1f}{row.explain_p99_ms:10,.1f}")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--questions", type=int, default=500)
    parser.add_argument("--explanations", type=int, default=20)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    rows = []
    for name in NAMES:
        try:
            rows.append(measure(name, options.questions, options.explanations))
        except ContextPoolError as error:
            print(f"{name} is left out: {error}")
    print(json.dumps([asdict(row) for row in rows], indent=2) if options.json else as_table(rows))


if __name__ == "__main__":
    main()
