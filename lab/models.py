"""Names of models in results: `nbfnet`, `nbfnet+cp`, `nbfnet+walk`, ...; what is behind the plus is a variant."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from contextpool.errors import ConfigError, UnknownNameError
from lab.defaults import changed

CONTEXT = "cp"
"""The suffix of a model with context as its recipe has it."""
STREAMS = "streams"
"""The suffix of a model with pooled streams, which the controls are made from."""
CONTROLS = ("dup", "random", "shuffled", "complement")
"""Suffixes of models that have the pooled streams' parameters and none of their meaning."""
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
    """Those that come with the package, by suffix."""
    text = Path(__file__).with_name("variants.toml").read_text("utf-8")
    return variants_of(tomllib.loads(text), "variants.toml")


def variants_of(table: Mapping[str, Any], where: str) -> dict[str, Variant]:
    """Variants by suffix, from a table of tables."""
    return {name: _variant(name, entry, where) for name, entry in table.items()}


def _variant(name: str, entry: Any, where: str) -> Variant:
    if not isinstance(entry, Mapping) or set(entry) - {"what", "set", "needs"} or "+" in name or " " in name:
        raise ConfigError(
            f"{where}: variant {name!r} is {entry!r}; it has to be a table with `set` (dotted keys of a recipe) and "
            "perhaps `what` and `needs`, and its name has no plus and no space."
        )
    needs = tuple(str(key) for key in entry.get("needs", ()))
    return Variant(name, str(entry.get("what", "")), dict(entry.get("set", {})), needs)


def find_variant(suffix: str, known: Mapping[str, Variant]) -> Variant:
    """The variant of a suffix that is not empty; an unknown one is refused with those there are."""
    if suffix not in known:
        raise UnknownNameError(
            "variant of a model", suffix, sorted(known), f"There are: {', '.join(sorted(known))}."
        )
    return known[suffix]
