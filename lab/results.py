"""Lines read back: grouped by recipe over seeds, and the rule that chooses a recipe by its validation MRR."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from contextpool.errors import DataError
from lab.cells import Key
from lab.defaults import written_out
from lab.grid import flattened
from lab.lines import Line, read_lines
from lab.searches import FOLDER, SearchCost, read_searches

ENOUGH_SEEDS = 3
"""With fewer, a figure is flagged, and a recipe is chosen only where none has as many."""
NEEDED = ("setting", "dataset", "model", "recipe", "seed", "mrr", "hits@1", "valid_mrr")


@dataclass(frozen=True)
class Group:
    """One recipe of one model on one dataset: a line for each seed."""

    dataset: str
    model: str
    recipe: str
    lines: tuple[Line, ...]
    """Sorted by seed."""

    @property
    def seeds(self) -> int:
        return len(self.lines)

    @property
    def is_enough(self) -> bool:
        return self.seeds >= ENOUGH_SEEDS

    def with_seeds(self, seeds: Collection[int]) -> Group | None:
        """The lines of these seeds alone; None where one of them is missing."""
        lines = tuple(line for line in self.lines if line["seed"] in seeds)
        return replace(self, lines=lines) if len(lines) == len(seeds) else None

    def values(self, metric: str) -> list[float]:
        """One figure for each seed."""
        return [float(line[metric]) for line in self.lines]

    def mean(self, metric: str) -> float:
        return mean(self.values(metric))

    def deviation(self, metric: str) -> float | None:
        """Over seeds, with n - 1; None with one seed."""
        values = self.values(metric)
        return stdev(values) if len(values) > 1 else None

    @property
    def valid_mrr(self) -> float | None:
        """Mean over seeds; None where a line has none, as for a model with nothing to train."""
        values = [line["valid_mrr"] for line in self.lines]
        return None if any(value is None for value in values) else mean(values)

    @property
    def settings(self) -> Mapping[str, Any]:
        """The recipe, as the lines hold it."""
        found: Mapping[str, Any] = self.lines[0].get("settings") or {}
        return found

    @cached_property
    def beside_context(self) -> Mapping[str, Any]:
        """What the recipe says of everything but context, by dotted keys, with the recorded defaults written out."""
        if not self.settings:
            return {}
        full = written_out(self.settings)
        return flattened({"model": full["model"], "train": full["train"]})


@dataclass(frozen=True)
class Results:
    """All lines, each key once."""

    lines: tuple[Line, ...]
    """Sorted by key."""
    notes: tuple[str, ...] = field(default=())
    """What a reader should know about the files."""
    remarks: str = ""
    """notes.md of the folder: what was tried, in a person's words."""
    searches: tuple[SearchCost, ...] = ()
    """Of the folder's trials."""

    @cached_property
    def groups(self) -> tuple[Group, ...]:
        """Sorted by dataset, model and recipe."""
        found: dict[tuple[str, str, str], list[Line]] = {}
        for line in self.lines:
            found.setdefault(Key.of(line)[:3], []).append(line)
        return tuple(Group(*key, tuple(lines)) for key, lines in found.items())

    @cached_property
    def models(self) -> tuple[str, ...]:
        """Sorted names."""
        return tuple(sorted({line["model"] for line in self.lines}))

    @cached_property
    def _by_model(self) -> dict[tuple[str, str], list[Group]]:
        found: dict[tuple[str, str], list[Group]] = {}
        for group in self.groups:
            found.setdefault((group.dataset, group.model), []).append(group)
        return found

    def of(self, dataset: str, model: str) -> list[Group]:
        """Every recipe of a model on a dataset."""
        return self._by_model.get((dataset, model), [])

    def chosen(self, dataset: str, models: str | Iterable[str]) -> Group | None:
        """Of one or several models, the recipe with the highest mean validation MRR; None where there is none."""
        names = [models] if isinstance(models, str) else list(models)
        return choose([group for model in names for group in self.of(dataset, model)])


def choose(groups: Sequence[Group]) -> Group | None:
    """The highest mean validation MRR; of those with enough seeds where there are any. Ties end at the name.

    A model without a validation MRR is taken only where it stands alone: nothing else can be compared with it.
    """
    pool = [group for group in groups if group.is_enough] or list(groups)
    compared = [group for group in pool if group.valid_mrr is not None]
    if not compared:
        return pool[0] if len(pool) == 1 else None
    return min(compared, key=lambda group: (-(group.valid_mrr or 0.0), group.model, group.recipe))


def read_results(path: str | Path) -> Results:
    """Every line of a results folder (or of one file); of two lines with one key the later date counts."""
    path = Path(path)
    lines = [line for file in results_files(path) for line in _checked(file)]
    folder = path if path.is_dir() else path.parent
    remarks = folder / "notes.md"
    text = remarks.read_text("utf-8").strip() if remarks.is_file() else ""
    return results_of(lines, text, read_searches(folder / FOLDER))


def results_files(path: Path) -> list[Path]:
    """The files of a results folder, without those of failures; or the one that is named."""
    if not path.exists():
        raise DataError(
            f"{path}: there is no such folder or file of results. Make it with `python -m lab run`."
        )
    found = sorted(path.glob("*.jsonl")) if path.is_dir() else [path]
    return [file for file in found if not file.name.endswith(".failed.jsonl")]


def results_of(lines: Iterable[Line], remarks: str = "", searches: tuple[SearchCost, ...] = ()) -> Results:
    """Each key once, in an order that does not depend on that of the lines."""
    newest: dict[Key, Line] = {}
    repeated = 0
    for line in lines:
        key = Key.of(line)
        repeated += key in newest
        if key not in newest or _age(line) >= _age(newest[key]):
            newest[key] = line
    notes = (f"{repeated} lines were made again later; the later ones count.",) if repeated else ()
    return Results(tuple(newest[key] for key in sorted(newest)), notes, remarks, searches)


def _age(line: Line) -> tuple[str, float]:
    """By date; by figure where that is equal, so that the order of files decides nothing."""
    return str(line.get("date", "")), float(line["mrr"])


def _checked(file: Path) -> list[Line]:
    lines = read_lines(file)
    for number, line in enumerate(lines, start=1):
        missing = [key for key in NEEDED if key not in line]
        if missing:
            raise DataError(
                f"{file}:{number}: the line has no {missing[0]!r}; it is none of `python -m lab run`."
            )
    return lines
