"""Models by name. A model of your own needs no entry: pass its class to `cp.train`."""

from __future__ import annotations

import importlib
import sys

from contextpool.errors import UnknownNameError, shortened
from contextpool.models.base import LinkPredictor

_HOME = {
    "anyburl": "contextpool.models.baselines.anyburl:AnyBURL",
    "anygraph": "contextpool.models.anygraph:AnyGraph",
    "compgcn": "contextpool.models.baselines.compgcn:CompGCN",
    "drum": "contextpool.models.baselines.chains:DRUM",
    "grail": "contextpool.models.baselines.grail:GraIL",
    "nbfnet": "contextpool.models.nbfnet:NBFNet",
    "neural_lp": "contextpool.models.baselines.chains:NeuralLP",
    "redgnn": "contextpool.models.redgnn:REDGNN",
    "walk": "contextpool.models.walk:Walk",
}


def model_names() -> list[str]:
    return sorted(_HOME)


def model_class(name: str) -> type[LinkPredictor]:
    """The class of a model by its name, or by `module:Class` as a run of somebody's own model stores it.

    Only a module that is imported already is looked into: a run folder from elsewhere must not make us import one.
    """
    if name in _HOME:
        module, _, attribute = _HOME[name].partition(":")
        known: type[LinkPredictor] = getattr(importlib.import_module(module), attribute)
        return known
    module, _, attribute = name.partition(":")
    if not attribute:
        raise UnknownNameError("model", name, model_names(), "A model of your own is named module:Class.")
    found = getattr(sys.modules.get(module), attribute, None)
    if not (isinstance(found, type) and issubclass(found, LinkPredictor)):
        hint = f"There is no LinkPredictor of that name; import {shortened(module)}, which defines it, first."
        raise UnknownNameError("model", name, model_names(), hint)
    return found


def name_of(model: type[LinkPredictor]) -> str:
    """The registered name, or `module:Class`."""
    home = f"{model.__module__}:{model.__qualname__}"
    return next((name for name, known in _HOME.items() if known == home), home)
