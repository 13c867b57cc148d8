"""docs/quickstart.md: every block of it runs, top to bottom, in an empty folder, and tells the truth."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from conftest import REPOSITORY
from docs.snippets import RUN, blocks, run_page
from learning_worlds import one_thread as one_thread

if TYPE_CHECKING:
    from contextpool.serve.registry import Registry

PAGE = REPOSITORY / "docs" / "quickstart.md"


def test_the_page_runs(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The server is asked once, then stopped."""
    pytest.importorskip("fastapi", reason="the serve extra is not installed")
    from contextpool.serve import server

    asked: list[dict[str, Any]] = []
    monkeypatch.setattr(server, "serve", lambda registry, settings, say: asked.append(_answer(registry)))
    ran = run_page(PAGE, tmp_path, monkeypatch)
    printed = capsys.readouterr().out
    assert ran == sum(block.language in RUN for block in blocks(PAGE))
    assert [one["answers"][0]["entity"] for one in asked] == ["new town 1"]
    for path in _shown_paths():
        assert printed.count(path) >= 2, "once on the command line, once in Python"


def _answer(registry: Registry) -> dict[str, Any]:
    """What the page's server says to its question."""
    from serve.served import client_of

    with client_of(registry) as client:
        answer = client.get("/predict", params={"head": "new 7", "relation": "lives_in"})
        assert answer.status_code == 200
        found: dict[str, Any] = answer.json()
        return found


def _shown_paths() -> list[str]:
    text = "".join(block.code for block in blocks(PAGE) if block.language == "text")
    found = [line.strip() for line in text.splitlines() if "->" in line]
    assert found
    return found


def test_blocks_that_are_not_run_are_marked_as_text() -> None:
    assert {block.language for block in blocks(PAGE)} <= {*RUN, "text"}
