"""The command line as a test calls it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from command_line import Ran, run


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Ran]:
    """Call it with arguments."""

    def call(*arguments: str) -> Ran:
        return run(list(arguments), capsys, monkeypatch)

    return call
