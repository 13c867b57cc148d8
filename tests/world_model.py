"""One small model trained on the embedded world, once a session, whichever test or worker asks first."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

import contextpool as cp
from contextpool.graph.graph import Graph
from contextpool.predict import Predictor
from contextpool.triples.dataset import Dataset

SETTINGS = {"dim": 8, "layers": 3}
TRAIN = {"epochs": 1, "batch_size": 64, "lr": 0.01, "warmup_steps": 10}
CONTEXT = {"gate": True, "arrive": True, "arrive_features": False, "arrive_walk": False}
"""Without what reads the whole graph, so that the run can also be asked with a cap."""


@pytest.fixture(scope="session")
def world_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run folder."""
    base = tmp_path_factory.getbasetemp()
    folder = base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base
    run = folder / "world-run"
    with (folder / "world-run.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # one worker trains, the others wait
        if not (run / "metrics.json").is_file():
            cp.train("world", "nbfnet", CONTEXT, output=run, settings=SETTINGS, train=TRAIN, overwrite=True)
    return run


@pytest.fixture(scope="session")
def world() -> Dataset:
    return cp.load_dataset("world")


@pytest.fixture(scope="session")
def world_predictor(world_run: Path) -> Predictor:
    return cp.load(world_run)


@pytest.fixture(scope="session")
def new_world(world: Dataset) -> Graph:
    """Asia and Europe, which the model has never seen."""
    return Graph.from_triples(world.inference_graph)
