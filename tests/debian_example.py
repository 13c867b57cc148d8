"""The modules of examples/debian, which is a folder of scripts and no package."""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType

from conftest import REPOSITORY

FOLDER = REPOSITORY / "examples" / "debian"


def _loaded(name: str) -> ModuleType:
    """A script by its file, under a name that hides no installed package."""
    specification = importlib.util.spec_from_file_location(f"debian_{name}", FOLDER / f"{name}.py")
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules[specification.name] = module
    specification.loader.exec_module(module)
    return module


sys.path.insert(0, str(FOLDER))  # so that the scripts find one another, as when they are run
try:
    build = _loaded("build")
    deb822, facts = sys.modules["deb822"], sys.modules["facts"]
finally:
    sys.path.remove(str(FOLDER))
