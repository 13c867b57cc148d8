"""Tests of significance against scipy where scipy has them, and by hand where it has not."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from contextpool.errors import DataError
from lab.significance import (
    cluster_t_test,
    holm_adjusted,
    paired_t_test,
    setting_differences,
    wilcoxon_test,
)

SETTINGS = [f"{family}_v{version}" for family in ("WN", "FB", "NELL") for version in (1, 2, 3, 4)]


def figures(seed: int, shift: float = 0.0, seeds: int = 3, spread: float = 0.01) -> dict[str, list[float]]:
    rng = np.random.default_rng(seed)
    level = np.random.default_rng(99).uniform(0.3, 0.7, len(SETTINGS))
    return {
        name: (here + shift + spread * rng.standard_normal(seeds)).tolist()
        for name, here in zip(SETTINGS, level, strict=True)
    }


def as_settings(values: list[float]) -> dict[str, list[float]]:
    return {f"s{number:02d}": [value] for number, value in enumerate(values)}


@pytest.mark.parametrize("seed", range(5))
def test_the_t_test_is_scipys(seed):
    ours, theirs = figures(seed, 0.004), figures(seed + 100)
    test = paired_t_test(ours, theirs)
    means = [[np.mean(system[name]) for name in SETTINGS] for system in (ours, theirs)]
    expected = scipy.stats.ttest_rel(*means)
    interval = expected.confidence_interval(0.95)
    assert test.statistic == pytest.approx(expected.statistic)
    assert test.p_value == pytest.approx(expected.pvalue)
    assert (test.low, test.high) == (pytest.approx(interval.low), pytest.approx(interval.high))
    assert test.difference == pytest.approx(np.mean(means[0]) - np.mean(means[1]))
    assert test.num_settings == 12


def test_seeds_are_averaged_before_anything_else():
    many = {"a": [0.1, 0.3], "b": [0.5], "c": [0.2, 0.2, 0.5]}
    one = {"a": [0.2], "b": [0.5], "c": [0.3]}
    other = {"a": [0.1], "b": [0.2], "c": [0.25]}
    assert setting_differences(many, other) == pytest.approx([0.1, 0.3, 0.05])
    assert paired_t_test(many, other).p_value == pytest.approx(paired_t_test(one, other).p_value)


@pytest.mark.parametrize("seed", range(5))
def test_wilcoxon_is_scipys_exact_test(seed):
    ours, theirs = figures(seed, 0.004), figures(seed + 100)
    differences = setting_differences(ours, theirs)
    expected = scipy.stats.wilcoxon(differences, method="exact")
    test = wilcoxon_test(ours, theirs)
    assert test.p_value == pytest.approx(expected.pvalue)
    assert min(test.statistic, 78 - test.statistic) == expected.statistic


def sign_p_value_by_enumeration(differences: list[float]) -> float:
    """All choices of signs, one after the other."""
    unequal = [difference for difference in differences if difference]
    ranks = scipy.stats.rankdata(np.abs(unequal)) if unequal else []
    middle = sum(ranks) / 2
    observed = abs(
        sum(rank for rank, difference in zip(ranks, unequal, strict=True) if difference > 0) - middle
    )
    sums = [
        sum(rank for rank, sign in zip(ranks, signs, strict=True) if sign)
        for signs in itertools.product([0, 1], repeat=len(unequal))
    ]
    return sum(abs(total - middle) >= observed - 1e-9 for total in sums) / len(sums)


@given(st.lists(st.integers(-3, 3), min_size=2, max_size=9))
def test_wilcoxon_with_ties_and_zeros_is_exact(values):
    test = wilcoxon_test(as_settings([float(value) for value in values]), as_settings([0.0] * len(values)))
    assert test.p_value == pytest.approx(sign_p_value_by_enumeration([float(value) for value in values]))


def test_wilcoxon_by_hand():
    test = wilcoxon_test(as_settings([1.0, 2.0, 3.0, 4.0]), as_settings([0.0] * 4))
    assert test.statistic == 10
    assert test.p_value == pytest.approx(2 / 16)


def test_clusters_of_one_setting_give_the_paired_t_test():
    ours, theirs = figures(1, 0.004), figures(101)
    alone = cluster_t_test(ours, theirs, {name: name for name in SETTINGS})
    plain = paired_t_test(ours, theirs)
    assert (alone.statistic, alone.p_value, alone.low) == (
        pytest.approx(plain.statistic),
        pytest.approx(plain.p_value),
        pytest.approx(plain.low),
    )
    assert alone.num_clusters == 12


def test_the_cluster_robust_error_by_hand():
    """Differences 1, 3 | 5, 7: mean 4, cluster sums of residuals -4 and 4, variance 2 / 1 * 32 / 16 = 4."""
    ours = {"a1": [1.0], "a2": [3.0], "b1": [5.0], "b2": [7.0]}
    theirs = {key: [0.0] for key in ours}
    test = cluster_t_test(ours, theirs, {name: name[0] for name in ours})
    assert test.difference == 4
    assert test.statistic == pytest.approx(2)
    assert test.p_value == pytest.approx(2 * scipy.stats.t.sf(2, 1))
    assert test.num_clusters == 2
    assert test.high - test.difference == pytest.approx(2 * scipy.stats.t.ppf(0.975, 1))


def test_copies_within_a_cluster_add_no_evidence():
    base = {"a": 0.03, "b": 0.01, "c": 0.02}
    once = {name: [value] for name, value in base.items()}
    copied = {f"{name}{copy}": [value] for name, value in base.items() for copy in range(4)}
    zero = {name: [0.0] for name in copied}
    clustered = cluster_t_test(copied, zero, {name: name[0] for name in copied})
    assert clustered.p_value == pytest.approx(paired_t_test(once, {key: [0.0] for key in once}).p_value)
    assert paired_t_test(copied, zero).p_value < clustered.p_value / 100


def test_no_difference_at_all_is_no_evidence():
    same = as_settings([0.1, 0.2, 0.3])
    assert paired_t_test(same, same).p_value == 1
    assert wilcoxon_test(same, same).p_value == 1


def test_a_constant_difference_has_an_infinite_t():
    test = paired_t_test(as_settings([1.0, 2.0]), as_settings([0.5, 1.5]))
    assert (test.statistic, test.p_value, test.low, test.high) == (math.inf, 0, 0.5, 0.5)


def test_holm_by_hand():
    adjusted = holm_adjusted({"a": 0.01, "b": 0.04, "c": 0.03, "d": 0.005})
    assert adjusted == pytest.approx({"a": 0.03, "b": 0.06, "c": 0.06, "d": 0.02})
    assert list(adjusted) == ["a", "b", "c", "d"]
    assert holm_adjusted({"a": 0.6, "b": 0.7}) == {"a": 1.0, "b": 1.0}
    assert holm_adjusted({"a": 0.04}) == {"a": 0.04}
    assert holm_adjusted({}) == {}


@given(st.dictionaries(st.text(max_size=3), st.floats(0, 1), max_size=8), st.floats(0.001, 0.999))
def test_holm_rejects_what_the_stepwise_rule_rejects(p_values, level):
    """Go up from the smallest while p <= level / (m - place); stop at the first that is above."""
    rejected = set()
    for place, name in enumerate(sorted(p_values, key=p_values.__getitem__)):
        if (len(p_values) - place) * p_values[name] > level:
            break
        rejected.add(name)
    assert {name for name, p in holm_adjusted(p_values).items() if p <= level} == rejected


def test_wrong_figures_are_refused_by_name():
    with pytest.raises(DataError, match="'b' has figures of one system only"):
        paired_t_test({"a": [1.0], "b": [1.0]}, {"a": [1.0]})
    with pytest.raises(DataError, match="at least two"):
        wilcoxon_test({"a": [1.0]}, {"a": [2.0]})
    with pytest.raises(DataError, match="'b' has figures"):
        paired_t_test({"a": [1.0], "b": [math.nan]}, {"a": [1.0], "b": [1.0]})
    with pytest.raises(DataError, match="'b' has figures"):
        paired_t_test({"a": [1.0], "b": []}, {"a": [1.0], "b": [1.0]})
    with pytest.raises(DataError, match="'b' is in no cluster"):
        cluster_t_test({"a": [1.0], "b": [1.0]}, {"a": [1.0], "b": [1.0]}, {"a": "x"})
    with pytest.raises(DataError, match="at least two clusters"):
        cluster_t_test({"a": [1.0], "b": [1.0]}, {"a": [1.0], "b": [1.0]}, {"a": "x", "b": "x"})
    with pytest.raises(DataError, match=r"p-value of 'x' is 1\.5"):
        holm_adjusted({"x": 1.5})


def test_results_are_json():
    assert paired_t_test(figures(0), figures(1)).to_dict()["method"] == "paired t"
