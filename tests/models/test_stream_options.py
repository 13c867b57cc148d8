"""Refinements of gate and arrive: biases of query relations, and a small network over candidates' features."""

from __future__ import annotations

import pytest
import torch

from contextpool.models.registry import model_class, model_names
from contextpool.models.streams import CandidateNetwork, ContextStreams, RelevanceGate
from contextpool.pool.batch import BatchBuilder, ContextConfig
from contextpool.pool.candidates import FEATURES
from learning_worlds import SMALL, ask, every_query, new_model, random_graph, scatter_weights
from learning_worlds import one_thread as one_thread

TRAINED = pytest.mark.parametrize("name", ["nbfnet", "redgnn", "drum"])
OPTIONS = {
    "gate": ContextConfig(views=(), gate=True, gate_bias=True),
    "arrive": ContextConfig(views=(), arrive=True, arrive_features=True),
    "walk": ContextConfig(views=(), arrive_walk=True),
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
            "gate": "context.gate.bias",
            "arrive": "context.features.outer.weight",
            "walk": "context.walk.scale",
        }[use]
        assert wanted in missing
        head, relation = every_query(graph)
        expected = ask(plain, BatchBuilder(graph, 2), head, relation)
        found = ask(model, BatchBuilder(graph, 2, OPTIONS[use]), head, relation)
        torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-6)


def test_a_bias_moves_all_gates_of_its_relation_and_another_one_that_of_itself() -> None:
    gate = RelevanceGate(num_biases=4)
    relevance, relation = torch.rand(4, 4, 2), torch.arange(4)
    assert torch.equal(gate(relevance, relation), torch.ones(4, 4))
    assert gate.bias is not None
    gate.bias.data[2] = torch.tensor([1.0, -3.0])
    table = gate(relevance, relation)
    assert torch.equal(table[[0, 1, 3]], torch.ones(3, 4))
    expected = 2 * torch.sigmoid(torch.tensor([1.0, 1.0, -2.0, 1.0]))
    torch.testing.assert_close(table[2], expected)


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
    context = ContextConfig(
        views=(), gate=True, gate_bias=True, arrive=True, arrive_features=True, arrive_walk=True
    )
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
    plain = BatchBuilder(graph, 2, ContextConfig(views=(), arrive=True))
    with pytest.raises(AssertionError, match="needs batches with candidate features"):
        ask(model, plain, *every_query(graph))


def test_options_count_only_with_what_they_refine() -> None:
    bare = ContextStreams(ContextConfig(views=(), gate_bias=True, arrive_features=True), 3)
    assert not list(bare.parameters())
    for name in model_names():
        if model_class(name).takes_context and name != "walk":
            kind = model_class(name)
            assert kind(3, kind.config_class(**SMALL[name]), OPTIONS["gate"]).num_relations == 3
