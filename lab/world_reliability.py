"""What the probabilities on the half of the world that was not trained on are worth: the tables of docs/predict.md.

    python -m lab.world_reliability [--run RUN] [--seed 0] [--plot out.svg] [--json]

Entity questions: the best ten candidates of all 1,336 evaluation queries. Relation questions: the best three
relations of every evaluation fact. Without --run the shipped recipe is trained first.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import numpy as np

from contextpool.evaluate.reliability import Reliability, binned, reliability
from contextpool.graph.graph import Graph
from contextpool.predict import Predictor, Question
from contextpool.triples.catalog import load_dataset
from contextpool.triples.dataset import Dataset
from lab.world_hits import trained


def of_entities(predictor: Predictor, data: Dataset) -> Reliability:
    """The run's calibration, fitted on the training half, on the other half."""
    assert predictor.calibration is not None, "the run has no calibration"
    graph, _ = predictor.prepared(Graph.from_triples(data.inference_graph))
    queries = data.evaluation_queries("P1")
    return reliability(predictor.scorer(graph), queries, data.evaluation_filter, predictor.calibration)


def of_relations(predictor: Predictor, data: Dataset, top: int = 3) -> tuple[Reliability, float]:
    """Reliability of the best three relations of each fact, and how often the right one is the first."""
    graph = Graph.from_triples(data.inference_graph)
    facts = list(data.evaluation_queries("P1"))
    asked = [Question(head, None, tail) for head, _, tail in facts]
    truth: dict[tuple[str, str], set[str]] = {}
    for head, relation, tail in facts:
        truth.setdefault((head, tail), set()).add(relation)
    probability, hit, first = [], [], []
    for (head, relation, tail), answers in zip(
        facts, predictor.predict_batch(graph, asked, top), strict=True
    ):
        others = truth[head, tail] - {relation}  # as filtered ranks do, other true answers are left out
        counted = [answer for answer in answers if answer.label not in others]
        probability += [answer.probability for answer in counted]
        hit += [float(answer.label == relation) for answer in counted]
        first.append(bool(counted) and counted[0].label == relation)
    return binned(np.array(probability, dtype=float), np.array(hit)), float(np.mean(first))


def as_table(found: Reliability) -> str:
    lines = ["| probability | claimed | observed | candidates |", "|---|---:|---:|---:|"]
    lines += [
        f"| {one.low:.2f} - {one.high:.2f} | {one.claimed:.3f} | {one.observed:.3f} | {one.count:,} |"
        for one in found.bins
    ]
    return "\n".join(
        [*lines, "", f"expected calibration error {found.error:.4f}, {found.num_points:,} candidates"]
    )


def plot(found: Reliability, path: Path) -> None:
    """Claimed against observed; the area of a dot is the number of candidates."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.5, 4.5), layout="constrained")
    axes = figure.subplots()
    axes.plot([0, 1], [0, 1], color="#a0aec0", linewidth=1)
    sizes = [12 + 60 * np.log10(one.count) for one in found.bins]
    axes.scatter(
        [one.claimed for one in found.bins], [one.observed for one in found.bins], s=sizes, color="#2b6cb0"
    )
    axes.set(
        xlabel="claimed probability",
        ylabel="observed share",
        xlim=(-0.03, 1.03),
        ylim=(-0.03, 1.03),
        aspect="equal",
    )
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--run", help="a run folder, such as runs/demo")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--plot", type=Path, help="also draw the diagram of entity questions")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    predictor, data = trained(options.run, options.seed), load_dataset("world")
    entities, (relations, first) = of_entities(predictor, data), of_relations(predictor, data)
    if options.plot is not None:
        plot(entities, options.plot)
    if options.json:
        print(
            json.dumps(
                {"entities": entities.to_dict(), "relations": relations.to_dict(), "first": first}, indent=2
            )
        )
        return 0
    print(
        f"Entity questions\n\n{as_table(entities)}\n\nRelation questions, the right one first in {first:.1%}\n"
    )
    print(as_table(relations))
    return 0


if __name__ == "__main__":
    sys.exit(main())
