"""What a training asks, step by step: every query of one graph in each epoch, or queries of graphs of a mixture.

Each step is a function of the seed and of its number alone, so a resumed run asks the same.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from contextpool.pool.batch import BatchBuilder
from contextpool.train.config import MixtureConfig, TrainConfig
from contextpool.train.queries import TrainingQueries, epoch_batches, mixed_seed

LEAST_QUERIES = 8
"""Of a step over a mixture, however much each of them walks."""
PROBED_QUERIES = 16
"""Of a graph, to find out how much a query walks."""


@dataclass(frozen=True, eq=False)
class TrainingGraph:
    """One graph to train on: its queries, and what makes batches of them."""

    queries: TrainingQueries
    builder: BatchBuilder

    @classmethod
    def of(cls, queries: TrainingQueries, builder: BatchBuilder) -> TrainingGraph:
        """With the queries where the graph is."""
        return cls(queries.to(builder.graph.device), builder)


class Lesson(NamedTuple):
    """What one step asks."""

    graph: int
    """Its number in the course."""
    rows: Tensor  # [B] of the graph's queries
    edge_dropout: float
    """Share of the facts that each query does not see."""
    seed: int
    """Of all randomness of the step."""


class Course(Protocol):
    """The steps of a training, in epochs."""

    epochs: int

    @property
    def graphs(self) -> Sequence[TrainingGraph]: ...

    def steps_of(self, epoch: int) -> int:
        """How many steps epoch 0, 1, ... has; only the last one may have fewer than the first."""
        ...

    @property
    def total_steps(self) -> int: ...

    def lessons(self, epoch: int, seed: int) -> Sequence[Lesson]:
        """What the steps of an epoch ask, in order."""
        ...


class EveryQuery:
    """Every query of one graph once an epoch, in an order of its own, or as many as its steps ask."""

    def __init__(self, queries: TrainingQueries, builder: BatchBuilder, config: TrainConfig) -> None:
        self.graphs: tuple[TrainingGraph, ...]
        self.graphs, self.epochs = (TrainingGraph.of(queries, builder),), config.epochs
        self.batch_size, self.edge_dropout = config.batch_size, config.edge_dropout or 0.0
        self.epoch_steps = config.epoch_length(len(queries))

    def steps_of(self, epoch: int) -> int:
        return self.epoch_steps

    @property
    def total_steps(self) -> int:
        return self.epochs * self.steps_of(0)

    def lessons(self, epoch: int, seed: int) -> list[Lesson]:
        (graph,) = self.graphs
        batches = epoch_batches(len(graph.queries), self.batch_size, seed, epoch, graph.builder.graph.device)
        return [
            Lesson(0, rows, self.edge_dropout, mixed_seed(seed, epoch, number))
            for number, rows in enumerate(batches[: self.epoch_steps], start=1)
        ]


class MixedGraphs:
    """Each step draws a graph, some of its queries, and a share of edges to drop. An epoch is a number of steps."""

    def __init__(
        self,
        graphs: Sequence[TrainingGraph],
        shares: Sequence[float],
        mixture: MixtureConfig,
        config: TrainConfig,
    ) -> None:
        """`shares` of the mixture's graphs, in their order, as `MixtureConfig.graphs` states them."""
        self.graphs, self.mixture = tuple(graphs), mixture
        self.total_steps, self.epoch_steps = mixture.steps, min(mixture.steps, config.checkpoint_steps)
        self.epochs = math.ceil(mixture.steps / self.epoch_steps)
        facts = np.array([graph.builder.graph.num_triples for graph in graphs], dtype=np.float64)
        weights = np.array(shares, dtype=np.float64) * facts**mixture.power
        self.probability = weights / weights.sum()
        """[G] of drawing a graph."""
        self.queries = [queries_a_step(graph, mixture.work, config.batch_size) for graph in graphs]
        """[G] how many a step asks."""

    def steps_of(self, epoch: int) -> int:
        return min(self.epoch_steps, self.total_steps - epoch * self.epoch_steps)

    def lessons(self, epoch: int, seed: int) -> list[Lesson]:
        first = epoch * self.epoch_steps
        drawn = [self._drawn(mixed_seed(seed, 0, first + step + 1)) for step in range(self.steps_of(epoch))]
        device = self.graphs[0].builder.graph.device
        rows = torch.cat([lesson.rows for lesson in drawn]).to(device)  # one transfer for all
        parts = rows.split([len(lesson.rows) for lesson in drawn])
        return [lesson._replace(rows=part) for lesson, part in zip(drawn, parts, strict=True)]

    def _drawn(self, seed: int) -> Lesson:
        draw = np.random.default_rng(seed)
        number = int(draw.choice(len(self.graphs), p=self.probability))
        edge_dropout = float(draw.uniform(*self.mixture.edge_dropout))
        rows = draw.integers(len(self.graphs[number].queries), size=self.queries[number])
        return Lesson(number, torch.from_numpy(rows), edge_dropout, seed)


def queries_a_step(graph: TrainingGraph, work: int, most: int) -> int:
    """So many that a step walks `work` edges, and at most `most`; two pairs of relations take as long as an edge."""
    if not work:
        return most
    queries, builder = graph.queries, graph.builder
    rows = torch.linspace(0, len(queries) - 1, PROBED_QUERIES, device=builder.graph.device).long()
    asked = queries.batch(rows)
    walk = builder.build(asked.head, asked.relation, asked.hidden_edge).propagation
    edges = sum(len(hop.edge_relation) for hop in walk.hops) / len(rows)
    each = edges + (2 * builder.graph.num_relations) ** 2 / 2
    return min(most, max(LEAST_QUERIES, round(work / each)))
