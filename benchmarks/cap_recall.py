"""What a cap on the edges of a hop costs: how many of the uncapped top 10 a capped walk still finds in its top 10.

    python benchmarks/cap_recall.py [--datasets grail/fb237_v4 grail/WN18RR_v3 --caps 100 1000 --questions 200]

Each dataset's model is a run of yours (--run), or an NBFNet with context, trained here on the queries of valid.txt
alone: enough to know its relations, and quick. Questions are drawn from the evaluation queries, both directions, and
asked of the inference graph.

`recall` is the share of the top 10 of the walk without a cap (new answers) that the capped top 10 holds, with its
lowest for any question; `of all` the same of the top 10 among all entities, reached or not: entities that no walk
reaches tie, or go by candidate relevance alone. `MRR` is of the answers themselves, an answer that was not reached
ranking behind all others. Beside the order by relevance stands the same cap with relations in order of their labels:
what the context is worth as a pruning.
"""

from __future__ import annotations

import argparse
import statistics
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from contextpool import experiment
from contextpool.context.config import PRESETS
from contextpool.graph.graph import Graph
from contextpool.graph.relations import DirectedQueries
from contextpool.pool.frontier import order_of
from contextpool.predict import Predictor
from contextpool.predict.asking import best_places, known_answers
from contextpool.predict.frontier import Frontier
from contextpool.recipe import Recipe
from contextpool.train.config import TrainConfig
from contextpool.triples.catalog import load_dataset
from contextpool.triples.dataset import Dataset

TOP = 10
LAYERS = {"grail/WN18RR_v3": 5}
"""Three elsewhere: facts of WordNet are few and far."""


def quick_model(dataset: Dataset, epochs: int) -> Predictor:
    settings = {"dim": 16, "layers": LAYERS.get(dataset.name, 3)}
    train = TrainConfig(epochs=epochs, batch_size=32, warmup_steps=10, queries="valid", patience=0)
    context = replace(PRESETS["paper"], gate=True, arrive=True)
    return experiment.run_recipe(Recipe(dataset.name, "nbfnet", settings, context, train), dataset)


def questions_of(dataset: Dataset, count: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Entity, relation and answer [Q] by the dataset's numbers, which the prepared graph shares."""
    asked = DirectedQueries.of(dataset.evaluation_queries("P2"))
    chosen = asked.select(np.random.default_rng(0).permutation(len(asked))[:count])
    return tuple(torch.from_numpy(ids) for ids in (chosen.entity, chosen.relation, chosen.answer))  # type: ignore[return-value]


def rank_of(scores: torch.Tensor, answer: int, shut: torch.Tensor) -> float:
    """Realistic, among what is open; the answer is open in any case."""
    others = ~shut
    others[answer] = False
    better = int((scores[others] > scores[answer]).sum())
    return 1 + better + int((scores[others] == scores[answer]).sum()) / 2


def full_answers(
    predictor: Predictor, graph: Graph, entity: int, relation: int, answer: int
) -> tuple[set[int], float]:
    query = torch.tensor([entity]), torch.tensor([relation])
    scores, shut = predictor.scorer(graph)(*query)[0], known_answers(graph, *query)[0]
    return set(best_places(scores.masked_fill(shut, -torch.inf), TOP)), rank_of(scores, answer, shut.clone())


Capped = tuple[set[int], float, int, float]


def capped_answers(frontier: Frontier, entity: int, relation: int, answer: int) -> Capped:
    """The top 10, the answer's rank, how many were reached, and seconds."""
    began = time.perf_counter()
    near = frontier.nearby(entity, relation)
    scores = frontier.scores(near, entity, relation)[0]
    seconds = time.perf_counter() - began
    shut = torch.from_numpy(frontier._known(near, entity, relation))
    best = best_places(scores.masked_fill(shut, -torch.inf), TOP)
    place = np.searchsorted(near.found.entities, answer)
    there = place < len(near.found.entities) and near.found.entities[place] == answer
    rank = rank_of(scores, int(place), shut.clone()) if there else float("inf")
    return set(near.found.entities[best].tolist()), rank, len(near.found.entities), seconds


def by_label(frontier: Frontier, relation: int) -> np.ndarray:
    """An order that knows nothing."""
    relations = frontier.predictor.relations
    return order_of(np.zeros(relations.num_directed), relations)


def measure(predictor: Predictor, dataset: Dataset, caps: list[int], count: int) -> None:
    graph, _ = predictor.prepared(Graph.from_triples(dataset.inference_graph))
    entity, relation, answer = questions_of(dataset, count)
    asked = list(zip(entity.tolist(), relation.tolist(), answer.tolist(), strict=True))
    everything = [full_answers(predictor, graph, *one) for one in asked]
    full = statistics.mean(1 / rank for _, rank in everything)
    uncapped = Frontier(predictor, graph, None)
    walked = [capped_answers(uncapped, *one) for one in asked]
    print(f"{dataset.name}: {graph}, {len(asked)} questions, MRR among all entities {full:.3f}")
    print("      cap   order         recall   min   of all      MRR  reached    ms")

    def show(cap: str, order: str, found: list[Capped]) -> None:
        own, of_all = (
            [len(best & row[0]) / max(1, len(best)) for best, row in zip(expected, found, strict=True)]
            for expected in ([row[0] for row in walked], [row[0] for row in everything])
        )
        print(
            f"{cap:>9}   {order:12} {statistics.mean(own):7.3f} {min(own):5.2f} {statistics.mean(of_all):8.3f} "
            f"{statistics.mean(1 / row[1] for row in found):8.3f} "
            f"{statistics.median(row[2] for row in found):8,.0f} "
            f"{1000 * statistics.median(row[3] for row in found):5.0f}",
            flush=True,
        )

    for cap in caps:
        for order in ("relevance", "label"):
            frontier = Frontier(predictor, graph, cap)
            if order == "label":
                frontier._order = lambda one, frontier=frontier: by_label(frontier, one)  # type: ignore[misc]
            show(f"{cap:,}", order, [capped_answers(frontier, *one) for one in asked])
    show("none", "-", walked)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--datasets", nargs="+", default=["grail/fb237_v4", "grail/WN18RR_v3"])
    parser.add_argument("--caps", type=int, nargs="+", default=[100, 300, 1_000, 3_000, 10_000])
    parser.add_argument("--questions", type=int, default=200)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--run", type=Path, help="a run folder to ask instead of the quick model")
    options = parser.parse_args()
    for name in options.datasets:
        dataset = load_dataset(name)
        predictor = experiment.load(options.run) if options.run else quick_model(dataset, options.epochs)
        measure(predictor, dataset, options.caps, options.questions)


if __name__ == "__main__":
    main()
