"""The README's example runs as it is printed, and its commands exist."""

from __future__ import annotations

import re

from conftest import REPOSITORY

README = (REPOSITORY / "README.md").read_text("utf-8")


def test_the_python_example_runs_and_finds_a_fact_that_was_held_out(capsys):
    (code,) = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    exec(compile(code, "README.md", "exec"), {"__name__": "readme"})
    printed = capsys.readouterr().out
    assert "Audit of 'world'" in printed
    assert "Belarusian Ruble" in printed.splitlines()[-1]


def test_the_two_commands_are_targets_of_the_makefile():
    makefile = (REPOSITORY / "Makefile").read_text("utf-8")
    commands = re.findall(r"^make (\w+) ", README, flags=re.MULTILINE)
    assert commands == ["demo", "test"]
    assert all(re.search(rf"^{command}:", makefile, flags=re.MULTILINE) for command in commands)
