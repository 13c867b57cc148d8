"""A notebook's code cells, run in order in one namespace: what a kernel does with them, without one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

Cell = dict[str, Any]


def cells(path: Path, kind: str) -> list[Cell]:
    """The cells of one kind, in order."""
    return [cell for cell in json.loads(path.read_text("utf-8"))["cells"] if cell["cell_type"] == kind]


def source(cell: Cell) -> str:
    return "".join(cell["source"])


def compiled(path: Path) -> list[Any]:
    """The code objects of a notebook; a magic or a shell line is a syntax error."""
    return [
        compile(source(cell), f"{path.name}[{number}]", "exec")
        for number, cell in enumerate(cells(path, "code"), start=1)
    ]


def run_notebook(path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Run every cell inside `folder` and return the names that are left."""
    monkeypatch.chdir(folder)
    names: dict[str, Any] = {"__name__": "__main__"}
    for code in compiled(path):
        exec(code, names)
    return names
