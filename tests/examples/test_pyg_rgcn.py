"""Context in PyG's RGCN link predictor: how many lines it takes, that both programs run, and what it is worth."""

from __future__ import annotations

import difflib
import importlib
import subprocess
import sys
from types import ModuleType

import pytest

from conftest import REPOSITORY
from learning_worlds import family_dataset
from learning_worlds import one_thread as one_thread
from support import benchmark_folder

EXAMPLES = REPOSITORY / "examples"
MOST_LINES = 20


@pytest.fixture
def compare(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    pytest.importorskip("torch_geometric", reason="the pyg extra is not installed")
    monkeypatch.syspath_prepend(str(EXAMPLES))
    return importlib.import_module("pyg_compare")


def test_context_takes_at_most_twenty_added_lines() -> None:
    plain, context = (
        (EXAMPLES / name).read_text("utf-8").splitlines() for name in ("pyg_rgcn.py", "pyg_rgcn_context.py")
    )
    changes = list(difflib.unified_diff(plain, context, lineterm="", n=0))[2:]
    added = [line for line in changes if line.startswith("+")]
    removed = [line for line in changes if line.startswith("-")]
    assert 0 < len(added) <= MOST_LINES
    assert len(removed) <= 2  # the line that returned the scores, and the command in the docstring
    assert any("ContextPooling" in line for line in added)
    assert not any("ContextPooling" in line for line in plain)


def test_both_programs_print_their_figures_and_context_helps_on_families(
    compare: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    """Who is whose grandparent follows from paths, which the plain encoder does not walk."""
    programs = {"plain": compare.pyg_rgcn.run, "context": compare.pyg_rgcn_context.run}
    found = compare.compare(
        family_dataset(inductive=True, count=30), programs, [0, 1], epochs=8, dim=8, batch=16
    )
    printed = capsys.readouterr().out
    assert f"inference graph {found['plain']:.4f}" in printed
    assert f"inference graph {found['context']:.4f}" in printed
    assert found["context"] > found["plain"]


def test_the_control_leaves_the_program_as_it_was(compare: ModuleType) -> None:
    before = compare.pyg_rgcn_context.ContextPooling
    valid, test = compare.without_context(family_dataset(inductive=True, count=30), epochs=1, dim=8)
    assert 0 < valid <= 1
    assert 0 < test <= 1
    assert compare.pyg_rgcn_context.ContextPooling is before


@pytest.mark.soak
@pytest.mark.benchmark_data
def test_on_fb237_v1_context_is_at_least_as_good_as_the_plain_program() -> None:
    benchmark_folder()
    pytest.importorskip("torch_geometric", reason="the pyg extra is not installed")
    done = subprocess.run(
        [sys.executable, EXAMPLES / "pyg_compare.py", "--seeds", "0", "--epochs", "3"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    rows = [line.split() for line in done.stdout.splitlines() if "inference graph" in line]
    plain, context = (float(row[row.index("graph") + 1]) for row in rows)
    assert context >= plain, done.stdout
