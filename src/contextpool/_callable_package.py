"""Lets a stage's package also be its main function: `cp.pool(...)` beside `contextpool.pool.expand`.

The public surface names functions after the stages, and importing a stage's package binds that very name
on `contextpool`. A package that can be called serves both (docs/decisions/0002).
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Any


class CallablePackage(ModuleType):
    """A package whose call is forwarded to the function named by `_call_target` (module, name)."""

    _call_target: tuple[str, str]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        module, name = self._call_target
        return getattr(importlib.import_module(module), name)(*args, **kwargs)


def make_callable(package: str, module: str, name: str) -> None:
    """Make calls of `package` go to `module.name`, imported at the first call."""
    this = sys.modules[package]
    this._call_target = (module, name)  # type: ignore[attr-defined]
    this.__class__ = CallablePackage
