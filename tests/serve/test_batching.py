"""Queues: batches form by themselves, nothing waits beyond its deadline, nothing grows without bound."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager

import pytest

from contextpool.serve.batching import BusyError, Job, TooLateError, WorkQueue

FOREVER = float("inf")


class Worker:
    """Echoes what it is given, and waits at a gate before it does."""

    def __init__(self) -> None:
        self.gate, self.entered = threading.Event(), threading.Semaphore(0)
        self.batches: list[list[str]] = []

    def __call__(self, jobs: Sequence[Job[str]]) -> None:
        self.entered.release()
        assert self.gate.wait(30)
        self.batches.append([job.work for job in jobs])
        for job in jobs:
            if job.work == "bad":
                raise ValueError("bad")
            job.finish(job.work.upper())


@contextmanager
def queue_of(worker: Worker, capacity: int = 100, batch_size: int = 4) -> Iterator[WorkQueue[str]]:
    queue = WorkQueue("test", worker, capacity=capacity, batch_size=batch_size)
    try:
        yield queue
    finally:
        worker.gate.set()
        queue.close(30)


def ask(
    queue: WorkQueue[str], work: str, group: str = "", size: int = 1, deadline: float = FOREVER
) -> Future[str]:
    return queue.submit(Job(work, deadline, size, group))


def test_whatever_waits_is_handled_together_in_order_and_by_group() -> None:
    worker = Worker()
    with queue_of(worker) as queue:
        first = ask(queue, "a")
        assert worker.entered.acquire(timeout=30)  # the thread is busy with a
        rest = [ask(queue, *one) for one in (("b", "x"), ("c", "y"), ("d", "x"), ("e", "x"), ("f", "y"))]
        assert len(queue) == 5
        worker.gate.set()
        assert [one.result(30) for one in (first, *rest)] == list("ABCDEF")
        assert worker.batches == [["a"], ["b", "d", "e"], ["c", "f"]]
        assert len(queue) == 0


def test_a_batch_holds_no_more_than_fits_but_always_the_first() -> None:
    worker = Worker()
    with queue_of(worker, batch_size=4) as queue:
        futures = [ask(queue, "a")]
        assert worker.entered.acquire(timeout=30)
        futures += [ask(queue, name, size=size) for name, size in (("b", 9), ("c", 3), ("d", 2), ("e", 1))]
        worker.gate.set()
        assert [one.result(30) for one in futures] == list("ABCDE")
        assert worker.batches == [["a"], ["b"], ["c", "e"], ["d"]]


def test_the_longer_questions_take_the_fewer_are_in_a_batch() -> None:
    sizes: list[int] = []

    def slowly(jobs: Sequence[Job[str]]) -> None:
        sizes.append(len(jobs))
        time.sleep(0.05 * len(jobs))
        for job in jobs:
            job.finish(job.work)

    queue: WorkQueue[str] = WorkQueue("test", slowly, capacity=1000, batch_size=64, batch_seconds=0.1)
    futures = [queue.submit(Job(str(number), FOREVER)) for number in range(40)]
    assert [one.result(60) for one in futures] == [str(number) for number in range(40)]
    queue.close(30)
    assert max(sizes[-6:]) <= 3  # two fit into 0.1 s


def test_a_full_queue_refuses_at_once_and_says_when_to_come_back() -> None:
    worker = Worker()
    with queue_of(worker, capacity=2) as queue:
        first = ask(queue, "a")
        assert worker.entered.acquire(timeout=30)
        waiting = [ask(queue, "b"), ask(queue, "c")]
        with pytest.raises(BusyError, match="2 questions wait already, and 2 may") as refused:
            ask(queue, "d")
        assert refused.value.retry_after >= 1
        worker.gate.set()
        assert [one.result(30) for one in (first, *waiting)] == list("ABC")
        assert ask(queue, "d").result(30) == "D"


def test_what_is_too_late_or_not_wanted_any_more_is_not_begun() -> None:
    worker = Worker()
    with queue_of(worker) as queue:
        first = ask(queue, "a")
        assert worker.entered.acquire(timeout=30)
        late, gone = ask(queue, "late", deadline=time.monotonic()), ask(queue, "gone")
        assert gone.cancel()
        last = ask(queue, "z")
        worker.gate.set()
        assert (first.result(30), last.result(30)) == ("A", "Z")
        with pytest.raises(TooLateError, match="deadline"):
            late.result(30)
        assert worker.batches == [["a"], ["z"]]


def test_an_error_is_that_batchs_own_and_the_queue_lives_on() -> None:
    worker = Worker()
    worker.gate.set()
    with queue_of(worker, batch_size=1) as queue:
        with pytest.raises(ValueError, match="bad"):
            ask(queue, "bad").result(30)
        assert ask(queue, "good").result(30) == "GOOD"
        assert queue.is_alive


def test_closing_finishes_what_waits_and_takes_nothing_more() -> None:
    worker = Worker()
    queue: WorkQueue[str] = WorkQueue("test", worker, capacity=10, batch_size=1)
    futures = [ask(queue, name) for name in "abc"]
    worker.gate.set()
    queue.close(30)
    assert [one.result(0) for one in futures] == list("ABC")
    assert not queue.is_alive
    with pytest.raises(BusyError, match="shutting down"):
        ask(queue, "d")


def test_many_threads_lose_nothing() -> None:
    worker = Worker()
    worker.gate.set()
    with queue_of(worker, capacity=10_000, batch_size=16) as queue:
        found: list[str] = []

        def asker(name: int) -> None:
            found.extend(ask(queue, f"{name}-{number}").result(30) for number in range(50))

        threads = [threading.Thread(target=asker, args=(name,)) for name in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(found) == sorted(f"{name}-{number}" for name in range(16) for number in range(50))
    assert max(len(batch) for batch in worker.batches) <= 16
