"""Threads that are kept: results in order, errors that reach the caller, settings of torch left alone."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest
import torch

from contextpool.kernels import threads as _threads
from contextpool.kernels.threads import in_blocks, in_threads


@pytest.fixture(params=["torch's", "plain"])
def threads(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Either kind of threads, whatever the machine has."""
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    if request.param == "plain":
        monkeypatch.setattr(_threads, "_parallel_of_torch", lambda: None)
    elif _threads._parallel_of_torch() is None:
        pytest.skip("this torch has no OpenMP that can be asked")
    yield request.param
    torch.set_num_threads(before)


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("num_threads", [0, 1, 2, 4, 7])
def test_every_thread_calls_the_task_at_the_same_time(num_threads: int) -> None:
    together = threading.Barrier(max(1, num_threads), timeout=60)
    for _ in range(20):
        found = in_threads(lambda: (together.wait(), threading.get_ident())[1], num_threads)
        assert len(set(found)) == len(found) == max(1, num_threads)
        assert threading.get_ident() in found


@pytest.mark.usefixtures("threads")
def test_threads_that_ask_at_once_all_get_their_results() -> None:
    found: dict[int, list[int]] = {}

    def ask(number: int) -> None:
        torch.set_num_threads(3)  # a setting of each thread
        found[number] = [sum(in_threads(lambda: number, 3)) for _ in range(50)]

    callers = [threading.Thread(target=ask, args=(number,)) for number in range(6)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(timeout=60)
    assert found == {number: [3 * number] * 50 for number in range(6)}


@pytest.mark.usefixtures("threads")
def test_an_error_in_any_thread_reaches_the_caller() -> None:
    caller = threading.get_ident()

    def fail_elsewhere() -> None:
        if threading.get_ident() != caller:
            raise ValueError("here")

    def fail_here() -> None:
        if threading.get_ident() == caller:
            raise KeyboardInterrupt

    with pytest.raises(ValueError, match="here"):
        in_threads(fail_elsewhere, 2)
    with pytest.raises(KeyboardInterrupt):
        in_threads(fail_here, 2)
    assert in_threads(lambda: 1, 2) == [1, 1]


@pytest.mark.parametrize("num_threads", [1, 2, 3])
@pytest.mark.parametrize("num_queries", [0, 1, 7, 1_000])
def test_blocks_cover_the_queries_in_order(num_queries: int, num_threads: int) -> None:
    blocks = in_blocks(lambda first, last: (first, last), num_queries, num_threads)
    assert [query for first, last in blocks for query in range(first, last)] == list(range(num_queries))


def output_of(script: str, **environment: str) -> list[str]:
    """What a new process prints."""
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    return done.stdout.split()


def test_torch_keeps_its_number_of_threads() -> None:
    """Where numba's threads and torch's are of one OpenMP library, numba sets both; it takes a new process to see."""
    script = """
import torch
from contextpool.context.counts import available_threads
print(torch.get_num_threads(), available_threads(), torch.get_num_threads())
"""
    assert output_of(script, OMP_NUM_THREADS="1", NUMBA_NUM_THREADS="2") == ["1", "2", "1"]


def test_torch_keeps_it_through_mining_too() -> None:
    """Two more threads would add up gradients in another order: other last bits than before anything was mined."""
    script = """
import torch
from contextpool.context.counts import count_cooccurrence
from contextpool.graph.graph import Graph
count_cooccurrence(Graph.from_triples([("a", "r", "b"), ("b", "s", "c")]))
print(torch.get_num_threads())
"""
    assert output_of(script, OMP_NUM_THREADS="1", NUMBA_NUM_THREADS="2") == ["1"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork on this system")
def test_a_forked_process_has_threads_of_its_own() -> None:
    """OpenMP's are not copied with it, and would be waited for without end."""
    script = """
import os, sys, torch
from contextpool.kernels.threads import in_threads
torch.set_num_threads(2)
print(*in_threads(lambda: 1, 2), flush=True)
child = os.fork()
if child == 0:
    print(*in_threads(lambda: 2, 2), flush=True)
    os._exit(0)
os.waitpid(child, 0)
print(*in_threads(lambda: 3, 2), flush=True)
"""
    assert output_of(script) == ["1", "1", "2", "2", "3", "3"]
