"""Asynchronous successive halving: many trials with few epochs, the best of them again with more.

A rung is a number of epochs. Every training is complete, its learning rate schedule included, so the result of any
rung is that of a recipe one could train. After Li et al., A system for massively parallel hyperparameter tuning (2020).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from contextpool.errors import ConfigError

Scores = Mapping[int, float | None]
"""trial -> its score on a rung; None where it failed."""


class Action(NamedTuple):
    """A training to do: which trial, on which rung."""

    trial: int
    rung: int


def rung_epochs(epochs: int, rungs: int, factor: int) -> tuple[int, ...]:
    """Epochs of each rung, growing by about `factor` up to `epochs`; fewer rungs where epochs are few."""
    if epochs < 1 or rungs < 1 or factor < 2:
        raise ConfigError(
            f"epochs {epochs}, rungs {rungs} and factor {factor}: the first two are at least 1, the last at least 2."
        )
    steps = {max(1, round(epochs / factor**down)) for down in range(rungs)}
    return tuple(sorted(steps))


def next_action(
    finished: Sequence[Scores], running: Collection[Action], trials: int, factor: int
) -> Action | None:
    """What to train next: a promotion from the highest rung that has one, otherwise a new trial.

    `finished`: one mapping for each rung. None while there is nothing to do before something that runs has ended.
    The best 1 / factor of a rung's finished trials go on; of a rung that is complete, at least one does.
    """
    for rung in range(len(finished) - 2, -1, -1):
        begun = set(finished[rung + 1]) | {action.trial for action in running if action.rung == rung + 1}
        for trial in _going_on(finished, running, rung, trials, factor):
            if trial not in begun:
                return Action(trial, rung + 1)
    known = set(finished[0]) | {action.trial for action in running}
    unused = next(trial for trial in range(len(known) + 1) if trial not in known)
    return Action(unused, 0) if unused < trials else None


def _going_on(
    finished: Sequence[Scores], running: Collection[Action], rung: int, trials: int, factor: int
) -> list[int]:
    """The trials of a rung that are to go on to the next, as things stand."""
    share = len(finished[rung]) // factor
    least = 1 if share == 0 and _is_complete(finished, running, rung, trials, factor) else 0
    return _best(finished[rung], max(least, share))


def _is_complete(
    finished: Sequence[Scores], running: Collection[Action], rung: int, trials: int, factor: int
) -> bool:
    """Whether nothing can reach this rung any more that has not ended on it."""
    if any(action.rung <= rung for action in running):
        return False
    if rung == 0:
        return len(finished[0]) >= trials
    below = rung - 1
    arriving = _going_on(finished, running, below, trials, factor)
    return _is_complete(finished, running, below, trials, factor) and set(arriving) <= set(finished[rung])


def _best(scores: Scores, count: int) -> list[int]:
    """The trials with the highest scores, ties to the earlier; failed ones are never among them."""
    known = [(trial, score) for trial, score in scores.items() if score is not None]
    return [trial for trial, _ in sorted(known, key=lambda item: (-item[1], item[0]))[:count]]
