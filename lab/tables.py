"""The paper's Tables 1, 2 and 4 with ours beside every figure, and the count of cells that are above."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from lab.recipes import CONTEXT, split_name
from lab.results import (
    METRICS,
    SETTINGS,
    Group,
    Results,
    best_published,
    columns,
    datasets_of,
    figure,
    mean_and_deviation,
    published,
    reference,
    seconds,
    signed,
    systems,
    table,
)

TITLES = {"mrr": "MRR", "hits@1": "Hits@1"}
THEIRS = ("NBFNet", "RED-GNN", "NBFNet+CP", "RED-GNN+CP")
OURS = ("nbfnet", "nbfnet+cp", "redgnn", "redgnn+cp")
"""The baselines' figures are on the page of models."""
UNTRAINED = {"pagerank": "personalised PageRank, untrained", "walk": "walk × relevance, untrained"}
"""With counts of the graph that is asked about."""


@dataclass(frozen=True)
class Cell:
    """One figure of the paper to beat, and ours."""

    setting: str
    column: str
    metric: str
    target: float
    ours: Group | None

    @property
    def is_won(self) -> bool:
        return self.ours is not None and self.ours.mean(self.metric) > self.target

    @property
    def is_safe(self) -> bool:
        """Won with enough seeds."""
        return self.is_won and self.ours is not None and self.ours.is_enough


def context_models(results: Results) -> list[str]:
    """Models with context as their recipe has it: those whose name ends in +cp."""
    return [model for model in results.models if split_name(model)[1] == CONTEXT]


def selected(results: Results, setting: str) -> list[Group | None]:
    """[12] in each setting, of all models with context, the recipe with the highest mean validation MRR."""
    return [results.chosen(dataset, context_models(results)) for dataset in datasets_of(setting)]


def cells(results: Results) -> list[Cell]:
    """All 48."""
    return [
        Cell(setting, column, metric, target, ours)
        for setting in SETTINGS
        for metric in METRICS
        for column, target, ours in zip(
            columns(), best_published(setting, metric), selected(results, setting), strict=True
        )
    ]


def paper_table(results: Results, setting: str, metric: str) -> str:
    """The paper's own method, the best of any system there, then ours without context and with it; wins are bold."""
    targets, datasets = best_published(setting, metric), datasets_of(setting)
    rows = [[name, *(figure(value) for value in systems(setting, metric)[name])] for name in THEIRS]
    rows.append(["*best in the paper*", *(figure(target) for target in targets)])
    for scorer, title in UNTRAINED.items():
        figures = results.asked_figures(setting, scorer, "P1 realistic", metric)
        if any(figures):
            rows.append([title, *(figure(value) for value in figures)])
    for model in OURS:
        if any(results.of(dataset, model) for dataset in datasets):
            groups = [results.chosen(dataset, model) for dataset in datasets]
            rows.append([f"ours: {model}", *_beside(groups, metric, targets)])
    rows.append(["**ours: chosen by validation**", *_beside(selected(results, setting), metric, targets)])
    return table([TITLES[metric], *columns()], rows)


def _beside(groups: list[Group | None], metric: str, targets: list[float]) -> list[str]:
    return [
        mean_and_deviation(group, metric, bold=group is not None and group.mean(metric) > target)
        for group, target in zip(groups, targets, strict=True)
    ]


def wins_text(results: Results) -> str:
    """How many of the 48 cells are above the paper's best, and those that are not."""
    all_cells = cells(results)
    won, safe = sum(cell.is_won for cell in all_cells), sum(cell.is_safe for cell in all_cells)
    missing = sum(cell.ours is None for cell in all_cells)
    lines = [
        f"**{won} of {len(all_cells)}** cells above the best figure of any system in the paper, by a model with "
        f"context, chosen by validation; {safe} of them with three seeds or more. {missing} of the "
        f"{len(all_cells)} are missing."
    ]
    short = [cell for cell in all_cells if cell.ours is not None and not cell.is_won]
    if short:
        lines += ["", "Short:", "", *(_short(cell) for cell in short)]
    return "\n".join(lines)


def _short(cell: Cell) -> str:
    assert cell.ours is not None  # missing cells are counted, not listed
    mean = cell.ours.mean(cell.metric)
    return (
        f"- {cell.setting} {cell.column}, {TITLES[cell.metric]}: {figure(mean)} against {figure(cell.target)} "
        f"({signed(mean - cell.target)})"
    )


BEYOND = ("redgnn", "nbfnet", "astarnet", "trained", "training_free", "ultra", "trix", "everything")
"""Other systems' inductive figures, as `published.json` names them."""


def beyond_table(results: Results) -> str:
    """Inductive MRR beside what others than the paper report."""
    names = published()["references"]
    rows = [[names[key]["name"], *(figure(value) for value in reference(key))] for key in BEYOND]
    targets = [value or 0.0 for value in reference("everything")]
    rows.append(["**ours: chosen by validation**", *_beside(selected(results, "inductive"), "mrr", targets)])
    return table(["MRR", *columns()], rows)


def beyond_wins(results: Results) -> dict[str, tuple[int, int]]:
    """Name of a bar -> (settings above it, settings measured), of the twelve inductive ones."""
    own_counts = results.asked_figures("inductive", "walk", "P1 realistic", "mrr")
    untrained = _higher(reference("training_free"), own_counts)
    bars = {
        "best trained on the split alone": reference("trained"),
        "training-free scorer": untrained,
        "both of these": _higher(reference("trained"), untrained),
        "best of everything, pre-trained included": reference("everything"),
    }
    ours = selected(results, "inductive")
    return {name: _above(ours, bar) for name, bar in bars.items()}


def _higher(one: list[float | None], other: list[float | None]) -> list[float | None]:
    return [max(a or 0.0, b or 0.0) for a, b in zip(one, other, strict=True)]


def _above(ours: list[Group | None], bar: list[float | None]) -> tuple[int, int]:
    measured = [(group, level) for group, level in zip(ours, bar, strict=True) if group is not None]
    return sum(group.mean("mrr") > (level or 0.0) for group, level in measured), len(measured)


ASKED = UNTRAINED | {
    "zero-shot": "anygraph, zero-shot, its family left out",
    "fine-tuned": "anygraph, fine-tuned from that",
}


def known_table(results: Results) -> str:
    """Inductive MRR beside the best known of any system, as such systems publish it: P2, pessimistic ties."""
    known = published()["known"]["mrr"]
    rows = [[published()["known"]["name"], *(figure(value) for value in known)]]
    for system, title in ASKED.items():
        figures = results.asked_figures("inductive", system, "P2 pessimistic", "mrr")
        rows.append([title, *_bold_above(figures, known)])
    chosen = [
        None if group is None or not _has_p2(group) else _mean(group, _OTHER["P2 pessimistic"])
        for group in selected(results, "inductive")
    ]
    rows.append(["trained on the split alone, chosen by validation", *_bold_above(chosen, known)])
    return table(["MRR", *columns()], rows)


def _bold_above(values: Sequence[float | None], bars: Sequence[float]) -> list[str]:
    return [
        f"**{figure(value)}**" if value is not None and value > bar else figure(value)
        for value, bar in zip(values, bars, strict=True)
    ]


def _has_p2(group: Group) -> bool:
    return all("p2" in line for line in group.lines)


def protocols_table(results: Results) -> str | None:
    """What was chosen under other protocols and rules for ties: for readers who come from other systems."""
    groups = [group for setting in SETTINGS for group in selected(results, setting) if group is not None]
    groups = [group for group in groups if _has_p2(group)]
    rows = [[group.dataset, *(figure(_mean(group, path)) for path in _OTHER.values())] for group in groups]
    return table(["", *_OTHER], rows) if rows else None


_OTHER = {
    "P1 MRR": ("mrr",),
    "optimistic": ("optimistic", "mrr"),
    "pessimistic": ("pessimistic", "mrr"),
    "Hits@3": ("hits@3",),
    "Hits@10": ("hits@10",),
    "Hits@10 of 50": ("hits@10_50",),
    "P2 MRR": ("p2", "mrr"),
    "P2 pessimistic": ("p2", "pessimistic", "mrr"),
    "P2 Hits@1": ("p2", "hits@1"),
    "P2 Hits@10": ("p2", "hits@10"),
    "P2 Hits@10 of 50": ("p2", "hits@10_50"),
}
"""Column -> where its figure is in a line."""


def _mean(group: Group, path: tuple[str, ...]) -> float:
    def inside(line: Any) -> float:
        for key in path:
            line = line[key]
        return float(line)

    return fmean(inside(line) for line in group.lines)


ABLATION_ON = ("WN18RR_v1", "fb237_v1", "fb237_v4")
ABLATION_ROWS = {"alg3": "Algorithm 3", "alg1": "Algorithm 1, sets of 4-5"}


def ablation_table(results: Results) -> str:
    """The paper's Table 4: both algorithms, MRR, Hits@1 and time; fb237_v4 is ours alone."""
    rows = []
    for suffix, title in ABLATION_ROWS.items():
        rows.append([f"paper: RED-GNN+CP, {title}", *_paper_ablation(suffix)])
        for base in _bases(results, suffix):
            groups = [results.chosen(f"grail/{name}", f"{base}+{suffix}") for name in ABLATION_ON]
            rows.append(
                [f"ours: {base}, {title}", *(cell for group in groups for cell in _ablation_cells(group))]
            )
    titles = [f"{name} {what}" for name in ABLATION_ON for what in ("MRR", "Hits@1", "time")]
    return table(["", *titles], rows)


def _bases(results: Results, suffix: str) -> list[str]:
    found = [split_name(model)[0] for model in results.models if split_name(model)[1] == suffix]
    return found or ["redgnn"]


def _paper_ablation(suffix: str) -> list[str]:
    rows = published()["ablation"]["rows"]
    result = []
    for name in ABLATION_ON:
        row = rows.get(name, {}).get(suffix)
        shown = (
            ["–"] * 3 if row is None else [figure(row["mrr"]), figure(row["hits@1"]), seconds(row["seconds"])]
        )
        result += shown
    return result


def _ablation_cells(group: Group | None) -> list[str]:
    if group is None:
        return [mean_and_deviation(None, "mrr")] * 3
    return [*(mean_and_deviation(group, metric) for metric in METRICS), _time(group)]


def _time(group: Group) -> str:
    """Mean seconds, with what decides them: epochs and device."""
    epochs = sorted({int(line["epochs"]) for line in group.lines})
    span = str(epochs[0]) if len(epochs) == 1 else f"{epochs[0]} to {epochs[-1]}"
    devices = sorted({str(line.get("device")) for line in group.lines})
    return f"{seconds(group.mean('train_seconds'))}, {span} epochs, {', '.join(devices)}"
