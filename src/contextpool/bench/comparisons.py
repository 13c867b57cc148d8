"""What context adds: paired tests against the same model without it and against each control.

For every dataset and model the recipe with the highest mean validation MRR counts, seeds are averaged first, a
setting is one difference. Student's t, Wilcoxon's signed ranks, and t with settings clustered by family, because the
versions of a family overlap; each corrected by Holm over all comparisons of the same scope and metric.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from contextpool.bench.markdown import figure, p_value, signed, table
from contextpool.bench.models import (
    CONTEXT,
    CONTEXT_CONTROLS,
    CONTROLS,
    STREAMS,
    WITHOUT_CONTEXT,
    joined_name,
    split_name,
)
from contextpool.bench.published import METRICS, SETTINGS, datasets_of, family_of
from contextpool.bench.results import Group, Results
from contextpool.evaluate.significance import (
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
    with none, as it is and widened, where those were run.
    """
    bases = sorted({split_name(model)[0] for model in results.models})
    return [pair for base in bases for pair in _pairs_of(results, base)]


def _pairs_of(results: Results, base: str) -> list[Pair]:
    with_context = joined_name(base, CONTEXT)
    suffixes = {split_name(model)[1] for model in results.models if split_name(model)[0] == base}
    others = sorted(suffixes - {"", CONTEXT, *CONTROLS, *CONTEXT_CONTROLS})
    found = [Pair(with_context, base)]
    contexts = [with_context] + [joined_name(base, STREAMS)] * (STREAMS in suffixes)
    controls = [joined_name(base, control) for control in CONTROLS if control in suffixes]
    found += [Pair(with_context, joined_name(base, one)) for one in CONTEXT_CONTROLS if one in suffixes]
    found += [Pair(context, control) for context in contexts for control in controls]
    without = [joined_name(base, one) for one in WITHOUT_CONTEXT if one in suffixes]
    found += [Pair(joined_name(base, suffix), other) for suffix in others for other in (base, *without)]
    return found


def compare(results: Results, pair: Pair, scope: str, metric: str) -> Compared | None:
    """Over the settings where both were run; None where there is none."""
    settings = SETTINGS if scope == "both" else (scope,)
    ours: dict[str, Group] = {}
    theirs: dict[str, Group] = {}
    for dataset in (name for setting in settings for name in datasets_of(setting)):
        one, other = results.chosen(dataset, pair.ours), results.chosen(dataset, pair.theirs)
        if one is not None and other is not None:
            ours[dataset], theirs[dataset] = one, other
    return Compared(pair, scope, metric, ours, theirs, _tests(ours, theirs, metric)) if ours else None


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


def comparison_table(results: Results, scope: str, metric: str) -> str | None:
    """One row a pair; None where there is no pair to compare."""
    compared = comparisons(results, scope, metric)
    if not compared:
        return None
    after = {test: corrected(compared, test) for test in TESTS}
    rows = [
        [
            one.pair.name if one.is_enough else f"{one.pair.name} †",
            str(len(one.ours)),
            f"**{signed(one.mean, 4)}**",
            _interval(one.tests["t"]),
            _wins(one),
            *(p_value(one.p(test)) for test in TESTS),
            *(p_value(after[test].get(one.pair.name)) for test in TESTS),
        ]
        for one in compared
    ]
    titles = ["settings", "mean difference", "95 %", "better / worse", "p, t", "p, Wilcoxon", "p, clustered"]
    return table(["", *titles, "Holm, t", "Holm, Wilcoxon", "Holm, clustered"], rows)


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


__all__ = [
    "METRICS",
    "SCOPES",
    "Compared",
    "Pair",
    "comparison_table",
    "comparisons",
    "corrected",
    "hurt_list",
    "pairs",
]
