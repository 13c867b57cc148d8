"""Whether explanations tell what the model does: taking out the first path against taking out random edges."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.stats import binomtest

from contextpool.explain.attribution import Case
from contextpool.explain.explainer import explain_answer
from contextpool.models.base import LinkPredictor
from contextpool.pool.batch import BatchBuilder

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
