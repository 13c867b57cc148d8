"""Jobs that a test can give to other processes."""

from __future__ import annotations

import os
from typing import Any

from contextpool.errors import ConfigError
from lab.jobs import Report

_calls: list[Any] = []


def work(argument: Any, report: Report) -> Any:
    """Squares numbers; some words fail, die, or tell what this process has done."""
    _calls.append(argument)
    if argument == "refuse":
        raise ConfigError("train.lr is -1; it has to be positive.")
    if argument == "break":
        raise ZeroDivisionError("first line\nsecond line")
    if argument == "die":
        os._exit(3)
    if argument == "calls":
        return len(_calls)
    report(f"working on {argument}")
    return argument**2
