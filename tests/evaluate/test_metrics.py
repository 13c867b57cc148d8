"""Metrics by hand, the exact expectation of sampled negatives by enumeration, intervals against theory."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from contextpool.errors import DataError
from contextpool.evaluate.metrics import RankMetrics, RankTable, bootstrap_intervals, chance_among_sampled


def table(optimistic: list[float], pessimistic: list[float], candidates: int = 1000) -> RankTable:
    count = np.full(len(optimistic), candidates, dtype=np.int64)
    return RankTable(np.array(optimistic, dtype=float), np.array(pessimistic, dtype=float), count)


def test_metrics_by_hand():
    metrics = table([1, 2, 4, 20], [1, 2, 4, 20]).under("realistic")
    assert metrics.mrr == pytest.approx((1 + 1 / 2 + 1 / 4 + 1 / 20) / 4)
    assert metrics.mr == pytest.approx(27 / 4)
    assert metrics.hits == {1: 0.25, 3: 0.5, 10: 0.75}
    assert metrics.num_queries == 4


def test_ties_lie_between_the_extremes():
    ties = table([1, 1, 9], [1, 4, 13])
    assert ties.under("optimistic").ranks.tolist() == [1, 1, 9]
    assert ties.under("realistic").ranks.tolist() == [1, 2.5, 11]
    assert ties.under("pessimistic").ranks.tolist() == [1, 4, 13]
    assert [ties.under(rule).hits[10] for rule in ("optimistic", "realistic", "pessimistic")] == [
        1,
        pytest.approx(2 / 3),
        pytest.approx(2 / 3),
    ]


def test_names_in_json_are_short():
    figures = table([1, 2], [1, 2]).under("realistic").to_dict()
    assert list(figures) == ["mrr", "mr", "hits@1", "hits@3", "hits@10", "hits@10_50", "num_queries"]


def test_metrics_of_nothing_are_refused():
    with pytest.raises(DataError, match="no ranks"):
        RankMetrics(np.empty(0), np.empty(0))


def chance_by_enumeration(better: int, tied: int, worse: int, k: int, negatives: int) -> float:
    """Every choice of negatives, one after the other; a tie costs half a place."""
    cost = [1.0] * better + [0.5] * tied + [0.0] * worse
    choices = list(itertools.combinations(cost, min(negatives, len(cost))))
    return sum(1 + sum(choice) <= k for choice in choices) / len(choices)


@given(st.integers(0, 5), st.integers(0, 5), st.integers(0, 5), st.integers(1, 4), st.integers(1, 8))
def test_sampled_negatives_are_the_mean_over_every_sample(better, tied, worse, k, negatives):
    counts = (np.array([count], dtype=float) for count in (better, tied, worse))
    expected = chance_by_enumeration(better, tied, worse, k, negatives)
    assert chance_among_sampled(*counts, k=k, negatives=negatives)[0] == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("candidates", [51, 1_000, 100_000, 10_000_000])
def test_sampled_negatives_without_ties_are_hypergeometric(candidates):
    ranks = np.unique(np.geomspace(1, candidates, 40).astype(int)).astype(float)
    ours = chance_among_sampled(ranks - 1, np.zeros_like(ranks), candidates - ranks)
    theirs = scipy.stats.hypergeom.cdf(9, candidates - 1, ranks - 1, 50)
    np.testing.assert_allclose(ours, theirs, atol=1e-9)


def test_sampled_negatives_agree_with_sampling():
    rng = np.random.default_rng(0)
    better, tied, worse = 150, 60, 500
    drawn = rng.multivariate_hypergeometric([better, tied, worse], 50, size=20_000)
    share = float((1 + drawn[:, 0] + drawn[:, 1] / 2 <= 10).mean())
    exact = float(chance_among_sampled(*(np.array([float(n)]) for n in (better, tied, worse)))[0])
    assert exact == pytest.approx(share, abs=4 * math.sqrt(0.25 / 20_000))


def test_the_rules_for_ties_hold_for_sampled_negatives_too():
    ties = table([20, 20], [200, 200], 400)
    optimistic, realistic, pessimistic = (
        ties.under(rule).hits_at_10_of_50 for rule in ("optimistic", "realistic", "pessimistic")
    )
    assert optimistic == pytest.approx(scipy.stats.hypergeom.cdf(9, 399, 19, 50))
    assert pessimistic == pytest.approx(scipy.stats.hypergeom.cdf(9, 399, 199, 50))
    assert optimistic > realistic > pessimistic


def test_many_queries_are_worked_in_pieces():
    ranks = np.arange(1.0, 10_001.0)
    whole = chance_among_sampled(ranks - 1, np.zeros_like(ranks), 20_000 - ranks)
    some = np.array([0, 4095, 4096, 9999])
    alone = chance_among_sampled(ranks[some] - 1, np.zeros(4), 20_000 - ranks[some])
    np.testing.assert_array_equal(whole[some], alone)


def random_metrics(seed: int, count: int) -> RankMetrics:
    ranks = np.random.default_rng(seed).integers(1, 100, count).astype(float)
    return table(ranks.tolist(), ranks.tolist()).under("realistic")


def test_intervals_are_those_of_the_central_limit():
    metrics = random_metrics(0, 2_000)
    intervals = bootstrap_intervals(metrics, np.arange(2_000), seed=1, samples=4_000)
    for name, values in metrics.per_query.items():
        half = 1.96 * values.std() / math.sqrt(len(values))
        low, high = intervals[name]
        assert low == pytest.approx(values.mean() - half, abs=0.15 * half), name
        assert high == pytest.approx(values.mean() + half, abs=0.15 * half), name


def test_intervals_depend_on_the_seed_alone():
    metrics, group = random_metrics(0, 300), np.tile(np.arange(150), 2)
    assert bootstrap_intervals(metrics, group, seed=5) == bootstrap_intervals(metrics, group, seed=5)
    assert bootstrap_intervals(metrics, group, seed=5) != bootstrap_intervals(metrics, group, seed=6)


def test_queries_that_belong_together_are_drawn_together():
    ranks = np.random.default_rng(0).integers(1, 100, 500).astype(float)
    twice = table(np.tile(ranks, 2).tolist(), np.tile(ranks, 2).tolist()).under("realistic")
    together = bootstrap_intervals(twice, np.tile(np.arange(500), 2), seed=0, samples=4_000)["mr"]
    apart = bootstrap_intervals(twice, np.arange(1_000), seed=0, samples=4_000)["mr"]
    widths = (together.high - together.low) / (apart.high - apart.low)
    assert widths == pytest.approx(math.sqrt(2), rel=0.1)
