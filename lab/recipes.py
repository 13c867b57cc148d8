"""Recipes of the laboratory: plain values beside recorded defaults, variants of models, and where recipes come from.

A recipe is known by what it says beyond `old_defaults.json`, never by the config classes of today: a setting that is
removed, or a default that changes, leaves the lines of results and their names as they were. A setting that is added
to a config class is added to the file, with the value that leaves earlier recipes what they were.
"""

from __future__ import annotations

import copy
import hashlib
import json
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from contextpool.context.config import ContextConfig, ViewConfig
from contextpool.errors import ConfigError, UnknownNameError
from contextpool.models.registry import model_class
from contextpool.recipe import Recipe, read_recipe, section_values, shipped_recipe
from contextpool.train.config import TrainConfig

DEFAULTS: dict[str, Any] = json.loads(Path(__file__).with_name("old_defaults.json").read_text("utf-8"))
Values = dict[str, Any]
LEFT: dict[str, Values] = {"anyburl": {"constants": False}}
"""By model: what is left of a setting that is gone, where that is not its recorded default; unnamed, it means this."""


def written_out(values: Mapping[str, Any]) -> Values:
    """Every setting of a recipe: what it says, on top of the recorded defaults."""
    plain: Values = json.loads(json.dumps(values))  # tuples become lists
    model = plain.get("model", {})
    name = model.get("name", "nbfnet")
    full: Values = {
        "dataset": plain.get("dataset", ""),
        "model": {"name": name} | _filled(model, _of_model(name)),
        "train": _filled(plain.get("train", {}), DEFAULTS["train"]),
        "context": None,
    }
    context = plain.get("context")
    if context is not None and context is not False:
        full["context"] = _filled({} if context is True else context, DEFAULTS["context"])
        full["context"]["views"] = [_filled(view, DEFAULTS["view"]) for view in full["context"]["views"]]
    return full


def _of_model(name: str) -> Values:
    """What a recipe that does not name a setting of the model means by that."""
    return {**DEFAULTS["model"].get(name, {}), **LEFT.get(name, {})}


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
    """The recipe to train today. A setting that is gone may have the value that is left; another one is refused."""
    full = written_out(values)
    name = full["model"].pop("name")
    parts: list[tuple[str, Values, type, Mapping[str, Any]]] = [
        ("train", full["train"], TrainConfig, DEFAULTS["train"])
    ]
    config = model_class(name).config_class
    if config is not None:
        parts.append(("model", full["model"], config, _of_model(name)))
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


def flattened(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """{'train.lr': 0.01} of {'train': {'lr': 0.01}}, or of itself."""
    result: dict[str, Any] = {}
    for key, value in table.items():
        if isinstance(value, Mapping):
            result |= flattened(value, f"{prefix}{key}.")
        else:
            result[prefix + key] = value
    return result


CONTEXT = "cp"
"""The suffix of a model with context as its recipe has it."""
STREAMS = "streams"
"""The suffix of a model with pooled streams, which the controls are made from."""
CONTROLS = ("dup", "random", "shuffled", "complement")
"""Suffixes of the controls: models with the parameters of pooled streams but other neighbors."""
PARTS = ("mass", "gate", "arrive")
"""Suffixes of models with one part of the context of +cp alone."""
BARE, WIDE, RELEVANCE_CONTROL = "bare", "wide", "shuffled-relevance"
WITHOUT_CONTEXT = (BARE, WIDE)
"""Suffixes of models with the recipe of +cp and none of its context: with one stream, or with as many as are pooled."""
CONTEXT_CONTROLS = (*WITHOUT_CONTEXT, RELEVANCE_CONTROL)
"""Suffixes of models with the recipe of +cp: without its context, or with the relevance of other relations."""


@dataclass(frozen=True)
class Variant:
    """What a suffix changes in the recipe with context."""

    name: str
    what: str = ""
    values: Mapping[str, Any] = field(default_factory=dict)
    """Dotted keys of the recipe, such as context.gate."""
    needs: tuple[str, ...] = ()
    """Settings of the context that have to be in use, or the variant would be something else than its name."""

    def applied(self, recipe: Mapping[str, Any]) -> dict[str, Any]:
        """The values of the recipe with context, changed."""
        result = changed(recipe, self.values)
        for key in self.needs:
            if not result["context"].get(key):
                raise ConfigError(
                    f"{result['dataset']}: {result['model']['name']}+{self.name} ({self.what}) needs context.{key}, "
                    "and the recipe has none. Leave it out here, or give a recipe that has."
                )
        return result


def split_name(model: str) -> tuple[str, str]:
    """('nbfnet', 'cp') of 'nbfnet+cp'; ('nbfnet', '') of 'nbfnet'."""
    base, _, suffix = model.partition("+")
    return base, suffix


def joined_name(base: str, suffix: str) -> str:
    """The name of a model with the suffix; '' and 'plain' are none."""
    return base if suffix in ("", "plain") else f"{base}+{suffix}"


@cache
def shipped_variants() -> dict[str, Variant]:
    """Those of variants.toml, by suffix."""
    text = Path(__file__).with_name("variants.toml").read_text("utf-8")
    return {
        name: Variant(name, entry["what"], entry.get("set", {}), tuple(entry.get("needs", ())))
        for name, entry in tomllib.loads(text).items()
    }


def find_variant(suffix: str, known: Mapping[str, Variant]) -> Variant:
    """The variant of a suffix that is not empty; an unknown one is refused with those there are."""
    if suffix not in known:
        raise UnknownNameError(
            "variant of a model", suffix, sorted(known), f"There are: {', '.join(sorted(known))}."
        )
    return known[suffix]


def recipe_text(recipe: Recipe, *, comments: tuple[str, ...] = ()) -> str:
    """A recipe as a TOML file: comments, and what it says."""
    head = "\n".join(f"# {comment}".rstrip() for comment in comments)
    values = recipe.to_dict()
    said = canonical(values)
    for key in LEFT.get(recipe.model, {}):  # no recipe of today can name it
        said["model"].pop(key, None)
    if recipe.context is not None:  # the product's defaults are others than the recorded ones
        said["context"] = {**values["context"], "views": list(values["context"]["views"])}
        said["train"]["edge_dropout"] = values["train"]["edge_dropout"]
    return (f"{head}\n\n" if head else "") + to_toml(said)


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
    values = changed(found, {"dataset": dataset, **changes})
    name = label or (SHIPPED if source == SHIPPED else Path(source).name.removesuffix(".toml"))
    if any(letter.isspace() for letter in name):
        raise ConfigError(f"the recipe's label is {name!r}; it cannot hold a space. Give one with --label.")
    key = Key(dataset, model, recipe_name(name, values), seed)
    return Cell(key, recipe_of(values))


def recipe_name(label: str, values: Mapping[str, Any]) -> str:
    """shipped#905206d9: the label, and the first digits of the fingerprint."""
    return f"{label}#{fingerprint(values)[:8]}"


def find_recipe(dataset: str, model: str, source: str, variants: Mapping[str, Variant]) -> Mapping[str, Any]:
    """The values of a recipe from one file (.toml), or from `lab/recipes/SOURCE`; a variant starts from the +cp recipe.

    A dataset that the folder says nothing of has the product's recipe, which is by family, or its defaults.
    """
    base, suffix = split_name(model)
    if source.endswith(".toml"):
        return _from_file(Path(source), model, variants)
    values = _listed(dataset, base, bool(suffix), source) or _of_the_product(
        dataset, base, bool(suffix), source
    )
    return find_variant(suffix, variants).applied(values) if suffix else values


def _from_file(path: Path, model: str, variants: Mapping[str, Variant]) -> Mapping[str, Any]:
    recipe = read_recipe(path)
    base, suffix = split_name(model)
    if recipe.model != base or bool(suffix) != (recipe.context is not None):
        has = f"{recipe.model}, {'with' if recipe.context is not None else 'without'} context"
        raise ConfigError(f"{path}: the recipe is for {has}; it cannot serve the model {model!r}.")
    values = recipe.to_dict()
    return find_variant(suffix, variants).applied(values) if suffix else values


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
