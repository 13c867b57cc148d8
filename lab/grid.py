"""A grid: datasets x models x context x recipes x seeds, from flags or a TOML file."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from contextpool.errors import ConfigError, UnknownNameError, closest
from contextpool.triples.catalog import GRAIL_NAMES, benchmark_names, refuse_unknown
from lab.cells import SHIPPED, Cell, make_cell
from lab.models import Variant, joined_name, shipped_variants, variants_of

GROUPS: dict[str, tuple[str, ...]] = {
    "inductive": tuple(f"grail/{name}" for name in GRAIL_NAMES),
    "transductive": tuple(f"grail_transductive/{name}" for name in GRAIL_NAMES),
}
"""Names for the twelve settings of each kind; `all` is both."""


@dataclass(frozen=True)
class Grid:
    """Everything to train. The trainings are the product of the lists."""

    datasets: tuple[str, ...]
    """Names, folders, patterns such as grail/fb237_*, or inductive, transductive, all."""
    models: tuple[str, ...] = ("nbfnet",)
    """With or without a suffix."""
    contexts: tuple[str, ...] = ()
    """Suffixes to give to each model that has none; `plain` is none."""
    recipes: tuple[str, ...] = (SHIPPED,)
    """`shipped`, folders of recipes, or .toml files."""
    seeds: tuple[int, ...] = (0, 1, 2)
    changes: Mapping[str, Any] = field(default_factory=dict)
    """Dotted keys of a recipe, changed in all of them."""
    variants: Mapping[str, Variant] = field(default_factory=shipped_variants)
    label: str | None = None
    """Name of the recipes in the results; by default the source's."""

    def cells(self) -> list[Cell]:
        """One for each training, every key once, in the order of the lists: seeds innermost."""
        cells = (
            make_cell(
                dataset,
                model,
                source,
                seed,
                variants=self.variants,
                changes=self.changes,
                label=self.label,
            )
            for dataset in chosen_datasets(self.datasets)
            for model in self._model_names()
            for source in self.recipes
            for seed in self.seeds
        )
        return list({cell.key: cell for cell in cells}.values())

    def _model_names(self) -> list[str]:
        names = [
            model if "+" in model else joined_name(model, suffix)
            for model in self.models
            for suffix in self.contexts or ("plain",)
        ]
        return list(dict.fromkeys(names))


def chosen_datasets(wanted: Sequence[str]) -> list[str]:
    """Groups and patterns written out; each dataset once."""
    return list(dict.fromkeys(name for item in wanted for name in _matching(item)))


def _matching(item: str) -> Sequence[str]:
    if item == "all":
        return [name for names in GROUPS.values() for name in names]
    if item in GROUPS:
        return GROUPS[item]
    if not any(letter in item for letter in "*?["):
        refuse_unknown(item)
        return [item]
    found = [name for name in benchmark_names() if fnmatchcase(name, item)]
    if not found:
        raise UnknownNameError("pattern of datasets", item, [*GROUPS, *benchmark_names()])
    return found


def read_grid(path: str | Path) -> dict[str, Any]:
    """The fields that a grid file gives, converted; an unknown key is refused by name."""
    path = Path(path)
    try:
        values = tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"{path}: there is no such grid.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not valid TOML ({error}).") from error
    return {
        ("changes" if key == "set" else key): _converted(path, key, value) for key, value in values.items()
    }


def _converted(path: Path, key: str, value: Any) -> Any:
    known = {item.name for item in fields(Grid)} - {"changes"} | {"set"}
    if key not in known:
        near = closest(key, sorted(known))
        raise ConfigError(
            f"{path}: {key} is not part of a grid. "
            + (f"Did you mean {near[0]}?" if near else f"Known: {known}.")
        )
    if key == "label":
        return str(value)
    if key == "set":
        return flattened(value)
    if key == "variants":
        return shipped_variants() | variants_of(value, str(path))
    if key == "seeds":
        return seeds_of(value, f"{path}: seeds")
    return _texts(value, f"{path}: {key}")


def flattened(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """{'train.lr': 0.01} of {'train': {'lr': 0.01}}, or of itself."""
    result: dict[str, Any] = {}
    for key, value in table.items():
        if isinstance(value, Mapping):
            result |= flattened(value, f"{prefix}{key}.")
        else:
            result[prefix + key] = value
    return result


def seeds_of(value: Any, where: str) -> tuple[int, ...]:
    """A list of seeds, or how many of 0, 1, 2, ..."""
    if type(value) is int and value > 0:
        return tuple(range(value))
    if isinstance(value, list | tuple) and value and all(type(seed) is int and seed >= 0 for seed in value):
        return tuple(value)
    raise ConfigError(f"{where} is {value!r}; it is a number of seeds (0, 1, 2, ...) or a list of them.")


def _texts(value: Any, where: str) -> tuple[str, ...]:
    if isinstance(value, str):
        return (value,)
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise ConfigError(f"{where} is {value!r}; it has to be a list of names.")
    return tuple(value)
