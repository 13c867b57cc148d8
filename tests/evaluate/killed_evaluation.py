"""Two evaluations on Ray, a worker of the first killed in the middle of a piece; prints the ranks they come to."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from contextpool.evaluate.report import EvaluationReport
from contextpool.evaluation import Evaluating
from contextpool.predict.workers import Workers
from learning_worlds import family_dataset
from predict.killed_complete import family_predictor


def small_evaluation() -> Evaluating:
    """Of a model with random weights, in as many batches as there are queries."""
    return Evaluating(family_predictor()[0], family_dataset(), batch_size=1)


def figures(reports: dict[str, EvaluationReport]) -> dict[str, Any]:
    """Every rank, as JSON holds it."""
    tables = {name: report.table for name, report in reports.items()}
    return {
        name: [one.tolist() for one in (table.optimistic, table.pessimistic, table.candidates)]
        for name, table in tables.items()
    }


class KilledOnce(Evaluating):
    """Ends the process that does its first piece."""

    def __init__(self, mark: str) -> None:
        whole = small_evaluation()
        super().__init__(*whole._given)
        self.mark = Path(mark)

    def __reduce__(self) -> tuple[Any, ...]:
        return KilledOnce, (str(self.mark),)

    def work(self, piece: tuple[str, int, int]) -> bytes:
        if not self.mark.exists():
            self.mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().work(piece)


if __name__ == "__main__":
    for count in (2, 1):
        print(json.dumps(figures(KilledOnce(sys.argv[1]).reports(Workers(count, "ray")))))
