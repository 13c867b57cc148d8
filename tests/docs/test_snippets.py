"""The runner of the pages' code: finds every block, runs it in order, refuses what it would not check."""

from __future__ import annotations

from pathlib import Path

import pytest

from docs.snippets import Block, blocks, commands, run_page

PAGE = """# A page
```python
x = 1
```
text with ``` inside a line
```text
shown, not run
```
```python
with open("out", "w") as file:
    file.write(str(x + 1))
```
```bash
# a comment
contextpool --version
contextpool data ls \\
    --json
```
"""


@pytest.fixture
def page(tmp_path: Path) -> Path:
    (tmp_path / "page.md").write_text(PAGE)
    return tmp_path / "page.md"


def test_blocks_with_their_lines(page: Path):
    assert [(block.language, block.line) for block in blocks(page)] == [
        ("python", 3), ("text", 7), ("python", 10), ("bash", 14),
    ]  # fmt: skip


def test_blocks_share_a_namespace_and_a_folder(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    assert run_page(page, tmp_path, monkeypatch) == 3
    assert (tmp_path / "out").read_text() == "2"
    run_page(page, tmp_path, monkeypatch, {"x = 1": "x = 5"})
    assert (tmp_path / "out").read_text() == "6"


def test_commands_over_several_lines(page: Path):
    assert list(commands(blocks(page)[-1])) == [["--version"], ["data", "ls", "--json"]]


def test_other_commands_are_refused():
    with pytest.raises(AssertionError, match="rm is not run"):
        list(commands(Block("bash", "rm -rf /\n", 1)))


@pytest.mark.parametrize(
    "code", ["```python\nassert False\n```\n", "```bash\ncontextpool data info nothing\n```\n"]
)
def test_a_block_that_fails_fails(code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "page.md").write_text(code)
    with pytest.raises(AssertionError):
        run_page(tmp_path / "page.md", tmp_path, monkeypatch)
