"""The model of `lab.anygraph`: no weight belongs to a relation, to an entity or to a graph.

What a relation is to the query relation is computed from precision and recall (Definitions 5 and 6) and passed on over
the graph of relations; the relation vectors of an NBFNet over entities are made from that.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from contextpool.context.config import ContextConfig
from contextpool.errors import ConfigError
from contextpool.kernels.hop import Hop
from contextpool.kernels.interface import FULL, Stream, UpdateWeights, next_states, node_scores
from contextpool.models.base import multi_layer_perceptron, scatter_scores
from contextpool.models.nbfnet import REDUCTIONS, SCALERS
from contextpool.models.relation_encoder import RelationGraph, vectors_of
from contextpool.models.streams import LEAST_MASS, RelevanceGate
from contextpool.pool.batch import QueryBatch
from contextpool.pool.candidates import FEATURES

HEADS = ("gate", "arrive", "features", "walk")
WEIGHTS = ("relevance", "counts", "binary", "shuffled")
RELATION_FEATURES = 22
"""Eight relevances, their logarithms, four times whether they are 0, whether y is x, whether y is inverse(x)."""


@dataclass(frozen=True)
class Settings:
    """The model and its training."""

    dim: int = 32
    layers: int = 6
    relation_layers: int = 3
    weights: str = "relevance"
    """Of the relation graph, and the numbers that relation states start from. Gate and heads read true relevance."""
    heads: str = "gate,arrive,features,walk"
    """Those of HEADS that are used, joined by commas; "none" for none."""
    query_heads: bool = True
    """Whether the network over candidates reads the query vector."""
    head_hidden: int = 16
    batch: int = 64
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
    def context(self) -> ContextConfig:
        """What batches have to hold."""
        arrive, features = bool(self.used & {"arrive", "features"}), "features" in self.used
        return ContextConfig(
            gate="gate" in self.used, arrive=arrive, arrive_features=features, arrive_walk="walk" in self.used
        )


class RelationStates(nn.Module):
    """What every relation is to the query relation: message passing over the weighted graph of relations."""

    def __init__(self, dim: int, layers: int) -> None:
        super().__init__()
        self.first = multi_layer_perceptron([RELATION_FEATURES, dim, dim])
        self.own = nn.ModuleList(nn.Linear(dim, dim) for _ in range(layers))
        self.others = nn.ModuleList(nn.Linear(8 * dim, dim, bias=False) for _ in range(layers))
        self.norm = nn.ModuleList(nn.LayerNorm(dim) for _ in range(layers))

    def forward(self, batch: QueryBatch, num_relations: int) -> Tensor:
        """[B, 2R, D]"""
        graph = RelationGraph.of(batch, num_relations)
        state: Tensor = self.first(relation_numbers(batch, num_relations))
        for own, others, norm in zip(self.own, self.others, self.norm, strict=True):
            state = norm(state + torch.relu(own(state) + others(graph.seen_by_relations(state))))
        return state


def relation_numbers(batch: QueryBatch, num_relations: int) -> Tensor:
    """[B, 2R, RELATION_FEATURES] all that a relation state starts from: no embedding of any relation."""
    own = batch.own_relevance  # [B, 4, 2R] precision and recall for x, then for inverse(x)
    assert own is not None, "batches hide -1 where there is nothing to hide"
    both_ways = torch.cat(
        [own, own.roll(num_relations, dims=2)], dim=1
    )  # [B, 8, 2R] of y, then of inverse(y)
    asked = functional.one_hot(batch.query_relation, 2 * num_relations).to(own.dtype)[:, None]  # [B, 1, 2R]
    parts = [
        both_ways,
        torch.log(both_ways + 1e-3) / 3,
        (both_ways[:, ::2] <= 0).to(own.dtype),  # precision is 0 where recall is
        asked,
        asked.roll(num_relations, dims=2),
    ]
    return torch.cat(parts, dim=1).transpose(1, 2)


class EntityLayer(nn.Module):
    """One layer of NBFNet whose relation vectors are made from relation states."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.relation = multi_layer_perceptron([dim, dim, dim])
        self.own = nn.Linear(dim, dim)
        self.received = nn.Linear(len(REDUCTIONS) * dim, SCALERS * dim, bias=False)
        self.norm = nn.LayerNorm(dim)
        bound = ((1 + len(REDUCTIONS) * SCALERS) * dim) ** -0.5  # as one linear layer over all of them has
        for weight in (self.own.weight, self.own.bias, self.received.weight):
            nn.init.uniform_(weight, -bound, bound)

    def forward(
        self, state: Tensor, hop: Hop, query: Tensor, relations: Tensor, gates: Tensor | None, log_degree: Tensor
    ) -> Tensor:  # fmt: skip
        """States of the nodes reached before [num_sources, D] -> of those reached now [num_targets, D]."""
        weight = self.relation(relations)  # [B, 2R, D]
        return next_states(
            hop,
            state,
            [Stream(FULL, weight if gates is None else weight * gates[:, :, None])],
            UpdateWeights.of(self.own, [self.received], self.norm, log_degree, SCALERS),
            message="distmult",
            reductions=REDUCTIONS,
            boundary=query,
            short_cut=True,
        )


class CandidateHead(nn.Module):
    """A logit from what is known of a candidate, read in the light of the query vector. Starts at 0."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self.used = settings.used
        size = (
            3 * ("arrive" in self.used)
            + len(FEATURES) * ("features" in self.used)
            + 2 * ("walk" in self.used)
        )
        hidden = settings.head_hidden
        self.inner = nn.Linear(size, hidden)
        self.by_query = nn.Linear(settings.dim, hidden, bias=False) if settings.query_heads else None
        self.outer = nn.Linear(hidden, 1)
        nn.init.zeros_(self.outer.weight)
        nn.init.zeros_(self.outer.bias)

    def forward(self, batch: QueryBatch, query: Tensor) -> Tensor:
        """[B, N]"""
        known: list[Tensor] = []  # each [B, N]
        relevance, mass = batch.candidate_relevance, batch.candidate_mass
        if "arrive" in self.used and relevance is not None:
            known += [relevance, torch.log(relevance + 1e-3) / 3, (relevance <= 0).float()]
        if "walk" in self.used and mass is not None:
            known += [torch.log(mass + LEAST_MASS) / 5, (mass <= 0).float()]
        if "features" in self.used and batch.candidate_features is not None:
            known += batch.candidate_features.unbind(dim=2)
        hidden = self.inner(torch.stack(known, dim=2))  # [B, N, H]
        if self.by_query is not None:
            hidden = hidden + self.by_query(query)[:, None]
        logit: Tensor = self.outer(torch.relu(hidden))[..., 0]
        return logit


class AnyGraph(nn.Module):
    """Scores [B, N] of every entity, for queries over any graph of any relations."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        dim = settings.dim
        self.dim = dim
        self.relations = RelationStates(dim, settings.relation_layers)
        self.query = nn.Linear(dim, dim)
        self.gate = RelevanceGate() if "gate" in settings.used else None
        self.layers = nn.ModuleList(EntityLayer(dim) for _ in range(settings.layers))
        self.score = multi_layer_perceptron([2 * dim, 2 * dim, 1])
        self.candidates = CandidateHead(settings) if settings.used - {"gate"} else None

    def forward(self, batch: QueryBatch, log_degree: Tensor) -> Tensor:
        """`log_degree` [] is PNA's constant, of the graph at hand."""
        walk = batch.propagation
        relations = self.relations(batch, walk.graph.num_relations)  # [B, 2R, D]
        query = self.query(vectors_of(relations, batch.query_relation))  # [B, D]
        gates = None if self.gate is None else self.gate(batch.neighbor_relevance, batch.query_relation)
        state = query  # node b is the head of query b
        for layer, hop in zip(self.layers, walk.hops, strict=True):
            state = layer(state, hop, query, relations, gates, log_degree)
        first, last = self.score[0], self.score[-1]
        assert isinstance(first, nn.Linear)
        assert isinstance(last, nn.Linear)
        of_state, of_query = first.weight.split(self.dim, dim=1)
        by_query = functional.linear(query, of_query, first.bias)  # [B, H]
        reached = node_scores(state, by_query, walk.node_query, of_state, last.weight, last.bias)
        scores = scatter_scores(batch, reached, last(torch.relu(by_query)).squeeze(1).float())
        return scores if self.candidates is None else scores + self.candidates(batch, query)
