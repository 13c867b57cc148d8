"""Search spaces: what is drawn is what a recipe can have, and keys that no config has are refused by name."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextpool.errors import ConfigError
from contextpool.recipe import Recipe, shipped_recipe
from lab.space import space_named, space_of, with_drawn

RECIPE = Recipe("world", "nbfnet")
WITH_CONTEXT = RECIPE.with_values({"context": True})


@pytest.mark.parametrize("model", ["nbfnet", "nbfnet+cp", "redgnn", "redgnn+cp"])
def test_shipped_spaces_fit_the_recipes_they_are_for(model: str) -> None:
    base, _, suffix = model.partition("+")
    space = space_named(model)
    for dataset in ("grail/fb237_v1", "grail_transductive/nell_v4"):
        recipe = shipped_recipe(dataset, base, bool(suffix))
        assert recipe is not None
        space.check(recipe)
        for trial in range(60):
            drawn = with_drawn(recipe, space.draw(7, trial))
            context = drawn.context
            assert (context is None) == (not suffix)
            assert context is None or context.views or context.gate or context.arrive


def test_the_plain_space_is_part_of_the_one_with_context() -> None:
    for base in ("nbfnet", "redgnn"):
        plain, ours = space_named(base).to_dict(), space_named(f"{base}+cp").to_dict()
        assert plain.items() <= ours.items()
        assert set(ours) - set(plain) >= {"together.use", "context.hops", "context.self_policy"}


@given(seed=st.integers(0, 10**6), trial=st.integers(0, 1000))
def test_draws_lie_where_they_should(seed: int, trial: int) -> None:
    table: dict[str, Any] = {
        "train.lr": {"low": 1e-4, "high": 1e-1, "log": True},
        "model.dropout": {"low": 0.0, "high": 0.5},
        "model.layers": {"low": 2, "high": 4},
        "train.batch_size": {"low": 8, "high": 512, "log": True},
        "model.dim": [8, 16],
    }
    drawn = space_of(table).draw(seed, trial)
    assert 1e-4 <= drawn["train.lr"] <= 1e-1
    assert 0 <= drawn["model.dropout"] <= 0.5
    assert drawn["model.layers"] in (2, 3, 4)
    assert 8 <= drawn["train.batch_size"] <= 512
    assert drawn["model.dim"] in (8, 16)
    assert space_of(table).draw(seed, trial) == drawn
    shorter = {key: value for key, value in table.items() if key != "model.dim"}
    assert space_of(shorter).draw(seed, trial) == {
        key: value for key, value in drawn.items() if key != "model.dim"
    }


def test_draws_spread_over_the_range() -> None:
    space = space_of(
        {"train.lr": {"low": 1e-4, "high": 1e-1, "log": True}, "model.layers": {"low": 2, "high": 4}}
    )
    drawn = [space.draw(0, trial) for trial in range(600)]
    below = sum(values["train.lr"] < math.sqrt(1e-5) for values in drawn)
    assert 240 < below < 360  # the middle of a logarithmic range
    assert {sum(values["model.layers"] == layers for values in drawn) > 140 for layers in (2, 3, 4)} == {True}


def test_thresholds_belong_to_the_views_that_were_drawn() -> None:
    space = space_of(
        {
            "together.use": [
                {"context.views": [], "context.gate": True},
                {"context.views": [{}, {"min_precision": 0.0}]},
            ],
            "context.views.0.min_precision": [0.4],
            "context.views.1.min_recall": [0.6],
        }
    )
    space.check(WITH_CONTEXT)
    seen = set()
    for trial in range(20):
        values = space.draw(0, trial)
        context = with_drawn(WITH_CONTEXT, values).context
        assert context is not None
        seen.add(len(context.views))
        if context.views:
            thresholds = [(view.min_precision, view.min_recall) for view in context.views]
            assert thresholds == [(0.4, 0.0), (0.0, 0.6)]
        else:
            assert set(values) == {"together.use"}
            assert context.gate
    assert seen == {0, 2}


def test_a_condition_leaves_a_setting_as_it_is() -> None:
    space = space_of(
        {
            "train.loss": ["softmax", "bce"],
            "train.negatives": {"choices": [2], "when": {"train.loss": "bce"}},
        }
    )
    for trial in range(12):
        values = space.draw(0, trial)
        assert ("train.negatives" in values) == (values["train.loss"] == "bce")


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("train.learning_rate", [0.1], r"train\.learning_rate is not a setting"),
        ("model.widht", [8], r"model\.widht is not a setting"),
        ("context.hops", [2], "has no 'context' to set 'hops' in"),
        ("model.layers", [0], "both are at least 1"),
        ("train.schedule", ["linear"], "it is one of cosine"),
        ("train.lr.scale", [1.0], "has no 'lr'"),
        ("together.x", [{"train.nosuch": 1}], r"train\.nosuch is not a setting"),
    ],
)
def test_what_no_recipe_has_is_refused_by_name(key: str, value: list[Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        space_of({key: value}).check(RECIPE)
    assert f"the search space's {key}" in str(caught.value)


def test_a_view_has_no_such_setting() -> None:
    with pytest.raises(ConfigError, match=r"context\.views\.min_f1 is not a setting"):
        space_of({"context.views.1.min_f1": [0.1]}).check(WITH_CONTEXT)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('"train.lr" = 3', "it is a list of choices or a table"),
        ("train.lr = [1]", "Dotted keys have to be quoted"),
        ('"train.lr" = []', "at least one"),
        ('"train.lr" = { low = 2, high = 1 }', "it has to grow"),
        ('"train.lr" = { low = 0, high = 1, log = true }', "from above 0"),
        ('"together.x" = [1]', "each choice has to be a table"),
        ("", "the search space is empty"),
        ("x = ", "not valid TOML"),
        ('extends = "nosuch"', "there is no search space 'nosuch'; there are context, nbfnet"),
    ],
)
def test_a_space_that_cannot_be_is_refused(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "space.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message):
        space_named(str(path))


def test_a_space_adds_to_others_and_to_files_beside_it(tmp_path: Path) -> None:
    (tmp_path / "base.toml").write_text('"train.lr" = [0.1]\n"model.dim" = [4]')
    (tmp_path / "mine.toml").write_text('extends = ["base.toml", "redgnn"]\n"model.dim" = [99]')
    found = space_named(str(tmp_path / "mine.toml")).to_dict()
    assert found["model.dim"] == {"choices": [99]}
    assert "model.attention_dim" in found
    with pytest.raises(ConfigError, match="no such search space"):
        space_named(str(tmp_path / "none.toml"))
