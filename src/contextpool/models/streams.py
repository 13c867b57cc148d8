"""Context for any model (section 4.4 of the paper): pooled streams, gates and candidate relevance.

A model asks three things: how many streams to aggregate (`num_streams`), what to multiply its messages with
(`edge_weight`), and what to add to its scores (`candidate_logit`). Without context the answers are: one,
nothing, nothing, and the model is the plain one.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from contextpool.context.config import ContextConfig
from contextpool.kernels.hop import Hop
from contextpool.kernels.interface import FULL, Stream, edge_values
from contextpool.pool.batch import QueryBatch
from contextpool.pool.candidates import FEATURES

GATE_FEATURES = 4
ARRIVE_FEATURES = 3
LEAST_MASS = 1e-6


class ContextStreams(nn.Module):
    """The context side of a model."""

    def __init__(self, config: ContextConfig | None) -> None:
        super().__init__()
        self.config = config
        self.num_views = 0 if config is None else config.num_views
        self.gate, self.arrive, self.features, self.walk = None, None, None, None
        if config is not None and config.gate:
            self.gate = RelevanceGate()
        if config is not None and config.arrive:
            self.arrive = CandidateHead()
            self.features = CandidateNetwork() if config.arrive_features else None
        if config is not None and config.arrive_walk:
            self.walk = WalkHead()

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
        parts = (
            (self.arrive, batch.candidate_relevance, "relevance"),
            (self.features, batch.candidate_features, "features"),
            (self.walk, batch.candidate_mass, "mass"),
        )
        logit: Tensor | None = None
        for head, known, what in parts:
            if head is not None:
                assert known is not None, f"this model needs batches with candidate {what}"
                logit = head(known) if logit is None else logit + head(known)
        return logit

    def add_candidate_logit(self, scores: Tensor, batch: QueryBatch) -> Tensor:
        """Scores [B, N] with the candidates' relevance, where it is used."""
        logit = self.candidate_logit(batch)
        return scores if logit is None else scores + logit


def edge_gate(table: Tensor | None, hop: Hop) -> Tensor | None:
    """[K] the gate of each edge of a hop, times its scale; None where it has neither."""
    if table is None:
        return hop.edge_scale
    gate = edge_values(table, hop.edge_query, hop.edge_relation)
    return gate if hop.edge_scale is None else gate * hop.edge_scale


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
        logit = self.outer(torch.relu(self.inner(features)))[..., 0]  # [B, 2R]
        return 2 * torch.sigmoid(logit)


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


class WalkHead(nn.Module):
    """A logit from where a random walk goes: linear in the logarithm of its mass, and in whether there is none."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.zeros(2))

    def forward(self, mass: Tensor) -> Tensor:
        """[B, N] -> [B, N]"""
        nothing = (mass <= 0).to(mass.dtype)
        return self.scale[0] * torch.log(mass + LEAST_MASS) + self.scale[1] * nothing


class CandidateNetwork(nn.Module):
    """A logit from all that is known of a candidate (`candidates.FEATURES`). Starts at 0: without effect."""

    def __init__(self, hidden: int = 8) -> None:
        super().__init__()
        self.inner = nn.Linear(len(FEATURES), hidden)
        self.outer = nn.Linear(hidden, 1)
        nn.init.zeros_(self.outer.weight)
        nn.init.zeros_(self.outer.bias)

    def forward(self, features: Tensor) -> Tensor:
        """[B, N, F] -> [B, N]"""
        logit: Tensor = self.outer(torch.relu(self.inner(features)))[..., 0]
        return logit
