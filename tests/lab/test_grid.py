"""A grid is a product; its cells find their recipes, and what is wrong with it is told before anything is trained."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from conftest import REPOSITORY
from contextpool.errors import ConfigError, UnknownNameError
from contextpool.recipe import Recipe, shipped_recipe
from lab.recipes import (
    RECIPES,
    Key,
    Variant,
    find_recipe,
    fingerprint,
    joined_name,
    make_cell,
    recipe_name,
    recipe_text,
    shipped_variants,
    split_name,
)
from lab.results import read_results
from lab.run import GROUPS, Grid, chosen_datasets
from lab_small import QUICK


def test_names_come_apart_and_together() -> None:
    assert split_name("nbfnet+cp") == ("nbfnet", "cp")
    assert split_name("redgnn") == ("redgnn", "")
    assert [joined_name("redgnn", suffix) for suffix in ("", "plain", "cp")] == [
        "redgnn",
        "redgnn",
        "redgnn+cp",
    ]


def test_groups_and_patterns_are_written_out_once() -> None:
    assert len(chosen_datasets(["all"])) == 24
    assert chosen_datasets(["grail/nell_v?", "grail/nell_v2"]) == [f"grail/nell_v{n}" for n in (1, 2, 3, 4)]
    assert chosen_datasets(["inductive", "grail/fb237_v1"]) == list(GROUPS["inductive"])
    with pytest.raises(UnknownNameError, match="pattern of datasets 'grail/yago"):
        chosen_datasets(["grail/yago*"])


def test_the_cells_are_the_product_with_seeds_innermost() -> None:
    grid = Grid(
        ("grail/nell_v1", "grail/nell_v2"), ("nbfnet", "redgnn+cp"), contexts=("plain", "cp"), seeds=(0, 1)
    )
    keys = [(key.dataset[-2:], key.model, key.seed) for key in (cell.key for cell in grid.cells())]
    models = ["nbfnet", "nbfnet+cp", "redgnn+cp"]
    assert keys == [(data, model, seed) for data in ("v1", "v2") for model in models for seed in (0, 1)]


def test_a_cell_follows_the_recipe_of_its_split_and_carries_its_fingerprint() -> None:
    (cell,) = Grid(("grail/fb237_v1",), ("nbfnet+cp",), seeds=(5,)).cells()
    assert cell.key == Key(
        "grail/fb237_v1", "nbfnet+cp", f"shipped#{fingerprint(cell.recipe.to_dict())[:8]}", 5
    )
    assert str(cell.key) == f"grail/fb237_v1 nbfnet+cp {cell.key.recipe} 5"
    (world,) = Grid(("world",), ("nbfnet+cp",), seeds=(0,)).cells()
    expected = shipped_recipe("world", "nbfnet", True)
    assert expected is not None
    assert world.recipe.model_config() == expected.model_config()
    assert (world.recipe.context, world.recipe.train) == (expected.context, expected.train)


def test_a_change_makes_another_recipe_and_the_same_change_the_same() -> None:
    cells = [Grid(("world",), seeds=(0,), changes=changes).cells()[0] for changes in ({}, QUICK, dict(QUICK))]
    assert cells[0].key != cells[1].key
    assert cells[1].key == cells[2].key
    assert cells[1].recipe.train.epochs == 1


@pytest.mark.parametrize(
    ("suffix", "views", "gate", "arrive"),
    [
        ("walk", 2, False, False),
        ("gate", 0, True, False),
        ("arrive", 0, False, True),
        ("streams", 2, True, True),
    ],
)
def test_variants_change_how_context_is_used(suffix: str, views: int, gate: bool, arrive: bool) -> None:
    (cell,) = Grid(("grail/fb237_v1",), (f"nbfnet+{suffix}",), seeds=(0,)).cells()
    context = cell.recipe.context
    assert context is not None
    assert (len(context.views), context.gate, context.arrive) == (views, gate, arrive)


def test_the_two_algorithms_of_table_4_differ_in_the_algorithm_alone() -> None:
    by_suffix = {
        suffix: Grid(("grail/fb237_v1",), (f"redgnn+{suffix}",), seeds=(0,)).cells()[0].recipe
        for suffix in ("alg1", "alg3")
    }
    assert {view.algorithm for view in by_suffix["alg3"].context.views} == {"neighbors"}  # type: ignore[union-attr]
    assert [view.algorithm for view in by_suffix["alg1"].context.views] == [  # type: ignore[union-attr]
        "families-precision",
        "families-recall",
    ]
    assert by_suffix["alg1"].settings == by_suffix["alg3"].settings
    assert by_suffix["alg1"].train == by_suffix["alg3"].train


def test_a_variant_that_would_be_something_else_is_refused() -> None:
    own = shipped_variants() | {"harder": Variant("harder", values={"context.hops": 2}, needs=("views",))}
    with pytest.raises(ConfigError, match=r"world: nbfnet\+harder .* needs context.views"):
        Grid(("world",), ("nbfnet+harder",), variants=own).cells()


def test_an_unknown_variant_or_an_option_that_does_not_exist_is_refused_by_name() -> None:
    with pytest.raises(UnknownNameError, match="variant of a model 'cpp' is unknown"):
        Grid(("grail/fb237_v1",), ("nbfnet+cpp",)).cells()
    own = shipped_variants() | {"mine": Variant("mine", values={"context.nosuch": 1})}
    with pytest.raises(ConfigError, match=r"context\.nosuch is not a setting"):
        Grid(("grail/fb237_v1",), ("nbfnet+mine",), variants=own).cells()


def test_every_shipped_variant_without_new_options_can_be_made() -> None:
    for name, variant in shipped_variants().items():
        assert variant.what, name
    for name in ("cp", "walk", "gate", "arrive", "streams", "alg1", "alg3"):
        assert Grid(("grail/nell_v1",), (f"redgnn+{name}",)).cells()


def test_variants_start_from_a_recipe_file(tmp_path: Path) -> None:
    recipe = Recipe("grail/nell_v1", "nbfnet", {"dim": 8}).with_values({"context.hops": 2})
    path = tmp_path / "mine.toml"
    path.write_text(recipe_text(recipe))
    grid = Grid(("grail/nell_v1",), ("nbfnet+cp", "nbfnet+gate"), recipes=(str(path),), seeds=(0,))
    exact, derived = grid.cells()
    assert exact.recipe == recipe.resolved()
    assert exact.key.recipe.startswith("mine#")
    assert derived.recipe.context is not None
    assert derived.recipe.context.views == ()


def test_the_special_recipes_are_those_of_the_lines() -> None:
    results = read_results(REPOSITORY / "results")
    named = {(group.dataset, group.model, group.recipe) for group in results.groups}
    found = 0
    for path in sorted(RECIPES.glob("*/*.toml")):
        for section in tomllib.loads(path.read_text("utf-8")):
            dataset, plus, _ = section.partition("+")
            if dataset != "all":
                model = f"{path.stem}+cp" if plus else path.stem
                values = find_recipe(dataset, model, path.parent.name, shipped_variants())
                found += (dataset, model, recipe_name(path.parent.name, values)) in named
    assert found == 94
    with pytest.raises(ConfigError, match="no recipe of nbfnet for grail/fb237_v1"):
        Grid(("grail/fb237_v1",), ("nbfnet",), recipes=("published",)).cells()
    with pytest.raises(ConfigError, match=r"neither a \.toml file nor one of published, shipped"):
        Grid(("grail/fb237_v1",), ("nbfnet",), recipes=("nowhere",)).cells()


def test_one_recipe_file_serves_the_model_it_is_for_on_any_dataset(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(recipe_text(Recipe("world", "redgnn", {"dim": 8})))
    (cell,) = Grid(("grail/nell_v1",), ("redgnn",), recipes=(str(path),), seeds=(0,)).cells()
    assert (cell.recipe.dataset, cell.recipe.settings["dim"]) == ("grail/nell_v1", 8)
    for model in ("nbfnet", "redgnn+cp"):
        with pytest.raises(ConfigError, match="it cannot serve the model"):
            Grid(("grail/nell_v1",), (model,), recipes=(str(path),)).cells()


def test_a_label_with_a_space_is_refused() -> None:
    with pytest.raises(ConfigError, match="cannot hold a space"):
        make_cell("world", "nbfnet", "shipped", 0, variants={}, changes={}, label="my recipe")
