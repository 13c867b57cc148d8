"""Recipes as files: written as TOML with where they come from."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from contextpool.errors import ConfigError
from lab.defaults import canonical

if TYPE_CHECKING:
    from contextpool.recipe import Recipe

_TUNING = "# tuning: "


def recipe_text(
    recipe: Recipe, *, comments: tuple[str, ...] = (), tuning: Mapping[str, Any] | None = None
) -> str:
    """A recipe as a TOML file: comments, how it was found (`tuning_of` reads that), what it says."""
    lines = [f"# {comment}".rstrip() for comment in comments]
    if tuning is not None:
        lines.append(_TUNING + json.dumps(dict(tuning), sort_keys=True, allow_nan=False))
    head = "\n".join(lines)
    return (f"{head}\n\n" if lines else "") + to_toml(canonical(recipe.to_dict()))


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
