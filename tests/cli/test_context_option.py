"""`--context`, `--context paper` and `--plain` of `contextpool train`."""

from __future__ import annotations

from typing import Any

import pytest
from typer.testing import CliRunner

from command_line import run
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

    def remembered(what: str, model: str | None, context: Any, *rest: Any) -> Any:
        seen.append((what, context))
        raise ConfigError("enough")

    monkeypatch.setattr(train, "_recipe", remembered)
    CliRunner().invoke(app, ["train", "world", *arguments])
    CliRunner().invoke(app, ["train", *arguments, "world"])
    assert seen == [("world", asked)] * 2


def test_a_preset_is_trained_with_the_datasets_plain_recipe() -> None:
    recipe = train._recipe("world", None, "paper", {})
    assert recipe.context == PRESETS["paper"]
    assert recipe.settings["dim"] == 16
    with pytest.raises(ConfigError, match="context is 'papr'; it is true, false, a table, or one of default"):
        train._recipe("world", None, "papr", {})


@pytest.mark.parametrize(
    "arguments", [["world", "--context", "papr"], ["--context", "papr", "world"], ["world", "--context=papr"]]
)
def test_a_preset_that_there_is_not_is_named(
    arguments: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = run(["train", *arguments], capsys, monkeypatch)
    assert ran.code == 2
    assert "context is 'papr'; it" in ran.err
    assert "one of default, paper" in ran.err


def test_context_is_the_default_where_the_model_takes_it() -> None:
    assert train._recipe("world", None, None, {}).context is not None
    assert train._recipe("world", "redgnn", None, {}).context is not None
    assert train._recipe("world", "anyburl", None, {}).context is None
    assert train._recipe("world", None, False, {}).context is None
