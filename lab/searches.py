"""What was spent on finding recipes: the trial files of `python -m lab tune` beside the results, counted."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from lab.lines import Line, read_lines

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
        return family_of_splits(self.dataset)


def family_of_splits(dataset: str) -> str:
    """Setting and family: `grail/nell` of grail/nell_v2."""
    return dataset.rsplit("_v", 1)[0]


def read_search(path: Path) -> tuple[Line, list[Line]] | None:
    """The first line of a file of `python -m lab tune`, and its trials; None where no search has begun."""
    lines = read_lines(path)
    return (lines[0], [line for line in lines if line["kind"] == "trial"]) if lines else None


def read_searches(folder: Path) -> tuple[SearchCost, ...]:
    """Every search whose trials are kept in a folder; none where there is no such folder."""
    found = []
    for path in sorted(folder.glob("*.jsonl")):
        header, trials = read_search(path) or ({}, [])
        if trials:
            seconds = sum(line.get("seconds") or 0.0 for line in trials)
            found.append(SearchCost(header["dataset"], header["model"], len(trials), float(seconds)))
    return tuple(found)
