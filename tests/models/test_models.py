"""NBFNet and RED-GNN against their equations, and models by name; test_every_model.py is for all of them."""

from __future__ import annotations

import sys
from typing import Any

import pytest
import torch

from contextpool.context.config import ContextConfig
from contextpool.errors import ConfigError, UnknownNameError
from contextpool.graph.graph import Graph
from contextpool.models.base import LinkPredictor
from contextpool.models.nbfnet import NBFNet, NBFNetConfig
from contextpool.models.redgnn import REDGNN, REDGNNConfig
from contextpool.models.registry import model_class, model_names, name_of
from contextpool.models.walk import Walk, WalkConfig
from contextpool.pool.batch import BatchBuilder
from learning_worlds import CONTEXTS, SMALL, ask, every_query, new_model, random_graph
from learning_worlds import one_thread as one_thread
from models.literal import literal_nbfnet, literal_redgnn
from support import amount, context_with

CASES = amount(4, 100)
TRAINED = ("nbfnet", "redgnn")
IN_CONTEXT = pytest.mark.parametrize("context", list(CONTEXTS.values()), ids=list(CONTEXTS))


# weights


@pytest.mark.parametrize("name", TRAINED)
@IN_CONTEXT
def test_every_weight_learns(name: str, context: ContextConfig | None) -> None:
    """Over a graph with something of everything, no parameter is without a gradient."""
    facts = [(f"e{a}", f"r{(a + b) % 3}", f"e{b}") for a in range(6) for b in range(6) if (a * b) % 3 != 2]
    graph = Graph.from_triples(facts)
    settings: dict[str, Any] = {"activation": "tanh"} if name == "redgnn" else {}
    model = new_model(name, graph, context, **settings)
    head, relation = every_query(graph)
    scores = model(BatchBuilder(graph, model.num_layers, context).build(head, relation))
    torch.nn.functional.softplus(scores).mean().backward()
    still = {key for key, weight in model.named_parameters() if weight.grad is None or not weight.grad.any()}
    assert still == {key for key, _ in model.named_parameters() if sees_only_zeros(key)}


def sees_only_zeros(parameter: str) -> bool:
    """RED-GNN starts with the head's state at zero, so its first layer has nothing to project."""
    return parameter.startswith("layers.0.streams.") and parameter.endswith(".from_state.weight")


# context=None is the plain model


@pytest.mark.parametrize("name", TRAINED)
def test_without_context_nothing_is_added(name: str) -> None:
    kind = model_class(name)
    for seed in range(CASES):
        graph = random_graph(seed)
        models = []
        for context in ((), (None,), (context_with(views=()),)):
            torch.manual_seed(seed)
            models.append(kind(graph.num_relations, kind.config_class(**SMALL[name]), *context).eval())
        head, relation = every_query(graph)
        builder = BatchBuilder(graph, models[0].num_layers)
        first, *others = (ask(model, builder, head, relation) for model in models)
        assert all(torch.equal(first, other) for other in others)
        assert len({tuple(model.state_dict()) for model in models}) == 1
        assert not any(key.startswith("context.") for key in models[0].state_dict())


def test_nbfnet_equals_its_equations() -> None:
    for seed in range(CASES):
        graph = random_graph(seed)
        model = new_model("nbfnet", graph, seed=seed)
        assert isinstance(model, NBFNet)
        check_literal(model, graph, literal_nbfnet)


@pytest.mark.parametrize("activation", ["relu", "tanh", "idd"])
def test_redgnn_equals_its_equations(activation: str) -> None:
    for seed in range(CASES):
        graph = random_graph(seed)
        model = new_model("redgnn", graph, seed=seed, activation=activation, layers=3)
        assert isinstance(model, REDGNN)
        check_literal(model, graph, literal_redgnn)


def check_literal(model: LinkPredictor, graph: Graph, literal: Any) -> None:
    head, relation = every_query(graph)
    rows = torch.randperm(len(head), generator=torch.Generator().manual_seed(1))[:6]
    found = ask(model, BatchBuilder(graph, model.num_layers), head[rows], relation[rows])
    with torch.no_grad():
        expected = [
            literal(model, graph, *query)
            for query in zip(head[rows].tolist(), relation[rows].tolist(), strict=True)
        ]
    torch.testing.assert_close(found, torch.stack(expected), atol=1e-4, rtol=1e-4)


def test_the_pna_constant_is_the_training_graphs() -> None:
    graph = Graph.from_triples([("a", "r", "b"), ("a", "s", "b"), ("b", "r", "c")])
    degrees = torch.tensor([2.0, 3.0, 1.0])
    model = NBFNet.for_graph(graph, NBFNetConfig(dim=2, layers=1))
    assert float(model.log_degree) == pytest.approx(float((degrees + 1).log().mean()))
    assert "log_degree" in model.state_dict()


@pytest.mark.parametrize("name", TRAINED)
def test_dropout_is_for_training_alone(name: str) -> None:
    graph = random_graph(3)
    model = new_model(name, graph, dropout=0.5)
    head, relation = every_query(graph)
    builder = BatchBuilder(graph, model.num_layers)
    assert torch.equal(ask(model, builder, head, relation), ask(model, builder, head, relation))
    torch.manual_seed(0)
    model.train()
    assert not torch.equal(ask(model, builder, head, relation), ask(model, builder, head, relation))


# settings and names


@pytest.mark.parametrize(
    ("kind", "settings", "says"),
    [
        (NBFNetConfig, {"dim": 0}, r"model\.dim is 0"),
        (NBFNetConfig, {"layers": 0}, r"model\.layers is 0"),
        (NBFNetConfig, {"dropout": 1.0}, r"model\.dropout is 1\.0"),
        (REDGNNConfig, {"attention_dim": 0}, r"model\.attention_dim"),
        (REDGNNConfig, {"activation": "gelu"}, r"model\.activation is 'gelu'"),
        (REDGNNConfig, {"dropout": -0.1}, r"model\.dropout is -0\.1"),
        (WalkConfig, {"steps": 0}, r"model\.steps is 0"),
    ],
)
def test_settings_out_of_range_are_refused_by_name(kind: type, settings: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        kind(**settings)


def test_models_by_name() -> None:
    baselines = {"anyburl", "compgcn", "drum", "grail", "neural_lp"}
    assert baselines | {"nbfnet", "redgnn", "walk"} <= set(model_names())
    assert [name_of(model_class(name)) for name in model_names()] == model_names()
    assert [model_class(name).name for name in model_names()] == model_names()
    assert [model_class(name) for name in ("nbfnet", "redgnn", "walk")] == [NBFNet, REDGNN, Walk]
    with pytest.raises(UnknownNameError, match=r"model 'nbfnett' is unknown .* closest 'nbfnet'"):
        model_class("nbfnett")


class Constant(Walk):
    """Somebody's own model."""


def test_a_model_of_ones_own_is_named_by_module_and_class() -> None:
    assert name_of(Constant) == f"{Constant.__module__}:Constant"
    assert model_class("contextpool.models.nbfnet:NBFNet") is NBFNet
    with pytest.raises(UnknownNameError, match="no LinkPredictor of that name"):
        model_class("contextpool.graph.graph:Graph")


def test_a_run_folder_from_elsewhere_cannot_make_us_import_a_module() -> None:
    assert "antigravity" not in sys.modules
    with pytest.raises(UnknownNameError, match="import 'antigravity'"):
        model_class("antigravity:Model")
    assert "antigravity" not in sys.modules


@pytest.mark.parametrize(
    "name",
    ["no_such_module_anywhere:Model", "contextpool.models.nbfnet:NoSuchModel", ":Model", ".nbfnet:NBFNet"],
)
def test_a_model_that_cannot_be_found_is_an_error_of_ours(name: str) -> None:
    with pytest.raises(UnknownNameError, match="model"):
        model_class(name)
