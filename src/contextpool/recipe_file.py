"""Recipes as files: written as TOML with where they come from, and known by a fingerprint of what they say."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import MISSING, asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from contextpool.errors import ConfigError

if TYPE_CHECKING:
    from contextpool.recipe import Recipe

_TUNING = "# tuning: "


def canonical(recipe: Recipe) -> dict[str, Any]:
    """What a recipe says beyond the defaults, as JSON holds it: an option added later changes nothing here."""
    values: dict[str, Any] = {
        "dataset": recipe.dataset,
        "model": {"name": recipe.model, **_beyond_defaults(recipe.model_config())},
        "train": _beyond_defaults(recipe.train),
    }
    if recipe.context is not None:
        values["context"] = _beyond_defaults(recipe.context)
        if "views" in values["context"]:
            values["context"]["views"] = [_beyond_defaults(view) for view in recipe.context.views]
    plain: dict[str, Any] = json.loads(json.dumps(values))
    return plain


def _beyond_defaults(config: Any) -> dict[str, Any]:
    """The fields of a config dataclass that differ from their defaults, sorted by name."""
    if config is None:
        return {}
    given = {
        item.name: getattr(config, item.name) for item in fields(config) if not _is_default(config, item)
    }
    plain = asdict(config)
    return {name: plain[name] for name in sorted(given)}


def _is_default(config: Any, item: Any) -> bool:
    value = getattr(config, item.name)
    if item.default is not MISSING:
        return bool(value == item.default)
    return item.default_factory is not MISSING and bool(value == item.default_factory())


def fingerprint(recipe: Recipe) -> str:
    """sha256 of `canonical`: equal for recipes that say the same, however they are written."""
    text = json.dumps(canonical(recipe), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def recipe_text(
    recipe: Recipe, *, comments: tuple[str, ...] = (), tuning: Mapping[str, Any] | None = None
) -> str:
    """A recipe as a TOML file: comments, how it was found (`tuning_of` reads that), what it says."""
    lines = [f"# {comment}".rstrip() for comment in comments]
    if tuning is not None:
        lines.append(_TUNING + json.dumps(dict(tuning), sort_keys=True, allow_nan=False))
    head = "\n".join(lines)
    return (f"{head}\n\n" if lines else "") + to_toml(canonical(recipe))


def tuning_of(path: str | Path) -> dict[str, Any] | None:
    """How a recipe file says that it was found; None where it does not."""
    for line in Path(path).read_text("utf-8").splitlines():
        if line.startswith(_TUNING):
            try:
                found = json.loads(line.removeprefix(_TUNING))
            except ValueError as error:
                raise ConfigError(
                    f"{path}: the line that says how it was tuned is damaged ({error})."
                ) from error
            return dict(found)
    return None


def to_toml(values: Mapping[str, Any]) -> str:
    """Plain values first, then tables, then lists of tables; two levels, as recipes have them."""
    lines = [f"{key} = {_value(value)}" for key, value in values.items() if not _is_table(value)]
    for key, table in values.items():
        if not isinstance(table, Mapping):
            continue
        lines += ["", f"[{key}]"]
        lines += [f"{name} = {_value(value)}" for name, value in table.items() if not _is_tables(value)]
        for name, rows in table.items():
            for row in rows if _is_tables(rows) else []:
                lines += ["", f"[[{key}.{name}]]", *(f"{k} = {_value(v)}" for k, v in row.items())]
    return "\n".join(lines) + "\n"


def _is_tables(value: Any) -> bool:
    return isinstance(value, list | tuple) and bool(value) and isinstance(value[0], Mapping)


def _is_table(value: Any) -> bool:
    return isinstance(value, Mapping) or _is_tables(value)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, list | tuple):
        return f"[{', '.join(_value(item) for item in value)}]"
    return repr(value)
