"""The pages of results are what the committed lines say, and the lines keep their names."""

from __future__ import annotations

from dataclasses import fields

import pytest

from conftest import REPOSITORY
from contextpool.context.config import ContextConfig, ViewConfig
from contextpool.errors import ConfigError
from contextpool.models.registry import model_class, model_names
from contextpool.train.config import TrainConfig
from lab.__main__ import made_pages
from lab.recipes import DEFAULTS, changed, fingerprint, recipe_of
from lab.results import Results, read_results


@pytest.fixture(scope="module")
def results() -> Results:
    return read_results(REPOSITORY / "results")


def test_the_pages_are_what_the_lines_say(results: Results) -> None:
    pages = made_pages(results, REPOSITORY / "results", REPOSITORY / "docs")
    names = {"results.md", "context-results.md", "protocols.md", "tuning.md", "models.md"}
    assert {path.name for path in pages} == names
    for path, text in pages.items():
        assert path.read_text("utf-8") == text, f"{path.name}: run `python -m lab report`"


def test_every_line_is_named_by_what_its_recipe_says_beyond_the_recorded_defaults(results: Results) -> None:
    assert len(results.lines) > 800
    for line in results.lines:
        found = fingerprint(line["settings"])
        assert found == line["fingerprint"]
        assert line["recipe"].endswith(f"#{found[:8]}")


def test_every_setting_has_a_recorded_default() -> None:
    """A new setting needs an entry in lab/old_defaults.json: the value that leaves earlier recipes what they were."""
    live = {"train": TrainConfig, "context": ContextConfig, "view": ViewConfig}
    known = {part: set(DEFAULTS[part]) for part in live}
    assert {part: {item.name for item in fields(kind)} - known[part] for part, kind in live.items()} == {
        part: set() for part in live
    }
    for name in model_names():
        config = model_class(name).config_class
        assert {item.name for item in fields(config)} <= set(DEFAULTS["model"][name]), name


def test_a_setting_that_is_gone_keeps_its_name_and_cannot_be_trained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(DEFAULTS["train"], "gone", 0)
    plain = {"dataset": "world", "model": {"name": "nbfnet"}}
    assert fingerprint(changed(plain, {"train.gone": 0})) == fingerprint(plain)
    assert recipe_of(changed(plain, {"train.gone": 0})) == recipe_of(plain)
    assert fingerprint(changed(plain, {"train.gone": 1})) != fingerprint(plain)
    with pytest.raises(ConfigError, match=r"train\.gone = 1: there is no such setting any more"):
        recipe_of(changed(plain, {"train.gone": 1}))
    with pytest.raises(ConfigError, match=r"train\.never is not a setting"):
        recipe_of(changed(plain, {"train.never": 1}))
