"""Steps that are recorded once and replayed: how much room they keep, and that they are the steps they record."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from contextpool.context.config import ContextConfig, ViewConfig
from contextpool.graph.graph import Graph
from contextpool.kernels.interface import use_backend
from contextpool.models.base import LinkPredictor
from contextpool.pool.batch import BatchBuilder, QueryBatch
from contextpool.pool.propagation import build_propagation
from contextpool.train.config import TrainConfig
from contextpool.train.course import EveryQuery
from contextpool.train.graphed import FEW_EDGES, FEW_NODES, GRAIN, GraphedStep, Room, _Inputs
from contextpool.train.loop import Trainer
from contextpool.train.queries import TrainingQueries
from contextpool.triples.filters import KnownAnswers
from contextpool.triples.labels import Vocabulary
from contextpool.triples.store import Triples
from kernels.triton_here import DEVICE, needs_triton
from kernels.triton_here import few_programs as few_programs
from learning_worlds import new_model, random_graph
from support import context_with


def test_room_holds_what_is_no_larger() -> None:
    graph = Graph.from_triples([("a", "r", "b"), ("b", "r", "c")])
    walk = build_propagation(graph, torch.tensor([0]), torch.tensor([0]), 2)
    room = Room.of(walk)
    assert room == Room((1, 2, 3), walk.layer_edges[-1])
    assert room.holds(walk)
    assert not Room((1, 1, 3), room.edges).holds(walk)
    assert not Room(room.nodes, room.edges - 1).holds(walk)
    assert Room.largest(walk) == Room((1, 3, 3), 4)


def test_room_for_either_is_the_larger_of_each() -> None:
    assert Room((4, 10, 20), 7).joined(Room((4, 5, 30), 9)) == Room((4, 10, 30), 9)


def test_little_room_is_all_there_can_be_and_much_is_round_with_slack() -> None:
    small = Room((4, 10, 20), 7).with_slack(Room((4, FEW_NODES, FEW_NODES), FEW_EDGES))
    assert small == Room((4, FEW_NODES, FEW_NODES), FEW_EDGES)
    most = Room((4, 10 * FEW_NODES, 10 * FEW_NODES), 10 * FEW_EDGES)
    large = Room((4, 10_000, 10 * FEW_NODES), 50_000).with_slack(most)
    assert large.nodes[0] == 4
    assert 12_000 < large.nodes[1] < 12_000 + 2 * GRAIN
    assert large.nodes[1] % GRAIN == 0
    assert large.nodes[2] == most.nodes[2]  # never more than there can be
    assert large.edges % GRAIN == 0


@needs_triton
def test_a_batch_without_edges_leaves_nothing_of_the_one_before() -> None:
    """Questions about entities without facts, in buffers that a batch with edges and views was in."""
    ids = np.array([[0, 0, 1], [1, 1, 2], [2, 0, 0], [0, 1, 2]], dtype=np.int32)
    triples = Triples(Vocabulary.of(["a", "b", "c", "lonely"]), Vocabulary.of(["r", "s"], "relation"), ids)
    graph = Graph.from_triples(triples).to(DEVICE)
    queries = TrainingQueries.of(graph.as_triples(), graph, KnownAnswers.of(graph.as_triples())).to(DEVICE)
    context = context_with(views=(ViewConfig(0.0), ViewConfig(0.0, 0.1)), hops=2)
    model = new_model("nbfnet", graph, context, 1, dim=16, layers=2).to(DEVICE).eval()
    builder = BatchBuilder(graph, 2, context, backend="triton")
    batch = queries.batch(torch.arange(2, device=DEVICE))
    nothing = torch.full_like(batch.head, -1)
    batches = [batch, replace(batch, head=torch.full_like(batch.head, 3), hidden_edge=nothing)]
    walks = [builder.build(one.head, one.relation, one.hidden_edge) for one in batches]
    assert len(walks[0].propagation.edge_source) > 0
    assert len(walks[1].propagation.edge_source) == 0
    assert_alike_in_buffers(model, batches, walks)


def test_batches_without_sizes_on_the_device_are_launched_kernel_by_kernel() -> None:
    graph = random_graph(3)
    batch = BatchBuilder(graph, 2).build(graph.edge_head[:2].long(), graph.edge_relation[:2].long())
    graphed = GraphedStep(lambda *_: (torch.zeros(()), torch.zeros(())), lambda *_: None)
    queries = TrainingQueries.of(graph.as_triples(), graph, KnownAnswers.of(graph.as_triples()))
    assert batch.propagation.plan is None
    assert graphed.step(queries.batch(torch.arange(2)), batch) is None


@needs_triton
@pytest.mark.parametrize("name", ["nbfnet", "redgnn"])
@pytest.mark.parametrize("context", [None, context_with(gate=True, hops=2)], ids=["plain", "context"])
def test_room_to_spare_changes_nothing(name: str, context: ContextConfig | None) -> None:
    """Scores and gradients of a batch in buffers that another one has left its numbers in."""
    graph = random_graph(5).to(DEVICE)
    queries = TrainingQueries.of(graph.as_triples(), graph, KnownAnswers.of(graph.as_triples())).to(DEVICE)
    model = new_model(name, graph, context, 1, dim=16, layers=2).to(DEVICE).eval()
    builder = BatchBuilder(graph, 2, context, backend="triton")
    rows = [torch.arange(first, first + 2, device=DEVICE) for first in (0, 8)]
    batches = [queries.batch(row) for row in rows]
    walks = [builder.build(one.head, one.relation, one.hidden_edge) for one in batches]
    assert_alike_in_buffers(model, batches, walks)


def assert_alike_in_buffers(
    model: LinkPredictor, batches: list[TrainingQueries], walks: list[QueryBatch]
) -> None:
    """One batch after the other in the same buffers: scores and gradients as outside of them."""
    inputs = _Inputs(batches[0], walks[0], Room.largest(walks[0].propagation))
    with use_backend("triton"):
        for batch, walk in zip(batches, walks, strict=True):
            inputs.load(batch, walk)
            expected, found = (_with_gradients(model, one) for one in (walk, inputs.prepared))
            for one, other in zip(expected, found, strict=True):
                torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def _with_gradients(model: LinkPredictor, batch: QueryBatch) -> list[torch.Tensor]:
    scores = model(batch)
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    found = torch.autograd.grad(scores.logsumexp(1).sum(), weights, allow_unused=True)
    return [scores.detach(), *(one for one in found if one is not None)]


def trainer_on_cuda(name: str, context: ContextConfig | None, dropout: float) -> Trainer:
    triples = [
        (f"e{number % 23}", f"r{number % 5}", f"e{(number * number + 3) % 29}") for number in range(400)
    ]
    graph = Graph.from_triples(triples).to("cuda")
    queries = TrainingQueries.of(graph.as_triples(), graph, KnownAnswers.of(graph.as_triples()))
    torch.manual_seed(0)
    model = new_model(name, graph, context, 0, dim=16, layers=3, dropout=dropout).cuda()
    config = TrainConfig(batch_size=16, lr=1e-3)
    return Trainer(model, EveryQuery(queries, BatchBuilder(graph, 3, context), config), config, lambda _: 0.0)


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["nbfnet", "redgnn"])
@pytest.mark.parametrize("dropout", [0.0, 0.2])
@pytest.mark.parametrize(
    "context", [None, context_with(gate=True, arrive=True, hops=2)], ids=["plain", "context"]
)
def test_recorded_steps_are_the_steps(name: str, context: ContextConfig | None, dropout: float) -> None:
    recorded, launched = trainer_on_cuda(name, context, dropout), trainer_on_cuda(name, context, dropout)
    assert recorded._graphed is not None
    launched._graphed = None
    for trainer in (recorded, launched):
        trainer.take_steps(40)
    assert recorded._graphed._recorded is not None
    if dropout:  # room takes part in the draw: other numbers of the same kind
        assert recorded.position.loss_sum == pytest.approx(launched.position.loss_sum, rel=2e-2)
        return
    assert recorded.position.loss_sum == pytest.approx(launched.position.loss_sum, rel=1e-3)
    for one, other in zip(recorded.model.parameters(), launched.model.parameters(), strict=True):
        assert float((one - other).detach().norm()) <= 2e-2 * float(other.detach().norm()) + 1e-4


@pytest.mark.gpu
def test_what_needs_more_room_is_recorded_again() -> None:
    trainer = trainer_on_cuda("nbfnet", None, 0.0)
    trainer.take_steps(12)
    assert trainer._graphed is not None
    first = trainer._graphed._recorded
    assert first is not None
    trainer._graphed._recorded = replace(first, room=Room((16, 0, 0, 0), 0))
    trainer.take_steps(3)
    assert trainer._graphed._recorded.room.nodes[1] > 0
