"""What was spent on finding recipes: the trial files of `contextpool tune` beside the results, counted."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from contextpool.jobs.lines import read_lines

FOLDER = "trials"
"""Of the results folder."""


@dataclass(frozen=True)
class SearchCost:
    """One search: its data, its model, and what its trials took."""

    dataset: str
    model: str
    trainings: int
    seconds: float

    @property
    def family(self) -> str:
        """Setting and family: `grail/nell` of grail/nell_v2."""
        return self.dataset.rsplit("_v", 1)[0]


def read_searches(folder: Path) -> tuple[SearchCost, ...]:
    """Every search whose trials are kept in a folder; none where there is no such folder."""
    found = []
    for path in sorted(folder.glob("*.jsonl")):
        lines = read_lines(path)
        headers = [line for line in lines if line.get("kind") == "search"]
        trials = [line for line in lines if line.get("kind") == "trial"]
        if headers and trials:
            seconds = sum(line.get("seconds") or 0.0 for line in trials)
            found.append(SearchCost(headers[0]["dataset"], headers[0]["model"], len(trials), float(seconds)))
    return tuple(found)
