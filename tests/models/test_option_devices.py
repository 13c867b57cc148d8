"""A GPU gives what the CPU gives with every option, and records steps that are the steps."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor

from contextpool.context.config import ContextConfig, ViewConfig
from contextpool.graph.graph import Graph
from contextpool.models.base import LinkPredictor
from contextpool.models.nbfnet import NBFNet, NBFNetConfig
from contextpool.pool.batch import BatchBuilder
from contextpool.pool.hide import EdgeDropout
from contextpool.train.config import TrainConfig
from contextpool.train.course import EveryQuery
from contextpool.train.loop import Trainer
from contextpool.train.queries import TrainingQueries
from contextpool.triples.filters import KnownAnswers
from learning_worlds import one_thread as one_thread
from models.test_devices import crowded_graph, gentle_model, worst_difference
from support import amount, context_with

CASES = amount(2, 40)
TOLERANCE = 1e-4
ONE_RELU = 2e-3
"""Where a value is zero but for rounding, a relu may open on one device and not on the other: in one case at most."""
VIEWS = (ViewConfig(0.3), ViewConfig(0.0, 0.3))
REFINED = context_with(
    views=VIEWS, hops=2, gate=True, arrive=True, arrive_features=True, arrive_walk=True
)  # fmt: skip
MODEL: dict[str, Any] = {"relation_encoder": True, "exclude_head": True}


def results_on(
    device: str,
    model: LinkPredictor,
    graph: Graph,
    context: ContextConfig | None,
    dropout: EdgeDropout | None,
) -> tuple[Tensor, Tensor]:
    """Scores of training queries and all gradients of a loss over them."""
    model, graph = copy.deepcopy(model).to(device), graph.to(device)
    edge = torch.arange(0, graph.num_edges, max(1, graph.num_edges // 40), device=device)
    builder = BatchBuilder(graph, model.num_layers, context, relation_graph=model.reads_relations)
    batch = builder.build(graph.edge_head[edge], graph.edge_relation[edge], edge, dropout=dropout)
    scores = model(batch)
    torch.nn.functional.cross_entropy(scores, graph.edge_tail[edge].long()).backward()
    given = [weight.grad.flatten() for weight in model.parameters() if weight.grad is not None]
    return scores.detach().cpu(), torch.cat(given).cpu()


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["nbfnet", "redgnn"])
@pytest.mark.parametrize("context", [None, REFINED], ids=["plain", "refined"])
@pytest.mark.parametrize("drops", [False, True])
def test_scores_and_gradients_are_those_of_the_cpu(
    name: str, context: ContextConfig | None, drops: bool
) -> None:
    errors = []
    for seed in range(CASES):
        graph = crowded_graph(seed)
        model = gentle_model(name, graph, context, seed, **(MODEL if name == "nbfnet" else {}))
        model.allow_reflexive(torch.arange(2 * graph.num_relations))  # losses stay within bounds
        dropout = EdgeDropout(0.3, seed + 10**13) if drops else None
        scores, gradients = results_on("cpu", model, graph, context, dropout)
        found, found_gradients = results_on("cuda", model, graph, context, dropout)
        assert worst_difference(scores, found) <= TOLERANCE
        errors.append(float((gradients - found_gradients).norm() / gradients.norm()))
    assert max(errors) <= ONE_RELU
    assert sum(error > TOLERANCE for error in errors) <= 1


def trainer_on(device: str, context: ContextConfig | None) -> Trainer:
    """With every option that training has."""
    triples = [
        (f"e{number % 23}", f"r{number % 5}", f"e{(number * number + 3) % 29}") for number in range(400)
    ]
    graph = Graph.from_triples(triples).to(device)
    queries = TrainingQueries.of(graph.as_triples(), graph, KnownAnswers.of(graph.as_triples()))
    torch.manual_seed(0)
    model = NBFNet.for_graph(graph, NBFNetConfig(dim=16, layers=3, **MODEL), context).to(device)
    config = TrainConfig(batch_size=16, lr=1e-3, edge_dropout=0.2)
    builder = BatchBuilder(graph, 3, context, relation_graph=True)
    return Trainer(model, EveryQuery(queries, builder, config), config, lambda _: 0.0)


@pytest.mark.gpu
@pytest.mark.parametrize("context", [None, REFINED], ids=["plain", "refined"])
def test_recorded_steps_are_the_steps_and_those_of_the_cpu(context: ContextConfig | None) -> None:
    recorded, launched, slow = (
        trainer_on("cuda", context),
        trainer_on("cuda", context),
        trainer_on("cpu", context),
    )
    assert recorded._graphed is not None
    launched._graphed = None
    for trainer in (recorded, launched, slow):
        trainer.take_steps(40)
    assert recorded._graphed._recorded is not None
    for other in (launched, slow):
        assert recorded.position.loss_sum == pytest.approx(other.position.loss_sum, rel=2e-3)
    weights, others = (trainer.model.state_dict().values() for trainer in (recorded, launched))
    for one, other_weight in zip(weights, others, strict=True):
        apart = float((one.double() - other_weight.double()).norm())
        assert apart <= 2e-2 * float(other_weight.double().norm()) + 1e-4


def test_a_trainer_with_every_option_takes_steps_on_the_cpu() -> None:
    for context in (None, REFINED):
        trainer = trainer_on("cpu", context)
        trainer.take_steps(3)
        assert 0 < trainer.position.loss_sum < 60
