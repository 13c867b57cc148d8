"""`--nproc`: this command again in several processes of one machine, which train together; and who else works."""

from __future__ import annotations

import os
import signal
import socket
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

NprocOption = Annotated[
    int | None,
    typer.Option(
        min=1, help="Processes of this machine that share the queries; one a GPU, or several on the CPU."
    ),
]
ProcessesOption = Annotated[
    int | None,
    typer.Option(help="How many work at a time; by default as many as cores.", show_default=False),
]
EngineOption = Annotated[
    Literal["processes", "ray"], typer.Option(help="Processes of this machine, or Ray (extra ray).")
]
RayAddressOption = Annotated[
    str | None,
    typer.Option(
        help="A Ray cluster that runs, such as host:6379; trusted with the graph and the model. Without it "
        "Ray is started on this machine.",
        show_default=False,
    ),
]


STOPPED = (128 + signal.SIGINT, 128 + signal.SIGTERM)
"""Exit codes of a training that was asked to stop, and has saved."""


def launched(nproc: int | None, device: str) -> bool:
    """Run this command in `nproc` processes and wait for them; False where this process is to do it itself."""
    from contextpool import processes
    from contextpool.errors import ConfigError

    if nproc is not None and processes.were_started():
        raise ConfigError(
            "--nproc starts processes, and this is already one of several (RANK is set). "
            "Leave --nproc out, and the number of processes to torchrun or to the batch system."
        )
    if nproc is None or nproc == 1:
        return False
    processes.check_available()
    processes.device_of(device, nproc - 1)
    start(nproc, sys.argv[1:])
    return True


def start(nproc: int, arguments: Sequence[str]) -> None:
    """Start `contextpool ARGUMENTS` in `nproc` processes; the first that fails ends all, and is told."""
    from torch import multiprocessing

    with tempfile.TemporaryDirectory(prefix="contextpool-") as folder:  # for this user alone
        context = multiprocessing.start_processes(
            _run_one,
            (nproc, f"{folder}/store", without_nproc(arguments), threads_each(nproc)),
            nprocs=nproc,
            join=False,
            start_method="spawn",
        )
        _wait_for(context, nproc)


def _wait_for(context: Any, nproc: int) -> None:
    """Until all have ended; what ends this process is passed on to them, and they save before they end."""
    from torch import multiprocessing

    def pass_on(number: int, frame: object) -> None:
        for process in context.processes:
            if process.is_alive() and process.pid is not None:
                os.kill(process.pid, signal.SIGTERM)

    before = signal.signal(signal.SIGTERM, pass_on)
    try:
        while True:
            try:
                while not context.join():
                    pass
                return
            except KeyboardInterrupt:  # the processes got it as well, and the first one says so
                continue
    except multiprocessing.ProcessExitedException as failure:
        _end(nproc, failure.error_index, [process.exitcode for process in context.processes])
    except multiprocessing.ProcessRaisedException as failure:
        print(str(failure).strip(), file=sys.stderr)
        _end(nproc, failure.error_index, [process.exitcode for process in context.processes])
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def stopped_in_order(folder: Path, is_first: bool) -> Iterator[None]:
    """Ctrl-C and SIGTERM say what is kept, outside the steps of a training, too: those hold them back and save."""
    from contextpool.errors import PeerFailedError, StoppedError

    came: list[int] = []

    def terminate(number: int, frame: object) -> None:
        came.append(number)
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    except KeyboardInterrupt:
        number = came[0] if came else signal.SIGINT
        if not is_first:
            raise PeerFailedError(0, 0, "stopped", 128 + number) from None
        raise StoppedError(number, _kept_in(folder)) from None
    finally:
        signal.signal(signal.SIGTERM, before)


def _kept_in(folder: Path) -> str:
    from contextpool.errors import ContextPoolError
    from contextpool.train.run_folder import RunFolder

    if (folder / "metrics.json").is_file():
        return (
            f"the run in {folder} is whole; its evaluation is not: contextpool evaluate GRAPH --run {folder}"
        )
    try:
        return RunFolder.open(folder).kept
    except ContextPoolError:
        return "nothing is saved yet; begin again"


def without_nproc(arguments: Sequence[str]) -> list[str]:
    """The same command for one of the processes."""
    kept, skip = [], False
    for argument in arguments:
        if not skip and argument != "--nproc" and not argument.startswith("--nproc="):
            kept.append(argument)
        skip = not skip and argument == "--nproc"
    return kept


def threads_each(nproc: int) -> int:
    """The cores that this process may use, shared out."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, allowed // nproc)


def _run_one(rank: int, nproc: int, store: str, arguments: list[str], threads: int) -> None:
    """One of the processes: the variables that torchrun would set, but a file to meet by, and no other machine."""
    from contextpool.processes import STORE_VARIABLE

    ranks = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": nproc, "LOCAL_WORLD_SIZE": nproc}
    os.environ.update({name: str(value) for name, value in ranks.items()} | {STORE_VARIABLE: store})
    loopback = next((name for _, name in socket.if_nameindex() if name in ("lo", "lo0")), None)
    if loopback is not None:
        os.environ.update(GLOO_SOCKET_IFNAME=loopback, NCCL_SOCKET_IFNAME=loopback)
    for variable in ("OMP_NUM_THREADS", "NUMBA_NUM_THREADS"):
        os.environ.setdefault(variable, str(threads))
    import torch

    from contextpool.__main__ import main

    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    sys.argv = ["contextpool", *arguments]
    main()


def _end(nproc: int, first: int, exit_codes: Sequence[int | None]) -> None:
    """Leave as the process that failed did: silently where it has told why, with its signal where it could not."""
    rank = culprit(first, exit_codes)
    code = exit_codes[rank] or 1
    if code in STOPPED:  # it has said so
        sys.exit(code)
    if code > 0:
        print(
            f"process {rank} of {nproc} failed (exit code {code}); the others were stopped.", file=sys.stderr
        )
        sys.exit(code)
    from contextpool.errors import LostProcessError

    why = " Often that is the system, out of memory." if -code == signal.SIGKILL else ""
    raise LostProcessError(
        f"process {rank} of {nproc} was ended by {signal.Signals(-code).name}; the others were stopped.{why} "
        "What was saved is kept: go on with `contextpool resume`, with as many processes as you like."
    )


def culprit(first: int, exit_codes: Sequence[int | None]) -> int:
    """The process whose end took the others along: one that loses its peer may abort before the peer's end is seen."""
    for number in (signal.SIGKILL, signal.SIGSEGV, signal.SIGBUS):
        if -number in exit_codes:
            return exit_codes.index(-number)
    aborted = [rank for rank, code in enumerate(exit_codes) if (code or 0) < 0 and code != -signal.SIGTERM]
    return aborted[0] if aborted else first
