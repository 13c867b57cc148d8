"""Run the command line in this process, as a user would, and give back what it printed."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from contextpool.__main__ import main, run_app


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str


def exit_code(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, program: Callable[[], object] = main
) -> int:
    """What the command leaves with."""
    monkeypatch.setattr(sys, "argv", ["contextpool", *arguments])
    code: object = None
    try:
        program()
    except SystemExit as left:
        code = left.code
    return code if isinstance(code, int) else 0 if code is None else 1


def run(arguments: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Ran:
    code = exit_code(arguments, monkeypatch)
    captured = capsys.readouterr()
    return Ran(code, captured.out, captured.err)


def run_lab(arguments: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Ran:
    """The same of `python -m lab`."""
    from lab.__main__ import app

    code = exit_code(arguments, monkeypatch, lambda: run_app(app))
    captured = capsys.readouterr()
    return Ran(code, captured.out, captured.err)
