"""Bounded queues with one thread each: jobs that wait together are done together."""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from contextpool.errors import ContextPoolError

Work = TypeVar("Work")


class RetryError(ContextPoolError):
    """Something that may work later."""

    def __init__(self, message: str, retry_after: int) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class BusyError(RetryError):
    """The queue is full, or closed."""


class TooLateError(RetryError):
    """The deadline of a request has passed before its answer was there."""


@dataclass(eq=False)
class Job(Generic[Work]):
    """Something to do, by when, and where the result goes."""

    work: Work
    deadline: float
    """A time of `time.monotonic`."""
    size: int = 1
    """How many questions it holds."""
    group: Hashable = None
    """Jobs of one group may be done together."""
    result: Future[Any] = field(default_factory=Future)

    def finish(self, value: Any) -> None:
        """Set the result, unless there is one."""
        with contextlib.suppress(InvalidStateError):
            self.result.set_result(value)

    def fail(self, error: BaseException) -> None:
        """Set an error as the result, unless there is one."""
        with contextlib.suppress(InvalidStateError):
            self.result.set_exception(error)


class WorkQueue(Generic[Work]):
    """A queue of jobs and the thread that does them, first come first served.

    Whatever waits when the thread becomes free is done at once, up to `batch_size` questions of one group: nobody
    waits for company, and the fuller the queue the larger the batches. Where questions take long a batch holds
    fewer, so that it takes about `batch_seconds`: then those in front need not wait for those behind.
    """

    def __init__(
        self,
        name: str,
        handle: Callable[[Sequence[Job[Work]]], None],
        *,
        capacity: int,
        batch_size: int = 1,
        batch_seconds: float = 0.25,
        on_batch: Callable[[int], None] = lambda size: None,
    ) -> None:
        self.name, self._handle, self._on_batch = name, handle, on_batch
        self._capacity, self._batch_size, self._batch_seconds = capacity, batch_size, batch_seconds
        self._waiting: deque[Job[Work]] = deque()
        self._size = 0
        self._seconds_each = 0.01
        self._closed = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name=f"contextpool-{name}", daemon=True)
        self._thread.start()

    def __len__(self) -> int:
        """Questions that wait."""
        return self._size

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive() and not self._closed

    @property
    def retry_after(self) -> int:
        """Whole seconds after which there is probably room."""
        return max(1, math.ceil(self._size * self._seconds_each))

    def submit(self, job: Job[Work]) -> Future[Any]:
        """Queue a job, or refuse it at once where there is no room."""
        with self._changed:
            if self._closed:
                raise BusyError("the server is shutting down; ask another one, or again later.", 1)
            if self._size + job.size > self._capacity:
                raise BusyError(
                    f"{self._size:,} questions wait already, and {self._capacity:,} may; ask again later.",
                    self.retry_after,
                )
            self._waiting.append(job)
            self._size += job.size
            self._changed.notify()
        return job.result

    def close(self, timeout: float | None = None) -> None:
        """Do what waits, take nothing more, and stop."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join(timeout)

    def _run(self) -> None:
        while batch := self._next_batch():
            wanted = [job for job in batch if self._is_wanted(job)]
            if wanted:
                self._do(wanted)

    def _next_batch(self) -> list[Job[Work]]:
        """The oldest job and those behind it of the same group, as many as fit; none when the queue is closed."""
        with self._changed:
            while not self._waiting and not self._closed:
                self._changed.wait()
            batch: list[Job[Work]] = []
            others: deque[Job[Work]] = deque()
            room = min(self._batch_size, int(self._batch_seconds / self._seconds_each))
            while self._waiting and (room > 0 or not batch):
                job = self._waiting.popleft()
                fits = not batch or (job.group == batch[0].group and job.size <= room)
                (batch if fits else others).append(job)
                room -= job.size if fits else 0
            self._waiting.extendleft(reversed(others))
            self._size -= sum(job.size for job in batch)
            return batch

    def _is_wanted(self, job: Job[Work]) -> bool:
        """Whether anybody still waits for the job; one past its deadline is failed here."""
        if not job.result.set_running_or_notify_cancel():
            return False
        if time.monotonic() < job.deadline:
            return True
        job.fail(TooLateError("the question waited until its deadline.", self.retry_after))
        return False

    def _do(self, jobs: list[Job[Work]]) -> None:
        began, size = time.perf_counter(), sum(job.size for job in jobs)
        try:
            self._handle(jobs)
        except BaseException as error:  # the thread has to live on, whatever a model does
            for job in jobs:
                job.fail(error)
        each = (time.perf_counter() - began) / size
        self._seconds_each = max(1e-6, 0.7 * self._seconds_each + 0.3 * each)
        self._on_batch(size)
