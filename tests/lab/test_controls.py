"""Controls through the benchmark, from a recipe with views to lines of results, on the embedded graph."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.defaults import written_out
from lab.grid import Grid
from lab.lines import read_lines
from lab.models import BARE, CONTROLS, STREAMS, WIDE, shipped_variants
from lab.run import run_grid
from learning_worlds import one_thread as one_thread

RECIPE = """
dataset = "world"
[model]
name = "nbfnet"
dim = 4
layers = 2
[train]
epochs = 1
batch_size = 512
[context]
hops = 2
views = [{ min_precision = 0.3 }, { min_precision = 0.0, min_recall = 0.3 }]
"""


def test_every_control_is_trained_with_the_parameters_of_the_context(tmp_path: Path) -> None:
    path = tmp_path / "views.toml"
    path.write_text(RECIPE)
    grid = Grid(("world",), ("nbfnet",), contexts=(STREAMS, *CONTROLS), recipes=(str(path),), seeds=(0,))
    done = run_grid(grid.cells(), tmp_path / "results.jsonl")
    assert not done.failed
    lines = {line["model"]: line for line in read_lines(tmp_path / "results.jsonl")}
    assert set(lines) == {"nbfnet+streams", *(f"nbfnet+{control}" for control in CONTROLS)}
    assert len({line["parameters"] for line in lines.values()}) == 1
    assert len({line["recipe"] for line in lines.values()}) == len(lines)
    assert len({line["mrr"] for line in lines.values()}) == len(lines)
    used = {model: line["settings"]["context"]["control"] for model, line in lines.items()}
    assert used["nbfnet+streams"] == "none"
    assert used["nbfnet+dup"] == "duplicate"


def test_the_widened_model_has_the_parameters_of_hard_pooling_and_no_context(tmp_path: Path) -> None:
    path = tmp_path / "views.toml"
    path.write_text(RECIPE)
    grid = Grid(("world",), ("nbfnet",), contexts=("walk", WIDE, BARE), recipes=(str(path),), seeds=(0,))
    assert not run_grid(grid.cells(), tmp_path / "results.jsonl").failed
    lines = {line["model"]: line for line in read_lines(tmp_path / "results.jsonl")}
    wide, pooled, bare = (lines[f"nbfnet+{name}"] for name in (WIDE, "walk", BARE))
    assert wide["parameters"] == pooled["parameters"] > bare["parameters"]
    used = wide["settings"]["context"]
    assert used["control"] == "duplicate"
    assert not used["gate"]
    assert not used["arrive"]


@pytest.mark.parametrize("base", ["nbfnet", "redgnn"])
def test_every_shipped_variant_but_the_context_itself_changes_the_default_context(base: str) -> None:
    recipe = written_out({"dataset": "world", "model": {"name": base}, "context": True})
    for name, variant in shipped_variants().items():
        assert (variant.applied(recipe) == recipe) == (name in ("cp", "walk", "alg3")), name
