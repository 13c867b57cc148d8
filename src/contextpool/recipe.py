"""Recipes: everything a run depends on but its seed and its machine, as frozen dataclasses read from TOML."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, is_dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from contextpool.context.config import PRESETS, ContextConfig, ViewConfig
from contextpool.errors import ConfigError, closest
from contextpool.models.registry import model_class
from contextpool.train.config import TrainConfig


@dataclass(frozen=True)
class Recipe:
    """A dataset, a model with its settings, context or none, and how to train."""

    dataset: str
    model: str = "nbfnet"
    settings: Mapping[str, Any] = field(default_factory=dict)
    """The model's own settings, as its config class has them."""
    context: ContextConfig | None = None
    train: TrainConfig = field(default_factory=TrainConfig)

    def model_config(self) -> Any:
        """The model's settings, checked."""
        return checked(model_class(self.model).config_class, self.settings, "model")

    def to_dict(self) -> dict[str, Any]:
        """As JSON and TOML can hold it, every setting of context and training written out."""
        return self.resolved()._values()

    def _values(self) -> dict[str, Any]:
        return {
            "dataset": self.dataset,
            "model": {"name": self.model, **self.settings},
            "context": None if self.context is None else asdict(self.context),
            "train": asdict(self.train),
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Recipe:
        """From what `to_dict` gives, or a TOML file holds; an unknown key is refused by name."""
        _refuse_unknown(values, {"dataset", "model", "context", "train"}, "")
        model = dict(_table("model", values.get("model", {})))
        context = values.get("context")
        recipe = cls(
            dataset=_converted("dataset", str, values.get("dataset", "")),
            model=_converted("model.name", str, model.pop("name", "nbfnet")),
            settings=model,
            context=None if context is None or context is False else context_from(context),
            train=checked(TrainConfig, values.get("train", {}), "train"),
        )
        recipe.model_config()
        model_class(recipe.model).check_context(recipe.context)
        return recipe

    def resolved(self) -> Recipe:
        """With the edge dropout that the context asks for, where nothing says another."""
        if self.train.edge_dropout is not None:
            return self
        share = 0.0 if self.context is None else self.context.default_edge_dropout
        return replace(self, train=replace(self.train, edge_dropout=share))

    def with_values(self, assignments: Mapping[str, Any]) -> Recipe:
        """Changed by dotted keys such as train.lr or context.hops; `context` itself takes true, false or a preset."""
        values = self._values()
        for key, value in assignments.items():
            _assign(values, key, value)
        return Recipe.from_dict(values)


def read_recipe(path: str | Path) -> Recipe:
    """A recipe from a TOML file."""
    path = Path(path)
    try:
        values = tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"{path}: there is no such recipe.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not valid TOML ({error}).") from error
    try:
        return Recipe.from_dict(values)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error


def shipped_recipe(dataset: str, model: str, context: bool) -> Recipe | None:
    """The recipe that the package ships for a benchmark, by its family (grail/fb237 of grail/fb237_v1), or None."""
    found = resources.files("contextpool").joinpath("recipes").joinpath(f"{model}.toml")
    if not found.is_file():
        return None
    values = section_values(tomllib.loads(found.read_text("utf-8")), dataset.rsplit("_v", 1)[0], context)
    return (
        None
        if values is None
        else Recipe.from_dict(_joined(values, {"dataset": dataset, "model": {"name": model}}))
    )


def section_values(table: Mapping[str, Any], name: str, context: bool) -> dict[str, Any] | None:
    """What a table of recipes says under a name: its section `all`, then the name's; None where it has no such name.

    With context `all+cp` is added, and NAME+cp takes the place of NAME where there is one.
    """
    if name not in table or (context and "all+cp" not in table):
        return None
    own = f"{name}+cp" if context and f"{name}+cp" in table else name
    values: dict[str, Any] = {}
    for section in ("all", "all+cp", own) if context else ("all", own):
        values = _joined(values, table[section])
    return values


def _joined(values: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """The values with the changes, table by table."""
    tables = {key: {**values.get(key, {}), **new} for key, new in changes.items() if isinstance(new, Mapping)}
    return {**values, **changes, **tables}


def checked(kind: type, values: Mapping[str, Any], prefix: str) -> Any:
    """An instance of a config dataclass; unknown keys and wrong types are refused by their key."""
    assert is_dataclass(kind)
    _table(prefix, values)
    _refuse_unknown(values, {item.name for item in fields(kind)}, f"{prefix}.")
    hints = get_type_hints(kind)
    converted = {key: _converted(f"{prefix}.{key}", hints[key], value) for key, value in values.items()}
    return kind(**converted)


def context_from(values: Mapping[str, Any] | bool | str) -> ContextConfig:
    """True for the default context, the name of a preset, or a table of what differs from the default.

    `views` is a list of tables.
    """
    if isinstance(values, str):
        if values not in PRESETS:
            raise ConfigError(
                f"context is {values!r}; it is true, false, a table, or one of {', '.join(PRESETS)}."
            )
        return PRESETS[values]
    if values is True:
        return ContextConfig()
    table = _table("context", values)
    plain = {key: value for key, value in table.items() if key != "views"}
    config: ContextConfig = checked(ContextConfig, plain, "context")
    if "views" not in table:
        return config
    listed = table["views"]
    if not isinstance(listed, list | tuple):
        raise ConfigError(f"context.views is {listed!r}; it has to be a list of tables.")
    views: tuple[ViewConfig, ...] = tuple(checked(ViewConfig, view, "context.views") for view in listed)
    return replace(config, views=views)


def _table(key: str, values: Any) -> Mapping[str, Any]:
    if not isinstance(values, Mapping):
        raise ConfigError(f"{key} is {values!r}; it has to be a table of settings.")
    return values


def _converted(key: str, hint: Any, value: Any) -> Any:
    """An int where a float is expected is one, a list a tuple; everything else has to have the right type."""
    if hint == float | None:
        return None if value is None else _converted(key, float, value)
    if hint is float and type(value) is int:
        return float(value)
    if hint in (int, float, bool, str) and type(value) is not hint:
        raise ConfigError(f"{key} is {value!r}; it has to be of type {hint.__name__}.")
    if get_origin(hint) is Literal and value not in get_args(hint):
        raise ConfigError(f"{key} is {value!r}; it is one of {', '.join(get_args(hint))}.")
    if hint == tuple[int, ...]:
        if not isinstance(value, list | tuple) or any(type(item) is not int for item in value):
            raise ConfigError(f"{key} is {value!r}; it has to be a list of whole numbers.")
        return tuple(value)
    return value


def _refuse_unknown(values: Mapping[str, Any], known: set[str], prefix: str) -> None:
    for key in values:
        if key not in known:
            near = closest(key, sorted(known))
            hint = f" Did you mean {prefix}{near[0]}?" if near else f" Known: {', '.join(sorted(known))}."
            raise ConfigError(f"{prefix}{key} is not a setting.{hint}")


def _assign(values: dict[str, Any], key: str, value: Any) -> None:
    *path, last = key.split(".")
    place = values
    for part in path:
        inner = place.get(part)
        if not isinstance(inner, dict):
            named = inner if part == "context" and isinstance(inner, str) else "default"
            inner = place[part] = {} if part != "context" else asdict(context_from(named))
        place = inner
    place[last] = value
