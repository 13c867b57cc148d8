"""What context adds: paired tests against the same model without it and against each control.

For every dataset, of models without context and with it the recipe with the highest mean validation MRR counts, and of
their variants the one that differs from it in what the variant changes, and in context alone. Seeds are averaged first,
a setting is one difference. Student's t, Wilcoxon's signed ranks, and t with settings clustered by family, because the
versions of a family overlap; each corrected by Holm over all comparisons of the same scope and metric.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lab.recipes import (
    CONTEXT,
    CONTEXT_CONTROLS,
    CONTROLS,
    PARTS,
    STREAMS,
    WITHOUT_CONTEXT,
    joined_name,
    shipped_variants,
    split_name,
)
from lab.results import (
    ENOUGH_SEEDS,
    SETTINGS,
    Group,
    Results,
    choose,
    datasets_of,
    family_of,
    figure,
    p_value,
    signed,
    table,
)
from lab.significance import (
    PairedTest,
    cluster_t_test,
    holm_adjusted,
    paired_t_test,
    wilcoxon_test,
)

SCOPES = (*SETTINGS, "both")
TESTS = ("t", "wilcoxon", "clustered")


@dataclass(frozen=True)
class Pair:
    """A model and the one it is compared with."""

    ours: str
    theirs: str

    @property
    def name(self) -> str:
        return f"{self.ours} vs {self.theirs}"


@dataclass(frozen=True)
class Compared:
    """One pair over the settings of a scope, by one metric."""

    pair: Pair
    scope: str
    metric: str
    ours: dict[str, Group]
    """dataset -> what was chosen; the same datasets as `theirs`."""
    theirs: dict[str, Group]
    tests: dict[str, PairedTest | None]
    """Each of `TESTS`; None where there are too few settings or families for it."""

    @property
    def differences(self) -> dict[str, float]:
        """Ours - theirs by dataset, seeds averaged first."""
        return {
            name: self.ours[name].mean(self.metric) - self.theirs[name].mean(self.metric)
            for name in self.ours
        }

    @property
    def mean(self) -> float:
        return sum(self.differences.values()) / len(self.differences)

    @property
    def is_enough(self) -> bool:
        """Whether every figure has enough seeds."""
        return all(group.is_enough for group in (*self.ours.values(), *self.theirs.values()))

    def p(self, test: str) -> float | None:
        found = self.tests[test]
        return None if found is None else found.p_value


def pairs(results: Results) -> list[Pair]:
    """Context against none and against each control; every other variant against none, and against its own recipe
    with none, as it is and widened, where those were run; see `like_with_like`. Parts of context have a table instead.
    """
    bases = sorted({split_name(model)[0] for model in results.models})
    return [pair for base in bases for pair in _pairs_of(results, base)]


def _pairs_of(results: Results, base: str) -> list[Pair]:
    with_context = joined_name(base, CONTEXT)
    suffixes = {split_name(model)[1] for model in results.models if split_name(model)[0] == base}
    others = sorted(suffixes - {"", CONTEXT, *CONTROLS, *CONTEXT_CONTROLS, *PARTS})
    found = [Pair(with_context, base)]
    contexts = [with_context] + [joined_name(base, STREAMS)] * (STREAMS in suffixes)
    controls = [joined_name(base, control) for control in CONTROLS if control in suffixes]
    found += [Pair(with_context, joined_name(base, one)) for one in CONTEXT_CONTROLS if one in suffixes]
    found += [Pair(context, control) for context in contexts for control in controls]
    without = [joined_name(base, one) for one in WITHOUT_CONTEXT if one in suffixes]
    found += [Pair(joined_name(base, suffix), other) for suffix in others for other in (base, *without)]
    return found


def compare(
    results: Results, pair: Pair, scope: str, metric: str, seeds: Collection[int] | None = None
) -> Compared | None:
    """Over the settings where both were run, with all of `seeds` where they are given; None where there is none."""
    settings = SETTINGS if scope == "both" else (scope,)
    ours: dict[str, Group] = {}
    theirs: dict[str, Group] = {}
    for dataset in (name for setting in settings for name in datasets_of(setting)):
        one, other = (like_with_like(results, dataset, model) for model in (pair.ours, pair.theirs))
        if seeds is not None:
            one, other = one and one.with_seeds(seeds), other and other.with_seeds(seeds)
        if one is not None and other is not None:
            ours[dataset], theirs[dataset] = one, other
    return Compared(pair, scope, metric, ours, theirs, _tests(ours, theirs, metric)) if ours else None


def like_with_like(results: Results, dataset: str, model: str) -> Group | None:
    """A model's best recipe by validation MRR; for a variant, only those of the chosen recipe with context.

    A variant of an older recipe would be compared by what the recipes differ in, not by what it is named for.
    """
    base, suffix = split_name(model)
    anchor = results.chosen(dataset, joined_name(base, CONTEXT))
    if suffix in ("", CONTEXT) or anchor is None:
        return results.chosen(dataset, model)
    changed = shipped_variants()[suffix].values if suffix in shipped_variants() else {}
    wanted = _without(anchor.beside_context, changed)
    return choose(
        [one for one in results.of(dataset, model) if _without(one.beside_context, changed) == wanted]
    )


def _without(values: Mapping[str, Any], keys: Collection[str]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if key not in keys}


def _tests(ours: dict[str, Group], theirs: dict[str, Group], metric: str) -> dict[str, PairedTest | None]:
    mine, yours = ({name: side[name].values(metric) for name in side} for side in (ours, theirs))
    family = {name: family_of(name) for name in ours}
    runs: dict[str, tuple[bool, Callable[[], PairedTest]]] = {
        "t": (len(ours) > 1, lambda: paired_t_test(mine, yours)),
        "wilcoxon": (len(ours) > 1, lambda: wilcoxon_test(mine, yours)),
        "clustered": (len(set(family.values())) > 1, lambda: cluster_t_test(mine, yours, family)),
    }
    return {name: test() if possible else None for name, (possible, test) in runs.items()}


def comparisons(results: Results, scope: str, metric: str) -> list[Compared]:
    """All pairs that have a setting in common."""
    found = (compare(results, pair, scope, metric) for pair in pairs(results))
    return [compared for compared in found if compared is not None]


def corrected(compared: Sequence[Compared], test: str) -> dict[str, float]:
    """Name of a pair -> its p-value after Holm, over all pairs that have one."""
    known = {one.pair.name: p for one in compared if (p := one.p(test)) is not None}
    return holm_adjusted(known) if known else {}


def comparison_table(results: Results) -> str | None:
    """MRR over all settings, a row for each pair that has two or more; each p-value with what Holm makes of it."""
    compared = [one for one in comparisons(results, "both", "mrr") if len(one.ours) > 1]
    if not compared:
        return None
    after = {test: corrected(compared, test) for test in TESTS}
    rows = []
    for one in compared:
        tests = [f"{p_value(one.p(test))} ({p_value(after[test].get(one.pair.name))})" for test in TESTS]
        rows.append([one.pair.name if one.is_enough else f"{one.pair.name} †", *_figures(one)[:-3], *tests])
    return table(["", *_TITLES[:-3], *(f"{title} (Holm)" for title in _TITLES[-3:])], rows)


_TITLES = ("settings", "mean difference", "95 %", "better / worse", "p, t", "p, Wilcoxon", "p, clustered")


def _figures(one: Compared) -> list[str]:
    """What `_TITLES` says."""
    tests = (p_value(one.p(test)) for test in TESTS)
    return [
        str(len(one.ours)),
        f"**{signed(one.mean, 4)}**",
        _interval(one.tests["t"]),
        _wins(one),
        *tests,
    ]


def seeds_table(results: Results, pair: Pair, metric: str) -> str | None:
    """A pair by each three seeds alone, and by all: what was seen first, and what was run to see it again.

    None where no setting has more than the first three.
    """
    blocks = [
        range(first, first + ENOUGH_SEEDS) for first in range(0, _most_seeds(results, pair), ENOUGH_SEEDS)
    ]
    apart = [(block, compare(results, pair, "both", metric, block)) for block in blocks]
    known = [(block, one) for block, one in apart if one is not None]
    whole = compare(results, pair, "both", metric)
    if len(known) < 2 or whole is None:
        return None
    rows = [[f"{block.start} to {block.stop - 1}", *_figures(one)] for block, one in known]
    return table(["seeds", *_TITLES], [*rows, ["all", *_figures(whole)]])


def _most_seeds(results: Results, pair: Pair) -> int:
    """One more than the highest seed of either model."""
    of_pair = (line["seed"] for line in results.lines if line["model"] in (pair.ours, pair.theirs))
    return max(of_pair, default=-1) + 1


def _interval(test: PairedTest | None) -> str:
    if test is None or test.low is None or test.high is None:
        return "–"
    return f"{signed(test.low)} to {signed(test.high)}"


def _wins(compared: Compared) -> str:
    values = compared.differences.values()
    return f"{sum(value > 0 for value in values)} / {sum(value < 0 for value in values)}"


def hurt_list(results: Results) -> list[str]:
    """Settings where a model with context is below the same model without it, worst first; a line each."""
    worse = []
    for compared in comparisons(results, "both", "mrr"):
        if split_name(compared.pair.ours)[1] == CONTEXT and "+" not in compared.pair.theirs:
            worse += [(value, name, compared) for name, value in compared.differences.items() if value < 0]
    return [_hurt(*item) for item in sorted(worse, key=lambda item: (item[0], item[1], item[2].pair.name))]


def _hurt(value: float, dataset: str, compared: Compared) -> str:
    one, other = compared.ours[dataset].mean("mrr"), compared.theirs[dataset].mean("mrr")
    return f"- {dataset}, {compared.pair.name}: {figure(one)} against {figure(other)} ({signed(value)})"
