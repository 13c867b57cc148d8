"""The table of a grid: complete searches alone, means over them, the best one bold."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

WIDE, DEEP = {"model.dim": 64}, {"model.layers": 8}


@pytest.fixture(scope="module")
def script() -> ModuleType:
    return importlib.import_module("lab.pages")


def search(
    path: Path, seed: int, scores: dict[str, tuple[dict[str, Any], float | None]], **model: Any
) -> None:
    header = {
        "kind": "search", "dataset": "grail/nell_v2", "model": "nbfnet", "select": "pseudo-inductive",
        "sampler": "grid", "seed": seed, "rung_epochs": [3], "base": {"model": {"name": "nbfnet", **model}},
        "space": {"together.change": {"choices": [WIDE, DEEP]}},
    }  # fmt: skip
    lines = [
        {"kind": "trial", "valid_mrr": score, "values": {"together.change": change}}
        for change, score in scores.values()
    ]
    path.write_text("\n".join(json.dumps(line) for line in [header, *lines]) + "\n", "utf-8")


def test_means_of_complete_searches(script: ModuleType, tmp_path: Path) -> None:
    search(tmp_path / "a.jsonl", 0, {"wide": (WIDE, 0.4), "deep": (DEEP, 0.5)})
    search(tmp_path / "b.jsonl", 1, {"deep": (DEEP, 0.3), "wide": (WIDE, 0.5)})
    search(tmp_path / "cut_off.jsonl", 2, {"wide": (WIDE, 0.9)})
    search(tmp_path / "failed.jsonl", 3, {"wide": (WIDE, 0.9), "deep": (DEEP, None)})
    (found,) = script.grids(tmp_path).values()
    assert script.grid_table(found).splitlines() == [
        "| change | mean | gain | nell_v2, 3 epochs, seed 0 | nell_v2, 3 epochs, seed 1 |",
        "| --- | --: | --: | --: | --: |",
        "| `model.dim = 64` | **.450** |  | .400 | .500 |",
        "| `model.layers = 8` | .400 |  | .500 | .300 |",
    ]


def test_a_change_to_what_is_there_is_the_recipe_as_it_is(script: ModuleType, tmp_path: Path) -> None:
    search(tmp_path / "a.jsonl", 0, {"wide": (WIDE, 0.4), "deep": (DEEP, 0.5)}, layers=8)
    (found,) = script.grids(tmp_path).values()
    assert script.grid_table(found).splitlines()[2:] == [
        "| `model.dim = 64` | .400 | −.100 | .400 |",
        "| as it is | **.500** | +.000 | .500 |",
    ]


def test_changes_to_another_base_are_another_table(script: ModuleType, tmp_path: Path) -> None:
    search(tmp_path / "a.jsonl", 0, {"wide": (WIDE, 0.4), "deep": (DEEP, 0.5)})
    search(tmp_path / "b.jsonl", 0, {"wide": (WIDE, 0.4), "deep": (DEEP, 0.5)}, exclude_head=True)
    assert sorted(base for _, _, base, _ in script.grids(tmp_path)) == [
        '{"model": {"name": "nbfnet", "exclude_head": true}}',
        '{"model": {"name": "nbfnet"}}',
    ]
