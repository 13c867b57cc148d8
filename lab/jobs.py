"""Files of JSON lines that survive a kill, and jobs in this process or in several.

A job that fails, or whose process dies, is a result like any other. Its function is named "module:function" and takes
(argument, report): it may call `report` with anything that can be pickled, to tell how far it is. Processes are
spawned, so that CUDA works in each, and stay for many jobs, so that a loaded dataset is there for the next.
"""

from __future__ import annotations

import fcntl
import importlib
import json
import multiprocessing
import os
import signal
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import TYPE_CHECKING, Any

from contextpool.errors import CheckpointWriteError, ContextPoolError, DataError

if TYPE_CHECKING:
    from contextpool.train.progress import Progress

Line = dict[str, Any]


def read_lines(path: str | Path) -> list[Line]:
    """Every line of the file, in order; a half-written last one is left out, other damage is an error by its line."""
    path = Path(path)
    if not path.exists():
        return []
    data = path.read_bytes()
    return _parsed(data[: _whole(data)], path)


def _parsed(data: bytes, path: Path) -> list[Line]:
    lines = []
    for number, text in enumerate(data.split(b"\n"), start=1):
        if text.strip():
            line = _object(text)
            if line is None:
                raise DataError(
                    f"{path}:{number}: the line is not a JSON object. Only the last line of the file can be "
                    "half-written; take this one from a copy, or delete it to have it made again."
                )
            lines.append(line)
    return lines


def _object(text: bytes) -> Line | None:
    try:
        value = json.loads(text)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _whole(data: bytes) -> int:
    """Bytes up to the end of the last whole line. Complete but for its newline is whole; half a line is not."""
    start = data.rstrip(b"\n").rfind(b"\n") + 1
    last = data[start:].strip()
    return len(data) if not last or _object(last) is not None else start


class LineFile:
    """The file, open for appending by this process alone. A context manager."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.repaired: str | None = None
        """What was cut off when the file was opened, as one sentence; None where nothing was."""
        self._handle = self._open()
        try:
            self.lines = self._repair()
        except BaseException:
            self.close()
            raise

    def _open(self) -> int:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            handle = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise CheckpointWriteError(
                f"{self.path}: cannot be written ({error.strerror}). Choose another file."
            ) from error
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(handle)
            raise CheckpointWriteError(
                f"{self.path}: another process is adding lines to this file. Wait for it, or choose another file."
            ) from None
        return handle

    def _repair(self) -> list[Line]:
        """The whole lines. What is left of a half-written one is cut off, a missing last newline added."""
        data = self.path.read_bytes()
        whole = _whole(data)
        lines = _parsed(data[:whole], self.path)
        if whole < len(data):
            os.ftruncate(self._handle, whole)
            self.repaired = (
                f"{self.path}: the last line was half-written; cut off its {len(data) - whole:,} bytes."
            )
        elif data and not data.endswith(b"\n"):
            self._write(b"\n")
        return lines

    def append(self, line: Mapping[str, Any]) -> None:
        """Add one line; once this returns it is on the disk."""
        try:
            text = json.dumps(dict(line), ensure_ascii=False, allow_nan=False)
        except ValueError as error:
            raise DataError(
                f"{self.path}: a line with a figure that is not finite is refused: {line}."
            ) from error
        self._write(text.encode("utf-8") + b"\n")
        self.lines.append(json.loads(text))

    def _write(self, data: bytes) -> None:
        try:
            while data:
                data = data[os.write(self._handle, data) :]
            os.fsync(self._handle)
        except OSError as error:
            raise CheckpointWriteError(
                f"{self.path}: a line cannot be written ({error.strerror}). Those before are whole. Make room, "
                "then run it again."
            ) from error

    def close(self) -> None:
        """Let others append; safe to call twice."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1

    def __enter__(self) -> LineFile:
        """Itself."""
        return self

    def __exit__(self, *error: object) -> None:
        """Close."""
        self.close()


def throttled(report: Report) -> Callable[[Progress], None]:
    """Passes on the progress of a training at each new epoch, and at most five times a second in between."""
    told, epoch = 0.0, 0

    def progress(state: Progress) -> None:
        nonlocal told, epoch
        if time.monotonic() - told >= 0.2 or state.epoch != epoch:
            told, epoch = time.monotonic(), state.epoch
            report(state)

    return progress


NextJob = Callable[[], Any]
"""The argument of the next job; None while there is none: asked again when a running one has finished."""
Report = Callable[[Any], None]
OnReport = Callable[[Any, Any], None]
"""Called with (argument of the job, what it reported)."""


@dataclass(frozen=True)
class Finished:
    """One job's end."""

    argument: Any
    value: Any = None
    error: str | None = None
    """One line that says why there is no value."""
    trace: str | None = None
    """The traceback, where the error was none of ours."""


def run_jobs(
    function: str, next_job: NextJob, processes: int = 1, on_report: OnReport | None = None
) -> Iterator[Finished]:
    """Run jobs until `next_job` has none and none runs; each is handed out as it ends."""
    if processes <= 1:
        yield from _run_here(function, next_job, on_report)
        return
    team = _Team(function, processes)
    try:
        yield from team.run(next_job, on_report)
    finally:
        team.dismiss()


def _run_here(function: str, next_job: NextJob, on_report: OnReport | None) -> Iterator[Finished]:
    call = _resolved(function)
    while (argument := next_job()) is not None:
        yield _called(call, argument, _reporter(argument, on_report))


def _reporter(argument: Any, on_report: OnReport | None) -> Report:
    return lambda told: on_report(argument, told) if on_report is not None else None


def _resolved(function: str) -> Callable[[Any, Report], Any]:
    module, _, name = function.partition(":")
    found: Callable[[Any, Report], Any] = getattr(importlib.import_module(module), name)
    return found


def _called(call: Callable[[Any, Report], Any], argument: Any, report: Report) -> Finished:
    try:
        return Finished(argument, call(argument, report))
    except ContextPoolError as error:
        return Finished(argument, error=f"{type(error).__name__}: {error}")
    except Exception as error:  # whatever goes wrong in one job must not end the others
        told = str(error).strip() or "no message"
        return Finished(
            argument,
            error=f"{type(error).__name__}: {told.splitlines()[0]}",
            trace=traceback.format_exc(limit=-8),
        )


class _Team:
    """Processes that are started when there is work for them, and replaced when they die."""

    def __init__(self, function: str, size: int) -> None:
        self._function, self._size = function, size
        self._threads = max(1, (os.cpu_count() or 1) // size)
        self._idle: list[_Worker] = []
        self._busy: list[_Worker] = []

    def run(self, next_job: NextJob, on_report: OnReport | None) -> Iterator[Finished]:
        while True:
            self._hand_out(next_job)
            if not self._busy:
                return
            ready = wait([worker.connection for worker in self._busy])
            for worker in [worker for worker in self._busy if worker.connection in ready]:
                finished = worker.listen(on_report)
                if finished is None:
                    continue
                self._busy.remove(worker)
                if worker.is_alive:
                    self._idle.append(worker)
                yield finished

    def _hand_out(self, next_job: NextJob) -> None:
        while len(self._busy) < self._size:
            argument = next_job()
            if argument is None:
                return
            worker = self._free()
            worker.begin(argument)
            self._busy.append(worker)

    def _free(self) -> _Worker:
        while self._idle:
            worker = self._idle.pop()
            if worker.is_alive:
                return worker
            worker.stop()
        return _Worker(self._function, self._threads)

    def dismiss(self) -> None:
        for worker in (*self._idle, *self._busy):
            worker.stop()


class _Worker:
    """One process and the pipe to it."""

    def __init__(self, function: str, threads: int) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection: Connection
        self.connection, far_end = context.Pipe()
        self._process: BaseProcess = context.Process(
            target=_serve, args=(far_end, function, threads), daemon=True
        )
        self._process.start()
        far_end.close()
        self._argument: Any = None

    @property
    def is_alive(self) -> bool:
        return self._process.is_alive()

    def begin(self, argument: Any) -> None:
        self._argument = argument
        self.connection.send(argument)

    def listen(self, on_report: OnReport | None) -> Finished | None:
        """What the process says: a report is passed on, an end is returned, and so is its death."""
        try:
            kind, told = self.connection.recv()
        except (EOFError, OSError):
            return self._died()
        if kind == "finished":
            return Finished(self._argument, *told)
        _reporter(self._argument, on_report)(told)
        return None

    def _died(self) -> Finished:
        self._process.join()
        self.connection.close()
        code = self._process.exitcode
        why = f"was killed by signal {-code}" if code is not None and code < 0 else f"ended with code {code}"
        return Finished(self._argument, error=f"the process {why}; it may have run out of memory.")

    def stop(self) -> None:
        self._process.terminate()
        self._process.join()
        self.connection.close()


def _serve(connection: Connection, function: str, threads: int) -> None:
    """Work until nobody asks any more. The threads of the machine are shared out among the processes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # who started us stops us
    for variable in ("OMP_NUM_THREADS", "NUMBA_NUM_THREADS"):
        os.environ.setdefault(variable, str(threads))
    call = _resolved(function)
    while True:
        try:
            argument = connection.recv()
        except EOFError:
            return
        done = _called(call, argument, lambda told: connection.send(("report", told)))
        connection.send(("finished", (done.value, done.error, done.trace)))
