"""Recipes: everything a run depends on but its seed and its machine, as frozen dataclasses read from TOML."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields, is_dataclass, replace
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from contextpool.context.config import PRESETS, ContextConfig, ViewConfig
from contextpool.errors import ConfigError, closest
from contextpool.models.registry import model_class
from contextpool.train.config import MixedGraph, MixtureConfig, TrainConfig

MIXTURE = "a mixture of graphs"
"""What the dataset of a recipe with a mixture is called."""
SCRATCH = "scratch"
"""What random weights are called among the things that training starts from."""
SHIPPED_RECIPES = ("anygraph-1.toml",)
"""Recipes in the package that can be trained by their name; the others are tables of settings by benchmark."""
UNREAD = ("epochs", "patience", "valid_facts", "edge_dropout", "average_last", "queries")
"""Settings of training that a mixture has no use for."""


@dataclass(frozen=True)
class Recipe:
    """A dataset or a mixture of graphs, a model with its settings, context or none, and how to train."""

    dataset: str
    model: str = "nbfnet"
    settings: Mapping[str, Any] = field(default_factory=dict)
    """The model's own settings, as its config class has them."""
    context: ContextConfig | None = None
    train: TrainConfig = field(default_factory=TrainConfig)
    mixture: MixtureConfig | None = None
    """Graphs to pre-train on, in the place of a dataset."""
    start: str | None = None
    """The run, or the name of a model in the package, whose weights training starts from; None for random ones."""

    def model_config(self) -> Any:
        """The model's settings, checked."""
        return checked(model_class(self.model).config_class, self.settings, "model")

    def to_dict(self) -> dict[str, Any]:
        """As JSON and TOML can hold it, every setting of context and training written out."""
        return self.resolved()._values()

    def _values(self) -> dict[str, Any]:
        values = {
            "dataset": self.dataset,
            "model": {"name": self.model, **self.settings},
            "context": None if self.context is None else asdict(self.context),
            "train": asdict(self.train),
        }
        optional = {"mixture": self.mixture and asdict(self.mixture), "start": self.start}
        return values | {key: value for key, value in optional.items() if value is not None}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Recipe:
        """From what `to_dict` gives, or a TOML file holds; an unknown key is refused by name."""
        known = {"dataset", "model", "context", "train", "mixture", "start"}
        _refuse_unknown(_table("recipe", values), known, "")
        model = dict(_table("model", values.get("model", {})))
        context, mixture, start = (values.get(key) for key in ("context", "mixture", "start"))
        recipe = cls(
            dataset=_converted("dataset", str, values.get("dataset", MIXTURE if mixture is not None else "")),
            model=_converted("model.name", str, model.pop("name", "nbfnet")),
            settings=model,
            context=None if context is None or context is False else context_from(context),
            train=checked(TrainConfig, values.get("train", {}), "train"),
            mixture=None if mixture is None else mixture_from(mixture),
            start=None if start is None else _converted("start", str, start),
        )
        recipe.check()
        return recipe

    def check(self) -> None:
        """Refuse settings that do not go together."""
        self.model_config()
        kind = model_class(self.model)
        kind.check_context(self.context)
        if self.mixture is None:
            return
        if self.dataset != MIXTURE:
            raise ConfigError(f"dataset is {self.dataset!r}, and there is a mixture: leave one of them out.")
        if kind.keeps_relations:
            raise ConfigError(
                f"model.name is {self.model!r}, whose weights belong to the relations of one graph; a mixture of "
                "graphs needs one that takes any relation: anygraph."
            )
        plain = TrainConfig()
        for key in UNREAD:
            if getattr(self.train, key) != getattr(plain, key):
                raise ConfigError(
                    f"train.{key} is {getattr(self.train, key)!r}, which training on a mixture does not read: its "
                    "steps and edge dropout are mixture.steps and mixture.edge_dropout. Leave it out."
                )

    def resolved(self) -> Recipe:
        """With the edge dropout that the context asks for, where nothing says another, and a model's own context."""
        context = model_class(self.model).own_context or self.context
        if self.train.edge_dropout is not None or self.mixture is not None:
            return replace(self, context=context)
        share = 0.0 if context is None else context.default_edge_dropout
        return replace(self, context=context, train=replace(self.train, edge_dropout=share))

    def with_values(self, assignments: Mapping[str, Any]) -> Recipe:
        """Changed by dotted keys such as train.lr or context.hops; `context` itself takes true, false or a preset."""
        values = self._values()
        for key, value in assignments.items():
            _assign(values, key, value)
        return Recipe.from_dict(values)


def read_recipe(path: str | Path) -> Recipe:
    """A recipe from a TOML file, or the one of this name in the package where there is no such file."""
    path = Path(path)
    try:
        values = tomllib.loads(_shipped_or_own(path).read_text("utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"{path}: there is no such recipe.") from None
    except (
        ValueError,
        RecursionError,
    ) as error:  # numbers of many digits and nesting without end are among them
        raise ConfigError(f"{path}: not valid TOML ({error}).") from error
    try:
        return Recipe.from_dict(values)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error


def _shipped_or_own(path: Path) -> Traversable:
    shipped = resources.files("contextpool").joinpath("recipes").joinpath(path.name)
    is_name = path.parent == Path() and path.name in SHIPPED_RECIPES
    return shipped if is_name and not path.exists() else path


def shipped_recipe(dataset: str, model: str, context: bool, section: str | None = None) -> Recipe | None:
    """The recipe that the package ships for a benchmark, by its family (grail/fb237 of grail/fb237_v1), or None.

    `section` names another one of the model's: "own" for a graph that nothing was searched on, "fast" and "best".
    """
    found = resources.files("contextpool").joinpath("recipes").joinpath(f"{model}.toml")
    if not found.is_file():
        return None
    name = section or dataset.rsplit("_v", 1)[0]
    values = section_values(tomllib.loads(found.read_text("utf-8")), name, context)
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
    for item in fields(kind):
        if item.default is MISSING and item.default_factory is MISSING and item.name not in values:
            raise ConfigError(f"{prefix} has a table without {item.name}; it has to say one.")
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
    if len(listed) > MOST_VIEWS:
        raise ConfigError(f"context.views has {len(listed):,} views; the most is {MOST_VIEWS}.")
    views: tuple[ViewConfig, ...] = tuple(checked(ViewConfig, view, "context.views") for view in listed)
    return replace(config, views=views)


def mixture_from(values: Any) -> MixtureConfig:
    """From a table; `graphs` is a list of names, or of tables with a name and a share."""
    table = dict(_table("mixture", values))
    listed = table.pop("graphs", [])
    if not isinstance(listed, list | tuple):
        raise ConfigError(f"mixture.graphs is {_told(listed)}; it has to be a list of names.")
    graphs = [
        checked(MixedGraph, {"name": one} if isinstance(one, str) else one, "mixture.graphs")
        for one in listed
    ]
    _refuse_unknown(table, {item.name for item in fields(MixtureConfig)}, "mixture.")
    hints = get_type_hints(MixtureConfig)
    plain = {key: _converted(f"mixture.{key}", hints[key], value) for key, value in table.items()}
    return MixtureConfig(graphs=tuple(graphs), **plain)


def _table(key: str, values: Any) -> Mapping[str, Any]:
    if not isinstance(values, Mapping):
        raise ConfigError(f"{key} is {_told(values)}; it has to be a table of settings.")
    return values


MOST_VIEWS = 16
_WIDE, _FAR, _MANY = 1 << 14, 64, 1 << 20
LARGEST = {
    **dict.fromkeys(("dim", "hidden", "attention_dim", "bases", "rank"), _WIDE),
    **dict.fromkeys(("layers", "relation_layers", "hops", "length", "sizes"), _FAR),
    **dict.fromkeys(("batch_size", "negatives", "micro_batches", "average_last"), _MANY),
}
"""The largest value of a setting, by its name: a run folder from elsewhere says these, too. Others have 63 bits."""


def _converted(key: str, hint: Any, value: Any) -> Any:
    """An int where a float is expected is one, a list a tuple; everything else has to have the right type."""
    if hint == float | None:
        return None if value is None else _converted(key, float, value)
    if type(value) is int and hint in (int, float):
        return _bounded(key, value) if hint is int else float(_bounded(key, value))
    if hint in (int, float, bool, str) and type(value) is not hint:
        raise ConfigError(f"{key} is {_told(value)}; it has to be of type {hint.__name__}.")
    if get_origin(hint) is Literal and value not in get_args(hint):
        raise ConfigError(f"{key} is {_told(value)}; it is one of {', '.join(get_args(hint))}.")
    if hint == tuple[int, ...]:
        if not isinstance(value, list | tuple) or any(type(item) is not int for item in value):
            raise ConfigError(f"{key} is {_told(value)}; it has to be a list of whole numbers.")
        if len(value) > _FAR:
            raise ConfigError(f"{key} has {len(value):,} numbers; the most is {_FAR}.")
        return tuple(_bounded(key, item) for item in value)
    if hint == tuple[str, ...]:
        if not isinstance(value, list | tuple) or any(type(item) is not str for item in value):
            raise ConfigError(f"{key} is {_told(value)}; it has to be a list of texts.")
        return tuple(value)
    if hint == tuple[float, float]:
        if not isinstance(value, list | tuple) or len(value) != 2:
            raise ConfigError(f"{key} is {_told(value)}; it has to be a list of two numbers.")
        return tuple(_converted(key, float, item) for item in value)
    return value


def _bounded(key: str, value: int) -> int:
    largest = LARGEST.get(key.rpartition(".")[2], (1 << 63) - 1)
    if abs(value) > largest:
        raise ConfigError(f"{key} is {_told(value)}; the most is {largest:,}.")
    return value


def _told(value: Any) -> str:
    """A value as a message can hold it."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:80]}..."


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
