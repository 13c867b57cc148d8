"""A cell of the grid: one training, with the recipe it follows and the name that its line will have."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from contextpool.errors import ConfigError
from contextpool.recipe import Recipe, read_recipe, section_values, shipped_recipe
from lab.defaults import changed, fingerprint, recipe_of
from lab.models import Variant, find_variant, split_name
from lab.recipe_file import tuning_of

RECIPES = Path(__file__).with_name("recipes")
SHIPPED = "shipped"
"""The recipes of the splits: what the product shipped when results/ was made."""


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
    """From one file (.toml), or from `lab/recipes/SOURCE`; a variant starts from the +cp recipe.

    A dataset that the folder says nothing of has the product's recipe, which is by family, or its defaults.
    """
    base, suffix = split_name(model)
    if source.endswith(".toml"):
        return _from_file(Path(source), model, variants)
    values = _listed(dataset, base, bool(suffix), source) or _of_the_product(
        dataset, base, bool(suffix), source
    )
    return FoundRecipe(find_variant(suffix, variants).applied(values) if suffix else values)


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


def _listed(dataset: str, base: str, context: bool, source: str) -> dict[str, Any] | None:
    folder = RECIPES / source
    if not folder.is_dir():
        known = ", ".join(sorted(path.name for path in RECIPES.iterdir()))
        raise ConfigError(f"recipes: {source!r} is neither a .toml file nor one of {known}.")
    path = folder / f"{base}.toml"
    table = tomllib.loads(path.read_text("utf-8")) if path.is_file() else {}
    values = section_values(table, dataset, context)
    if values is None:
        return None
    return {**values, "dataset": dataset, "model": {"name": base, **values.get("model", {})}}


def _of_the_product(dataset: str, base: str, context: bool, source: str) -> dict[str, Any]:
    if source != SHIPPED:
        raise ConfigError(
            f"lab/recipes/{source}: there is no recipe of {base} for {dataset}. Leave the setting out."
        )
    found = shipped_recipe(dataset, base, context)
    return (found or Recipe(dataset, base).with_values({"context": context})).to_dict()


def trials_name(dataset: str, model: str) -> str:
    """grail-fb237_v1.nbfnet+cp"""
    return f"{dataset.strip('./').replace('/', '-')}.{model}"
