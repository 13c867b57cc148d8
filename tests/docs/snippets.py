"""The code blocks of a page, run in order as a reader would: Python in one namespace, `contextpool` commands in place.

A page's `python` and `bash` blocks are run; blocks of other languages (`text`, `toml`, `json`, ...) are shown only. A
`bash` block holds comments and `contextpool` commands and nothing else, so that nothing on a page goes unchecked.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from command_line import exit_code

_BLOCK = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```[ \t]*$", re.MULTILINE | re.DOTALL)
RUN = ("python", "bash")


@dataclass(frozen=True)
class Block:
    """One fenced block; `line` is where its code begins."""

    language: str
    code: str
    line: int


def blocks(page: Path) -> list[Block]:
    """Every fenced block of a page, in order."""
    text = page.read_text("utf-8")
    return [
        Block(found[1], found[2], text.count("\n", 0, found.start(2)) + 1) for found in _BLOCK.finditer(text)
    ]


def commands(block: Block) -> Iterator[list[str]]:
    """The arguments of each `contextpool` command of a bash block; any other command is an error."""
    for line in block.code.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        if words:
            assert words[0] == "contextpool", (
                f"line {block.line}: {words[0]} is not run; show it as a text block"
            )
            yield words[1:]


def run_page(
    page: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, replace: Mapping[str, str] | None = None
) -> int:
    """Run the page's blocks inside `folder`, with some words replaced, such as the address of a server.

    Returns how many blocks ran. An error is raised as it is, from `page:line`.
    """
    monkeypatch.chdir(folder)
    namespace: dict[str, Any] = {"__name__": page.stem}
    ran = [block for block in blocks(page) if block.language in RUN]
    for block in ran:
        code = block.code
        for word, other in (replace or {}).items():
            code = code.replace(word, other)
        if block.language == "python":
            exec(compile("\n" * (block.line - 1) + code, str(page), "exec"), namespace)
        else:
            for arguments in commands(Block("bash", code, block.line)):
                run_command(arguments, f"{page}:{block.line}", monkeypatch)
    return len(ran)


def run_command(arguments: list[str], where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One `contextpool` command in this process; anything but success is an error."""
    code = exit_code(arguments, monkeypatch)
    assert code == 0, f"{where}: contextpool {shlex.join(arguments)} exits with {code}"
