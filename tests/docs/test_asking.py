"""The pages about asking and explaining: their examples run, and the commands they name exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from command_line import run
from conftest import REPOSITORY
from learning_worlds import one_thread as one_thread
from world_model import world_run as world_run

PAGES = ("ask.md", "explain.md")


def page(name: str) -> str:
    return (REPOSITORY / "docs" / name).read_text("utf-8")


@pytest.mark.parametrize("name", PAGES)
def test_the_python_examples_run(
    name: str,
    world_run: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    pytest.importorskip("matplotlib", reason="the plot extra is not installed")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "demo").symlink_to(world_run)
    (code,) = re.findall(r"```python\n(.*?)```", page(name), flags=re.DOTALL)
    exec(compile(code, name, "exec"), {"__name__": name})
    assert name == "ask.md" or "because" in capsys.readouterr().out


@pytest.mark.parametrize("name", PAGES)
def test_options_of_the_pages_exist(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for line in re.findall(r"^contextpool (\w+.*)$", page(name), flags=re.MULTILINE):
        verb = line.split()[0]
        known = run([verb, "--help"], capsys, monkeypatch).out
        for option in re.findall(r"(?<= )--?[a-z-]+", line):
            assert option in known, (verb, option)


def test_pictures_of_the_pages_are_there() -> None:
    for name in PAGES:
        for picture in re.findall(r"!\[[^\]]*\]\(([^)]+)\)", page(name)):
            assert (REPOSITORY / "docs" / picture).stat().st_size > 1_000
