"""Jobs end in a value, an error or a death, and none of these keeps the others from ending."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from lab.jobs import Finished, run_jobs

WORK = "lab_jobs:work"


def taking(arguments: list[Any]) -> Callable[[], Any]:
    waiting = list(arguments)
    return lambda: waiting.pop(0) if waiting else None


def run(arguments: list[Any], processes: int = 1) -> list[Finished]:
    return list(run_jobs(WORK, taking(arguments), processes))


@pytest.mark.parametrize("processes", [1, 2])
def test_every_job_ends_once_and_failures_stay_with_their_job(processes: int) -> None:
    ended = run([2, "refuse", 3, "break", 4], processes)
    by_argument = {finished.argument: finished for finished in ended}
    assert len(ended) == len(by_argument) == 5
    assert [by_argument[n].value for n in (2, 3, 4)] == [4, 9, 16]
    assert by_argument["refuse"].error == "ConfigError: train.lr is -1; it has to be positive."
    assert by_argument["refuse"].trace is None
    assert by_argument["break"].error == "ZeroDivisionError: first line"
    assert "second line" in str(by_argument["break"].trace)


def test_a_process_that_dies_is_a_failed_job_and_is_replaced() -> None:
    ended = {finished.argument: finished for finished in run(["die", 2, 3], processes=2)}
    assert "ended with code 3" in str(ended["die"].error)
    assert (ended[2].value, ended[3].value) == (4, 9)


def test_a_process_stays_for_many_jobs() -> None:
    """With two processes for four jobs, one of them does at least two."""
    assert max(finished.value for finished in run(["calls"] * 4, processes=2)) >= 2


@pytest.mark.parametrize("processes", [1, 2])
def test_reports_come_with_the_job_they_are_about(processes: int) -> None:
    told: list[tuple[Any, Any]] = []
    list(run_jobs(WORK, taking([5, 6]), processes, lambda argument, what: told.append((argument, what))))
    assert sorted(told) == [(5, "working on 5"), (6, "working on 6")]


@pytest.mark.parametrize("processes", [1, 2])
def test_the_next_job_may_depend_on_what_ended(processes: int) -> None:
    """Asked again after each end: a job that was not there at first is done."""
    waiting, values = [2], []
    for finished in run_jobs(WORK, lambda: waiting.pop() if waiting else None, processes):
        values.append(finished.value)
        if finished.value < 200:
            waiting.append(finished.value)
    assert values == [4, 16, 256]


def test_nothing_to_do_is_no_process() -> None:
    assert run([], processes=4) == []
