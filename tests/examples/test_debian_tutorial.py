"""examples/debian/README.md: its commands exist with every option, and its steps work on a small index."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

import debian_example
from command_line import run
from conftest import REPOSITORY
from docs.snippets import blocks
from learning_worlds import one_thread as one_thread

PAGE = REPOSITORY / "examples" / "debian" / "README.md"
OLD = "\n".join(
    f"Package: python3-old{n}\nSection: python\nPriority: optional\nMaintainer: Team {n % 3} <t@example.org>\n"
    f"Depends: python3:any, python3-old{(n * 7) % 40}, libfoo{n % 4} (>= 1)\nRecommends: python3-old{(n + 1) % 40}\n"
    f"Architecture: all\nMulti-Arch: foreign\nTag: use::{'editing' if n % 2 else 'viewing'}\n"
    for n in range(40)
)


def page_commands(program: str = "contextpool") -> list[list[str]]:
    """The arguments of every command that the page shows of one program."""
    lines = "\n".join(block.code.replace("\\\n", " ") for block in blocks(PAGE)).splitlines()
    return [
        shlex.split(line.split(program, 1)[1])
        for line in lines
        if re.match(rf"(\$ )?{re.escape(program)} ", line)
    ]


def test_commands_and_options_exist(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = page_commands()
    assert {command[0] for command in shown} >= {"mine", "train", "explain", "ask", "serve"}
    for command in shown:
        verb = command[:1]
        known = run([*verb, "--help"], capsys, monkeypatch)
        assert known.code == 0
        for option in (word for word in command if word.startswith("-")):
            assert re.search(rf"(^|\s|/|,){re.escape(option)}\b", known.out), (verb, option)


def test_the_steps_work_on_a_small_index(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page's own commands, with other files behind their names and one short epoch."""
    monkeypatch.chdir(tmp_path)
    Path("trixie").mkdir()
    Path("trixie/Packages.xz").write_bytes(
        __import__("lzma").compress(OLD.replace("python3-old", "python3-new").encode())
    )
    Path("Packages").write_text(OLD)
    building = page_commands("python examples/debian/build.py")
    training = next(command for command in page_commands() if command[0] == "train")
    assert debian_example.build.main(["Packages", *building[1]]) == 0
    trained = run([*training, "--set", "train.epochs=1", "--set", "model.dim=4"], capsys, monkeypatch)
    assert trained.code == 0, trained.err
    assert "most frequent answer" in trained.out
    question = ["--head", "python3-new3", "--relation", "recommends"]
    assert run(["ask", "debian-python", "--run", "runs/debian", *question], capsys, monkeypatch).code == 0
    why = run(
        ["explain", "debian-python", "--run", "runs/debian", *question, "--tail", "python3-new4"],
        capsys,
        monkeypatch,
    )
    assert why.code == 0, why.err
    assert "because" in why.out or "rank" in why.out
