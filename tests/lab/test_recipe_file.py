"""A recipe file says what the recipe says, is known by its content, and tells how it was found."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextpool.context.config import ContextConfig, ViewConfig
from contextpool.errors import ConfigError
from contextpool.recipe import Recipe, read_recipe
from contextpool.train.config import TrainConfig
from lab.recipes import canonical, find_recipe, fingerprint, recipe_of, recipe_text, to_toml
from support import context_with

VIEWS = st.builds(
    ViewConfig,
    min_precision=st.floats(0, 0.9),
    min_recall=st.floats(0, 0.9),
    algorithm=st.sampled_from(["neighbors", "families-recall"]),
    sizes=st.lists(st.integers(1, 5), min_size=1, max_size=3).map(tuple),
)
CONTEXTS = st.none() | st.builds(
    ContextConfig, views=st.lists(VIEWS, max_size=3).map(tuple), hops=st.integers(1, 5), gate=st.booleans()
)
RECIPES = st.builds(
    Recipe,
    dataset=st.sampled_from(["world", 'a "quoted" \\ name', "grail/fb237_v1"]),
    model=st.just("nbfnet"),
    settings=st.fixed_dictionaries({}, optional={"dim": st.integers(1, 64), "dropout": st.floats(0, 0.9)}),
    context=CONTEXTS,
    train=st.builds(TrainConfig, lr=st.floats(1e-9, 1.0), epochs=st.integers(1, 50)),
)


@given(recipe=RECIPES)
def test_a_recipe_comes_back_from_its_file(recipe: Recipe) -> None:
    read = Recipe.from_dict(tomllib.loads(recipe_text(recipe, comments=("one", ""))))
    assert read.to_dict() == {**recipe.to_dict(), "model": read.to_dict()["model"]}
    assert read.model_config() == recipe.model_config()
    assert fingerprint(read.to_dict()) == fingerprint(recipe.to_dict())


@given(one=RECIPES, other=RECIPES)
def test_fingerprints_are_equal_just_where_recipes_say_the_same(one: Recipe, other: Recipe) -> None:
    alike = (one.dataset, one.model_config(), one.context, one.train) == (
        other.dataset,
        other.model_config(),
        other.context,
        other.train,
    )
    assert (fingerprint(one.to_dict()) == fingerprint(other.to_dict())) == alike


def test_defaults_that_are_written_out_change_nothing() -> None:
    plain = Recipe("world", "nbfnet", {}, context_with())
    written = Recipe(
        "world", "nbfnet", {"dim": 32, "layers": 6}, context_with(hops=3), TrainConfig(epochs=20)
    )
    assert canonical(plain.to_dict()) == {
        "dataset": "world",
        "model": {"name": "nbfnet"},
        "train": {},
        "context": {},
    }
    assert fingerprint(plain.to_dict()) == fingerprint(written.to_dict())
    assert fingerprint(plain.to_dict()) != fingerprint(replace(plain, context=None).to_dict())


def test_comments_stand_before_a_recipe(tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    path.write_text(recipe_text(Recipe("world"), comments=("Found by a search",)))
    assert path.read_text().startswith("# Found by a search\n\n")
    assert read_recipe(path) == Recipe("world")


def test_tables_and_lists_of_tables_are_written_as_they_are_read() -> None:
    values = {
        "dataset": "world",
        "model": {"name": "nbfnet"},
        "context": {"views": [{"min_recall": 0.5}]},
    }
    assert tomllib.loads(to_toml(values)) == values


def test_a_setting_that_is_gone_means_what_is_left_and_keeps_the_names_of_results() -> None:
    """AnyBURL's rules with constants are gone: the recorded default was to have them, results/ are without."""
    values = find_recipe("grail/fb237_v1", "anyburl", "shipped", {})
    assert fingerprint(values).startswith("06870e2d")
    recipe = recipe_of(values)
    assert fingerprint(recipe.to_dict()) == fingerprint(values)
    assert "constants" not in recipe_text(recipe)
    read = Recipe.from_dict(tomllib.loads(recipe_text(recipe)))
    assert read.model_config() == recipe.model_config()
    with pytest.raises(ConfigError, match=r"model\.constants = True: there is no such setting any more"):
        recipe_of({**values, "model": {**values["model"], "constants": True}})
