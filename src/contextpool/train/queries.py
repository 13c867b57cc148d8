"""What is trained on: every training triple in both directions, each with the edge it must not see."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from contextpool.graph.graph import Graph
from contextpool.graph.queries import DirectedQueries
from contextpool.triples.filters import KnownAnswers
from contextpool.triples.store import Triples


@dataclass(frozen=True, eq=False)
class TrainingQueries:
    """Q directed queries with their answers."""

    head: Tensor  # [Q] int64
    relation: Tensor  # [Q] int64 in [0, 2R)
    answer: Tensor  # [Q] int64
    hidden_edge: Tensor
    """[Q] int64 the query as an edge of the training graph; -1 where the graph does not hold it."""
    known: KnownAnswers
    """Answers that training knows to be true: they are no negatives."""

    @classmethod
    def of(cls, triples: Triples, graph: Graph, known: KnownAnswers) -> TrainingQueries:
        asked = DirectedQueries.of(triples)
        head, relation, answer = (
            torch.from_numpy(ids) for ids in (asked.entity, asked.relation, asked.answer)
        )
        return cls(head, relation, answer, graph.find_edges(head, relation, answer).cpu(), known)

    def __len__(self) -> int:
        return len(self.head)

    def batch(self, rows: Tensor) -> TrainingQueries:
        head, relation, answer = self.head[rows], self.relation[rows], self.answer[rows]
        return TrainingQueries(head, relation, answer, self.hidden_edge[rows], self.known)

    def other_answers(self) -> tuple[Tensor, Tensor]:
        """Row [K] and entity [K] of the known answers of each query other than its own."""
        asked = DirectedQueries(self.head.numpy(), self.relation.numpy(), self.answer.numpy())
        rows, entities = (torch.from_numpy(ids) for ids in asked.known_answers(self.known))
        others = entities != self.answer[rows]
        return rows[others], entities[others]


def epoch_batches(num_queries: int, batch_size: int, seed: int, epoch: int) -> Iterator[Tensor]:
    """Rows of each batch of an epoch. The order depends on (seed, epoch) alone, so a resumed run sees the same."""
    generator = torch.Generator().manual_seed(mixed_seed(seed, epoch, 0))
    yield from torch.randperm(num_queries, generator=generator).split(batch_size)


def mixed_seed(seed: int, epoch: int, step: int) -> int:
    """A seed of its own for each (seed, epoch, step), far apart for neighbours."""
    mixed = (seed * 0x9E3779B97F4A7C15 + epoch * 0xBF58476D1CE4E5B9 + step * 0x94D049BB133111EB) % 2**64
    mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) % 2**64
    return (mixed ^ (mixed >> 31)) % 2**63
