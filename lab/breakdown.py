"""Where context helps: gains by distance of the answer, by support of the relation, and by threshold; and its cost."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean, median
from typing import Any

from lab.comparisons import Pair, compare, like_with_like
from lab.measure import DISTANCES, SUPPORTS
from lab.recipes import BARE, CONTEXT, PARTS, joined_name, split_name
from lab.results import (
    MISSING,
    Group,
    Results,
    SearchCost,
    benchmark_datasets,
    figure,
    mean_and_deviation,
    signed,
    table,
)

SLICES = {"by_distance": DISTANCES, "by_support": SUPPORTS}


def gains(
    results: Results, base: str, scope: str, slices: str, than: str = ""
) -> list[tuple[str, int, float, float]]:
    """(bucket, answers, MRR of the model with the suffix `than`, MRR with context) over settings where both were run.

    Sums over seeds are averaged first, then summed over the settings: every answer of every setting counts alike.
    """
    compared = compare(results, Pair(joined_name(base, CONTEXT), joined_name(base, than)), scope, "mrr")
    if compared is None:
        return []
    ours, theirs = (_totals(list(side.values()), slices) for side in (compared.ours, compared.theirs))
    return [
        (
            bucket,
            round(theirs[bucket][1]),
            theirs[bucket][0] / theirs[bucket][1],
            ours[bucket][0] / ours[bucket][1],
        )
        for bucket in SLICES[slices]
        if bucket in ours and bucket in theirs
    ]


def _totals(groups: Sequence[Group], slices: str) -> dict[str, tuple[float, float]]:
    """(sum, count) of each bucket: each the sum over groups of the mean over a group's seeds."""
    totals: dict[str, tuple[float, float]] = {}
    for group in groups:
        for bucket in SLICES[slices]:
            entries = [line[slices].get(bucket) for line in group.lines if slices in line]
            known = [entry for entry in entries if entry is not None]
            if known:
                before = totals.get(bucket, (0.0, 0.0))
                added = (fmean(entry["sum"] for entry in known), fmean(entry["count"] for entry in known))
                totals[bucket] = (before[0] + added[0], before[1] + added[1])
    return totals


def gain_table(results: Results, scope: str, slices: str, than: str = "") -> str | None:
    """Buckets down, models across, with context and without or as `than`; None where there is nothing to compare."""
    made = {base: gains(results, base, scope, slices, than) for base in context_bases(results)}
    found = {base: {row[0]: row[1:] for row in rows} for base, rows in made.items() if rows}
    bases = list(found)
    if not bases:
        return None
    rows = []
    for bucket in SLICES[slices]:
        if not any(bucket in found[base] for base in bases):
            continue
        row = [bucket]
        for base in bases:
            count, plain, ours = found[base].get(bucket, (0, 0.0, 0.0))
            row += [f"{count:,}", figure(plain), figure(ours), signed(ours - plain)]
        rows.append(row)
    title = "hops to the answer" if slices == "by_distance" else "facts of the relation"
    heads = [
        f"{base} {what}"
        for base in bases
        for what in ("answers", f"+{than}" if than else "plain", "+cp", "gain")
    ]
    return table([title, *heads], rows)


def parts_table(results: Results, base: str) -> str | None:
    """Settings down, parts of context across, from none to all of the same recipe; None where no part was run alone."""
    rows = []
    for dataset in benchmark_datasets():
        found = {
            suffix: like_with_like(results, dataset, joined_name(base, suffix))
            for suffix in (BARE, *PARTS, CONTEXT)
        }
        if any(found[part] is not None for part in PARTS):
            rows.append([dataset, *(mean_and_deviation(group, "mrr") for group in found.values())])
    return table(["", *(f"+{suffix}" for suffix in (BARE, *PARTS, CONTEXT))], rows) if rows else None


def context_bases(results: Results) -> list[str]:
    """Models that were run both ways."""
    bases = sorted({split_name(model)[0] for model in results.models})
    return [base for base in bases if {base, joined_name(base, CONTEXT)} <= set(results.models)]


def threshold_table(results: Results) -> str | None:
    """Recipes that differ in nothing but the thresholds of their views; None where there are not two such."""
    families: dict[tuple[str, str, str], list[Group]] = {}
    for group in results.groups:
        views = (group.settings.get("context") or {}).get("views") or []
        if views:
            families.setdefault((group.dataset, group.model, _without_thresholds(group)), []).append(group)
    rows = [
        [dataset, model, *_thresholds(group)]
        for (dataset, model, _), groups in sorted(families.items())
        if len(groups) > 1
        for group in sorted(groups, key=lambda group: (_views(group), group.recipe))
    ]
    titles = ["dataset", "model", "precision > / recall > of each view", "validation MRR", "MRR", "Hits@1"]
    return table(titles, rows) if rows else None


def _views(group: Group) -> list[tuple[float, float]]:
    return [(view["min_precision"], view["min_recall"]) for view in group.settings["context"]["views"]]


def _without_thresholds(group: Group) -> str:
    context = dict(group.settings["context"])
    plain = [{k: v for k, v in view.items() if not k.startswith("min_")} for view in context["views"]]
    return json.dumps({**group.settings, "context": {**context, "views": plain}}, sort_keys=True)


def _thresholds(group: Group) -> list[str]:
    shown = ", ".join(f"{precision:.4g} / {recall:.4g}" for precision, recall in _views(group))
    figures = [mean_and_deviation(group, metric) for metric in ("mrr", "hits@1")]
    return [shown, figure(group.valid_mrr), *figures]


def cost_table(results: Results) -> str | None:
    """What each model took: parameters, training, answering, medians over the benchmark's lines; and the searches that
    the lines say their recipes came from, where one does.
    """
    benchmark = [line for line in results.lines if line["dataset"] in benchmark_datasets()]
    tuned = bool(budgets(benchmark))
    rows = []
    for model in results.models:
        lines = [line for line in benchmark if line["model"] == model]
        if lines:
            rows.append([model, str(len(lines)), *(_budget(lines) if tuned else ()), *_costs(lines)])
    titles = ["settings tuned", "trials", "search trainings", "search hours"] if tuned else []
    costs = ["parameters", "epochs", "training s", "queries/s", "device"]
    return table(["model", "trainings here", *titles, *costs], rows) if rows else None


def budgets(lines: Sequence[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """The searches behind some lines, each once, by key."""
    found = [line["tuning"] for line in lines if line.get("tuning")]
    return {str(tuning["key"]): tuning for tuning in found}


def _budget(lines: Sequence[Mapping[str, Any]]) -> list[str]:
    searches = budgets(lines).values()
    if not searches:
        return ["0", "–", "–", "–"]
    hours = sum(search["seconds"] for search in searches) / 3600
    counts = [str(sum(search[key] for search in searches)) for key in ("trials", "trainings")]
    return [str(len(searches)), *counts, f"{hours:.1f}"]


def _costs(lines: Sequence[Mapping[str, Any]]) -> list[str]:
    def middle(key: str) -> str:
        values = [line[key] for line in lines if line.get(key) is not None]
        return f"{median(values):,.0f}" if values else "–"

    devices = sorted({str(line.get("device")) for line in lines})
    return [
        *(middle(key) for key in ("parameters", "epochs", "train_seconds", "queries_per_second")),
        ", ".join(devices),
    ]


def unequal_budgets(results: Results) -> list[str]:
    """Where recipes with and without context had searches of different sizes: by the lines, and by the trials."""
    return [*_unequal_lines(results), *_unequal_searches(results)]


def _unequal_searches(results: Results) -> list[str]:
    """Families of datasets whose searches with and without context were of different sizes; a line each."""
    found = _by_family_and_model(results.searches)
    told = []
    for base in context_bases(results):
        for family in sorted({family for family, _ in found}):
            without, within = (
                sum(search.trainings for search in found.get((family, model), []))
                for model in (base, joined_name(base, CONTEXT))
            )
            if without != within:
                told.append(f"- {family}, {base}: {without} trainings without context, {within} with it")
    return told


def _unequal_lines(results: Results) -> list[str]:
    """Settings where the chosen recipes with and without context had different numbers of trials; a line each."""
    told = []
    for base in context_bases(results):
        for dataset in benchmark_datasets():
            groups = [results.chosen(dataset, model) for model in (base, joined_name(base, CONTEXT))]
            if any(group is None for group in groups):
                continue
            trials = [_trials(group) for group in groups if group is not None]
            if trials[0] != trials[1]:
                told.append(f"- {dataset}, {base}: {trials[0]} trials without context, {trials[1]} with it")
    return told


def _trials(group: Group) -> int:
    searches = budgets(group.lines).values()
    return sum(search["trials"] for search in searches)


def _by_family_and_model(searches: Iterable[SearchCost]) -> dict[tuple[str, str], list[SearchCost]]:
    found: dict[tuple[str, str], list[SearchCost]] = {}
    for search in searches:
        found.setdefault((search.family, search.model), []).append(search)
    return found


def search_table(searches: Iterable[SearchCost]) -> str | None:
    """A row for each family and model; None where nothing was searched."""
    rows = [
        [
            family,
            model,
            str(len(group)),
            str(sum(search.trainings for search in group)),
            f"{sum(search.seconds for search in group) / 3600:.1f}",
        ]
        for (family, model), group in sorted(_by_family_and_model(searches).items())
    ]
    titles = ["family", "model", "searches", "trainings", "hours of training"]
    return table(titles, rows) if rows else None


def other_table(results: Results) -> str | None:
    """Datasets that are not among the 24."""
    groups = [group for group in results.groups if group.dataset not in benchmark_datasets()]
    rows = [
        [
            group.dataset,
            group.model,
            group.recipe,
            figure(group.valid_mrr) if group.valid_mrr is not None else MISSING,
        ]
        + [mean_and_deviation(group, metric) for metric in ("mrr", "hits@1", "hits@10")]
        for group in groups
    ]
    titles = ["dataset", "model", "recipe", "validation MRR", "MRR", "Hits@1", "Hits@10"]
    return table(titles, rows) if rows else None
