"""Controls through the benchmark, from a recipe with views to lines of results, on the embedded graph."""

from __future__ import annotations

from pathlib import Path

import pytest

from contextpool.errors import ConfigError
from lab.jobs import read_lines
from lab.recipes import BARE, CONTROLS, WIDE, changed, recipe_of, shipped_variants, written_out
from lab.run import Grid, run_grid
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


def test_the_bare_model_has_fewer_parameters_than_hard_pooling_and_no_context(tmp_path: Path) -> None:
    path = tmp_path / "views.toml"
    path.write_text(RECIPE)
    grid = Grid(("world",), ("nbfnet",), contexts=("walk", BARE), recipes=(str(path),), seeds=(0,))
    assert not run_grid(grid.cells(), tmp_path / "results.jsonl").failed
    lines = {line["model"]: line for line in read_lines(tmp_path / "results.jsonl")}
    pooled, bare = (lines[f"nbfnet+{name}"] for name in ("walk", BARE))
    assert pooled["parameters"] > bare["parameters"]
    used = bare["settings"]["context"]
    assert not used["views"]
    assert not used["gate"]
    assert not used["arrive"]


@pytest.mark.parametrize("name", [*CONTROLS, WIDE])
def test_controls_of_streams_are_in_results_and_trained_no_more(name: str) -> None:
    assert name not in shipped_variants()
    values = changed({"dataset": "world", "context": True}, {"context.control": "duplicate"})
    with pytest.raises(
        ConfigError, match=r"context\.control = 'duplicate': there is no such setting any more"
    ):
        recipe_of(values)


@pytest.mark.parametrize("base", ["nbfnet", "redgnn"])
def test_every_shipped_variant_but_the_context_itself_changes_the_default_context(base: str) -> None:
    recipe = written_out({"dataset": "world", "model": {"name": base}, "context": True})
    for name, variant in shipped_variants().items():
        assert (variant.applied(recipe) == recipe) == (name in ("cp", "walk", "alg3")), name
