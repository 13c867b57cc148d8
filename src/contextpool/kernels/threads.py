"""Threads for compiled code that releases the interpreter's lock; they are kept, and the caller works along.

Where torch's OpenMP can be asked, its threads do the work: they wait for torch's next operation in a loop that takes
a whole core, and threads beside them would get half of it. Elsewhere plain threads are kept. numba's own are not
used, because callers may themselves be threads, which not every threading layer survives.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import operator
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import torch

from contextpool.context.counts import available_threads

Result = TypeVar("Result")
PROCESS = os.getpid()
"""Threads do not survive a fork: a process that was forked from this one does not use torch's."""
SCRATCH_BYTES = 2**30
"""What a walk may take beside input and result."""
BLOCKS_PER_THREAD = 8
LEAST_WORK = 2**18
"""Edges a hop, about a millisecond: below this, starting threads takes longer than it saves."""
_InThread = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


def in_threads(task: Callable[[], Result], num_threads: int) -> list[Result]:
    """Call the task once in each of `num_threads` threads, the caller among them; returns all results."""
    if num_threads <= 1:
        return [task()]
    parallel = _parallel_of_torch() if os.getpid() == PROCESS else None
    if parallel is not None and num_threads <= torch.get_num_threads():
        return _in_threads_of_torch(parallel, task, num_threads)
    helpers = _helpers(os.getpid(), num_threads - 1)
    others = [helpers.submit(task) for _ in range(num_threads - 1)]
    return [task(), *(other.result() for other in others)]


def threads_within(bytes_per_thread: float, most_work: int) -> int:
    """As many threads as numba may use and SCRATCH_BYTES allow; one where the work can't be worth more."""
    available = available_threads() if most_work > LEAST_WORK else 1
    return max(1, min(available, int(SCRATCH_BYTES / max(bytes_per_thread, 1))))


def in_blocks(task: Callable[[int, int], Result], num_queries: int, num_threads: int) -> list[Result]:
    """task(first, last) for consecutive blocks of queries, in order. The task has to release the interpreter's lock."""
    size = -(-num_queries // (BLOCKS_PER_THREAD * num_threads)) if num_threads > 1 else num_queries
    firsts = range(0, num_queries, max(size, 1))
    rest = iter(firsts)  # whoever is free takes the next

    def take_blocks() -> list[tuple[int, Result]]:
        return [(first, task(first, min(first + size, num_queries))) for first in rest]

    done = itertools.chain.from_iterable(in_threads(take_blocks, min(num_threads, len(firsts))))
    return [result for _, result in sorted(done, key=operator.itemgetter(0))]


def _in_threads_of_torch(
    parallel: Callable[..., Any], task: Callable[[], Result], num_threads: int
) -> list[Result]:
    results: list[Result] = []
    errors: list[BaseException] = []

    def call(_: object) -> None:
        try:
            results.append(task())
        except BaseException as error:  # no exception may leave a callback; the caller gets it
            errors.append(error)

    parallel(_InThread(call), None, num_threads, 0)
    if errors:
        raise errors[0]
    return results


@functools.cache
def _parallel_of_torch() -> Callable[..., Any] | None:
    """GOMP_parallel(function, argument, threads, flags) of the library that torch is linked with; None without one."""
    try:
        parallel = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so")).GOMP_parallel
    except (OSError, AttributeError):
        return None
    parallel.argtypes = [_InThread, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint]
    parallel.restype = None
    return parallel


@functools.cache
def _helpers(process: int, count: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(count, thread_name_prefix="contextpool")
