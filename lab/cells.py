"""A cell of the grid: one training, with the recipe it follows and the name that its line will have."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

from contextpool.errors import ConfigError
from contextpool.recipe import Recipe, read_recipe
from lab.defaults import changed, fingerprint, recipe_of
from lab.models import CONTEXT, Variant, find_variant, split_name
from lab.recipe_file import tuning_of

SHIPPED = "shipped"
"""The source of the recipes that come with the package."""


class Key(NamedTuple):
    """What tells one training from another."""

    dataset: str
    model: str
    recipe: str
    seed: int

    @classmethod
    def of(cls, line: Mapping[str, Any]) -> Key:
        return cls(str(line["dataset"]), str(line["model"]), str(line["recipe"]), int(line["seed"]))

    def __str__(self) -> str:
        """As `--only` takes it."""
        return f"{self.dataset} {self.model} {self.recipe} {self.seed}"


@dataclass(frozen=True)
class Cell:
    """One training to do."""

    key: Key
    recipe: Recipe
    tuning: dict[str, Any] | None = None
    """How the recipe was found; None for one that was not searched for."""


@dataclass(frozen=True)
class FoundRecipe:
    """A recipe's values from a source, before they are changed."""

    values: Mapping[str, Any]
    tuning: dict[str, Any] | None = None


def make_cell(
    dataset: str,
    model: str,
    source: str,
    seed: int,
    *,
    variants: Mapping[str, Variant],
    changes: Mapping[str, Any],
    label: str | None = None,
) -> Cell:
    """The training of a model on a dataset by the recipe that the source has for it, changed by `changes`."""
    found = find_recipe(dataset, model, source, variants)
    values = changed(found.values, {"dataset": dataset, **changes})
    name = label or (SHIPPED if source == SHIPPED else Path(source).name.removesuffix(".toml"))
    if any(letter.isspace() for letter in name):
        raise ConfigError(f"the recipe's label is {name!r}; it cannot hold a space. Give one with --label.")
    key = Key(dataset, model, recipe_name(name, values), seed)
    return Cell(key, recipe_of(values), found.tuning)


def recipe_name(label: str, values: Mapping[str, Any]) -> str:
    """shipped#905206d9: the label, and the first digits of the fingerprint."""
    return f"{label}#{fingerprint(values)[:8]}"


def find_recipe(dataset: str, model: str, source: str, variants: Mapping[str, Variant]) -> FoundRecipe:
    """From the shipped recipes, a folder that names its files as they do, or one file.

    A file of the model's very name wins; otherwise a variant starts from the +cp recipe.
    """
    base, suffix = split_name(model)
    if source.endswith(".toml"):
        return _from_file(Path(source), model, variants)
    exact = _named(dataset, model, source)
    if exact is not None:
        return exact
    if not suffix:
        return FoundRecipe(_unlisted(dataset, base, False, source))
    variant = find_variant(suffix, variants)
    start = _named(dataset, f"{base}+{CONTEXT}", source)
    start = start or FoundRecipe(_unlisted(dataset, base, True, source))
    return FoundRecipe(variant.applied(start.values), start.tuning)


def _from_file(path: Path, model: str, variants: Mapping[str, Variant]) -> FoundRecipe:
    recipe = read_recipe(path)
    base, suffix = split_name(model)
    if recipe.model != base or bool(suffix) != (recipe.context is not None):
        has = f"{recipe.model}, {'with' if recipe.context is not None else 'without'} context"
        raise ConfigError(f"{path}: the recipe is for {has}; it cannot serve the model {model!r}.")
    values = recipe.to_dict()
    if suffix:
        values = find_variant(suffix, variants).applied(values)
    return FoundRecipe(values, tuning_of(path))


def _named(dataset: str, model: str, source: str) -> FoundRecipe | None:
    folder = Path(str(resources.files("contextpool"))) / "recipes" if source == SHIPPED else Path(source)
    if not folder.is_dir():
        raise ConfigError(f"recipes: {source!r} is neither 'shipped' nor a .toml file nor a folder of them.")
    path = folder / recipe_file_name(dataset, model)
    if not path.is_file():
        return None
    shipped = source == SHIPPED
    values = tomllib.loads(path.read_text("utf-8")) if shipped else read_recipe(path).to_dict()
    return FoundRecipe(values, tuning_of(path))


def recipe_file_name(dataset: str, model: str) -> str:
    """grail-fb237_v1.nbfnet+cp.toml"""
    return f"{dataset.replace('/', '-')}.{model}.toml"


def _unlisted(dataset: str, base: str, context: bool, source: str) -> dict[str, Any]:
    """For a dataset of one's own the defaults; a folder of recipes has to have the recipe."""
    if source != SHIPPED:
        wanted = recipe_file_name(dataset, f"{base}+{CONTEXT}" if context else base)
        raise ConfigError(f"{source}: there is no {wanted}. Write it, or leave the setting out.")
    return Recipe(dataset, base).with_values({"context": context}).to_dict()
