"""A GPU gives what the CPU gives: scores and gradients in every context; and, if asked, the same bytes twice."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor

from contextpool.context.config import ContextConfig, ViewConfig
from contextpool.graph.graph import Graph
from contextpool.models.base import LinkPredictor
from contextpool.pool.batch import BatchBuilder
from contextpool.train.config import TrainConfig
from contextpool.train.course import EveryQuery
from contextpool.train.loop import Trainer
from contextpool.train.queries import TrainingQueries
from learning_worlds import CONTEXTS, family_dataset, new_model, random_graph
from learning_worlds import one_thread as one_thread
from support import amount, context_with

CASES = amount(2, 40)
DEVICE = "cuda"
TOLERANCE = 1e-4
TRAINED = pytest.mark.parametrize("name", ["nbfnet", "redgnn"])
WAYS = pytest.mark.parametrize("way", ["plain", "walk", "gate", "arrive", "families", "all"])
BOTH_FAMILIES = (
    ViewConfig(0.1, algorithm="families-precision", sizes=(1, 2)),
    ViewConfig(0.0, 0.1, algorithm="families-recall"),
)
SIZES = {"nbfnet": {"dim": 16, "layers": 3}, "redgnn": {"dim": 16, "layers": 3, "attention_dim": 5}}


def context_of(way: str) -> ContextConfig | None:
    if way == "families":
        return context_with(views=BOTH_FAMILIES, hops=3)
    return CONTEXTS["views" if way == "walk" else way]


def crowded_graph(seed: int) -> Graph:
    """Large enough for nodes of many messages, with loops, parallel relations and entities out of reach."""
    return random_graph(seed, most_entities=80, most_relations=8, most=600)


def gentle_model(
    name: str, graph: Graph, context: ContextConfig | None, seed: int, **settings: Any
) -> LinkPredictor:
    """Weights as small as trained ones, so that rounding alone stays far below the tolerance."""
    model = new_model(name, graph, context, seed, **{**SIZES[name], **settings})
    with torch.no_grad():
        for weight in model.parameters():
            weight *= 0.4
    return model


def results_on(
    device: str, model: LinkPredictor, graph: Graph, context: ContextConfig | None
) -> tuple[Tensor, dict[str, Tensor]]:
    """Scores of training queries, their own edges hidden, and gradients of a loss that asks about all of them."""
    model, graph = copy.deepcopy(model).to(device), graph.to(device)
    edge = torch.arange(0, graph.num_edges, max(1, graph.num_edges // 40), device=device)
    batch = BatchBuilder(graph, model.num_layers, context).build(
        graph.edge_head[edge], graph.edge_relation[edge], edge
    )
    scores = model(batch)
    assert scores.device.type == torch.device(device).type
    torch.nn.functional.cross_entropy(scores, graph.edge_tail[edge].long()).backward()
    gradients = {
        name: weight.grad.cpu() for name, weight in model.named_parameters() if weight.grad is not None
    }
    return scores.detach().cpu(), gradients


def worst_difference(one: Tensor, other: Tensor) -> float:
    """Relative to the largest number there is."""
    return float((one - other).abs().max() / one.abs().max().clamp(min=1e-12))


@pytest.mark.gpu
@TRAINED
@WAYS
def test_scores_and_gradients_are_those_of_the_cpu(name: str, way: str) -> None:
    context = context_of(way)
    for seed in range(CASES):
        graph = crowded_graph(seed)
        model = gentle_model(name, graph, context, seed)
        scores, gradients = results_on("cpu", model, graph, context)
        found, found_gradients = results_on(DEVICE, model, graph, context)
        assert worst_difference(scores, found) <= TOLERANCE
        assert gradients.keys() == found_gradients.keys()
        one, other = (
            torch.cat([part[weight].flatten() for weight in gradients])
            for part in (gradients, found_gradients)
        )
        assert float((one - other).norm() / one.norm()) <= TOLERANCE
        for weight, gradient in gradients.items():  # and each weight's own, as far as it counts
            off = float((gradient - found_gradients[weight]).norm())
            assert off <= 10 * TOLERANCE * max(float(gradient.norm()), 1e-2 * float(one.norm())), (
                weight,
                off,
            )


def weights_after_five_steps(name: str, context: ContextConfig | None, device: str) -> dict[str, Tensor]:
    data = family_dataset(count=20)
    graph = Graph.from_triples(data.training_graph)
    queries = TrainingQueries.of(data.training_queries, graph, data.training_filter)
    model = gentle_model(name, graph, context, 1).to(device)
    graph = graph.to(device)
    config = TrainConfig(epochs=1, batch_size=-(-len(queries) // 5), warmup_steps=0)
    course = EveryQuery(queries, BatchBuilder(graph, model.num_layers, context), config)
    trainer = Trainer(model, course, config, lambda model: 0.5)
    assert trainer.steps_per_epoch == 5
    trainer.fit()
    return {name: value.cpu() for name, value in model.state_dict().items()}


@pytest.mark.gpu
@TRAINED
@pytest.mark.parametrize("way", ["plain", "walk", "gate", "arrive", "all"])
def test_two_deterministic_trainings_give_the_same_bytes(
    name: str, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The switch is torch's own."""
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS asks for it
    torch.use_deterministic_algorithms(True)
    try:
        one, other = (weights_after_five_steps(name, context_of(way), DEVICE) for _ in range(2))
    finally:
        torch.use_deterministic_algorithms(False)
    assert one.keys() == other.keys()
    for weight, value in one.items():
        assert value.numpy().tobytes() == other[weight].numpy().tobytes(), weight
