"""What a model is worth on the half of the embedded world that was not trained on (docs/lab/world.md).

    python -m lab.world hits [--run RUN] [--seed 0]           Hits@3 per relation, beside the most frequent answer
    python -m lab.world reliability [--plot out.svg]          what the probabilities are worth
    python -m lab.world explanations [--facts 668]            whether explanations tell what the model does

Without --run the shipped recipe is trained first, as `contextpool demo` does. `hits` wants at least twice as much where
the most frequent answer finds less than 40 %, and more everywhere; it ends with 1 and names the relations that fail.
`explanations` takes out the edges of each answer's first path, and as many random ones instead.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from scipy.stats import binomtest

import contextpool as cp
from contextpool.evaluate.report import EvaluationReport
from contextpool.experiment import compare_with_references, run_recipe
from contextpool.explain.attribution import Case
from contextpool.explain.explainer import explain_answer
from contextpool.graph.graph import Graph
from contextpool.models.base import LinkPredictor
from contextpool.pool.batch import BatchBuilder
from contextpool.predict import Predictor, Question
from contextpool.recipe import shipped_recipe
from contextpool.triples.catalog import load_dataset
from contextpool.triples.dataset import Dataset
from lab.reliability import Reliability, binned, reliability

AT = 3
EASY = 0.4
SIDES = ("both", "tail", "head")


@dataclass(frozen=True)
class Row:
    """Shares of answers among the first three."""

    relation: str
    facts: int
    side: str
    model: float
    frequent: float

    @property
    def passed(self) -> bool:
        return self.model > self.frequent and (self.frequent >= EASY or self.model >= 2 * self.frequent)


def rows_of(model: EvaluationReport, frequent: EvaluationReport) -> list[Row]:
    """One row a relation and side; both reports rank the same queries in the same order."""
    relation = model.queries.ids[:, 1]
    count = len(relation)
    sides = {"tail": slice(0, count), "head": slice(count, 2 * count)}
    rows = []
    for number, label in enumerate(model.queries.relations.labels):
        asked = relation == number
        if not asked.any():
            continue
        hits = {
            side: [float((report.ranks[part][asked] <= AT).mean()) for report in (model, frequent)]
            for side, part in sides.items()
        }
        hits["both"] = [float(np.mean([hits[side][place] for side in sides])) for place in (0, 1)]
        rows += [Row(label, int(asked.sum()), side, *hits[side]) for side in SIDES]
    return rows


def trained(run: str | None, seed: int) -> Predictor:
    if run is not None:
        return cp.load(run)
    recipe = shipped_recipe("world", "nbfnet", context=True)
    assert recipe is not None, "the demo's recipe is part of the package"
    return run_recipe(recipe, seed=seed)


def hits_table(rows: list[Row]) -> str:
    lines = [
        "| relation | facts | both | frequent | tails | frequent | heads | frequent |",
        "|---|---:|" + "---:|" * 6,
    ]
    for label in dict.fromkeys(row.relation for row in rows):
        of_side = {row.side: row for row in rows if row.relation == label}
        cells = [f"{of_side[side].model:.3f} | {of_side[side].frequent:.3f}" for side in SIDES]
        lines.append(f"| {label} | {of_side['both'].facts} | {' | '.join(cells)} |")
    return "\n".join(lines)


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
        probability += [answer.share for answer in counted]  # given that some relation holds, as here
        hit += [float(answer.label == relation) for answer in counted]
        first.append(bool(counted) and counted[0].label == relation)
    return binned(np.array(probability, dtype=float), np.array(hit)), float(np.mean(first))


def reliability_table(found: Reliability) -> str:
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


IdTriple = tuple[int, int, int]
Floats = npt.NDArray[np.float64]
TRIES = 4
"""Random sets of edges for each query, whose costs are averaged."""


@dataclass(frozen=True, eq=False)
class Faithfulness:
    """How much the scores of Q answers fall without their first path, and without as many random edges."""

    path: Floats  # [Q]
    chance: Floats  # [Q]

    @property
    def wins(self) -> int:
        """Queries for which the path costs more."""
        return int((self.path > self.chance).sum())

    @property
    def losses(self) -> int:
        return int((self.path < self.chance).sum())

    @property
    def p_value(self) -> float:
        """One-sided sign test: the chance of so many wins, or more, if paths were no better than random edges."""
        return float(binomtest(self.wins, max(1, self.wins + self.losses), alternative="greater").pvalue)


def faithfulness(
    model: LinkPredictor, builder: BatchBuilder, facts: Iterable[IdTriple], *, seed: int = 0
) -> Faithfulness:
    """For facts (head, relation, tail) by id. Answers that no path leads to are left out.

    Random edges are drawn from those that the model walks for the same query, as many as the path has.
    """
    rng = random.Random(seed)
    rows = []
    for head, relation, tail in facts:
        explanation = explain_answer(model, builder, head, relation, tail, most_paths=1)
        if not explanation.paths:
            continue
        edge = builder.graph.find_edge(head, relation, tail)
        case = Case(model, builder, head, relation, tail, -1 if edge is None else edge)
        walked = case.batch().propagation.edge_id.tolist()
        others = [rng.sample(walked, len(explanation.paths[0].edges)) for _ in range(TRIES)]
        cost = explanation.score - float(np.mean(case.scores_without(others)))
        rows.append((explanation.paths[0].drop, cost))
    table = np.array(rows, dtype=np.float64).reshape(-1, 2)
    return Faithfulness(table[:, 0], table[:, 1])


def print_hits(predictor: Predictor) -> int:
    reports = compare_with_references(predictor, "world")
    rows = rows_of(reports["model"], reports["most frequent answer"])
    failed = [row for row in rows if not row.passed]
    print(hits_table(rows))
    told = ", ".join(f"{row.relation} ({row.side})" for row in failed) or "none"
    print(f"\nHits@{AT}, P1, filtered, realistic ties. Relations that fail: {told}")
    return 1 if failed else 0


def print_reliability(predictor: Predictor, picture: Path | None) -> None:
    data = load_dataset("world")
    entities, (relations, first) = of_entities(predictor, data), of_relations(predictor, data)
    if picture is not None:
        plot(entities, picture)
    print(f"Entity questions\n\n{reliability_table(entities)}\n")
    print(f"Relation questions, the right one first in {first:.1%}\n\n{reliability_table(relations)}")


def print_explanations(predictor: Predictor, most: int) -> None:
    data = load_dataset("world")
    graph, _ = predictor.prepared(Graph.from_triples(data.inference_graph))
    facts = [
        (graph.entity_id(head), graph.relation_id(relation), graph.entity_id(tail))
        for head, relation, tail in list(data.evaluation_queries("P1"))[:most]
    ]
    found = faithfulness(predictor.model, predictor.builder(graph), facts)
    print(f"{len(facts)} held-out facts, {len(found.path)} of them reached by a path")
    for name, values in (("first path", found.path), ("random edges", found.chance)):
        falls = f"{values.mean():.2f} on average, {np.median(values):.2f} in the median"
        print(f"without the {name}: the score falls by {falls}")
    share = found.wins / len(found.path)
    print(
        f"the path costs more in {found.wins} ({share:.1%}), less in {found.losses}; sign test p = {found.p_value:.1e}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("hits", "reliability", "explanations"))
    parser.add_argument("--run", help="a run folder, such as runs/demo")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--plot", type=Path, help="also draw the diagram of entity questions")
    parser.add_argument("--facts", type=int, default=668, help="how many are explained")
    options = parser.parse_args()
    predictor = trained(options.run, options.seed)
    if options.what == "hits":
        return print_hits(predictor)
    if options.what == "reliability":
        print_reliability(predictor, options.plot)
    else:
        print_explanations(predictor, options.facts)
    return 0


if __name__ == "__main__":
    sys.exit(main())
