"""Search spaces: which settings of a recipe to vary, and over what. Read from TOML, checked against the recipe.

    extends = ["nbfnet", "context"]                                        other spaces, which this one adds to
    "train.lr" = { low = 1e-3, high = 1e-2, log = true }                   a range; whole numbers where both ends are
    "model.layers" = [3, 4, 5]                                             a choice
    "context.views.0.min_precision" = { low = 0.01, high = 0.5, log = true }   of the first view, where there is one
    "train.negatives" = { choices = [8, 32], when = { "train.loss" = "bce" } }   where an earlier one is so
    "together.use" = [{ "context.gate" = true, "context.arrive" = false }, ...]   several settings at once

A key is whatever a recipe has; one that no config has is refused by name.
"""

from __future__ import annotations

import itertools
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from contextpool.errors import ConfigError
from contextpool.recipe import Recipe
from lab.recipes import changed, recipe_of

TOGETHER = "together."
"""Keys that begin so assign several settings; what follows is a name of one's own."""
Space = dict[str, dict[str, Any]]
"""Dotted key -> {"choices": [...]} or {"low", "high", "log"}, and perhaps "when"."""


def suggested(trial: Any, space: Space) -> dict[str, Any]:
    """The values of an Optuna trial, by the space's keys; a choice is known to Optuna by its place in the list."""
    values: dict[str, Any] = {}
    for key, range_ in space.items():
        written = settings_of(values)
        holds = all(written.get(other) == value for other, value in range_.get("when", {}).items())
        if not holds or _beyond_list(key, written):
            continue
        if "choices" in range_:
            place = trial.suggest_categorical(key, list(range(len(range_["choices"]))))
            values[key] = range_["choices"][place]
        elif type(range_["low"]) is int and type(range_["high"]) is int:
            values[key] = trial.suggest_int(key, range_["low"], range_["high"], log=range_["log"])
        else:
            values[key] = trial.suggest_float(key, range_["low"], range_["high"], log=range_["log"])
    return values


def combinations(space: Space) -> list[dict[str, int]]:
    """Every combination of choices, by their places, the last parameter changing first; a range has none."""
    ranges = [key for key, range_ in space.items() if "choices" not in range_]
    if ranges:
        raise ConfigError(
            f"{', '.join(ranges)} can take any value of a range, which a grid cannot go through. Give choices in a "
            "list, or search with --sampler random."
        )
    places = itertools.product(*(range(len(range_["choices"])) for range_ in space.values()))
    return [dict(zip(space, chosen, strict=True)) for chosen in places]


def settings_of(values: Mapping[str, Any]) -> dict[str, Any]:
    """Settings assigned together become settings of their own."""
    result: dict[str, Any] = {}
    for key, value in values.items():
        result |= dict(value) if key.startswith(TOGETHER) else {key: value}
    return result


def _beyond_list(key: str, written: Mapping[str, Any]) -> bool:
    """Whether the key names an element of a drawn list that has fewer."""
    parts = key.split(".")
    for place, part in enumerate(parts):
        listed = written.get(".".join(parts[:place]))
        if part.isdecimal() and isinstance(listed, list | tuple):
            return int(part) >= len(listed)
    return False


def with_drawn(recipe: Recipe, values: Mapping[str, Any]) -> Recipe:
    """The recipe with a trial's values in it."""
    settings = settings_of(values)
    if recipe.context is None and any(key.startswith("context.") for key in settings):
        raise ConfigError("the recipe has no context to set anything in.")
    return recipe_of(changed(recipe.to_dict(), settings))


def check_space(space: Space, recipe: Recipe) -> None:
    """Every choice and both ends of every range have to be what a recipe can have."""
    for key, range_ in space.items():
        for value in range_.get("choices") or (range_["low"], range_["high"]):
            try:
                with_drawn(_with_room(recipe, key), {key: value})
            except ConfigError as error:
                raise ConfigError(f"the search space's {key} = {value!r}: {error}") from error


def _with_room(recipe: Recipe, key: str) -> Recipe:
    """The recipe with as many views as the key counts on."""
    parts = key.split(".")
    if (
        parts[:2] != ["context", "views"]
        or not parts[2:3]
        or not parts[2].isdecimal()
        or recipe.context is None
    ):
        return recipe
    return recipe.with_values({"context.views": [{} for _ in range(int(parts[2]) + 1)]})


def space_named(name: str) -> Space:
    """One of lab/spaces by the model's name (nbfnet, redgnn+cp, ...), or one from a .toml file."""
    return space_of(_table(Path(name) if name.endswith(".toml") else _shipped(name)), name)


def _shipped(name: str) -> Path:
    folder = Path(__file__).with_name("spaces")
    path = folder / f"{name}.toml"
    if not path.is_file():
        known = ", ".join(sorted(file.stem for file in folder.glob("*.toml")))
        raise ConfigError(
            f"there is no search space {name!r}; there are {known}, or give a file with --space."
        )
    return path


def _table(path: Path) -> dict[str, Any]:
    """The file's content on top of what it extends."""
    try:
        table = tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"{path}: there is no such search space.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not valid TOML ({error}).") from error
    extended = table.pop("extends", [])
    base: dict[str, Any] = {}
    for name in [extended] if isinstance(extended, str) else extended:
        base |= _table(path.parent / name if name.endswith(".toml") else _shipped(name))
    return {**base, **table}


def space_of(table: Mapping[str, Any], where: str = "space") -> Space:
    """From a table of dotted keys."""
    if not table:
        raise ConfigError(f"{where}: the search space is empty.")
    return {key: _range(key, value, f"{where}: {key}") for key, value in table.items()}


def _range(key: str, value: Any, where: str) -> dict[str, Any]:
    if isinstance(value, list):
        value = {"choices": value}
    if not isinstance(value, Mapping) or set(value) - {"choices", "low", "high", "log", "when"}:
        raise ConfigError(
            f"{where} is {value!r}; it is a list of choices or a table with low, high and perhaps log. "
            "Dotted keys have to be quoted."
        )
    when = {"when": dict(value["when"])} if "when" in value else {}
    if "choices" not in value:
        low, high, log = value.get("low"), value.get("high"), bool(value.get("log", False))
        numbers = all(type(end) in (int, float) for end in (low, high))
        if not numbers or not low < high or (log and low <= 0):  # type: ignore[operator]
            raise ConfigError(
                f"{where}: the range is {low!r} to {high!r}; it has to grow, from above 0 where log is true."
            )
        return {"low": low, "high": high, "log": log, **when}
    choices = value["choices"]
    if not isinstance(choices, list) or not choices:
        raise ConfigError(f"{where}: the choices are {choices!r}; there has to be a list of at least one.")
    if key.startswith(TOGETHER) and not all(isinstance(choice, Mapping) for choice in choices):
        raise ConfigError(f"{where}: each choice has to be a table of settings.")
    return {"choices": choices, **when}
