"""Recipes: what they hold comes back, and what they cannot hold is refused by name."""

from __future__ import annotations

import json
import tomllib
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from contextpool.context.config import NO_CONTEXT, PRESETS, ContextConfig, ViewConfig
from contextpool.context.counts import Statistics
from contextpool.errors import ConfigError, UnknownNameError
from contextpool.models.nbfnet import NBFNetConfig
from contextpool.models.redgnn import REDGNNConfig
from contextpool.models.registry import model_class
from contextpool.pool.batch import BatchBuilder
from contextpool.recipe import (
    SHIPPED_RECIPES,
    Recipe,
    context_from,
    read_recipe,
    section_values,
    shipped_recipe,
)
from contextpool.train.config import TrainConfig
from learning_worlds import CONTEXTS, random_graph

RECIPES = [
    Recipe("world"),
    Recipe("grail/fb237_v1", "redgnn", {"dim": 16, "dropout": 0.1}, None, TrainConfig(epochs=3, lr=0.01)),
    Recipe("world", "walk", {"steps": 3}, CONTEXTS["arrive"]),
    *(Recipe("world", "nbfnet", {"dim": 8}, context) for context in CONTEXTS.values()),
]


# what goes in comes out


@pytest.mark.parametrize("recipe", RECIPES, ids=range(len(RECIPES)))
def test_a_recipe_comes_back_from_its_dictionary_and_from_json(recipe: Recipe) -> None:
    assert Recipe.from_dict(recipe.to_dict()) == recipe.resolved()
    assert Recipe.from_dict(json.loads(json.dumps(recipe.to_dict()))) == recipe.resolved()


def test_a_recipe_is_read_from_toml(tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    path.write_text(
        """
        dataset = "grail/nell_v1"
        [model]
        name = "redgnn"
        dim = 16
        activation = "tanh"
        [context]
        hops = 2
        gate = true
        [[context.views]]
        min_precision = 0.3
        [[context.views]]
        algorithm = "families-recall"
        min_recall = 0.2
        sizes = [2, 3]
        [train]
        lr = 1
        epochs = 7
        """
    )
    recipe = read_recipe(path)
    assert (recipe.dataset, recipe.model) == ("grail/nell_v1", "redgnn")
    assert recipe.model_config() == REDGNNConfig(dim=16, activation="tanh")
    views = (ViewConfig(0.3), ViewConfig(min_recall=0.2, algorithm="families-recall", sizes=(2, 3)))
    assert recipe.context == ContextConfig(views=views, hops=2, gate=True)
    assert recipe.train == TrainConfig(lr=1.0, epochs=7)
    assert isinstance(recipe.train.lr, float)


def test_what_is_left_out_takes_its_default() -> None:
    recipe = Recipe.from_dict({"dataset": "world"})
    assert recipe == Recipe("world")
    assert recipe.model_config() == NBFNetConfig()
    assert recipe.context is None


@pytest.mark.parametrize(
    ("context", "expected"),
    [
        (True, ContextConfig()),
        ({}, ContextConfig()),
        ({"views": []}, ContextConfig(views=())),
        ("default", ContextConfig()),
        ("paper", PRESETS["paper"]),
        (False, None),
        (None, None),
    ],
)
def test_context_is_all_or_nothing_or_a_table(context: Any, expected: ContextConfig | None) -> None:
    assert Recipe.from_dict({"dataset": "world", "context": context}).context == expected


# changed by dotted keys


def test_values_are_changed_by_dotted_keys() -> None:
    recipe = Recipe("world").with_values(
        {"train.lr": 0.5, "model.dim": 4, "model.name": "redgnn", "dataset": "x", "context.hops": 2}
    )
    assert recipe.train == TrainConfig(lr=0.5)
    assert recipe.model_config() == REDGNNConfig(dim=4)
    assert recipe.dataset == "x"
    assert recipe.context == ContextConfig(hops=2)


def test_context_is_switched_on_and_off() -> None:
    assert Recipe("world").with_values({"context": True}).context == ContextConfig()
    assert Recipe("world", context=ContextConfig(hops=1)).with_values({"context": False}).context is None
    changed = Recipe("world", context=CONTEXTS["all"]).with_values({"context.gate": False})
    assert changed.context == replace(CONTEXTS["all"], gate=False)  # type: ignore[type-var]


def test_the_recipe_itself_stays_as_it_was() -> None:
    recipe = Recipe("world", "nbfnet", {"dim": 8}, CONTEXTS["views"])
    before = recipe.to_dict()
    recipe.with_values({"model.dim": 4, "context.hops": 1, "train.epochs": 1})
    assert recipe.to_dict() == before
    assert recipe.with_values({}) == recipe


# refused


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"trian": {}}, r"trian is not a setting\. Did you mean train\?"),
        ({"train": {"epoch": 3}}, r"train\.epoch is not a setting\. Did you mean train\.epochs\?"),
        ({"model": {"dimm": 3}}, r"model\.dimm is not a setting\. Did you mean model\.dim\?"),
        ({"model": {"name": "redgnn", "message": "rotate"}}, r"model\.message is not a setting"),
        ({"context": {"hop": 2}}, r"context\.hop is not a setting\. Did you mean context\.hops\?"),
        ({"context": {"views": [{"min_precison": 0.1}]}}, r"views\.min_precison is .* context\.views\.min_precision\?"),
        ({"train": {"qqq": 3}}, r"train\.qqq is not a setting\. Known: average_last, batch_size, checkpoint_steps,"),
        ({"train": {"epochs": 1.5}}, r"train\.epochs is 1\.5; it has to be of type int"),
        ({"train": {"epochs": True}}, r"train\.epochs is True; it has to be of type int"),
        ({"train": {"lr": "fast"}}, r"train\.lr is 'fast'; it has to be of type float"),
        ({"train": {"loss": 3}}, r"train\.loss is 3; it is one of softmax, bce"),
        ({"train": {"epochs": -1}}, r"train\.epochs is -1"),
        ({"train": 3}, r"train is 3; it has to be a table"),
        ({"model": "nbfnet"}, r"model is 'nbfnet'; it has to be a table"),
        ({"model": {"name": 3}}, r"model\.name is 3; it has to be of type str"),
        ({"model": {"dim": "8"}}, r"model\.dim is '8'; it has to be of type int"),
        ({"model": {"message": "conv"}}, r"model\.message is not a setting"),
        ({"model": {"exclude_head": 1}}, r"model\.exclude_head is 1; it has to be of type bool"),
        ({"context": "yes"}, r"context is 'yes'; it is true, false, a table, or one of default, paper"),
        ({"context": {"gate": 1}}, r"context\.gate is 1; it has to be of type bool"),
        ({"context": {"self_policy": "maybe"}}, r"context\.self_policy is 'maybe'; it is one of exclude, keep"),
        ({"context": {"hops": 0}}, r"context\.hops is 0"),
        ({"context": {"views": 3}}, r"context\.views is 3; it has to be a list of tables"),
        ({"context": {"views": ["x"]}}, r"context\.views is 'x'; it has to be a table"),
        ({"context": {"views": [{"sizes": 3}]}}, r"context\.views\.sizes is 3; it has to be a list of whole"),
        ({"context": {"views": [{"sizes": [1, "2"]}]}}, r"context\.views\.sizes is .* a list of whole"),
        ({"context": {"views": [{"algorithm": "magic"}]}}, r"context\.views\.algorithm is 'magic'"),
        ({"context": {"views": [{"min_recall": 1.5}]}}, r"context\.views\.min_recall is 1\.5; it has to lie in"),
        ({"dataset": 5}, r"dataset is 5; it has to be of type str"),
    ],
)  # fmt: skip
def test_what_a_recipe_cannot_hold_is_refused_by_its_key(values: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        Recipe.from_dict({"dataset": "world", **values})


def test_unknown_models_and_keys_are_refused_when_values_are_changed() -> None:
    with pytest.raises(UnknownNameError, match="model 'nbfnot' is unknown"):
        Recipe("world").with_values({"model.name": "nbfnot"})
    with pytest.raises(ConfigError, match=r"train\.lrr is not a setting\. Did you mean train\.lr\?"):
        Recipe("world").with_values({"train.lrr": 1.0})
    with pytest.raises(ConfigError, match=r"foo is not a setting"):
        Recipe("world").with_values({"foo.bar": 1})
    with pytest.raises(ConfigError, match=r"train\.lr is \{'x': 1\}"):
        Recipe("world").with_values({"train.lr.x": 1})


def test_a_file_is_named_in_what_is_wrong_with_it(tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    with pytest.raises(ConfigError, match=r"a\.toml: there is no such recipe"):
        read_recipe(path)
    path.write_text("dataset = ")
    with pytest.raises(ConfigError, match=r"a\.toml: not valid TOML"):
        read_recipe(path)
    path.write_bytes(b"dataset = '\xff'")
    with pytest.raises(ConfigError, match=r"a\.toml: not valid TOML"):
        read_recipe(path)
    path.write_text("[train]\nlr = 'x'")
    with pytest.raises(ConfigError, match=r"a\.toml: train\.lr is 'x'"):
        read_recipe(path)


# shipped ones


FAMILIES = [
    f"{kind}/{name}" for kind in ("grail", "grail_transductive") for name in ("WN18RR", "fb237", "nell")
]


def test_every_shipped_recipe_loads_and_its_context_can_be_mined() -> None:
    graph = random_graph(3)
    folder = resources.files("contextpool").joinpath("recipes")
    tables = [entry.name for entry in folder.iterdir() if entry.name not in SHIPPED_RECIPES]
    models = [name.removesuffix(".toml") for name in tables]
    assert "nbfnet" in models
    for name in models:
        table = tomllib.loads(folder.joinpath(f"{name}.toml").read_text("utf-8"))
        families = {section.removesuffix("+cp") for section in table} - {"all", "own", "fast", "best"}
        assert families - {"world"} == (set() if name == "anygraph" else set(FAMILIES))
        for family in families:
            dataset = family if family == "world" else f"{family}_v2"
            for context in (False, True):
                recipe = shipped_recipe(dataset, name, context)
                assert (recipe is None) == (context and "all+cp" not in table)
                if recipe is not None:
                    assert (recipe.dataset, recipe.model, recipe.context is not None) == (
                        dataset,
                        name,
                        context,
                    )
                    model = model_class(name)(graph.num_relations, recipe.model_config(), recipe.context)
                    BatchBuilder(graph, model.num_layers, recipe.context, Statistics.of(graph))


@pytest.mark.parametrize("section", ["own", "fast", "best"])
def test_a_graph_that_nothing_was_searched_on_has_recipes_too(section: str) -> None:
    plain, pooled = (shipped_recipe("mine.tsv", "nbfnet", context, section) for context in (False, True))
    assert plain is not None
    assert pooled is not None
    assert (plain.dataset, plain.settings) == ("mine.tsv", pooled.settings)
    assert pooled.context == context_from(True)
    assert pooled.train == replace(plain.train, edge_dropout=0.2)


def test_the_splits_of_a_family_have_one_recipe() -> None:
    first, last = (shipped_recipe(f"grail/fb237_v{version}", "nbfnet", True) for version in (1, 4))
    assert first is not None
    assert last is not None
    assert replace(first, dataset=last.dataset) == last
    table = {
        "all": {"train": {"lr": 1}},
        "all+cp": {"context": {}},
        "x": {"model": {"a": 1}},
        "x+cp": {"model": {}},
    }
    assert section_values(table, "x", False) == {"train": {"lr": 1}, "model": {"a": 1}}
    assert section_values(table, "x", True) == {"train": {"lr": 1}, "context": {}, "model": {}}
    assert section_values(table, "y", False) is None


def test_a_setting_without_a_shipped_recipe_has_none() -> None:
    assert shipped_recipe("no such dataset", "nbfnet", False) is None


def test_the_default_context_is_gate_and_arrive_and_drops_edges_in_training() -> None:
    default = Recipe.from_dict({"dataset": "world", "context": True})
    assert default.context == ContextConfig(
        views=(), gate=True, arrive=True, arrive_features=True, arrive_walk=True
    )
    assert default.resolved().train.edge_dropout == 0.2
    assert Recipe("world").resolved().train.edge_dropout == 0.0
    said = default.with_values({"train.edge_dropout": 0.0, "context.gate": False}).resolved()
    assert said.train.edge_dropout == 0.0
    assert said.context == replace(ContextConfig(), gate=False)


def test_the_papers_context_is_two_pooled_streams_and_nothing_else() -> None:
    paper = Recipe("world").with_values({"context": "paper", "context.hops": 2})
    assert paper.context is not None
    assert [(view.min_precision, view.min_recall) for view in paper.context.views] == [(0.1, 0.0), (0.0, 0.1)]
    assert replace(paper.context, views=(), hops=3) == NO_CONTEXT
    assert paper.context.hops == 2
    assert paper.resolved().train.edge_dropout == 0.0
