"""The page of options names every one of them, and its recipe can be trained."""

from __future__ import annotations

import re
import tomllib
from dataclasses import fields, replace

from conftest import REPOSITORY
from contextpool import experiment
from contextpool.context.config import ContextConfig
from contextpool.models.nbfnet import NBFNetConfig
from contextpool.recipe import Recipe
from contextpool.train.config import TrainConfig
from lab.recipes import shipped_variants
from lab.space import space_named
from learning_worlds import family_dataset
from learning_worlds import one_thread as one_thread

PAGE = (REPOSITORY / "docs" / "lab" / "context-options.md").read_text("utf-8")
RECIPE = tomllib.loads(re.findall(r"```toml\n(.*?)```", PAGE, flags=re.DOTALL)[0])
OPTIONS = {
    *(
        f"context.{name}"
        for name in (
            "arrive_features",
            "arrive_walk",
            "relevance_control",
            "control_seed",
        )
    ),
    *(f"model.{name}" for name in ("relation_encoder", "exclude_head")),
    *(f"train.{name}" for name in ("edge_dropout", "average_last")),
}


def test_every_option_has_a_heading_and_is_off_unless_it_belongs_to_the_default_context() -> None:
    headed = set(
        re.findall(r"`((?:context|model|train)\.\w+)", "".join(re.findall(r"^## .*$", PAGE, re.MULTILINE)))
    )
    assert headed == OPTIONS
    known = {
        f"{part}.{field.name}": field.default
        for part, kind in (("context", ContextConfig), ("train", TrainConfig), ("model", NBFNetConfig))
        for field in fields(kind)
    }
    off = {key: known[key] for key in OPTIONS}
    ways = {
        "context.relevance_control": "none",
        "context.arrive_features": True,
        "context.arrive_walk": True,
        "train.edge_dropout": None,
    }
    assert all(off[key] == ways.get(key, 0) for key in OPTIONS)


def test_the_recipe_of_the_page_sets_every_option_and_trains() -> None:
    recipe = Recipe.from_dict(RECIPE)
    said = {f"{part}.{key}" for part in ("context", "model", "train") for key in RECIPE[part]}
    assert said >= OPTIONS
    small = replace(recipe.with_values({"model.dim": 4, "model.layers": 2}), dataset="split")
    quick = replace(small, train=replace(small.train, epochs=2, batch_size=256))
    trained = experiment.run_recipe(quick, family_dataset())
    assert trained.context == recipe.context
    assert trained.model.reads_relations


def test_options_are_searched_and_have_variants() -> None:
    searched = set(space_named("nbfnet+cp"))
    fixed = {"context.relevance_control", "context.control_seed"}
    assert searched >= OPTIONS - fixed
    named = set(re.findall(r"\+([a-z-]+)[,)]", "".join(re.findall(r"^## .*$", PAGE, re.MULTILINE))))
    assert named <= set(shipped_variants())
    changed = {key for name in named for key in shipped_variants()[name].values}
    assert changed >= OPTIONS - {"context.control_seed"}
