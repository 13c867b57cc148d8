"""Who does a job in pieces: this process, several of its own, or Ray. The results are the same, whoever does it.

A job is sent to every worker once; each worker computes with one thread, so that a piece gives the same bytes
everywhere. A worker that dies costs the pieces it was at, which are done again by another. One whose parent dies, ends.
"""

from __future__ import annotations

import multiprocessing
import os
import secrets
import shutil
import signal
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import wait as wait_for
from time import monotonic
from typing import Any, Literal, Protocol

import numba
import torch

from contextpool.context.counts import available_threads
from contextpool.errors import ConfigError, LostProcessError, MissingExtraError, setting, spoken

Engine = Literal["processes", "ray"]
Piece = tuple[int, Any]
"""The number of a piece, and what the job needs to know of it."""
Done = tuple[int, bytes]
Doing = Callable[[Iterable[Piece], int], Iterator[Done]]
"""Does pieces, so many, as they come, a few at a time, and gives each back when it is done, in any order."""
AHEAD = 2
"""Pieces that are handed out for each worker."""
MOST_LOSSES = 3
"""How often workers may die one after the other without a piece being done."""
WORTH_STARTING = 15.0
"""Seconds of work; less is done before others have started."""


class Job(Protocol):
    """What can be sent to a worker."""

    def work(self, piece: Any) -> bytes:
        """The result of one piece; the same bytes whoever works it out."""


@dataclass(frozen=True)
class Workers:
    """Who works."""

    processes: int | None = None
    """How many at a time; None for as many as there are cores, or for all that a Ray cluster has."""
    engine: Engine = "processes"
    ray_address: str | None = None
    """A Ray cluster that runs, such as host:6379 or auto. None starts one on this machine, for this job alone."""
    worth_starting: float = WORTH_STARTING
    """Seconds of work that are left after a first piece, from which on processes are started."""

    def __post_init__(self) -> None:
        if self.engine not in ("processes", "ray"):
            raise ConfigError(f"{setting('engine')} is {self.engine!r}; it is 'processes' or 'ray'.")
        if self.processes is not None and self.processes < 1:
            raise ConfigError(f"{setting('processes')} is {self.processes}; at least one has to work.")
        if self.ray_address is not None and self.engine != "ray":
            raise ConfigError(
                f"{setting('ray_address')} names a Ray cluster; it goes with {setting('engine', 'ray')}."
            )

    def for_device(self, device: torch.device) -> Workers:
        """Several cannot use one GPU."""
        if device.type != "cuda":
            return self
        if self.engine == "ray" or self.processes not in (None, 1):
            raise ConfigError(
                "a GPU is used by one process; leave out "
                f"{spoken('workers', '--processes and --engine')}, or use the CPU."
            )
        return Workers(1)

    @contextmanager
    def at(self, job: Job) -> Iterator[Doing]:
        """Ready to do pieces of a job."""
        if self.engine == "ray":
            with _on_ray(job, self) as doing:
                yield doing
            return
        crew = _Crew(job, cores() if self.processes is None else self.processes, self.worth_starting)
        try:
            yield crew.do
        finally:
            crew.stop()


def cores() -> int:
    """Those that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads(), available_threads()
    torch.set_num_threads(1)
    numba.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before[0])
        numba.set_num_threads(before[1])


# processes of this machine

_own_job: list[Job] = []
"""The job of a worker process."""


class _Crew:
    """The process itself, and others once the first piece has shown that they are worth their start."""

    def __init__(self, job: Job, count: int, worth_starting: float) -> None:
        self._job, self._count, self._worth_starting = job, count, worth_starting
        self._pool: _Pool | None = None

    def do(self, pieces: Iterable[Piece], count: int) -> Iterator[Done]:
        left = iter(pieces)
        for number, piece in left if self._pool is None else ():
            began = monotonic()
            with _one_thread():
                result = self._job.work(piece)
            yield number, result
            count -= 1
            if self._count > 1 and count > 1 and (monotonic() - began) * count >= self._worth_starting:
                self._pool = _Pool(self._job, self._count)
                break
        if self._pool is not None:
            yield from self._pool.do(left)

    def stop(self) -> None:
        if self._pool is not None:
            self._pool.stop()


class _Pool:
    """Started anew where one of its processes has died."""

    def __init__(self, job: Job, count: int) -> None:
        self._job, self._count, self._losses = job, count, 0
        self._pool = self._started()

    def _started(self) -> ProcessPoolExecutor:
        spawn = multiprocessing.get_context("spawn")  # a fork would have threads that are not there
        return ProcessPoolExecutor(self._count, spawn, _begin, (self._job,))

    def do(self, pieces: Iterable[Piece]) -> Iterator[Done]:
        left, again = iter(pieces), deque[Piece]()
        at_work: dict[Future[bytes], Piece] = {}
        while True:
            while len(at_work) < AHEAD * self._count:
                piece = again.popleft() if again else next(left, None)
                if piece is None:
                    break
                try:
                    at_work[self._pool.submit(_work, piece[1])] = piece
                except BrokenProcessPool:
                    again.appendleft(piece)
                    break
            if not at_work and not again:
                return
            finished, _ = wait(at_work, return_when=FIRST_COMPLETED) if at_work else (set(), None)
            lost = not finished
            for future in sorted(finished, key=lambda one: at_work[one][0]):
                piece = at_work.pop(future)
                if isinstance(future.exception(), BrokenProcessPool):
                    again.append(piece)
                    lost = True
                    continue
                self._losses = 0
                yield piece[0], future.result()
            if lost:
                again.extend(at_work.values())
                at_work.clear()
                self._start_again()

    def _start_again(self) -> None:
        self._losses += 1
        self.stop()
        if self._losses > MOST_LOSSES:
            raise LostProcessError(
                f"worker processes ended {self._losses} times before any piece of work was done. Probably memory "
                f"ran out: try fewer {setting('processes')}. What is done is kept; the same call goes on."
            )
        self._pool = self._started()

    def stop(self) -> None:
        """Wait for what is at work, and drop what is not."""
        self._pool.shutdown(wait=True, cancel_futures=True)


def _begin(job: Job) -> None:
    """The first thing that a worker process does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent tells what to do
    threading.Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(1)
    available_threads()
    numba.set_num_threads(1)
    _own_job[:] = [job]


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait_for([parent.sentinel])
        os._exit(1)


def _work(piece: Any) -> bytes:
    return _own_job[0].work(piece)


# Ray

_TOKEN = secrets.token_hex(32)
"""Of every Ray that this process starts: Ray keeps the first that it reads."""
_jobs: dict[str, Job] = {}
"""Of a Ray worker, by their names; the last one only."""


@contextmanager
def _on_ray(job: Job, workers: Workers) -> Iterator[Doing]:
    with _ray(workers) as ray:
        name, shared = secrets.token_hex(8), ray.put(job)
        work = ray.remote(num_cpus=1, max_retries=MOST_LOSSES)(_work_on_ray)
        most = AHEAD * max(1, workers.processes or int(ray.cluster_resources().get("CPU", 1)))

        def do(pieces: Iterable[Piece], count: int) -> Iterator[Done]:
            left = iter(pieces)
            at_work: dict[Any, int] = {}
            while True:
                while len(at_work) < most and (piece := next(left, None)) is not None:
                    at_work[work.remote(name, [shared], piece[1])] = piece[0]
                if not at_work:
                    return
                finished, _ = ray.wait(list(at_work), num_returns=1)
                for one in finished:
                    yield at_work.pop(one), _result(ray, one)

        yield do


def _result(ray: Any, reference: Any) -> bytes:
    try:
        content: bytes = ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        raise error.as_instanceof_cause() from None
    except ray.exceptions.RayError as error:
        raise LostProcessError(
            f"Ray lost a piece of work ({str(error).splitlines()[0][:200]}). What is done is kept; the same call "
            "goes on."
        ) from error
    return content


def _work_on_ray(name: str, shared: list[Any], piece: Any) -> bytes:
    """A piece of the job of that name; it is fetched when it is first asked for."""
    if name not in _jobs:
        import ray

        torch.set_num_threads(1)
        available_threads()
        numba.set_num_threads(1)
        _jobs.clear()
        _jobs[name] = ray.get(shared[0])
    return _jobs[name].work(piece)


@contextmanager
def _ray(workers: Workers) -> Iterator[Any]:
    """Connected to the cluster that was named, to the one that the caller uses already, or to one of our own."""
    own = {
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # on any system: addresses are on loopback
        "RAY_AUTH_MODE": "token",  # against other users of this machine
        "RAY_AUTH_TOKEN": _TOKEN,
    }
    with _environment({} if workers.ray_address else own):
        try:
            import ray
        except ImportError:
            raise MissingExtraError("ray", "ray", "the engine ray") from None
        if ray.is_initialized():
            yield ray
        elif workers.ray_address is not None:
            with _connected(ray, workers.ray_address):
                yield ray
        else:
            with _started_here(ray, workers):
                yield ray


@contextmanager
def _environment(values: dict[str, str]) -> Iterator[None]:
    before = {key: os.environ.get(key) for key in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for key, value in before.items():
            if value is None:
                os.environ.pop(key, None)
            else:
                os.environ[key] = value


@contextmanager
def _connected(ray: Any, address: str) -> Iterator[None]:
    try:
        ray.init(address=address, logging_level="error", log_to_driver=False)
    except Exception as error:  # Ray raises what it likes
        raise ConfigError(
            f"there is no Ray cluster at {address} ({str(error).splitlines()[0][:200]}). Check the address, such as "
            "host:6379, or leave it out for one on this machine."
        ) from error
    try:
        yield
    finally:
        ray.shutdown()


@contextmanager
def _started_here(ray: Any, workers: Workers) -> Iterator[None]:
    """On loopback, without a dashboard, in a folder that nobody else reads."""
    folder = tempfile.mkdtemp(prefix="contextpool-ray-")
    try:
        ray.init(
            address="local",
            num_cpus=workers.processes or cores(),
            include_dashboard=False,
            _node_ip_address="127.0.0.1",
            _temp_dir=folder,
            logging_level="error",
            log_to_driver=False,
        )
        where = ray.util.get_node_ip_address()
        if where not in ("127.0.0.1", "::1"):
            raise ConfigError(
                f"Ray would listen on {where}, where others reach it, because it was imported before. Start it "
                "yourself (ray.init), or let contextpool import it."
            )
        yield
    finally:
        ray.shutdown()
        shutil.rmtree(folder, ignore_errors=True)
