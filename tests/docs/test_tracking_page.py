"""The tracker of docs/tracking.md works as it is printed."""

from __future__ import annotations

import re
from typing import Any

import pytest

import contextpool as cp
from conftest import REPOSITORY
from learning_worlds import family_dataset
from learning_worlds import one_thread as one_thread


def test_the_tracker_of_the_page_prints_a_line_an_epoch(capsys: pytest.CaptureFixture[str]) -> None:
    page = (REPOSITORY / "docs" / "tracking.md").read_text("utf-8")
    _, code = re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)
    names: dict[str, Any] = {}
    exec(code, names)
    settings = {"dim": 4, "layers": 1}
    cp.train(family_dataset(), settings=settings, train={"epochs": 2}, seed=3, track=names["Printer"]())
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["seed", "1", "2", "done"]
