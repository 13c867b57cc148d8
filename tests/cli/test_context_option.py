"""`--context`, `--context paper` and `--plain` of `contextpool train`."""

from __future__ import annotations

from typing import Any

import pytest
from typer.testing import CliRunner

from contextpool.cli import train
from contextpool.cli.app import app
from contextpool.context.config import PRESETS
from contextpool.errors import ConfigError


@pytest.mark.parametrize(
    ("arguments", "asked"),
    [
        ([], None),
        (["--context"], True),
        (["--context", "paper"], "paper"),
        (["--context=paper"], "paper"),
        (["--context", "default", "--seed", "1"], "default"),
        (["--context", "--set", "train.epochs=1"], True),
        (["--plain"], False),
    ],
)
def test_context_takes_a_preset_or_nothing(
    arguments: list[str], asked: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []

    def remembered(what: str, model: str | None, context: Any, assign: list[str]) -> Any:
        seen.append((what, context))
        raise ConfigError("enough")

    monkeypatch.setattr(train, "_recipe", remembered)
    CliRunner().invoke(app, ["train", "world", *arguments])
    CliRunner().invoke(app, ["train", *arguments, "world"])
    assert seen == [("world", asked)] * 2


def test_a_preset_is_trained_with_the_datasets_plain_recipe() -> None:
    recipe = train._recipe("world", None, "paper", [])
    assert recipe.context == PRESETS["paper"]
    assert recipe.settings["dim"] == 16
    with pytest.raises(ConfigError, match="context is 'papr'; it is true, false, a table, or one of default"):
        train._recipe("world", None, "papr", [])
