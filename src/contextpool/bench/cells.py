"""A cell of the grid: one training, with the recipe it follows and the name that its line will have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

from contextpool.bench.models import CONTEXT, Variant, find_variant, split_name
from contextpool.errors import ConfigError
from contextpool.recipe import Recipe, read_recipe
from contextpool.recipe_file import fingerprint, tuning_of

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
    """A recipe from a source, before it is changed."""

    recipe: Recipe
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
    recipe = found.recipe.with_values({"dataset": dataset, **changes})
    name = label or (SHIPPED if source == SHIPPED else Path(source).name.removesuffix(".toml"))
    if any(letter.isspace() for letter in name):
        raise ConfigError(f"the recipe's label is {name!r}; it cannot hold a space. Give one with --label.")
    key = Key(dataset, model, f"{name}#{fingerprint(recipe)[:8]}", seed)
    return Cell(key, recipe, found.tuning)


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
    return FoundRecipe(variant.applied(start.recipe), start.tuning)


def _from_file(path: Path, model: str, variants: Mapping[str, Variant]) -> FoundRecipe:
    recipe = read_recipe(path)
    base, suffix = split_name(model)
    if recipe.model != base or bool(suffix) != (recipe.context is not None):
        has = f"{recipe.model}, {'with' if recipe.context is not None else 'without'} context"
        raise ConfigError(f"{path}: the recipe is for {has}; it cannot serve the model {model!r}.")
    if suffix:
        recipe = find_variant(suffix, variants).applied(recipe)
    return FoundRecipe(recipe, tuning_of(path))


def _named(dataset: str, model: str, source: str) -> FoundRecipe | None:
    folder = Path(str(resources.files("contextpool"))) / "recipes" if source == SHIPPED else Path(source)
    if not folder.is_dir():
        raise ConfigError(f"recipes: {source!r} is neither 'shipped' nor a .toml file nor a folder of them.")
    path = folder / recipe_file_name(dataset, model)
    return FoundRecipe(read_recipe(path), tuning_of(path)) if path.is_file() else None


def recipe_file_name(dataset: str, model: str) -> str:
    """grail-fb237_v1.nbfnet+cp.toml"""
    return f"{dataset.replace('/', '-')}.{model}.toml"


def _unlisted(dataset: str, base: str, context: bool, source: str) -> Recipe:
    """For a dataset of one's own the defaults; a folder of recipes has to have the recipe."""
    if source != SHIPPED:
        wanted = recipe_file_name(dataset, f"{base}+{CONTEXT}" if context else base)
        raise ConfigError(f"{source}: there is no {wanted}. Write it, or leave the setting out.")
    return Recipe(dataset, base).with_values({"context": context})
