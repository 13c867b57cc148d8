"""What a cap on the edges of a hop costs: how many of the uncapped top 10 a capped walk still finds in its top 10.

    python benchmarks/cap_recall.py [--datasets grail/fb237_v4 pool/codex-m full/FB15K237 --caps 100 1000]
    python benchmarks/cap_recall.py --side validation --datasets grail/fb237_v4 pool/codex-s      to choose the order

The model is `anygraph-1`, or a run of yours (--run). Questions are drawn from the dataset's evaluation queries and
asked of the inference graph, or (--side validation) from its validation queries over the graph they are asked of.
pool/NAME is a folder of the data folder.

`recall` is the share of the top 10 new answers among all entities that the capped top 10 holds. Behind it stands by
how much the default order, by arrive x mass, is better: the mean over questions of the difference, with the interval
that 95 % of 2,000 bootstraps of the questions lie in. `MRR` is of the answers themselves; one that was
not reached ranks behind all others.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch

from contextpool import experiment
from contextpool.graph.graph import Graph
from contextpool.graph.relations import DirectedQueries
from contextpool.pool.frontier import (
    Leaving,
    arrival_relevance,
    best_first,
    by_key,
    ranges,
    relevance_of,
)
from contextpool.predict import Predictor
from contextpool.predict.asking import best_places, known_answers
from contextpool.predict.frontier import Frontier
from contextpool.triples.catalog import load_dataset
from contextpool.triples.dataset import Dataset

TOP = 10
BOOTSTRAPS = 2_000
DEFAULT = "arrive x mass"
Floats = np.ndarray
Order = tuple[Callable[[Frontier, int], Floats], Callable[[Leaving, int], Leaving]]
"""(frontier, query relation) -> [2R] what an edge's relation is worth, and how that becomes an order of edges."""


def by_context_then_mass(leaving: Leaving, room: int) -> Leaving:
    return leaving.take(np.lexsort((-leaving.mass, -leaving.relevance))[:room])


def edge_by_edge(leaving: Leaving) -> tuple[Leaving, Floats]:
    """Every edge a group of its own, and the edges."""
    edges = ranges(leaving.begin, leaving.size)
    rows = np.repeat(np.arange(len(leaving.size)), leaving.size)
    head, relation, relevance, mass = (
        column[rows] for column in (leaving.head, leaving.relation, leaving.relevance, leaving.mass)
    )
    return Leaving(head, relation, edges, np.ones_like(edges), relevance, mass), edges


def by_degree(graph: Graph, leaving: Leaving, room: int) -> Leaving:
    """What leads to entities with many edges first."""
    single, edges = edge_by_edge(leaving)
    return by_key(single, room, graph.row_start.diff().numpy()[graph.edge_tail.numpy()[edges]])


def at_random(leaving: Leaving, room: int) -> Leaving:
    single, edges = edge_by_edge(leaving)
    return by_key(single, room, np.random.default_rng(int(edges.sum())).random(len(edges)))


def gates_of(frontier: Frontier, relation: int) -> Floats:
    """[2R] what the model itself multiplies messages with, for a query relation."""
    both, support = frontier.counts.both[relation], np.maximum(frontier.counts.support, 1)
    relevance = torch.from_numpy(np.stack([both / support, both / support[relation]], axis=1)).float()[None]
    gate = getattr(
        frontier.predictor.model, "gate", None
    )  # that of anygraph; others have it in their streams
    gate = frontier.predictor.model.context.gate if gate is None else gate
    with torch.no_grad():
        return gate(relevance, torch.tensor([relation]))[0].double().numpy()


def orders_of(graph: Graph) -> dict[str, Order]:
    """`leave` is the relevance of a relation where it begins, `arrive` that of its inverse where it ends."""
    arrive = lambda frontier, relation: arrival_relevance(frontier.counts, relation)  # noqa: E731
    leave = lambda frontier, relation: relevance_of(frontier.counts, relation)  # noqa: E731
    return {
        DEFAULT: (arrive, best_first),
        "leave x mass": (leave, best_first),
        "gate x mass": (
            gates_of,
            lambda leaving, room: by_key(leaving, room, leaving.relevance * leaving.mass),
        ),
        "leave, mass": (leave, by_context_then_mass),
        "leave, label": (leave, lambda leaving, room: by_key(leaving, room, leaving.relevance)),
        "mass": (leave, lambda leaving, room: by_key(leaving, room, leaving.mass)),
        "degree": (leave, partial(by_degree, graph)),
        "random": (leave, at_random),
    }


def rank_of(scores: torch.Tensor, answer: int, shut: torch.Tensor) -> float:
    """Realistic, among what is open; the answer is open in any case."""
    others = ~shut
    others[answer] = False
    better = int((scores[others] > scores[answer]).sum())
    return 1 + better + int((scores[others] == scores[answer]).sum()) / 2


Found = tuple[set[int], float, int]
"""The top 10, the answer's rank, how many were considered."""


def everything(predictor: Predictor, graph: Graph, entity: int, relation: int, answer: int) -> Found:
    query = torch.tensor([entity]), torch.tensor([relation])
    scores, shut = predictor.scorer(graph)(*query)[0], known_answers(graph, *query)[0]
    best = best_places(scores.masked_fill(shut, -torch.inf), TOP)
    return set(best), rank_of(scores, answer, shut.clone()), graph.num_entities


def capped(frontier: Frontier, entity: int, relation: int, answer: int) -> Found:
    near = frontier.nearby(entity, relation)
    reached = near.found.entities
    scores, shut = frontier.scores(near)[0], torch.from_numpy(frontier.known(near))
    best = best_places(scores.masked_fill(shut, -torch.inf), TOP)
    place = int(np.searchsorted(reached, answer))
    there = place < len(reached) and reached[place] == answer
    return (
        set(reached[best].tolist()),
        rank_of(scores, place, shut.clone()) if there else float("inf"),
        len(reached),
    )


def recalls(expected: list[Found], found: list[Found]) -> Floats:
    pairs = zip(expected, found, strict=True)
    return np.array([len(one[0] & other[0]) / max(1, len(one[0])) for one, other in pairs])


def paired(better: Floats, worse: Floats) -> str:
    """Mean difference over the same questions, and the interval of its bootstraps."""
    difference = better - worse
    drawn = np.random.default_rng(0).integers(0, len(difference), (BOOTSTRAPS, len(difference)))
    low, high = np.quantile(difference[drawn].mean(axis=1), [0.025, 0.975])
    return f"{difference.mean():+.3f} [{low:+.3f}, {high:+.3f}]"


def load(name: str) -> Dataset:
    folder = name.startswith("pool/") and Path(os.environ.get("CONTEXTPOOL_DATA", "data")) / name
    return load_dataset(folder or name)


def measure(predictor: Predictor, dataset: Dataset, options: argparse.Namespace) -> None:
    validation = options.side == "validation"
    triples = dataset.validation_graph if validation else dataset.inference_graph
    graph, _ = predictor.prepared(Graph.from_triples(triples))
    queries = dataset.validation_queries if validation else dataset.evaluation_queries("P2")
    drawn = DirectedQueries.of(queries)
    drawn = drawn.select(np.random.default_rng(0).permutation(len(drawn))[: options.questions])
    asked = list(zip(drawn.entity.tolist(), drawn.relation.tolist(), drawn.answer.tolist(), strict=True))
    began = time.process_time()
    whole = [everything(predictor, graph, *one) for one in asked]
    spent = 1000 * (time.process_time() - began) / len(asked)
    print(f"{dataset.name} ({options.side}): {graph}, {len(asked)} questions")
    print("    cap   order            recall   default is better by        MRR  considered  CPU ms")

    def show(cap: str, order: str, recall: float, gap: str, found: list[Found], spent: float) -> None:
        print(
            f"{cap:>7}   {order:15} {recall:7.3f}   {gap:24} "
            f"{statistics.mean(1 / row[1] for row in found):6.3f} "
            f"{statistics.median(row[2] for row in found):11,.0f} {spent:7.0f}",
            flush=True,
        )

    for cap in options.caps:
        best = np.empty(0)
        for order, (worth, choose) in orders_of(graph).items():
            if options.orders and order not in options.orders:
                continue
            frontier = Frontier(predictor, graph, cap)
            frontier.choose, frontier._relevance = choose, partial(worth, frontier)
            began = time.process_time()
            found = [capped(frontier, *one) for one in asked]
            spent_now = 1000 * (time.process_time() - began) / len(asked)
            recall = recalls(whole, found)
            best = recall if order == DEFAULT else best
            gap = "" if order == DEFAULT else paired(best, recall)
            show(f"{cap:,}", order, float(recall.mean()), gap, found, spent_now)
    show("none", "-", 1.0, "", whole, spent)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--datasets", nargs="+", default=["grail/fb237_v4", "pool/codex-m", "full/FB15K237"])
    parser.add_argument("--side", choices=["test", "validation"], default="test")
    parser.add_argument("--caps", type=int, nargs="+", default=[100, 300, 1_000, 3_000])
    parser.add_argument(
        "--orders", nargs="+", help=f"only these; {DEFAULT!r} among them, which others are compared to"
    )
    parser.add_argument("--questions", type=int, default=200)
    parser.add_argument("--run", type=Path, help="a run folder to ask instead of anygraph-1")
    options = parser.parse_args()
    predictor = experiment.load(options.run)
    print(f"{predictor}, {os.cpu_count()} cores, {torch.get_num_threads()} threads")
    for name in options.datasets:
        measure(predictor, load(name), options)


if __name__ == "__main__":
    main()
