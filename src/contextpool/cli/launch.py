"""`--nproc`: this command again in several processes of one machine, which train or evaluate together."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

NprocOption = Annotated[
    int | None,
    typer.Option(
        min=1, help="Processes of this machine that share the queries; one a GPU, or several on the CPU."
    ),
]


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
    import torch
    from torch import multiprocessing

    store = torch.distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    context = multiprocessing.start_processes(
        _run_one,
        (nproc, store.port, without_nproc(arguments), threads_each(nproc)),
        nprocs=nproc,
        join=False,
        start_method="spawn",
    )
    try:
        while not context.join():
            pass
    except multiprocessing.ProcessExitedException as failure:
        _end(nproc, failure.error_index, [process.exitcode for process in context.processes])
    except multiprocessing.ProcessRaisedException as failure:
        print(str(failure).strip(), file=sys.stderr)
        _end(nproc, failure.error_index, [process.exitcode for process in context.processes])
    except KeyboardInterrupt:  # the processes got it as well, and the first one says so
        sys.exit(130)


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


def _run_one(rank: int, nproc: int, port: int, arguments: list[str], threads: int) -> None:
    """One of the processes: the variables that torchrun would set, then the command."""
    os.environ.update(
        RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(nproc), LOCAL_WORLD_SIZE=str(nproc),
        MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), TORCHELASTIC_USE_AGENT_STORE="True",
    )  # fmt: skip
    for variable in ("OMP_NUM_THREADS", "NUMBA_NUM_THREADS"):
        os.environ.setdefault(variable, str(threads))
    import torch

    from contextpool.__main__ import main

    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    sys.argv = ["contextpool", *arguments]
    main()


def _end(nproc: int, first: int, exit_codes: Sequence[int | None]) -> None:
    """Leave as the process that failed did: silently where it has told why, with its signal where it could not."""
    killed = [
        rank
        for rank, code in enumerate(exit_codes)
        if code is not None and code < 0 and -code != signal.SIGTERM
    ]
    rank = killed[0] if killed else first
    code = exit_codes[rank] or 1
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
