"""Refinements of arrive: a small network over candidates' features, and the mass of a random walk."""

from __future__ import annotations

import pytest
import torch

from contextpool.models.registry import model_class, model_names
from contextpool.models.streams import CandidateNetwork, ContextStreams
from contextpool.pool.batch import BatchBuilder
from contextpool.pool.candidates import FEATURES
from learning_worlds import SMALL, ask, every_query, new_model, random_graph, scatter_weights
from learning_worlds import one_thread as one_thread
from support import context_with

TRAINED = pytest.mark.parametrize("name", ["nbfnet", "redgnn", "drum"])
OPTIONS = {
    "gate": context_with(views=(), gate=True),
    "arrive": context_with(views=(), arrive=True, arrive_features=True),
    "walk": context_with(views=(), arrive_walk=True),
}


@TRAINED
@pytest.mark.parametrize("use", sorted(OPTIONS))
def test_options_start_without_effect(name: str, use: str) -> None:
    kind = model_class(name)
    for seed in range(4):
        graph = random_graph(seed)
        plain = new_model(name, graph, None, seed)
        model = kind(graph.num_relations, kind.config_class(**SMALL[name]), OPTIONS[use]).eval()
        missing, unexpected = model.load_state_dict(plain.state_dict(), strict=False)
        assert not unexpected
        wanted = {
            "gate": "context.gate.outer.weight",
            "arrive": "context.features.outer.weight",
            "walk": "context.walk.scale",
        }[use]
        assert wanted in missing
        head, relation = every_query(graph)
        expected = ask(plain, BatchBuilder(graph, 2), head, relation)
        found = ask(model, BatchBuilder(graph, 2, OPTIONS[use]), head, relation)
        torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-6)


def test_the_network_takes_every_feature() -> None:
    torch.manual_seed(0)
    network = CandidateNetwork(hidden=32)
    features = torch.rand(2, 5, len(FEATURES), requires_grad=True)
    assert not network(features).any()
    scatter_weights(network)
    network(features).sum().backward()
    assert features.grad is not None
    assert (features.grad.abs().sum(dim=(0, 1)) > 0).all()


@TRAINED
def test_every_weight_of_an_option_learns(name: str) -> None:
    context = context_with(views=(), gate=True, arrive=True, arrive_features=True, arrive_walk=True)
    graph = random_graph(8)
    model = new_model(name, graph, context)
    model(BatchBuilder(graph, 2, context).build(*every_query(graph))).square().sum().backward()
    for key, weight in model.named_parameters():
        if key.startswith("context."):
            assert weight.grad is not None, key
            assert weight.grad.abs().sum() > 0, key


def test_a_batch_without_features_is_said() -> None:
    graph = random_graph(3)
    model = new_model("nbfnet", graph, OPTIONS["arrive"])
    plain = BatchBuilder(graph, 2, context_with(views=(), arrive=True))
    with pytest.raises(AssertionError, match="needs batches with candidate features"):
        ask(model, plain, *every_query(graph))


def test_options_count_only_with_what_they_refine() -> None:
    bare = ContextStreams(context_with(views=(), arrive_features=True))
    assert not list(bare.parameters())
    for name in model_names():
        if model_class(name).takes_context and name != "walk":
            kind = model_class(name)
            assert kind(3, kind.config_class(**SMALL[name]), OPTIONS["gate"]).num_relations == 3
