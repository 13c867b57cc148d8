"""A whole training step as one CUDA graph: the host launches it at once instead of kernel by kernel.

A graph has fixed shapes, a walk has not. So batches are copied into buffers with room to spare, and the kernels read
how many nodes there really are from the device (`LaunchPlan.sizes`). A batch that needs more room than there is makes
the graph be recorded again with more.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from contextpool.kernels.backend import chosen_backend
from contextpool.kernels.hop import LaunchPlan
from contextpool.pool.batch import OF_QUERIES, QueryBatch
from contextpool.pool.propagation import Propagation
from contextpool.train.queries import KnownRows, TrainingQueries

Step = Callable[[TrainingQueries, QueryBatch], tuple[Tensor, Tensor]]

STEPS_BEFORE = 8
"""Steps that are launched kernel by kernel first: they show how much room batches need."""
STEPS_BEFORE_OF_MANY = 2
"""The same where there are several graphs to train on, each of which has its own recorded step."""
SLACK = 1.2
GRAIN = 4096
FEW_NODES, FEW_EDGES = 2**17, 2**23
"""Room for so many is not worth saving: recording again costs more."""


@dataclass(frozen=True)
class Room:
    """How many nodes each layer and how many edges all of them may have."""

    nodes: tuple[int, ...]  # [L + 1]
    edges: int

    @classmethod
    def of(cls, walk: Propagation) -> Room:
        return cls(walk.layer_sizes, walk.layer_edges[-1])

    def holds(self, walk: Propagation) -> bool:
        enough = all(size <= room for size, room in zip(walk.layer_sizes, self.nodes, strict=True))
        return enough and walk.layer_edges[-1] <= self.edges

    def joined(self, other: Room) -> Room:
        """Room for either."""
        most = (max(pair) for pair in zip(self.nodes, other.nodes, strict=True))
        return Room(tuple(most), max(self.edges, other.edges))

    def with_slack(self, most: Room) -> Room:
        """Somewhat more, in round numbers, and never more than there can be; all of that where it is little."""
        pairs = zip(self.nodes[1:], most.nodes[1:], strict=True)
        nodes = (_enough(size, limit, FEW_NODES) for size, limit in pairs)
        return Room((self.nodes[0], *nodes), _enough(self.edges, most.edges, FEW_EDGES))

    @classmethod
    def largest(cls, walk: Propagation) -> Room:
        """Every entity reached at once, along every edge; the heads are always as many as the queries."""
        every = walk.num_queries * walk.num_entities
        nodes = (walk.num_queries, *([every] * walk.num_layers))
        return cls(nodes, walk.num_queries * walk.graph.num_edges)


def _enough(size: int, most: int, few: int) -> int:
    return most if most <= few else min(most, -(-int(size * SLACK) // GRAIN) * GRAIN + GRAIN)


def shared_memory(device: torch.device) -> torch.cuda.CUDAGraph:
    """A recording of next to nothing, whose pool of memory others may use and which keeps the pool when they go."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        torch.zeros(1, device=device)
    return graph


class GraphedStep:
    """Records and replays steps. `step` computes loss and gradient norm and updates the weights."""

    def __init__(
        self,
        step: Step,
        warm_up: Callable[[TrainingQueries, QueryBatch], None],
        memory: torch.cuda.CUDAGraph | None = None,
        steps_before: int = STEPS_BEFORE,
    ) -> None:
        """Steps of several graphs may use the same `memory` (`shared_memory`), since one runs at a time."""
        self._run, self._warm_up, self._memory, self._before = step, warm_up, memory, steps_before
        self._seen: Room | None = None
        self._steps = 0
        self._recorded: _Recorded | None = None

    def step(self, batch: TrainingQueries, prepared: QueryBatch) -> tuple[Tensor, Tensor] | None:
        """Loss and gradient norm of this step; None where it has to be launched kernel by kernel."""
        walk = prepared.propagation
        if (
            walk.plan is None
            or walk.plan.place is None
            or chosen_backend("auto", walk.node_query) != "triton"
        ):
            return None
        room = Room.of(walk)
        same_batch = self._seen is None or self._seen.nodes[0] == room.nodes[0]
        if not same_batch:  # the last batch of an epoch
            return None
        self._seen = room if self._seen is None else self._seen.joined(room)
        self._steps += 1
        if self._steps <= self._before:
            return None
        if self._recorded is None or not self._recorded.room.holds(walk):
            self._recorded = None  # its memory first
            self._recorded = self._record(batch, prepared, self._seen)
        self._recorded.inputs.load(batch, prepared)
        self._recorded.graph.replay()
        return self._recorded.results

    def _record(self, batch: TrainingQueries, prepared: QueryBatch, seen: Room) -> _Recorded:
        walk = prepared.propagation
        room = seen.with_slack(Room.largest(walk))
        inputs = _Inputs(batch, prepared, room)
        inputs.load(batch, prepared)
        side = torch.cuda.Stream(walk.node_query.device)
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            self._warm_up(
                inputs.batch, inputs.prepared
            )  # kernels for these shapes are compiled, nothing is updated
        torch.cuda.current_stream().wait_stream(side)
        torch.cuda.empty_cache()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=None if self._memory is None else self._memory.pool()):
            results = self._run(inputs.batch, inputs.prepared)
        return _Recorded(graph, inputs, room, results)


@dataclass(frozen=True, eq=False)
class _Recorded:
    graph: torch.cuda.CUDAGraph
    inputs: _Inputs
    room: Room
    results: tuple[Tensor, Tensor]


class _Inputs:
    """Buffers with room to spare that look like a batch."""

    def __init__(self, batch: TrainingQueries, prepared: QueryBatch, room: Room) -> None:
        walk = prepared.propagation
        most = room.nodes[-1]

        def edges(like: Tensor) -> Tensor:
            return torch.zeros(room.edges, dtype=like.dtype, device=like.device)

        def nodes(like: Tensor, more: int = 0) -> Tensor:
            return torch.zeros(most + more, dtype=like.dtype, device=like.device)

        self.walk = replace(
            walk,
            query_head=walk.query_head.clone(),
            query_relation=walk.query_relation.clone(),
            layer_sizes=room.nodes,
            layer_edges=(room.edges,) * len(room.nodes),
            node_query=nodes(walk.node_query),
            node_entity=nodes(walk.node_entity),
            row_start=nodes(walk.row_start, 1),
            edge_source=edges(walk.edge_source),
            edge_relation=edges(walk.edge_relation),
            edge_back=walk.edge_back[:0],  # no model reads it
            edge_views=edges(walk.edge_views),
            plan=None if walk.plan is None else _padded(walk.plan),
        )
        tables = {name: _clone(getattr(prepared, name)) for name in OF_QUERIES}
        self.prepared = replace(prepared, propagation=self.walk, **tables)
        known = KnownRows(batch.known.begin.clone(), batch.known.end.clone(), batch.known.entity)
        head, relation, answer = batch.head.clone(), batch.relation.clone(), batch.answer.clone()
        self.batch = TrainingQueries(head, relation, answer, batch.hidden_edge.clone(), known)

    def load(self, batch: TrainingQueries, prepared: QueryBatch) -> None:
        """Copy a batch in; what lies beyond it is never read."""
        walk, mine = prepared.propagation, self.walk
        assert walk.plan is not None
        assert walk.plan.place is not None
        assert mine.plan is not None
        place = walk.plan.place[: len(mine.node_query)]
        torch.div(place, max(walk.num_entities, 1), rounding_mode="floor", out=mine.node_query)
        torch.remainder(place, max(walk.num_entities, 1), out=mine.node_entity)
        mine.row_start[: len(walk.row_start)].copy_(walk.row_start)
        for goal, given in (
            (mine.plan.sizes, walk.plan.sizes),
            (mine.plan.order, walk.plan.order),
            (mine.plan.hubs, walk.plan.hubs),
        ):
            if goal is not None and given is not None:
                goal.copy_(given)
        num_edges = len(walk.edge_source)
        mine.edge_source[:num_edges].copy_(walk.edge_source)
        mine.edge_relation[:num_edges].copy_(walk.edge_relation)
        mine.edge_views[:num_edges].copy_(walk.edge_views)
        mine.query_head.copy_(walk.query_head)
        mine.query_relation.copy_(walk.query_relation)
        for name in OF_QUERIES:
            goal, given = getattr(self.prepared, name), getattr(prepared, name)
            if goal is not None:
                goal.copy_(given)
        self.batch.answer.copy_(batch.answer)
        self.batch.known.begin.copy_(batch.known.begin)
        self.batch.known.end.copy_(batch.known.end)


def _padded(plan: LaunchPlan) -> LaunchPlan:
    return LaunchPlan(plan.sizes.clone(), _clone(plan.order), _clone(plan.hubs), padded=True)


def _clone(tensor: Tensor | None) -> Tensor | None:
    return None if tensor is None else tensor.contiguous().clone()
