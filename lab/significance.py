"""Is one system better than another over several settings? Paired tests, seeds averaged first.

A system's figures are a mapping from setting ("grail/fb237_v1") to one figure for each seed. The two systems
have to have the same settings; seeds need not be equal in number, nor do they pair up. All p-values are
two-sided; a difference is ours - theirs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.stats

from contextpool.errors import DataError

Figures = Mapping[str, Sequence[float]]
"""setting -> one figure for each seed."""
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class PairedTest:
    """What one test says about ours - theirs."""

    method: str
    difference: float
    """Mean over the settings."""
    p_value: float
    """Two-sided."""
    num_settings: int
    statistic: float | None = None
    """t, or the sum of the ranks of the positive differences (Wilcoxon)."""
    low: float | None = None
    """Lower end of the 95 % interval of the difference, where the method gives one."""
    high: float | None = None
    num_clusters: int | None = None
    """Where settings were grouped."""

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def paired_t_test(ours: Figures, theirs: Figures, *, level: float = 0.95) -> PairedTest:
    """Student's t over the settings' differences: are they, on average, other than zero?"""
    differences = setting_differences(ours, theirs)
    error = float(differences.std(ddof=1)) / math.sqrt(len(differences))
    return _t_test("paired t", differences, error, len(differences) - 1, level)


def cluster_t_test(
    ours: Figures, theirs: Figures, clusters: Mapping[str, str], *, level: float = 0.95
) -> PairedTest:
    """The t-test for settings that are alike within a cluster, such as the versions of one family.

    `clusters`: setting -> cluster. Cluster-robust (sandwich) standard error of the mean with the factor
    G / (G - 1), and G - 1 degrees of freedom; with one setting a cluster it is the paired t-test. With few
    clusters it is strict and its variance is itself uncertain: read it beside the other tests.
    """
    differences = setting_differences(ours, theirs)
    names, member = np.unique(_cluster_names(ours, clusters), return_inverse=True)
    if len(names) < 2:
        raise DataError(f"all settings are of cluster {names[0]!r}; the test needs at least two clusters.")
    sums = np.bincount(member, differences - differences.mean())  # [G]
    variance = len(names) / (len(names) - 1) * float((sums**2).sum()) / len(differences) ** 2
    test = _t_test("cluster-robust t", differences, math.sqrt(variance), len(names) - 1, level)
    return PairedTest(**{**asdict(test), "num_clusters": len(names)})


def wilcoxon_test(ours: Figures, theirs: Figures) -> PairedTest:
    """Wilcoxon's signed-rank test over the settings' differences, exact also where they tie.

    Zero differences are left out, ties share their mean rank, and the p-value counts all 2^n choices of
    signs. O(n^3) by adding up, not enumerating.
    """
    differences = setting_differences(ours, theirs)
    unequal = differences[differences != 0]
    double_ranks = (2 * scipy.stats.rankdata(np.abs(unequal))).astype(np.int64)  # integers, ties included
    positive = int(double_ranks[unequal > 0].sum())
    p_value = _sign_p_value(double_ranks, positive)
    return PairedTest(
        "Wilcoxon signed-rank", float(differences.mean()), p_value, len(differences), positive / 2
    )


def holm_adjusted(p_values: Mapping[str, float]) -> dict[str, float]:
    """Holm's step-down correction: reject where the adjusted value is below the level for the whole family.

    The smallest of m p-values is multiplied by m, the next by m - 1, ...; none may fall below the one before
    it, none exceeds 1. Returned in the order given.
    """
    wrong = [name for name, p in p_values.items() if not 0 <= p <= 1]
    if wrong:
        raise DataError(f"the p-value of {wrong[0]!r} is {p_values[wrong[0]]}; it has to lie in [0, 1].")
    adjusted: dict[str, float] = {}
    floor = 0.0
    for place, name in enumerate(sorted(p_values, key=lambda name: (p_values[name], name))):
        floor = max(floor, min(1.0, (len(p_values) - place) * p_values[name]))
        adjusted[name] = floor
    return {name: adjusted[name] for name in p_values}


def setting_differences(ours: Figures, theirs: Figures) -> Floats:
    """[S] mean over seeds of ours - that of theirs, settings sorted by name."""
    mine, yours = _aligned(ours, theirs)
    pairs = zip(mine, yours, strict=True)
    return np.array([float(one.mean() - other.mean()) for one, other in pairs])


def _aligned(ours: Figures, theirs: Figures) -> tuple[list[Floats], list[Floats]]:
    if set(ours) != set(theirs):
        alone = sorted(set(ours) ^ set(theirs))
        raise DataError(f"setting {alone[0]!r} has figures of one system only; both have to have run on it.")
    if len(ours) < 2:
        raise DataError(f"{len(ours)} setting(s); a paired test needs at least two.")
    return [_seeds(ours, name) for name in sorted(ours)], [_seeds(theirs, name) for name in sorted(ours)]


def _seeds(figures: Figures, setting: str) -> Floats:
    values = np.asarray(figures[setting], dtype=np.float64)
    if values.ndim != 1 or len(values) == 0 or not np.isfinite(values).all():
        raise DataError(
            f"setting {setting!r} has figures {list(figures[setting])}; it needs a finite one for each seed."
        )
    return values


def _cluster_names(ours: Figures, clusters: Mapping[str, str]) -> list[str]:
    missing = sorted(set(ours) - set(clusters))
    if missing:
        raise DataError(f"setting {missing[0]!r} is in no cluster; name one for each setting.")
    return [clusters[name] for name in sorted(ours)]


def _t_test(method: str, differences: Floats, error: float, freedom: int, level: float) -> PairedTest:
    """From the mean's standard error. No spread at all: p is 1 for no difference and 0 for a constant one."""
    mean = float(differences.mean())
    without_spread = math.copysign(math.inf, mean) if mean else 0.0
    statistic = mean / error if error > 0 else without_spread
    p_value = float(2 * scipy.stats.t.sf(abs(statistic), freedom))
    half = float(scipy.stats.t.ppf((1 + level) / 2, freedom)) * error
    return PairedTest(method, mean, p_value, len(differences), statistic, mean - half, mean + half)


def _sign_p_value(double_ranks: npt.NDArray[np.int64], positive: int) -> float:
    """Share of the 2^n choices of signs whose positive sum is at least as far from the middle."""
    total = int(double_ranks.sum())
    share = np.zeros(total + 1)  # [sum] of all choices of signs so far
    share[0] = 1.0
    for rank in double_ranks.tolist():
        with_it = np.zeros_like(share)
        with_it[rank:] = share[: total + 1 - rank]
        share = (share + with_it) / 2
    far = np.abs(2 * np.arange(total + 1) - total) >= abs(2 * positive - total)
    return min(1.0, float(share[far].sum()))
