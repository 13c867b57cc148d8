"""Search spaces: which settings of a recipe to vary, and over what. Read from TOML, checked against the recipe.

    extends = ["nbfnet", "context"]                                        other spaces, which this one adds to
    "train.lr" = { low = 1e-3, high = 1e-2, log = true }                   a range; whole numbers where both ends are
    "model.layers" = [3, 4, 5]                                             a choice
    "context.views.0.min_precision" = { low = 0.01, high = 0.5, log = true }   of the first view, where there is one
    "train.negatives" = { choices = [8, 32], when = { "train.loss" = "bce" } }
    "together.use" = [{ "context.gate" = true, "context.arrive" = false }, ...]   several settings at once

A key is whatever a recipe has: an option that is added to a config later can be searched without a change here, and
one that no config has is refused by name.
"""

from __future__ import annotations

import copy
import itertools
import math
import random
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from contextpool.errors import ConfigError
from contextpool.recipe import Recipe

TOGETHER = "together."
"""Keys that begin so assign several settings; what follows is a name of one's own."""
Values = dict[str, Any]
"""Dotted key -> value, as drawn."""


@dataclass(frozen=True)
class Parameter:
    """One setting and the values it may take: choices, or a range."""

    key: str
    choices: tuple[Any, ...] = ()
    low: float = 0.0
    high: float = 0.0
    log: bool = False
    whole: bool = False
    """Of a range: whole numbers, both ends included."""
    when: Mapping[str, Any] = field(default_factory=dict)
    """Values that other settings have to have, or this one is left as the recipe has it."""

    @property
    def examples(self) -> tuple[Any, ...]:
        """Values to check the key with."""
        return self.choices or (self.low, self.high)

    def at(self, share: float) -> Any:
        """The value at a share in [0, 1) of the way through."""
        if self.choices:
            return self.choices[int(share * len(self.choices))]
        if self.whole:
            if self.log:
                return round(math.exp(_between(math.log(self.low), math.log(self.high), share)))
            return int(self.low + math.floor(share * (self.high - self.low + 1)))
        if self.log:
            return math.exp(_between(math.log(self.low), math.log(self.high), share))
        return _between(self.low, self.high, share)


def _between(low: float, high: float, share: float) -> float:
    return low + share * (high - low)


@dataclass(frozen=True)
class Space:
    """Parameters in the order in which they are drawn."""

    parameters: tuple[Parameter, ...]

    def draw(self, seed: int, trial: int) -> Values:
        """The values of a trial: a function of seed, trial and key, so that a new parameter leaves the others alone."""
        return self.active(
            {p.key: p.at(random.Random(f"{seed}/{trial}/{p.key}").random()) for p in self.parameters}
        )

    def combinations(self) -> list[Values]:
        """Every combination of choices once, the last parameter changing first; a range has none."""
        ranges = [parameter.key for parameter in self.parameters if not parameter.choices]
        if ranges:
            raise ConfigError(
                f"{', '.join(ranges)} can take any value of a range, which a grid cannot go through. Give choices "
                "in a list, or search with --sampler random."
            )
        choices = (parameter.choices for parameter in self.parameters)
        keys = [parameter.key for parameter in self.parameters]
        drawn = [self.active(dict(zip(keys, values, strict=True))) for values in itertools.product(*choices)]
        return [values for place, values in enumerate(drawn) if values not in drawn[:place]]

    def active(self, drawn: Mapping[str, Any]) -> Values:
        """The drawn values without those whose condition does not hold, and without views that are not there."""
        written = _written_out(drawn)
        kept: Values = {}
        for parameter in self.parameters:
            if parameter.key not in drawn:
                continue
            holds = all(written.get(key) == value for key, value in parameter.when.items())
            if holds and not _beyond_list(parameter.key, written):
                kept[parameter.key] = drawn[parameter.key]
        return kept

    def check(self, recipe: Recipe) -> None:
        """Every key and both ends of every range have to be what a recipe can have."""
        for parameter in self.parameters:
            for value in parameter.examples:
                _checked(recipe, parameter.key, value)

    def to_dict(self) -> dict[str, Any]:
        """As JSON holds it."""
        return {p.key: _described(p) for p in self.parameters}


def _described(parameter: Parameter) -> Any:
    condition = {"when": dict(parameter.when)} if parameter.when else {}
    if parameter.choices:
        return {"choices": list(parameter.choices), **condition}
    return {"low": parameter.low, "high": parameter.high, "log": parameter.log, **condition}


def _written_out(drawn: Mapping[str, Any]) -> Values:
    """Settings assigned together become settings of their own."""
    result: Values = {}
    for key, value in drawn.items():
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


def with_drawn(recipe: Recipe, drawn: Mapping[str, Any]) -> Recipe:
    """The recipe with drawn values in it; shorter keys first, so that a view's threshold finds its view."""
    values = recipe.to_dict()
    written = _written_out(drawn)
    for key in sorted(written, key=lambda key: key.count(".")):
        _assign(values, key, copy.deepcopy(written[key]))
    return Recipe.from_dict(values)


def _assign(values: dict[str, Any], key: str, value: Any) -> None:
    *path, last = key.split(".")
    place: Any = values
    for part in path:
        if part.isdecimal() and isinstance(place, list | tuple) and int(part) < len(place):
            place = place[int(part)]
        elif isinstance(place, dict) and isinstance(place.get(part), list | tuple):
            place[part] = [dict(item) if isinstance(item, Mapping) else item for item in place[part]]
            place = place[part]
        elif isinstance(place, dict) and isinstance(place.get(part), dict):
            place = place[part]
        else:
            raise ConfigError(f"{key}: the recipe has no {part!r} to set {last!r} in.")
    if not isinstance(place, dict):
        raise ConfigError(f"{key}: {last!r} is not a setting.")
    place[last] = value


def _checked(recipe: Recipe, key: str, value: Any) -> None:
    try:
        with_drawn(_with_room(recipe, key), {key: value})
    except ConfigError as error:
        raise ConfigError(f"the search space's {key} = {value!r}: {error}") from error


def _with_room(recipe: Recipe, key: str) -> Recipe:
    """The recipe with as many views as the key counts on."""
    parts = key.split(".")
    if (
        parts[:2] != ["context", "views"]
        or len(parts) < 3
        or not parts[2].isdecimal()
        or recipe.context is None
    ):
        return recipe
    return recipe.with_values({"context.views": [{} for _ in range(int(parts[2]) + 1)]})


def space_named(name: str) -> Space:
    """A shipped space by the model's name (nbfnet, redgnn+cp, ...), or one from a .toml file."""
    if name.endswith(".toml"):
        return space_of(_table(Path(name)), name)
    found = _shipped(name)
    return space_of(_table(found), name)


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
    parameters = tuple(_parameter(key, value, f"{where}: {key}") for key, value in table.items())
    if not parameters:
        raise ConfigError(f"{where}: the search space is empty.")
    return Space(parameters)


def _parameter(key: str, value: Any, where: str) -> Parameter:
    if isinstance(value, list):
        value = {"choices": value}
    if not isinstance(value, Mapping) or set(value) - {"choices", "low", "high", "log", "when"}:
        raise ConfigError(
            f"{where} is {value!r}; it is a list of choices or a table with low, high and perhaps log. "
            "Dotted keys have to be quoted."
        )
    when = dict(value.get("when", {}))
    if "choices" in value:
        return _choice(key, value["choices"], when, where)
    return _range(key, value, when, where)


def _choice(key: str, choices: Any, when: Values, where: str) -> Parameter:
    if not isinstance(choices, list) or not choices:
        raise ConfigError(f"{where}: the choices are {choices!r}; there has to be a list of at least one.")
    if key.startswith(TOGETHER) and not all(isinstance(choice, Mapping) for choice in choices):
        raise ConfigError(f"{where}: each choice has to be a table of settings.")
    return Parameter(key, tuple(choices), when=when)


def _range(key: str, value: Mapping[str, Any], when: Values, where: str) -> Parameter:
    low, high, log = value.get("low"), value.get("high"), bool(value.get("log", False))
    numbers = all(type(end) in (int, float) for end in (low, high))
    if not numbers or not low < high or (log and low <= 0):  # type: ignore[operator]
        raise ConfigError(
            f"{where}: the range is {low!r} to {high!r}; it has to grow, from above 0 where log is true."
        )
    whole = type(low) is int and type(high) is int
    return Parameter(key, low=low, high=high, log=log, whole=whole, when=when)  # type: ignore[arg-type]
