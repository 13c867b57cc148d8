"""Hits@3 per relation on the half of the world that was not trained on, beside the most frequent answer.

    python -m lab.world_hits [--run RUN] [--seed 0] [--json]

Without --run the shipped recipe is trained first, as `contextpool demo` does. Wanted: where the most frequent answer
finds less than 40 %, at least twice as much; above it everywhere. Ends with 1 and names the relations that fail.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict, dataclass

import numpy as np

import contextpool as cp
from contextpool.evaluate.report import EvaluationReport
from contextpool.experiment import compare_with_references, run_recipe
from contextpool.predict import Predictor
from contextpool.recipe import shipped_recipe

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


def as_table(rows: list[Row]) -> str:
    lines = [
        "| relation | facts | both | frequent | tails | frequent | heads | frequent |",
        "|---|---:|" + "---:|" * 6,
    ]
    for label in dict.fromkeys(row.relation for row in rows):
        of_side = {row.side: row for row in rows if row.relation == label}
        cells = [f"{of_side[side].model:.3f} | {of_side[side].frequent:.3f}" for side in SIDES]
        lines.append(f"| {label} | {of_side['both'].facts} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--run", help="a run folder, such as runs/demo")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    reports = compare_with_references(trained(options.run, options.seed), "world")
    rows = rows_of(reports["model"], reports["most frequent answer"])
    failed = [row for row in rows if not row.passed]
    if options.json:
        print(json.dumps([asdict(row) | {"passed": row.passed} for row in rows], indent=2))
    else:
        print(as_table(rows))
        told = ", ".join(f"{row.relation} ({row.side})" for row in failed) or "none"
        print(f"\nHits@{AT}, P1, filtered, realistic ties. Relations that fail: {told}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
