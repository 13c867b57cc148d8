"""Where context helps: gains by distance of the answer and by support of the relation; and what searches cost."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean

from lab.comparisons import Pair, compare, like_with_like
from lab.measure import DISTANCES, SUPPORTS
from lab.recipes import BARE, CONTEXT, PARTS, RELEVANCE_CONTROL, joined_name, split_name
from lab.results import (
    MISSING,
    SETTINGS,
    Group,
    Results,
    SearchCost,
    benchmark_datasets,
    mean_and_deviation,
    signed,
    table,
)

SLICES = {"by_distance": DISTANCES, "by_support": SUPPORTS}
HEADS = {"by_distance": "hops to the answer", "by_support": "facts of the relation"}


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


def gain_table(results: Results, slices: str) -> str | None:
    """What context adds in each bucket, with the number of answers; a row for each model, setting, and what it is
    compared with. None where there is nothing to compare.
    """
    found: dict[str, dict[str, str]] = {}
    for than in ("", RELEVANCE_CONTROL):
        for scope in SETTINGS:
            for base in context_bases(results):
                pair = Pair(joined_name(base, CONTEXT), joined_name(base, than))
                made = gains(results, base, scope, slices, than)
                if made:
                    found[f"{pair.name}, {scope}"] = {
                        bucket: f"{signed(after - before)} ({count:,})"
                        for bucket, count, before, after in made
                    }
    buckets = [bucket for bucket in SLICES[slices] if any(bucket in row for row in found.values())]
    rows = [[name, *(row.get(bucket, MISSING) for bucket in buckets)] for name, row in found.items()]
    return table([HEADS[slices], *buckets], rows) if rows else None


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


def unequal_searches(results: Results) -> list[str]:
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
