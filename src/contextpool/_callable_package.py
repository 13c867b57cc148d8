"""Lets a stage's package also be its main function: `cp.pool(...)` beside `contextpool.pool.expand`.

The public surface names functions after the stages, and importing a stage's package binds that very name
on `contextpool`. A package that can be called serves both (docs/decisions/0002): it has the function's signature and
docstring, too, so that help(), a notebook's `cp.train?` and an editor show what the call takes.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from types import ModuleType
from typing import Any


class CallablePackage(ModuleType):
    """A package whose call is forwarded to the function named by `_call_target` (module, name)."""

    _call_target: tuple[str, str]
    _about: str

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._function(*args, **kwargs)

    @property
    def _function(self) -> Any:
        module, name = self._call_target
        return getattr(importlib.import_module(module), name)

    @property
    def __signature__(self) -> inspect.Signature:
        return inspect.signature(self._function)

    def __repr__(self) -> str:
        return f"<function {self.__name__}, also a package, from {self.__file__!r}>"


def _doc(package: CallablePackage) -> str:
    """The function's, with its signature, and what the package is."""
    called = f"{package._call_target[1]}{package.__signature__}"
    return f"{called}\n\n{inspect.getdoc(package._function)}\n\nThe package of this name: {package._about}"


def make_callable(package: str, module: str, name: str) -> None:
    """Make calls of `package` go to `module.name`, imported at the first call."""
    this: Any = sys.modules[package]
    this._call_target, this._about = (module, name), this.__doc__
    this.__class__ = CallablePackage


CallablePackage.__doc__ = property(_doc)  # type: ignore[assignment]  # found before the module's own
