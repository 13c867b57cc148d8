"""Evaluation shared out among processes, or on Ray: the ranks are those of one process, whoever is killed."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import contextpool as cp
from command_line import run
from conftest import REPOSITORY
from contextpool.errors import ConfigError
from contextpool.evaluation import SCORERS
from contextpool.predict.workers import Workers
from contextpool.processes import STORE_VARIABLE
from evaluate.killed_evaluation import figures, small_evaluation
from learning_worlds import family_dataset
from learning_worlds import one_thread as one_thread
from predict.killed_complete import family_predictor


@pytest.fixture(scope="module")
def alone() -> dict[str, Any]:
    """What one process comes to."""
    found = figures(small_evaluation().reports())
    assert tuple(found) == SCORERS
    return found


def test_processes_rank_the_same_and_one_that_is_killed_costs_nothing(alone: dict[str, Any]) -> None:
    killed: list[int] = []
    heard: list[tuple[int, int]] = []

    def kill_one(done: int, total: int) -> None:
        heard.append((done, total))
        children = multiprocessing.active_children()
        if children and not killed:
            killed.append(children[0].pid or 0)
            os.kill(killed[0], signal.SIGKILL)

    several = small_evaluation().reports(Workers(2, worth_starting=0.0), progress=kill_one)
    assert killed
    assert figures(several) == alone
    ranks = len(alone["model"][0])
    assert max(heard) == (ranks, ranks)
    assert not multiprocessing.active_children()


def test_pieces_have_the_ranks_of_their_batches_and_no_others(alone: dict[str, Any]) -> None:
    job = small_evaluation()
    count = job.ranking.num_batches
    pieces = [np.frombuffer(job.work(("model", low, low + 1))).reshape(4, -1) for low in range(count)]
    places, *columns = np.concatenate(pieces, axis=1)
    assert sorted(places.tolist()) == list(range(len(alone["model"][0])))
    order = np.argsort(places)
    assert [column[order].tolist() for column in columns] == alone["model"]


def test_ray_ranks_the_same_after_a_worker_was_killed(alone: dict[str, Any], tmp_path: Path) -> None:
    pytest.importorskip("ray")
    paths = f"{REPOSITORY / 'src'}:{REPOSITORY / 'tests'}"
    program, mark = Path(__file__).parent / "killed_evaluation.py", tmp_path / "killed"
    done = subprocess.run(
        [sys.executable, str(program), str(mark)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": paths},
        check=True,
        timeout=300,
    )
    assert mark.exists()
    told = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]  # Ray prints, too
    assert told == [alone, alone]


def test_evaluate_takes_workers() -> None:
    predictor, data = family_predictor()[0], family_dataset()
    shared = cp.evaluate(predictor, data, batch_size=4, workers=Workers(1))
    assert np.array_equal(shared.ranks, cp.evaluate(predictor, data, batch_size=4).ranks)


def test_a_gpu_has_one_worker() -> None:
    assert Workers().for_device(torch.device("cuda")) == Workers(1)
    assert Workers(3).for_device(torch.device("cpu")) == Workers(3)
    for workers in (Workers(2), Workers(engine="ray")):
        with pytest.raises(ConfigError, match="a GPU is used by one process"):
            workers.for_device(torch.device("cuda"))


# the command line


def test_the_command_shares_the_queries_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    graph, asked = tmp_path / "mine.tsv", tmp_path / "asked.tsv"
    lines = [f"a{n}\tr{n % 3}\ta{(n * 7) % 30}\n" for n in range(120)]
    graph.write_text("".join(lines[10:]), "utf-8")
    asked.write_text("".join(lines[:10]), "utf-8")
    command = ["evaluate", str(graph), "--queries", str(asked), "--device", "cpu", "--json"]

    def told(*options: str) -> dict[str, Any]:
        ran = run([*command, *options], capsys, monkeypatch)
        assert ran.code == 0, ran.err
        found: dict[str, Any] = json.loads(ran.out)
        return {
            name: {**found[name], "seconds": 0, "queries_per_second": 0} for name in ("model", "constant")
        }

    assert told("--processes", "1") == told() == told("--nproc", "1")
    refused = run([*command, "--ray-address", "host:6379"], capsys, monkeypatch)
    assert refused.code == 2
    assert "goes with --engine ray" in refused.err
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "1")
    monkeypatch.setenv(STORE_VARIABLE, str(tmp_path / "store"))
    refused = run([*command, "--processes", "2"], capsys, monkeypatch)
    assert refused.code == 2
    assert "already one of several processes" in " ".join(refused.err.split())
