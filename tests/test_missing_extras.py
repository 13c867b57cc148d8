"""Without the packages of an extra everything else works, and what needs one names it."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import importlib, sys
for name in ("torch_geometric", "pykeen", "huggingface_hub"):
    sys.modules[name] = None  # as if it were not installed
import contextpool as cp
from contextpool.errors import MissingExtraError
from contextpool.explain import Explanation
graph = cp.Graph.from_triples([("a", "r", "b")])
acts = {
    "graph": graph.to_pyg,
    "pyg": lambda: importlib.import_module("contextpool.interop.pyg"),
    "pykeen": lambda: importlib.import_module("contextpool.interop.pykeen"),
    "hub": lambda: cp.load("hf://ann/world"),
}
for name, act in acts.items():
    try:
        act()
    except MissingExtraError as error:
        print(name, error)
"""


def test_what_needs_an_extra_names_it() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["graph", "pyg", "pykeen", "hub"]
    for line, extra in zip(lines, ("pyg", "pyg", "pykeen", "hub"), strict=True):
        assert f"pip install 'contextpool[{extra}]'" in line


def test_nothing_of_an_extra_is_loaded_before_it_is_used() -> None:
    modules = ("cli.app", "experiment", "explain", "interop.pyg_data")
    program = f"import sys, {', '.join(f'contextpool.{module}' for module in modules)}; "
    program += "print([n for n in ('torch_geometric', 'pykeen', 'huggingface_hub') if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
