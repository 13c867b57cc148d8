"""The product's model for any graph as `lab.anygraph` trains it: its settings, and what ablations change in it.

Ablations are other batches (weights of the relation graph) or other heads; the model is contextpool.models.anygraph.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from contextpool.context.config import ContextConfig
from contextpool.context.counts import CountsOf, Statistics
from contextpool.context.relevance import shuffled_neighbors
from contextpool.errors import ConfigError
from contextpool.graph.graph import Graph
from contextpool.models.anygraph import HEAD_HIDDEN, AnyGraph, AnyGraphConfig, CandidateHead
from contextpool.pool.batch import BatchBuilder, QueryBatch

HEADS = ("gate", "arrive", "features", "walk")
WEIGHTS = ("relevance", "counts", "binary", "shuffled", "all-shuffled")


@dataclass(frozen=True)
class Settings:
    """The model and its training."""

    dim: int = 32
    layers: int = 6
    relation_layers: int = 3
    pairs: bool = True
    """Whether numbers over pairs, and how often a candidate is an answer, are read; otherwise they are 0."""
    weights: str = "relevance"
    """Of the relation graph, and the numbers that relation states start from. Gate and heads read true relevance, but
    with all-shuffled, where every neighbor has the numbers of another one everywhere.
    """
    control: int = 0
    """The seed of a shuffled control: which permutation."""
    heads: str = "gate,arrive,features,walk"
    """Those of HEADS that are used, joined by commas; "none" for none."""
    query_heads: bool = True
    """Whether the network over candidates reads the query vector."""
    batch: int = 64
    """Queries of a step at most."""
    work: int = 0
    """Edges walked in a step, about: larger graphs ask fewer queries, at least LEAST_QUERIES. 0 for `batch` always."""
    lr: float = 2e-3
    weight_decay: float = 1e-2
    drop_low: float = 0.0
    drop_high: float = 0.7
    """The share of edges that a step drops is drawn between the two."""
    clip: float = 1.0
    power: float = 0.5
    """A graph is drawn with probability ~ facts ** power."""

    def __post_init__(self) -> None:
        if self.weights not in WEIGHTS:
            raise ConfigError(f"weights is {self.weights!r}; it is one of {', '.join(WEIGHTS)}.")
        if not self.used <= set(HEADS):
            raise ConfigError(f"heads is {self.heads!r}; there are {', '.join(HEADS)}, or none.")

    @property
    def used(self) -> set[str]:
        """The heads by name."""
        return set(self.heads.split(",")) - {"", "none"}

    @property
    def model(self) -> AnyGraphConfig:
        return AnyGraphConfig(self.dim, self.layers, self.relation_layers)

    @property
    def context(self) -> ContextConfig:
        """What batches have to hold."""
        arrive, features = bool(self.used & {"arrive", "features"}), "features" in self.used
        return ContextConfig(
            gate="gate" in self.used,
            arrive=arrive,
            arrive_features=features,
            arrive_walk="walk" in self.used,
            relevance_control="shuffled" if self.weights == "all-shuffled" else "none",
            control_seed=self.control,
        )


def new_model(settings: Settings) -> AnyGraph:
    """The product's model, with other heads where an ablation wants them."""
    model, used = AnyGraph(0, settings.model, settings.context), settings.used
    if "features" in used and "arrive" not in used:  # which the product does not have apart
        model.candidates = CandidateHead(settings.dim, relevance=False, features=True, mass="walk" in used)
    if model.candidates is not None and not settings.query_heads:
        model.candidates.by_query = Blind()  # type: ignore[assignment]
    return model


class Blind(nn.Module):
    """Takes the place of what reads the query vector."""

    def forward(self, query: Tensor) -> Tensor:
        """[B, D] -> [B, H] zeros"""
        return query.new_zeros(len(query), HEAD_HIDDEN)


def builder_of(graph: Graph, settings: Settings) -> BatchBuilder:
    """What makes batches over a graph, with other weights of the relation graph where an ablation wants them."""
    usual = settings.weights in ("relevance", "all-shuffled") and settings.pairs
    kind = BatchBuilder if usual else WeightedBuilder
    builder = kind(
        graph, settings.layers, settings.context, Statistics.of(graph), relation_graph=True, pairs=True
    )
    if isinstance(builder, WeightedBuilder):
        builder.weights, builder.control, builder.blind = (
            settings.weights,
            settings.control,
            not settings.pairs,
        )
    return builder


class WeightedBuilder(BatchBuilder):
    """Batches of an ablation."""

    weights = "relevance"
    control = 0
    blind = False
    """Whether numbers over pairs, and uses of candidates, are 0."""

    @cached_property
    def shuffle(self) -> Tensor:
        """[2R] none keeps its place."""
        drawn = shuffled_neighbors(2 * self.graph.num_relations, self.control)
        return torch.from_numpy(drawn).to(self.graph.device)

    def build(
        self,
        query_head: Tensor,
        query_relation: Tensor,
        hidden_edge: Tensor | None = None,
        **options: Any,
    ) -> QueryBatch:
        batch = super().build(query_head, query_relation, hidden_edge, **options)
        if self.blind:
            assert batch.pair_numbers is not None
            batch = replace(batch, pair_numbers=torch.zeros_like(batch.pair_numbers))
            if batch.candidate_uses is not None:
                batch = replace(batch, candidate_uses=torch.zeros_like(batch.candidate_uses))
        hidden = torch.full_like(query_head, -1) if hidden_edge is None else hidden_edge
        return weighted(batch, self.weights, self._counts, self.shuffle, hidden)


def weighted(
    batch: QueryBatch, kind: str, counts: CountsOf, shuffle: Tensor, hidden_edge: Tensor
) -> QueryBatch:
    """The relation graph's weights as an ablation wants them; `shuffle` [2R], hidden_edge [B]."""
    shared, own = batch.relation_precision, batch.own_relevance
    assert shared is not None  # [2R, 2R]
    assert own is not None  # [B, 4, 2R]
    if kind in ("relevance", "all-shuffled"):
        return batch
    if kind == "shuffled":  # every neighbor has the numbers of another one
        return replace(batch, neighbors=shuffle)
    if kind == "binary":
        shared, own = (shared > 0).float(), (own > 0).float()
    elif kind == "counts":  # entities having both, on a logarithmic scale up to 1
        most = math.log1p(counts.num_entities)
        both = counts.for_queries(batch.query_relation, hidden_edge).both  # [B, 2, 2R]
        shared = torch.log1p(counts.both.float()) / most
        own = (torch.log1p(both.float()) / most).repeat_interleave(2, dim=1)
    return replace(batch, relation_precision=shared, own_relevance=own)
