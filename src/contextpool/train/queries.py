"""What is trained on: every training triple in both directions, each with the edge it must not see."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from contextpool.graph.graph import Graph
from contextpool.graph.relations import DirectedQueries
from contextpool.kernels.hop import entries_of_rows
from contextpool.triples.filters import KnownAnswers
from contextpool.triples.store import Triples


@dataclass(frozen=True, eq=False)
class KnownRows:
    """The known answers of Q queries as compressed rows: those of query q are entity[begin[q]:end[q]]."""

    begin: Tensor  # [Q] int64
    end: Tensor  # [Q] int64
    entity: Tensor  # [A] int32

    @classmethod
    def of(cls, asked: DirectedQueries, known: KnownAnswers) -> KnownRows:
        begin, end, entity = asked.known_rows(known)
        return cls(torch.from_numpy(begin), torch.from_numpy(end), torch.from_numpy(entity))

    def select(self, rows: Tensor) -> KnownRows:
        return KnownRows(self.begin[rows], self.end[rows], self.entity)

    def to(self, device: torch.device) -> KnownRows:
        return KnownRows(self.begin.to(device), self.end.to(device), self.entity.to(device))


@dataclass(frozen=True, eq=False)
class TrainingQueries:
    """Q directed queries with their answers."""

    head: Tensor  # [Q] int64
    relation: Tensor  # [Q] int64 in [0, 2R)
    answer: Tensor  # [Q] int64
    hidden_edge: Tensor
    """[Q] int64 the query as an edge of the training graph; -1 where the graph does not hold it."""
    known: KnownRows
    """Answers that training knows to be true: they are no negatives."""

    @classmethod
    def of(cls, triples: Triples, graph: Graph, known: KnownAnswers) -> TrainingQueries:
        asked = DirectedQueries.of(triples)
        head, relation, answer = (
            torch.from_numpy(ids) for ids in (asked.entity, asked.relation, asked.answer)
        )
        hidden_edge = graph.find_edges(head, relation, answer).cpu()
        return cls(head, relation, answer, hidden_edge, KnownRows.of(asked, known))

    def __len__(self) -> int:
        return len(self.head)

    def batch(self, rows: Tensor) -> TrainingQueries:
        head, relation, answer = self.head[rows], self.relation[rows], self.answer[rows]
        return TrainingQueries(head, relation, answer, self.hidden_edge[rows], self.known.select(rows))

    def to(self, device: torch.device) -> TrainingQueries:
        """The same queries with their tensors on `device`."""
        head, relation, answer = self.head.to(device), self.relation.to(device), self.answer.to(device)
        return TrainingQueries(head, relation, answer, self.hidden_edge.to(device), self.known.to(device))

    def other_answers(self) -> tuple[Tensor, Tensor]:
        """Row [K] and entity [K] of the known answers of each query other than its own."""
        rows, places = entries_of_rows(self.known.begin, self.known.end - self.known.begin)
        entities = self.known.entity[places].long()
        others = entities != self.answer[rows]
        return rows[others], entities[others]


def epoch_batches(
    num_queries: int, batch_size: int, seed: int, epoch: int, device: torch.device | str = "cpu"
) -> tuple[Tensor, ...]:
    """Rows of each batch of an epoch. The order depends on (seed, epoch) alone, so a resumed run sees the same."""
    generator = torch.Generator().manual_seed(mixed_seed(seed, epoch, 0))
    order = torch.randperm(num_queries, generator=generator).to(device)
    return order.split(batch_size) if num_queries else ()


def mixed_seed(seed: int, epoch: int, step: int) -> int:
    """A seed of its own for each (seed, epoch, step), far apart for neighbours."""
    mixed = (seed * 0x9E3779B97F4A7C15 + epoch * 0xBF58476D1CE4E5B9 + step * 0x94D049BB133111EB) % 2**64
    mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) % 2**64
    return (mixed ^ (mixed >> 31)) % 2**63
