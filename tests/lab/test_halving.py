"""Successive halving: everything that should go on does, nothing else, whatever order trainings end in."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextpool.errors import ConfigError
from lab.halving import Action, next_action, rung_epochs


@pytest.mark.parametrize(
    ("epochs", "rungs", "factor", "expected"),
    [
        (9, 3, 3, (1, 3, 9)),
        (20, 3, 3, (2, 7, 20)),
        (2, 3, 3, (1, 2)),
        (1, 3, 3, (1,)),
        (8, 1, 2, (8,)),
        (16, 4, 2, (2, 4, 8, 16)),
    ],
)
def test_rungs_grow_to_the_epochs_wanted(
    epochs: int, rungs: int, factor: int, expected: tuple[int, ...]
) -> None:
    assert rung_epochs(epochs, rungs, factor) == expected


def test_rungs_that_cannot_be_are_refused() -> None:
    with pytest.raises(ConfigError, match="factor 1"):
        rung_epochs(9, 3, 1)


def simulate(
    trials: int, rungs: int, factor: int, jobs: int, order: random.Random, failing: float = 0.0
) -> tuple[list[dict[int, float | None]], list[Action]]:
    """Trainings that end in any order; a trial has one quality, and sometimes fails."""
    finished: list[dict[int, float | None]] = [{} for _ in range(rungs)]
    running: list[Action] = []
    begun: list[Action] = []
    quality = {trial: None if order.random() < failing else order.random() for trial in range(trials)}
    while True:
        while len(running) < jobs and (action := next_action(finished, running, trials, factor)) is not None:
            running.append(action)
            begun.append(action)
        if not running:
            return finished, begun
        ended = running.pop(order.randrange(len(running)))
        finished[ended.rung][ended.trial] = quality[ended.trial]


@given(
    trials=st.integers(1, 30),
    rungs=st.integers(1, 4),
    factor=st.integers(2, 4),
    jobs=st.integers(1, 5),
    order=st.randoms(use_true_random=False),
    failing=st.sampled_from([0.0, 0.3]),
)
def test_the_best_of_every_rung_go_on(
    trials: int, rungs: int, factor: int, jobs: int, order: random.Random, failing: float
) -> None:
    finished, begun = simulate(trials, rungs, factor, jobs, order, failing)
    assert len(begun) == len(set(begun))
    assert set(finished[0]) == set(range(trials))
    for rung in range(rungs - 1):
        scores = {trial: score for trial, score in finished[rung].items() if score is not None}
        assert set(finished[rung + 1]) <= set(scores)
        least = len(finished[rung]) // factor or min(1, len(scores))
        best = sorted(scores, key=lambda trial: (-scores[trial], trial))[:least]
        assert set(best) <= set(finished[rung + 1])
    if any(score is not None for score in finished[0].values()):
        assert finished[-1]


def test_one_at_a_time_nine_trials_make_one_of_each_size() -> None:
    finished, _ = simulate(9, 3, 3, 1, random.Random(0))
    assert len(finished[0]) == 9
    assert len(finished[1]) >= 3
    assert len(finished[2]) >= 1


def test_a_trial_that_was_lost_is_drawn_again() -> None:
    """Trials 0 and 2 ended, 1 was cut off: it is begun again, not a fourth."""
    assert next_action([{0: 0.5, 2: 0.4}, {}], [], trials=9, factor=3) == Action(1, 0)


def test_nothing_is_promoted_before_it_is_known_to_be_the_best() -> None:
    assert next_action([{0: 0.5, 1: 0.4}, {}], [Action(2, 0)], trials=3, factor=3) is None
    assert next_action([{0: 0.5, 1: 0.4, 2: None}, {}], [], trials=3, factor=3) == Action(0, 1)
    assert next_action([{0: 0.5, 1: 0.4}, {}], [], trials=2, factor=3) == Action(0, 1)
    assert next_action([{0: None}, {}], [], trials=1, factor=3) is None
