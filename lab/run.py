"""Work through a grid of trainings: skip what has a line, train the rest, append a line each; or do one again."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from contextpool.errors import ConfigError, DataError, InputError, UnknownNameError
from contextpool.triples.catalog import GRAIL_NAMES, benchmark_names, refuse_unknown
from lab.jobs import Finished, Line, LineFile, read_lines, run_jobs
from lab.measure import METRICS, Task, key_and_line
from lab.recipes import SHIPPED, Cell, Key, Variant, joined_name, make_cell, recipe_of, shipped_variants
from lab.results import results_files

GROUPS: dict[str, tuple[str, ...]] = {
    "inductive": tuple(f"grail/{name}" for name in GRAIL_NAMES),
    "transductive": tuple(f"grail_transductive/{name}" for name in GRAIL_NAMES),
}
"""Names for the twelve settings of each kind; `all` is both."""


@dataclass(frozen=True)
class Grid:
    """Everything to train. The trainings are the product of the lists."""

    datasets: tuple[str, ...]
    """Names, folders, patterns such as grail/fb237_*, or inductive, transductive, all."""
    models: tuple[str, ...] = ("nbfnet",)
    """With or without a suffix."""
    contexts: tuple[str, ...] = ()
    """Suffixes to give to each model that has none; `plain` is none."""
    recipes: tuple[str, ...] = (SHIPPED,)
    """`shipped`, folders of recipes, or .toml files."""
    seeds: tuple[int, ...] = (0, 1, 2)
    changes: Mapping[str, Any] = field(default_factory=dict)
    """Dotted keys of a recipe, changed in all of them."""
    variants: Mapping[str, Variant] = field(default_factory=shipped_variants)
    label: str | None = None
    """Name of the recipes in the results; by default the source's."""

    def cells(self) -> list[Cell]:
        """One for each training, every key once, in the order of the lists: seeds innermost."""
        cells = (
            make_cell(
                dataset,
                model,
                source,
                seed,
                variants=self.variants,
                changes=self.changes,
                label=self.label,
            )
            for dataset in chosen_datasets(self.datasets)
            for model in self._model_names()
            for source in self.recipes
            for seed in self.seeds
        )
        return list({cell.key: cell for cell in cells}.values())

    def _model_names(self) -> list[str]:
        names = [
            model if "+" in model else joined_name(model, suffix)
            for model in self.models
            for suffix in self.contexts or ("plain",)
        ]
        return list(dict.fromkeys(names))


def chosen_datasets(wanted: Sequence[str]) -> list[str]:
    """Groups and patterns written out; each dataset once."""
    return list(dict.fromkeys(name for item in wanted for name in _matching(item)))


def _matching(item: str) -> Sequence[str]:
    if item == "all":
        return [name for names in GROUPS.values() for name in names]
    if item in GROUPS:
        return GROUPS[item]
    if not any(letter in item for letter in "*?["):
        refuse_unknown(item)
        return [item]
    found = [name for name in benchmark_names() if fnmatchcase(name, item)]
    if not found:
        raise UnknownNameError("pattern of datasets", item, [*GROUPS, *benchmark_names()])
    return found


MEASURE = "lab.measure:measure"
COMPARED = (*METRICS, "valid_mrr")
"""Figures of a line that are put beside those of the same training done again."""


@dataclass
class Watcher:
    """What a progress bar wants to know. Every function may be left as it is."""

    note: Callable[[str], None] = lambda message: None
    progress: Callable[[Cell, Any], None] = lambda cell, progress: None
    """(cell, a training's `Progress`)"""
    begun: Callable[[Cell], None] = lambda cell: None
    finished: Callable[[Cell, Line | None], None] = lambda cell, line: None
    """(cell, its line, or None where it failed)"""


@dataclass
class Summary:
    """What a run through the grid came to."""

    skipped: int = 0
    """Had a line already."""
    done: list[Line] = field(default_factory=list)
    failed: list[Line] = field(default_factory=list)
    left: int = 0
    """Not begun because of the time limit."""


def run_grid(
    cells: Sequence[Cell],
    results: str | Path,
    *,
    device: str = "cpu",
    jobs: int = 1,
    time_limit: float | None = None,
    runs: str | None = None,
    commit: str | None = None,
    watcher: Watcher | None = None,
) -> Summary:
    """Train every cell that has no line in the results file yet; one that fails is noted, and the rest go on."""
    watcher = watcher or Watcher()
    with LineFile(results) as lines, LineFile(failures_of(results)) as failures:
        for file in (lines, failures):
            if file.repaired:
                watcher.note(file.repaired)
        there = set(key_and_line(lines.lines))
        queue = Queue([cell for cell in cells if cell.key not in there], lines.lines, time_limit)
        summary = Summary(skipped=len(cells) - len(queue.waiting))

        def next_task() -> Task | None:
            cell = queue.take()
            if cell is None:
                return None
            watcher.begun(cell)
            return Task(cell, device, runs, commit)

        for finished in run_jobs(
            MEASURE, next_task, jobs, lambda task, told: watcher.progress(task.cell, told)
        ):
            _record(finished, lines, failures, summary, watcher)
        summary.left = len(queue.waiting)
        if not failures.lines:
            failures.path.unlink(missing_ok=True)
    return summary


def failures_of(results: str | Path) -> Path:
    """results/a.failed.jsonl beside results/a.jsonl"""
    path = Path(results)
    return path.with_name(f"{path.name.removesuffix('.jsonl')}.failed.jsonl")


def _record(
    finished: Finished, lines: LineFile, failures: LineFile, summary: Summary, watcher: Watcher
) -> None:
    cell: Cell = finished.argument.cell
    if finished.error is None:
        lines.append(finished.value)
        summary.done.append(finished.value)
        watcher.finished(cell, finished.value)
        return
    date = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    failure = {**cell.key._asdict(), "error": finished.error, "trace": finished.trace, "date": date}
    failures.append(failure)
    summary.failed.append(failure)
    watcher.note(f"failed: {cell.key}: {finished.error}")
    watcher.finished(cell, None)


class Queue:
    """Cells that wait. With a time limit, one is begun only if it can be expected to end in time."""

    def __init__(self, cells: Sequence[Cell], lines: Sequence[Line], time_limit: float | None) -> None:
        self.waiting = list(cells)
        self._lines = lines
        self._end = None if time_limit is None else time.monotonic() + time_limit

    def take(self) -> Cell | None:
        """The next cell to begin, or None where none is to be begun any more."""
        left = float("inf") if self._end is None else self._end - time.monotonic()
        if left <= 0:
            return None
        for place, cell in enumerate(self.waiting):
            if expected_seconds(cell.key, self._lines) <= left:
                return self.waiting.pop(place)
        return None


def expected_seconds(key: Key, lines: Sequence[Line]) -> float:
    """The longest that the same model took on the same dataset; 0 where nobody knows."""
    alike = [line for line in lines if (line["dataset"], line["model"]) == (key.dataset, key.model)]
    return max((line["train_seconds"] + (line.get("evaluate_seconds") or 0.0) for line in alike), default=0.0)


def find_line(what: str, results: str | Path) -> tuple[Line, Path]:
    """A line by its number, as FILE:NUMBER, or by its key "dataset model recipe seed"; and its file.

    A key is looked for in the file of results, then in the others of its folder; a folder has no line numbers.
    """
    path, _, number = what.rpartition(":")
    results = Path(results)
    if number.isdecimal() and path.endswith(".jsonl"):
        return _numbered(Path(path), int(number))
    if what.isdecimal():
        if results.is_dir():
            raise ConfigError(
                f"--only is {what}, and {results} is a folder; name a file of it: FILE.jsonl:{what}."
            )
        return _numbered(results, int(what))
    parts = what.split()
    if len(parts) != 4 or not parts[3].isdecimal():
        raise ConfigError(
            f"--only is {what!r}; it is the number of a line, FILE.jsonl:NUMBER, or 'dataset model recipe seed'."
        )
    key = Key(parts[0], parts[1], parts[2], int(parts[3]))
    known: list[str] = []
    for file in _files_of(results):
        found = key_and_line(read_lines(file))
        if key in found:
            return dict(found[key]), file
        known += map(str, found)
    folder = results if results.is_dir() else results.parent
    raise UnknownNameError("line", str(key), known, f"Looked in the files of {folder}.")


def _files_of(results: Path) -> list[Path]:
    """The file of results first, where it is one, then the others of its folder."""
    folder = results if results.is_dir() else results.parent
    others = results_files(folder) if folder.is_dir() else []
    return list(dict.fromkeys([*([] if results.is_dir() else [results]), *others]))


def _numbered(path: Path, number: int) -> tuple[Line, Path]:
    lines = read_lines(path)
    if not 1 <= number <= len(lines):
        raise DataError(f"{path}: there is no line {number}; it has {len(lines):,}.")
    return lines[number - 1], path


@dataclass(frozen=True)
class Comparison:
    """A line beside the same training done again."""

    old: Mapping[str, Any]
    new: Mapping[str, Any]
    spread: Mapping[str, float | None]
    """Standard deviation over the seeds of the same recipe; None with fewer than two."""


def run_again(
    old: Line,
    others: Sequence[Line],
    *,
    device: str = "cpu",
    commit: str | None = None,
    watcher: Watcher | None = None,
) -> Comparison:
    """Do a line's training again, by the recipe that the line holds; nothing is written."""
    watcher = watcher or Watcher()
    cell = Cell(Key.of(old), recipe_of(old["settings"]))
    waiting = [Task(cell, device, None, commit)]
    tell = watcher.progress
    for finished in run_jobs(
        MEASURE, lambda: waiting.pop() if waiting else None, 1, lambda t, p: tell(t.cell, p)
    ):
        if finished.error is not None:
            raise InputError(f"{cell.key}: {finished.error}")
        if finished.value["dataset_sha256"] != old.get("dataset_sha256"):
            watcher.note(
                f"{cell.key.dataset}: the dataset does not hold the facts that the line was made from."
            )
        return Comparison(old, finished.value, {name: _spread(name, cell.key, others) for name in COMPARED})
    raise AssertionError("one task was given, so one has finished")


def _spread(name: str, key: Key, lines: Sequence[Line]) -> float | None:
    values = [
        float(line[name]) for line in lines if Key.of(line)[:3] == key[:3] and line.get(name) is not None
    ]
    if len(values) < 2:
        return None
    mean = sum(values) / len(values)
    return float((sum((value - mean) ** 2 for value in values) / (len(values) - 1)) ** 0.5)
