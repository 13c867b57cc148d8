"""Experiments that kill processes or starve them, away from the process that runs the tests.

Run as a script, it is a process that has imported everything and forks a child for each experiment, so that fifty
kills cost fifty forks instead of fifty imports, and pytest itself is never forked. `sandbox()` talks to it.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import random
import resource
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from contextpool.errors import CheckpointError
from contextpool.train.checkpoint import load_tensors, save_tensors
from contextpool.train.run_folder import RunFolder
from train.fault_injection import Faults, die, number_in, numbered_tensors

MEMORY_LIMIT = 50 * 10**6
WATCHED = (
    "exec",
    "os.exec",
    "os.fork",
    "os.posix_spawn",
    "os.system",
    "pickle.",
    "socket.",
    "subprocess.",
    "ctypes.",
)


# Experiments, each in a forked child of the script's process


def in_child(work: Callable[[Callable[[Any], None]], None]) -> dict[str, Any]:
    """Fork, let the child `work`, and give what it told and the signal that ended it, 0 if none."""
    pid, reader = start_child(work)
    told = read_all(reader)
    _, status = os.waitpid(pid, 0)
    return {"told": told, "signal": os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0}


def start_child(work: Callable[[Callable[[Any], None]], None]) -> tuple[int, int]:
    reader, writer = os.pipe()
    raw_write = os.write  # experiments may patch os.write
    pid = os.fork()
    if pid:
        os.close(writer)
        return pid, reader
    try:
        os.close(reader)
        work(lambda message: raw_write(writer, json.dumps(message).encode() + b"\n"))
    except BaseException as error:
        raw_write(writer, json.dumps({"crashed": repr(error)}).encode() + b"\n")
    finally:
        os._exit(0)


def read_all(reader: int) -> list[Any]:
    with os.fdopen(reader, "rb") as stream:
        return [json.loads(line) for line in stream if line.endswith(b"\n")]


def refusals(paths: list[str]) -> list[dict[str, Any]]:
    """Load each file with one second of processor time, and tell how much memory it took at most."""
    return [
        in_child(functools.partial(_within_limits, functools.partial(load_tensors, path))) for path in paths
    ]


def limits_hold() -> list[dict[str, Any]]:
    """The controls of `refusals`: what takes memory, what takes time, what runs a command."""
    hogs = (lambda: b"x" * (MEMORY_LIMIT * 8 // 10), lambda: bytes(10**9), _stall, lambda: os.system("true"))
    return [in_child(functools.partial(_within_limits, hog)) for hog in hogs]


def _stall() -> None:
    while True:
        pass


def _within_limits(load: Callable[[], Any], tell: Callable[[Any], None]) -> None:
    suspicious: list[str] = []
    sys.addaudithook(lambda event, _: suspicious.append(event) if event.startswith(WATCHED) else None)
    before = _memory("VmRSS")
    address_space = int(_memory("VmSize")) + MEMORY_LIMIT
    resource.setrlimit(resource.RLIMIT_AS, (address_space, address_space))
    resource.setrlimit(resource.RLIMIT_CPU, (1, 2))
    signal.alarm(60)  # whoever waits takes no processor time
    try:
        load()
        outcome, message = "loaded", ""
    except CheckpointError as error:
        outcome, message = "refused", str(error)
    except BaseException as error:
        outcome, message = type(error).__name__, str(error)
    memory = _memory("VmHWM") - before
    tell({"outcome": outcome, "message": message, "suspicious": suspicious, "memory": memory})


def _memory(field: str) -> int:
    """Bytes: resident now (VmRSS), resident at most so far (VmHWM), addresses in use (VmSize)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    (line,) = (line for line in lines if line.startswith(f"{field}:"))
    return int(line.split()[1]) * 1024


def kills_at_each_step(folder: str, short_writes: bool) -> list[dict[str, Any]]:
    """Save number 1; then, for every step of a second save, die there and see what is left."""
    path = Path(folder) / "kill.safetensors"
    with Faults(short_writes=short_writes).injected() as dry_run:
        _save_numbered(path, 2)
    found = []
    for at in range(len(dry_run.steps) + 1):
        _save_numbered(path, 1)

        def save_and_die(tell: Callable[[Any], None], at: int = at) -> None:
            with Faults(at, die, short_writes).injected():
                _save_numbered(path, 2)
            tell("acknowledged")

        child = in_child(save_and_die)
        step = [*dry_run.steps, "end"][at]
        found.append({**child, "step": step, "number": number_in(*load_tensors(path))})
    return found


def _save_numbered(path: Path, number: int) -> None:
    save_tensors(path, numbered_tensors(number), {"number": number})


def random_kills(folder: str, count: int, seed: int, naive: bool = False) -> list[dict[str, Any]]:
    """Kill a child that saves without end, at a random moment, `count` times. One entry a kill."""
    rng = random.Random(seed)
    acknowledged = 0
    with RunFolder.create(folder, {}) as run:
        run.save_checkpoint("last", numbered_tensors(0), {"number": 0})
    found: list[dict[str, Any]] = []
    for _ in range(count):
        pid, reader = start_child(functools.partial(_save_for_ever, folder, acknowledged, naive))
        time.sleep(rng.uniform(0, 0.06))
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        told = read_all(reader)
        acknowledged = max([acknowledged, *(number for number in told if isinstance(number, int))])
        found.append({"told": told, "acknowledged": acknowledged, **_what_is_left(folder)})
        if found[-1]["error"]:
            break
        acknowledged = found[-1]["number"]
    return found


def _what_is_left(folder: str) -> dict[str, Any]:
    left: dict[str, Any] = {"leftovers": len(list(Path(folder).glob("checkpoints/.*.part"))), "error": ""}
    try:
        run = RunFolder.open(folder)
        left["number"] = number_in(*run.load_checkpoint("last"))
        left["events"] = [event["number"] for event in run.events() if "number" in event]
    except Exception as error:
        left["error"] = repr(error)
    return left


def _save_for_ever(folder: str, last: int, naive: bool, tell: Callable[[Any], None]) -> None:
    with RunFolder.open(folder, writing=True) as run:
        while True:
            last += 1
            if naive:
                _save_in_place(run.path / "checkpoints" / "last.safetensors", last)
            else:
                run.save_checkpoint("last", numbered_tensors(last), {"number": last})
            run.append_event({"number": last})
            tell(last)


def _save_in_place(path: Path, number: int) -> None:
    """What many programs do: the control that shows that the experiment can tell."""
    complete = path.with_suffix(".complete")
    _save_numbered(complete, number)
    data = complete.read_bytes()
    with path.open("wb") as stream:
        for start in range(0, len(data), 500):
            stream.write(data[start : start + 500])
            stream.flush()


def save_under_size_limit(path: str, limit: int) -> dict[str, Any]:
    """A disk that takes no more than so many bytes of a file, by the system's own limit."""

    def save(tell: Callable[[Any], None]) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        _tell_error(tell, path)

    return in_child(save)


def save_without_rights(path: str) -> dict[str, Any]:
    """As an ordinary user into a folder that may only be read."""

    def save(tell: Callable[[Any], None]) -> None:
        Path(path).parent.chmod(0o555)
        if os.geteuid() == 0:
            os.seteuid(65534)  # the administrator may write anywhere
        tell({"number": number_in(*load_tensors(path))})
        _tell_error(tell, path)

    try:
        return in_child(save)
    finally:
        Path(path).parent.chmod(0o755)


def _tell_error(tell: Callable[[Any], None], path: str) -> None:
    try:
        _save_numbered(Path(path), 2)
    except CheckpointError as error:
        tell({"type": type(error).__name__, "message": str(error)})


def lock_and_die(folder: str, with_orphan: bool) -> dict[str, Any]:
    """A child trains (perhaps with a forked worker of its own), we want the folder too, the child is killed."""

    def hold(tell: Callable[[Any], None]) -> None:
        with RunFolder.open(folder, writing=True):
            worker = os.fork() if with_orphan else 1
            tell({"pid": os.getpid(), "worker": worker})  # the worker as well, once it has let go of the lock
            time.sleep(60)

    pid, reader = start_child(hold)
    with os.fdopen(reader, "rb") as stream:
        lines = [json.loads(stream.readline()) for _ in range(1 + with_orphan)]
        told = next(line for line in lines if line["worker"])
        while_alive = _try_to_write(folder)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        after_death = _try_to_write(folder)
    if with_orphan:
        os.kill(told["worker"], signal.SIGKILL)
    return {"pid": told["pid"], "while_alive": while_alive, "after_death": after_death}


def _try_to_write(folder: str) -> str:
    try:
        with RunFolder.open(folder, writing=True) as run:
            run.append_event({"event": "mine"})
    except CheckpointError as error:
        return f"{type(error).__name__}: {error}"
    return "written"


# The two ends of the conversation

_EXPERIMENTS: dict[str, Callable[..., Any]] = {
    work.__name__: work
    for work in (
        refusals,
        limits_hold,
        kills_at_each_step,
        random_kills,
        save_under_size_limit,
        save_without_rights,
        lock_and_die,
    )
}


class Sandbox:
    """The process in which experiments are made."""

    def __init__(self) -> None:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        self._process = subprocess.Popen(
            [sys.executable, "-P", __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )

    def run(self, experiment: str, **arguments: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([experiment, arguments]) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        assert "failed" not in answer, answer["failed"]
        return answer["result"]

    def close(self) -> None:
        self._process.communicate()


@functools.cache
def sandbox() -> Sandbox:
    """One for all tests of a process."""
    started = Sandbox()
    atexit.register(started.close)
    return started


def _serve() -> None:
    torch.set_num_threads(1)
    for line in sys.stdin:
        experiment, arguments = json.loads(line)
        try:
            answer = {"result": _EXPERIMENTS[experiment](**arguments)}
        except Exception:
            answer = {"failed": traceback.format_exc()}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    _serve()
