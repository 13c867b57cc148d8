"""The model and the tracker of docs/models.md work as they are printed."""

from __future__ import annotations

import re
import sys
import types
from typing import Any

import pytest

import contextpool as cp
from conftest import REPOSITORY
from learning_worlds import family_dataset
from learning_worlds import one_thread as one_thread

CODE = re.findall(
    r"```python\n(.*?)```", (REPOSITORY / "docs" / "models.md").read_text("utf-8"), flags=re.DOTALL
)

QUICK = '"epochs": 1, "batch_size": 256, "lr": 0.02, "warmup_steps": 5'
"""An epoch of few steps, which have to be large ones."""


def test_the_model_runs_and_beats_a_constant(capsys):
    code = CODE[0]
    module = types.ModuleType("own_model_page")
    sys.modules["own_model_page"] = module
    exec(
        compile(code.replace('"epochs": 1', QUICK), "models.md", "exec"),
        module.__dict__,
    )
    found = re.search(r"mrr ([0-9.]+)", capsys.readouterr().out)
    assert found is not None
    assert float(found.group(1)) > 0.1
    body = code[code.index("class MeanWalk(") : code.index("predictor =")]
    assert len([line for line in body.splitlines() if line.strip()]) <= 40


def test_the_tracker_prints_a_line_an_epoch(capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {}
    exec(CODE[1], names)
    settings = {"dim": 4, "layers": 1}
    cp.train(family_dataset(), settings=settings, train={"epochs": 2}, seed=3, track=names["Printer"]())
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["seed", "1", "2", "done"]
