"""Search spaces: what is drawn is what a recipe can have, and keys that no config has are refused by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from contextpool.errors import ConfigError
from contextpool.recipe import Recipe, shipped_recipe
from lab.space import Space, check_space, space_named, space_of, suggested, with_drawn

RECIPE = Recipe("world", "nbfnet")
WITH_CONTEXT = RECIPE.with_values({"context": True})


def draws(space: Space, count: int) -> list[dict[str, Any]]:
    """By chance, as Optuna has it."""
    optuna = pytest.importorskip("optuna")
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    return [suggested(study.ask(), space) for _ in range(count)]


@pytest.mark.parametrize("model", ["nbfnet", "nbfnet+cp", "redgnn", "redgnn+cp"])
def test_shipped_spaces_fit_the_recipes_they_are_for(model: str) -> None:
    base, _, suffix = model.partition("+")
    space = space_named(model)
    for dataset in ("grail/fb237_v1", "grail_transductive/nell_v4"):
        recipe = shipped_recipe(dataset, base, bool(suffix))
        assert recipe is not None
        check_space(space, recipe)
        for values in draws(space, 40):
            drawn = with_drawn(recipe, values)
            context = drawn.context
            assert (context is None) == (not suffix)
            assert context is None or context.views or context.gate or context.arrive


def test_the_plain_space_is_part_of_the_one_with_context() -> None:
    for base in ("nbfnet", "redgnn"):
        plain, ours = space_named(base), space_named(f"{base}+cp")
        assert all(ours[key] == value for key, value in plain.items())
        assert set(ours) - set(plain) >= {"together.use", "context.hops", "context.self_policy"}


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
    check_space(space, WITH_CONTEXT)
    seen = set()
    for values in draws(space, 20):
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
    for values in draws(space, 12):
        assert ("train.negatives" in values) == (values["train.loss"] == "bce")


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("train.learning_rate", [0.1], r"train\.learning_rate is not a setting"),
        ("model.widht", [8], r"model\.widht is not a setting"),
        ("context.hops", [2], "the recipe has no context"),
        ("model.layers", [0], "both are at least 1"),
        ("train.loss", ["median"], "it is one of"),
        ("train.lr.scale", [1.0], "no such place for a setting"),
        ("together.x", [{"train.nosuch": 1}], r"train\.nosuch is not a setting"),
    ],
)
def test_what_no_recipe_has_is_refused_by_name(key: str, value: list[Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        check_space(space_of({key: value}), RECIPE)
    assert f"the search space's {key}" in str(caught.value)


def test_a_view_has_no_such_setting() -> None:
    with pytest.raises(ConfigError, match=r"context\.views\.min_f1 is not a setting"):
        check_space(space_of({"context.views.1.min_f1": [0.1]}), WITH_CONTEXT)


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
    found = space_named(str(tmp_path / "mine.toml"))
    assert found["model.dim"] == {"choices": [99]}
    assert "model.attention_dim" in found
    with pytest.raises(ConfigError, match="no such search space"):
        space_named(str(tmp_path / "none.toml"))
