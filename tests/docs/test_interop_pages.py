"""The page about PyG, PyKEEN and the Hub: its code runs as printed, and what it names exists."""

from __future__ import annotations

import difflib
import re
from pathlib import Path

import pytest

from command_line import run
from conftest import REPOSITORY
from learning_worlds import one_thread as one_thread
from world_model import world_run as world_run

NEEDS = {"pyg": "torch_geometric", "pykeen": "pykeen"}
PAGE = (REPOSITORY / "docs" / "pyg.md").read_text("utf-8")


def test_the_python_blocks_run_one_after_the_other(
    world_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for extra, package in NEEDS.items():
        pytest.importorskip(package, reason=f"the {extra} extra is not installed")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "demo").symlink_to(world_run)
    blocks = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
    assert len(blocks) >= 6
    names: dict[str, object] = {"__name__": "pyg"}
    for block in blocks:
        exec(compile(block, "pyg.md", "exec"), names)


def test_commands_options_files_and_links_of_the_page_exist(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for line in re.findall(r"^contextpool (\w+.*)$", PAGE, flags=re.MULTILINE):
        known = run([line.split()[0], "--help"], capsys, monkeypatch).out
        assert all(option in known for option in re.findall(r"(?<= )--[a-z-]+", line)), line
    for target in re.findall(r"\]\(([^)#]+)\)", PAGE):
        assert (REPOSITORY / "docs" / target).exists(), target
    for path in re.findall(r"`((?:tests|examples)/[\w/]+\.py)", PAGE):
        assert (REPOSITORY / path).is_file(), path


def test_the_lines_that_the_page_counts_are_those_that_were_added() -> None:
    plain, context = (
        (REPOSITORY / "examples" / f"pyg_rgcn{which}.py").read_text("utf-8").splitlines()
        for which in ("", "_context")
    )
    changes = list(difflib.unified_diff(plain, context, lineterm="", n=0))[2:]
    (said,) = re.findall(r"stream in (\d+) lines", PAGE)
    assert sum(line.startswith("+") for line in changes) == int(said)
