"""Probabilities: monotone, in [0, 1], closer to what happens than the scores were, and refused when too few."""

from __future__ import annotations

import itertools
import json
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from contextpool.errors import DataError, NonFiniteError
from contextpool.evaluate.calibration import (
    Calibration,
    MaskedScores,
    expected_calibration_error,
    fit_calibration,
    fit_temperature,
    isotonic_blocks,
)
from contextpool.evaluate.references import constant_scorer
from contextpool.triples.filters import KnownAnswers
from contextpool.triples.store import Triples
from evaluate.scorers import numbered_triples, table_scorer

ENTITIES = 60


def drawn_world(seed: int, scale: float) -> tuple[Triples, KnownAnswers, torch.Tensor]:
    """Answers drawn from the softmax of logits; the scorer knows the logits, but on another scale.

    One relation, one answer a head and direction, so that the softmax of the logits is the exact truth.
    """
    rng = torch.Generator().manual_seed(seed)
    logits = 2.0 * torch.randn(ENTITIES, 2, ENTITIES, generator=rng)
    tails = torch.multinomial(logits[:, 0].softmax(1), 1, generator=rng).squeeze(1).tolist()
    queries = numbered_triples([(head, 0, tail) for head, tail in enumerate(tails)], ENTITIES, 1)
    return queries, KnownAnswers.of(queries), scale * logits


def many_relations(
    seed: int, scale: float, relations: int = 40
) -> tuple[Triples, KnownAnswers, torch.Tensor]:
    """As `drawn_world`, with queries by the thousand: tails are drawn, and heads score at random but flat."""
    rng = torch.Generator().manual_seed(seed)
    logits = torch.zeros(ENTITIES, 2 * relations, ENTITIES)
    logits[:, :relations] = 2.0 * torch.randn(ENTITIES, relations, ENTITIES, generator=rng)
    rows = []
    for relation in range(relations):
        tails = torch.multinomial(logits[:, relation].softmax(1), 1, generator=rng).squeeze(1)
        rows += [(head, relation, tail) for head, tail in enumerate(tails.tolist())]
    queries = numbered_triples(rows, ENTITIES, relations)
    return queries, KnownAnswers.of(queries), scale * logits


@pytest.mark.parametrize("scale", [0.05, 1.0, 20.0])
def test_calibration_improves_a_scorer_on_the_wrong_scale(scale):
    queries, known, table = many_relations(0, scale)
    fit = fit_calibration(table_scorer(table), queries, known, batch_size=500)
    assert fit.calibration is not None
    assert fit.reason == ""
    assert fit.error_after < 0.02
    if scale != 1.0:
        assert fit.error_after < fit.error_before / 3


def test_probabilities_say_how_often_it_is_true_on_new_queries():
    queries, known, table = many_relations(0, 7.0)
    calibration = fit_calibration(table_scorer(table), queries, known, batch_size=500).calibration
    fresh, _, new_table = many_relations(1, 7.0)
    head, relation, tail = torch.from_numpy(fresh.ids).long().T
    scores = new_table[head, relation]
    claimed, truth = calibration.probability(scores), (scores / 7.0).softmax(1)
    hit = torch.zeros_like(claimed).scatter_(1, tail[:, None], 1.0)
    assert expected_calibration_error(claimed.flatten().numpy(), hit.flatten().numpy()) < 0.01
    for low, high in ((0.05, 0.2), (0.2, 0.5), (0.5, 1.0)):
        here = (truth > low) & (truth <= high)
        assert claimed[here].mean().item() == pytest.approx(truth[here].mean().item(), abs=0.03)


def test_the_temperature_is_that_of_the_scale():
    rng = torch.Generator().manual_seed(0)
    logits = 2.0 * torch.randn(4_000, 50, generator=rng)
    answer = torch.multinomial(logits.softmax(1), 1, generator=rng).squeeze(1)
    for scale in (1e-4, 1.0, 300.0):
        sample = [MaskedScores(scale * logits, answer, np.arange(4_000))]
        assert fit_temperature(sample) == pytest.approx(scale, rel=0.1)


@pytest.fixture(scope="module")
def fitted():
    queries, known, table = many_relations(2, 5.0, relations=10)
    return fit_calibration(table_scorer(table), queries, known, batch_size=500).calibration


@given(st.lists(st.floats(-100, 100, width=32), min_size=1, max_size=20), st.data())
def test_probabilities_are_monotone_in_the_score_and_lie_in_0_1(fitted, scores, data):
    mask = data.draw(st.lists(st.booleans(), min_size=len(scores), max_size=len(scores)))
    known = torch.tensor(mask)
    found = fitted.probability(torch.tensor(scores), known)
    assert found.dtype == torch.float64
    assert ((found >= 0) & (found <= 1)).all()
    assert (found[known] == 1).all()
    pairs = sorted(
        (score, chance) for score, chance, out in zip(scores, found.tolist(), mask, strict=True) if not out
    )
    chances = [chance for _, chance in pairs]
    assert all(one <= other for one, other in itertools.pairwise(chances))


def test_known_answers_take_no_part(fitted):
    scores = torch.tensor([3.0, 50.0, 1.0, math.nan])
    known = torch.tensor([False, True, False, True])
    found = fitted.probability(scores, known)
    assert found[[0, 2]].tolist() == fitted.probability(torch.tensor([3.0, 1.0])).tolist()
    assert found[[1, 3]].tolist() == [1, 1]


def test_rows_are_calibrated_one_by_one(fitted):
    scores = torch.randn(3, 7, generator=torch.Generator().manual_seed(0))
    together = fitted.probability(scores)
    assert all(torch.equal(together[row], fitted.probability(scores[row])) for row in range(3))


def test_a_non_finite_score_has_no_probability(fitted):
    for value in (math.nan, math.inf, -math.inf):
        with pytest.raises(NonFiniteError, match="row 0, entity 1"):
            fitted.probability(torch.tensor([0.0, value]))
    queries, known, table = drawn_world(0, 1.0)
    table[queries.ids[5, 0], 0, 7] = math.nan
    with pytest.raises(NonFiniteError, match=r"query \('e00005', 'r000', \?\), candidate 'e00007'"):
        fit_calibration(table_scorer(table), queries, known, batch_size=500)


def test_what_is_stored_comes_back(fitted):
    stored = json.loads(json.dumps(fitted.to_dict()))
    assert Calibration.from_dict(stored) == fitted
    assert stored["knots"][0] == stored["values"][0] == 0


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"temperature": 0.0}, "temperature"),
        ({"temperature": math.nan}, "temperature"),
        ({"temperature": "hot"}, "numbers only"),
        ({"knots": [0.0, 0.0]}, "ascend"),
        ({"knots": [0.0]}, "ascend"),
        ({"values": [0.5, 0.1]}, "never falls"),
        ({"values": [0.0, math.nan]}, "never falls"),
        ({"values": [0.0, 1.5]}, "lie in"),
        ({"values": None}, "numbers only"),
        ({"more": 1}, "keys are"),
    ],
)
def test_a_damaged_calibration_is_refused(change, what):
    good = {"temperature": 1.0, "knots": [0.0, 0.5], "values": [0.0, 0.4]}
    assert Calibration.from_dict(good).probability(torch.tensor([0.0])).tolist() == [0.4]
    with pytest.raises(DataError, match=what):
        Calibration.from_dict({**good, **change})


def test_too_few_queries_give_a_reason_instead():
    queries, known, table = drawn_world(0, 1.0)
    few = queries.select(np.arange(len(queries)) < 20)
    fit = fit_calibration(table_scorer(table), few, known)
    assert fit.calibration is fit.error_before is fit.error_after is None
    assert "50 are needed" in fit.reason
    assert fit.to_dict()["calibration"] is None


def test_a_constant_scorer_gives_a_reason_instead():
    queries, known, _ = drawn_world(0, 1.0)
    fit = fit_calibration(constant_scorer(ENTITIES), queries, known)
    assert fit.calibration is None
    assert fit.reason == "every candidate has the same score"


def test_the_fit_depends_on_its_seed_alone():
    queries, known, table = many_relations(0, 3.0, relations=5)
    first = fit_calibration(table_scorer(table), queries, known, most_queries=300, seed=1)
    order = np.random.default_rng(0).permutation(len(queries))
    shuffled = Triples(queries.entities, queries.relations, queries.ids[order])
    again = fit_calibration(table_scorer(table), shuffled, known, most_queries=300, seed=1)
    other = fit_calibration(table_scorer(table), queries, known, most_queries=300, seed=2)
    assert first == again
    assert first != other
    json.dumps(first.to_dict())


def test_little_memory_still_fits_a_temperature():
    queries, known, table = many_relations(0, 3.0)
    little = fit_calibration(table_scorer(table), queries, known, batch_size=500, memory_bytes=1)
    enough = fit_calibration(table_scorer(table), queries, known, batch_size=500)
    assert little.calibration.temperature == pytest.approx(enough.calibration.temperature, rel=0.5)
    assert little.error_after < 0.02


def test_certainty_is_never_claimed():
    """A perfect scorer: every best candidate is the answer, and still the end of the curve is below 1."""
    queries, known, table = drawn_world(0, 0.0)
    for head, _, tail in queries.ids.tolist():
        table[head, 0, tail] = table[tail, 1, head] = 10.0
    fit = fit_calibration(table_scorer(table), queries, known, batch_size=500)
    assert 0.9 < fit.calibration.values[-1] < 1
    assert fit.calibration.probability(torch.tensor([10.0] + [0.0] * 59))[1:].max() < 0.01


def test_ties_for_the_last_place_share_their_hits():
    """Twelve candidates score the same and ten are looked at: which of them is the answer cannot matter."""
    table = torch.zeros(144, 2, 144)
    table[:, 0, :12] = 1.0
    fits = []
    for answer in (0, 5, 11):
        queries = numbered_triples([(head, 0, answer) for head in range(12, 132)], 144, 1)
        fits.append(fit_calibration(table_scorer(table), queries, KnownAnswers.of(queries)))
    assert fits[0] == fits[1] == fits[2]
    found = fits[0].calibration.probability(table[30, 0])
    assert found[:12].unique().numel() == 1
    assert found[0].item() == pytest.approx(1 / 12, rel=0.1)


def isotonic_by_minimax(x: list[float], y: list[float]) -> dict[float, float]:
    """The fitted value at each x: the largest, over starts, of the smallest, over ends, mean of y between."""
    places = sorted(set(x))

    def mean(low: float, high: float) -> float:
        between = [b for a, b in zip(x, y, strict=True) if low <= a <= high]
        return sum(between) / len(between)

    return {
        here: max(min(mean(low, high) for high in places if high >= here) for low in places if low <= here)
        for here in places
    }


@given(st.lists(st.tuples(st.integers(0, 8), st.integers(0, 1)), min_size=1, max_size=25))
def test_pooling_adjacent_violators_is_the_isotonic_fit(points):
    x, y = ([float(point[axis]) for point in points] for axis in (0, 1))
    centre, height, weight = isotonic_blocks(np.array(x), np.array(y))
    expected = isotonic_by_minimax(x, y)
    levels = sorted({round(value, 9) for value in expected.values()})
    assert height.tolist() == pytest.approx(levels)
    assert (np.diff(centre) > 0).all()
    assert weight.sum() == len(points)
    assert (weight * height).sum() == pytest.approx(sum(y))


@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(0, 1)), min_size=1, max_size=80), st.integers(1, 20)
)
def test_small_blocks_join_a_neighbour_and_stay_in_order(points, fewest):
    x, y = (np.array([float(point[axis]) for point in points]) for axis in (0, 1))
    centre, height, weight = isotonic_blocks(x, y, fewest)
    assert (weight >= min(fewest, len(points))).all()
    assert (np.diff(centre) > 0).all()
    assert (np.diff(height) > -1e-12).all()
    assert (weight * height).sum() == pytest.approx(y.sum())


def test_expected_calibration_error_by_hand():
    """Bin of .05: claimed .05, seen 0; bin of .95: claimed .95, seen 1/2; two points each."""
    claimed, hit = np.array([0.05, 0.05, 0.95, 0.95]), np.array([0.0, 0.0, 1.0, 0.0])
    assert expected_calibration_error(claimed, hit, bins=10) == pytest.approx((0.05 + 0.45) / 2)
    assert expected_calibration_error(np.array([1.0, 0.0]), np.array([1.0, 0.0])) == 0
