"""Lines read back, grouped by recipe over seeds; what was published, what searches cost; figures as Markdown.

A recipe is chosen by its validation MRR. `published.json` holds the published figures, each table with its source.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from pathlib import Path
from statistics import fmean, mean, stdev
from typing import Any

from contextpool.errors import DataError
from lab.jobs import Line, read_lines
from lab.recipes import Key, flattened, written_out

SETTINGS = {"inductive": "grail", "transductive": "grail_transductive"}
"""setting -> the folder of its datasets"""
METRICS = ("mrr", "hits@1")
"""What the paper reports; with 24 settings that makes 48 cells."""


@cache
def published() -> dict[str, Any]:
    """The whole file."""
    text = Path(__file__).with_name("published.json").read_text("utf-8")
    loaded: dict[str, Any] = json.loads(text)
    return loaded


def columns() -> list[str]:
    """WN18RR_v1, ..., nell_v4"""
    return list(published()["columns"])


def datasets_of(setting: str) -> list[str]:
    """The twelve datasets of a setting, in the order of `columns`."""
    return [f"{SETTINGS[setting]}/{name}" for name in columns()]


def benchmark_datasets() -> list[str]:
    """All 24."""
    return [name for setting in SETTINGS for name in datasets_of(setting)]


def systems(setting: str, metric: str) -> dict[str, list[float]]:
    """The rows of the paper's table."""
    found: dict[str, list[float]] = published()["tables"][setting]["systems"][metric]
    return found


def best_published(setting: str, metric: str) -> list[float]:
    """[12] the best figure of any system in the paper; Table 4's rows count for the inductive setting."""
    best = [max(figures) for figures in zip(*systems(setting, metric).values(), strict=True)]
    if setting == "inductive":
        for name, rows in published()["ablation"]["rows"].items():
            place = columns().index(name)
            best[place] = max(best[place], *(row[metric] for row in rows.values()))
    return best


def reference(name: str) -> list[float | None]:
    """[12] another system's inductive MRR; None where it has none."""
    found: list[float | None] = published()["references"][name]["mrr"]
    return found


def family_of(dataset: str) -> str:
    """FB, NELL or WN for a benchmark; its own name for any other dataset."""
    name = dataset.rsplit("/", 1)[-1]
    for prefix, family in (("fb237", "FB"), ("nell", "NELL"), ("WN18RR", "WN")):
        if dataset in benchmark_datasets() and name.startswith(prefix):
            return family
    return dataset


ZEROSHOT = ("untrained/lines.jsonl", "anygraph/zeroshot.jsonl", "anygraph/fine-tuned.jsonl")
"""Below a results folder: lines of `lab.zeroshot`."""
FOLDER = "trials"
"""The subfolder of a results folder that holds the trials of searches."""


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


ENOUGH_SEEDS = 3
"""A figure with fewer seeds is flagged, and its recipe is chosen only where no other has enough."""
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
    """The cost of each search in the folder."""
    asked: tuple[Line, ...] = ()
    """Of `lab.zeroshot`: scorers that need no training, and the model for any graph where its figure is clean."""

    def asked_figures(self, setting: str, system: str, protocol: str, metric: str) -> list[float | None]:
        """[12] the mean over seeds by walk, pagerank, zero-shot or fine-tuned; None where there is no line."""
        by_dataset: dict[str, list[float]] = {}
        for line in self.asked:
            if system == system_of(line):
                by_dataset.setdefault(line["graph"], []).append(float(line[protocol][metric]))
        found = [by_dataset.get(dataset) for dataset in datasets_of(setting)]
        return [None if values is None else fmean(values) for values in found]

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
        """The recipe of these models with the highest mean validation MRR; None where there is none."""
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
    results = results_of(lines, text, read_searches(folder / FOLDER))
    asked = [line for name in ZEROSHOT for line in read_lines(folder / name)]
    return replace(results, asked=tuple(line for line in asked if line["clean"]))


def system_of(line: Line) -> str:
    """What a line of `lab.zeroshot` is about: walk, pagerank, zero-shot or fine-tuned."""
    if line["model"] in ("walk", "pagerank"):
        return str(line["model"])
    return "fine-tuned" if "best_epoch" in line else "zero-shot"


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


MISSING = "missing"
FEW = "†"
"""Marks a figure with too few seeds."""


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table whose first column is text and whose others are figures."""
    lines = [_row(columns), _row(["---", *("--:" for _ in columns[1:])])]
    return "\n".join([*lines, *(_row(row) for row in rows)])


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def figure(value: float | None, digits: int = 3) -> str:
    """.512; a dash where there is none."""
    if value is None:
        return "–"
    text = f"{value:.{digits}f}"
    return text.replace("0.", ".", 1) if text.startswith(("0.", "-0.")) else text


def signed(value: float, digits: int = 3) -> str:
    """+.012 or −.012"""
    text = figure(abs(value), digits)
    return f"{'−' if value < 0 else '+'}{text}"


def p_value(value: float | None) -> str:
    """Three decimals, or that it is smaller."""
    if value is None:
        return "–"
    return "< .001" if value < 0.001 else figure(value)


def mean_and_deviation(group: Group | None, metric: str, *, bold: bool = False) -> str:
    """.512 ± .003, flagged where seeds are few; or that it is missing."""
    if group is None:
        return MISSING
    mean = figure(group.mean(metric))
    text = f"**{mean}**" if bold else mean
    deviation = group.deviation(metric)
    if deviation is not None:
        text += f" ± {figure(deviation)}"
    return text if group.is_enough else f"{text} {FEW}{group.seeds}"


def seconds(value: float | None) -> str:
    """1,234 s; a dash where there is none."""
    return "–" if value is None else f"{value:,.0f} s"
