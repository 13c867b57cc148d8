"""Context for any model (section 4.4 of the paper): pooled streams, gates and candidate relevance.

A model asks three things: how many streams to aggregate (`num_streams`), what to multiply its messages with
(`edge_weight`), and what to add to its scores (`candidate_logit`). Without context the answers are: one,
nothing, nothing, and the model is the plain one.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from contextpool.kernels.interface import FULL, Stream
from contextpool.pool.batch import ContextConfig, QueryBatch
from contextpool.pool.propagation import Hop

GATE_FEATURES = 4
ARRIVE_FEATURES = 3


class ContextStreams(nn.Module):
    """The context side of a model."""

    def __init__(self, config: ContextConfig | None) -> None:
        super().__init__()
        self.config = config
        self.num_views = 0 if config is None else config.num_views
        self.gate = RelevanceGate() if config is not None and config.gate else None
        self.arrive = CandidateHead() if config is not None and config.arrive else None

    @property
    def num_streams(self) -> int:
        """The full stream and one per view."""
        return 1 + self.num_views

    def streams(self, relation_weights: list[Tensor]) -> list[Stream]:
        """One stream per weight: the full graph first, then the views in order."""
        views = [FULL, *range(self.num_views)]
        return [Stream(view, weight) for view, weight in zip(views, relation_weights, strict=True)]

    def gate_table(self, batch: QueryBatch) -> Tensor | None:
        """[B, 2R] what to multiply messages with, by the relation they travel along; None for nothing."""
        if self.gate is None:
            return None
        assert batch.neighbor_relevance is not None, "a gated model needs batches with neighbor relevance"
        table: Tensor = self.gate(batch.neighbor_relevance, batch.query_relation)
        return table

    def candidate_logit(self, batch: QueryBatch) -> Tensor | None:
        """[B, N] what to add to the scores; None for nothing."""
        if self.arrive is None:
            return None
        assert batch.candidate_relevance is not None, "this model needs batches with candidate relevance"
        logit: Tensor = self.arrive(batch.candidate_relevance)
        return logit

    def add_candidate_logit(self, scores: Tensor, batch: QueryBatch) -> Tensor:
        """Scores [B, N] with the candidates' relevance, where it is used."""
        logit = self.candidate_logit(batch)
        return scores if logit is None else scores + logit


def edge_gate(table: Tensor | None, hop: Hop) -> Tensor | None:
    """[K] the gate of each edge of a hop."""
    if table is None:
        return None
    return table.reshape(-1)[hop.edge_query * table.size(1) + hop.edge_relation.long()]


class RelevanceGate(nn.Module):
    """A message weight in (0, 2) from precision, recall, their product, and whether the relation is the query's.

    Starts at 1 for every relation: the plain model.
    """

    def __init__(self, hidden: int = 8) -> None:
        super().__init__()
        self.inner = nn.Linear(GATE_FEATURES, hidden)
        self.outer = nn.Linear(hidden, 1)
        nn.init.zeros_(self.outer.weight)
        nn.init.zeros_(self.outer.bias)

    def forward(self, relevance: Tensor, query_relation: Tensor) -> Tensor:
        """[B, 2R, 2], [B] -> [B, 2R]"""
        precision, recall = relevance.unbind(dim=2)
        own = nn.functional.one_hot(query_relation, relevance.size(1)).to(relevance.dtype)
        features = torch.stack([precision, recall, precision * recall, own], dim=2)
        return 2 * torch.sigmoid(self.outer(torch.relu(self.inner(features)))[..., 0])


class CandidateHead(nn.Module):
    """A logit from the relevance of a candidate: linear in it, in its logarithm, and in whether it is zero."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.zeros(ARRIVE_FEATURES))

    def forward(self, relevance: Tensor) -> Tensor:
        """[B, N] -> [B, N]"""
        features = (relevance, torch.log(relevance + 1e-3), (relevance <= 0).to(relevance.dtype))
        return sum(
            (weight * feature for weight, feature in zip(self.scale, features, strict=True)), relevance * 0
        )
