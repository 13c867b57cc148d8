"""The notebooks: well formed, cleared, Python throughout; run from the first cell to the last in `make soak`."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from conftest import REPOSITORY
from docs.notebook import cells, compiled, run_notebook, source
from learning_worlds import one_thread as one_thread

NOTEBOOKS = sorted((REPOSITORY / "notebooks").glob("*.ipynb"))
NEEDS = {"own-data": "pandas", "pyg-context": "torch_geometric"}
by_name = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def test_both_are_there() -> None:
    assert {path.stem for path in NOTEBOOKS} == set(NEEDS)


@by_name
def test_they_are_cleared_and_of_the_current_format(path: Path) -> None:
    notebook = json.loads(path.read_text("utf-8"))
    assert (notebook["nbformat"], notebook["nbformat_minor"]) >= (4, 5)
    assert set(notebook["metadata"]) == {"kernelspec", "language_info"}
    names = [cell["id"] for cell in notebook["cells"]]
    assert len(set(names)) == len(names)
    for cell in cells(path, "code"):
        assert cell["outputs"] == []
        assert cell["execution_count"] is None
        assert cell["metadata"] == {}


@by_name
def test_every_code_cell_is_python_and_has_words_before_it(path: Path) -> None:
    assert len(compiled(path)) > 5
    assert len(cells(path, "markdown")) > 5


@by_name
def test_their_links_lead_somewhere(path: Path) -> None:
    words = "".join(source(cell) for cell in cells(path, "markdown"))
    targets = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", words)
    assert targets
    for target in (*targets, *(f"../{one}" for one in re.findall(r"`(examples/[\w/.]+)`", words))):
        assert (path.parent / target).exists(), target


@pytest.mark.soak
@by_name
def test_they_run(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip(NEEDS[path.stem])
    names = run_notebook(path, tmp_path, monkeypatch)
    printed = capsys.readouterr().out
    if path.stem == "own-data":
        assert names["answers"][0].entity == "logic"
        assert "because" in printed
    else:
        assert names["figures"]["WithContext"] > names["figures"]["Plain"]
