"""Recipes as plain values beside the recorded defaults, so that keys of results keep their meaning.

A recipe is known by what it says beyond `old_defaults.json`, never by the config classes of today: a setting that is
removed, or a default that changes, leaves the lines of results and their names as they were. A setting that is added
to a config class is added to the file, with the value that leaves earlier recipes what they were.
"""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from contextpool.context.config import ContextConfig, ViewConfig
from contextpool.errors import ConfigError
from contextpool.models.registry import model_class
from contextpool.recipe import Recipe
from contextpool.train.config import TrainConfig

DEFAULTS: dict[str, Any] = json.loads(Path(__file__).with_name("old_defaults.json").read_text("utf-8"))
Values = dict[str, Any]


def written_out(values: Mapping[str, Any]) -> Values:
    """Every setting of a recipe: what it says, on top of the recorded defaults."""
    plain: Values = json.loads(json.dumps(values))  # tuples become lists
    model = plain.get("model", {})
    name = model.get("name", "nbfnet")
    full: Values = {
        "dataset": plain.get("dataset", ""),
        "model": {"name": name} | _filled(model, DEFAULTS["model"].get(name, {})),
        "train": _filled(plain.get("train", {}), DEFAULTS["train"]),
        "context": None,
    }
    context = plain.get("context")
    if context is not None and context is not False:
        full["context"] = _filled({} if context is True else context, DEFAULTS["context"])
        full["context"]["views"] = [_filled(view, DEFAULTS["view"]) for view in full["context"]["views"]]
    return full


def _filled(given: Mapping[str, Any], defaults: Mapping[str, Any]) -> Values:
    """The defaults with what is given; a whole number where a default is a float is one."""
    floats = {
        key: float(value)
        for key, value in given.items()
        if type(value) is int and type(defaults.get(key)) is float
    }
    return copy.deepcopy({**defaults, **given, **floats})


def canonical(values: Mapping[str, Any]) -> Values:
    """What a recipe says beyond the recorded defaults, settings sorted by name."""
    full = written_out(values)
    name = full["model"].pop("name")
    result: Values = {
        "dataset": full["dataset"],
        "model": {"name": name, **_beyond(full["model"], DEFAULTS["model"].get(name, {}))},
        "train": _beyond(full["train"], DEFAULTS["train"]),
    }
    if full["context"] is not None:
        result["context"] = _beyond(full["context"], DEFAULTS["context"])
        if "views" in result["context"]:
            views = [_beyond(view, DEFAULTS["view"]) for view in result["context"]["views"]]
            result["context"]["views"] = views
    return result


def _beyond(values: Mapping[str, Any], defaults: Mapping[str, Any]) -> Values:
    return {key: values[key] for key in sorted(values) if key not in defaults or values[key] != defaults[key]}


def fingerprint(values: Mapping[str, Any]) -> str:
    """sha256 of `canonical`: equal for recipes that say the same, however they are written."""
    text = json.dumps(canonical(values), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def changed(values: Mapping[str, Any], assignments: Mapping[str, Any]) -> Values:
    """Every setting, changed by dotted keys such as train.lr or context.views.0.min_recall, shorter ones first;
    `context` itself takes true or false.
    """
    result = written_out(values)
    for key in sorted(assignments, key=lambda key: key.count(".")):
        part, *path = key.split(".")
        if part not in result or (not path and part not in ("dataset", "context")):
            raise ConfigError(
                f"{key} is not a setting; those are model.*, train.*, context.*, context and dataset."
            )
        if path and result[part] in (None, False, True):
            result[part] = copy.deepcopy(DEFAULTS[part])
        place: Any = result
        try:
            for step in [part, *path][:-1]:
                place = place[int(step)] if isinstance(place, list) else place[step]
            place[key.rsplit(".", 1)[-1]] = copy.deepcopy(assignments[key])
        except (LookupError, TypeError, ValueError):
            raise ConfigError(f"{key}: the recipe has no such place for a setting.") from None
    return written_out(result)


def recipe_of(values: Mapping[str, Any]) -> Recipe:
    """The recipe to train today. A setting that is gone may have its recorded default; another value is refused."""
    full = written_out(values)
    name = full["model"].pop("name")
    parts: list[tuple[str, Values, type, Mapping[str, Any]]] = [
        ("train", full["train"], TrainConfig, DEFAULTS["train"])
    ]
    config = model_class(name).config_class
    if config is not None:
        parts.append(("model", full["model"], config, DEFAULTS["model"].get(name, {})))
    if full["context"] is not None:
        parts.append(("context", full["context"], ContextConfig, DEFAULTS["context"]))
        views = full["context"]["views"]
        parts += [("context.views", view, ViewConfig, DEFAULTS["view"]) for view in views]
    for prefix, settings, kind, defaults in parts:
        _leave_out_removed(settings, kind, defaults, prefix)
    today = {} if config is None else asdict(config())
    settings = {key: value for key, value in full["model"].items() if value != today.get(key)}
    return Recipe.from_dict({**full, "model": {"name": name, **settings}})


def _leave_out_removed(settings: Values, kind: Any, defaults: Mapping[str, Any], prefix: str) -> None:
    for key in [key for key in settings if key in defaults.keys() - {item.name for item in fields(kind)}]:
        value = settings.pop(key)
        if value != defaults[key]:
            raise ConfigError(
                f"{prefix}.{key} = {value!r}: there is no such setting any more. What was trained with it is kept as "
                "it is in results/; to train it again takes the commit that its line names."
            )
