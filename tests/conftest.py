"""Settings that hold for all tests."""

from __future__ import annotations

import os
import random
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, settings

from support import SOAK

settings.register_profile(  # the same examples every time
    "ci",
    deadline=None,
    max_examples=100,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(  # explores: what it finds becomes an explicit example
    "soak", parent=settings.get_profile("ci"), max_examples=2_000, derandomize=False
)
settings.load_profile("soak" if SOAK else "ci")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """GPU tests skip where there is no GPU, and say so."""
    if not any(item.get_closest_marker("gpu") for item in items):
        return
    if not torch.cuda.is_available():
        for item in items:
            if item.get_closest_marker("gpu"):
                item.add_marker(pytest.mark.skip(reason="no CUDA device on this machine"))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Every test starts with the same random numbers, whichever tests ran before it on its worker."""
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def _no_network_and_own_cache(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No test may touch the user's cache."""
    monkeypatch.setenv("CONTEXTPOOL_HOME", str(tmp_path_factory.getbasetemp() / "contextpool-home"))


os.environ.setdefault("NUMBA_NUM_THREADS", "2")
if not torch.cuda.is_available():  # before anything imports Triton: its kernels run, slowly, without a GPU
    os.environ.setdefault("TRITON_INTERPRET", "1")
REPOSITORY = Path(__file__).resolve().parents[1]
