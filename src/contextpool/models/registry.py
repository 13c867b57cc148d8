"""Models by name. A model of your own needs no entry: pass its class to `cp.train`."""

from __future__ import annotations

import importlib

from contextpool.errors import UnknownNameError
from contextpool.models.base import LinkPredictor

_HOME = {
    "nbfnet": "contextpool.models.nbfnet:NBFNet",
    "redgnn": "contextpool.models.redgnn:REDGNN",
    "walk": "contextpool.models.walk:Walk",
}


def model_names() -> list[str]:
    return sorted(_HOME)


def model_class(name: str) -> type[LinkPredictor]:
    """The class of a model by its name, or by `module:Class` as a run of somebody's own model stores it."""
    home = _HOME.get(name, name)
    module, _, attribute = home.partition(":")
    if not attribute:
        raise UnknownNameError("model", name, model_names(), "A model of your own is named module:Class.")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        raise UnknownNameError(
            "model", name, model_names(), f"{home} cannot be imported: {error}."
        ) from error
    if not (isinstance(found, type) and issubclass(found, LinkPredictor)):
        raise UnknownNameError("model", name, model_names(), f"{home} is not a LinkPredictor.")
    return found


def name_of(model: type[LinkPredictor]) -> str:
    """The registered name, or `module:Class`."""
    home = f"{model.__module__}:{model.__qualname__}"
    return next((name for name, known in _HOME.items() if known == home), home)
