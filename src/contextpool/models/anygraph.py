"""One model for any graph: no weight belongs to a relation, to an entity or to a graph.

What a relation is to the query relation is computed from precision and recall (Definitions 5 and 6) and passed on over
the graph of relations; the relation vectors of an NBFNet over entities are made from that. Gate and candidate heads
are those that the context asks for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from contextpool.context.config import ContextConfig
from contextpool.context.parallel import NUMBERS
from contextpool.errors import ConfigError
from contextpool.graph.relations import inverse
from contextpool.kernels.hop import Hop
from contextpool.kernels.interface import FULL, Stream, UpdateWeights, next_states, triton_takes
from contextpool.models.base import LinkPredictor, multi_layer_perceptron, scatter_scores
from contextpool.models.nbfnet import REDUCTIONS, SCALERS, mean_log_degree, scores_of_states
from contextpool.models.relation_encoder import RelationGraph, vectors_of
from contextpool.models.streams import LEAST_MASS, RelevanceGate
from contextpool.pool.batch import QueryBatch
from contextpool.pool.candidates import FEATURES

RELATION_FEATURES = 36
"""Eight relevances, their logarithms, four times whether they are 0, whether y is x, whether y is inverse(x); then
eight numbers over pairs, logarithms of four of them, twice whether they are 0.
"""
HEAD_HIDDEN = 16


@dataclass(frozen=True)
class AnyGraphConfig:
    """Settings of the model for any graph."""

    dim: int = 32
    """Width of the states."""
    layers: int = 6
    """How far messages travel between entities."""
    relation_layers: int = 3
    """How far messages travel between relations."""

    def __post_init__(self) -> None:
        if min(self.dim, self.layers, self.relation_layers) < 1:
            raise ConfigError(
                f"model.dim is {self.dim}, model.layers {self.layers} and model.relation_layers "
                f"{self.relation_layers}; each is at least 1."
            )


class AnyGraph(LinkPredictor):
    """Scores of every entity, for queries over any graph and any relation of it."""

    name: ClassVar[str] = "anygraph"
    config_class: ClassVar[type] = AnyGraphConfig
    any_relation: ClassVar[bool] = True
    keeps_relations: ClassVar[bool] = False

    def __init__(
        self,
        num_relations: int = 0,
        config: AnyGraphConfig | None = None,
        context: ContextConfig | None = None,
    ) -> None:
        """Nothing depends on `num_relations`."""
        super().__init__(num_relations, config, context)
        dim = self.settings.dim
        self.num_layers = self.settings.layers
        self.relations = RelationStates(dim, self.settings.relation_layers)
        self.query = nn.Linear(dim, dim)
        self.gate = RelevanceGate() if context is not None and context.gate else None
        self.layers = nn.ModuleList(EntityLayer(dim) for _ in range(self.settings.layers))
        self.score = multi_layer_perceptron([2 * dim, 2 * dim, 1])
        self.candidates = None
        if context is not None and (context.arrive or context.arrive_walk):
            features = context.arrive and context.arrive_features
            self.candidates = CandidateHead(dim, context.arrive, features, context.arrive_walk)

    @classmethod
    def check_context(cls, context: ContextConfig | None) -> None:
        """Gate and heads alone: a pooled view has no stream here."""
        if context is not None and context.views:
            raise ConfigError(
                f"context.views: {cls.name} has no pooled streams. Leave them out (views = []), or use nbfnet."
            )

    @property
    def reads_relations(self) -> bool:
        return True

    @property
    def reads_pairs(self) -> bool:
        return True

    @property
    def takes_padding(self) -> bool:
        return triton_takes(self.settings.dim, REDUCTIONS)

    def gates(self, batch: QueryBatch) -> Tensor | None:
        return None if self.gate is None else self.gate(batch.neighbor_relevance, batch.query_relation)

    def forward(self, batch: QueryBatch) -> Tensor:
        walk = batch.propagation
        log_degree = mean_log_degree(walk.graph)
        relations = self.relations(batch, walk.graph.num_relations)  # [B, 2R, D]
        query = self.query(vectors_of(relations, batch.query_relation))  # [B, D]
        gates = self.gates(batch)
        state = query  # node b is the head of query b
        for layer, hop in zip(self.layers, walk.hops, strict=True):
            state = layer(state, hop, query, relations, gates, log_degree)
        scores = scatter_scores(batch, *scores_of_states(self.score, state, query, walk.node_query))
        return scores if self.candidates is None else scores + self.candidates(batch, query)


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
        numbers = torch.cat(
            [relation_numbers(batch, num_relations), pair_numbers(batch, num_relations)], dim=2
        )
        state: Tensor = self.first(numbers)
        for own, others, norm in zip(self.own, self.others, self.norm, strict=True):
            state = norm(state + torch.relu(own(state) + others(graph.seen_by_relations(state))))
        return state


def relation_numbers(batch: QueryBatch, num_relations: int) -> Tensor:
    """[B, 2R, 22] what entities say of each relation: no embedding of any."""
    own = relevance_to_query(batch, num_relations)  # [B, 4, 2R]
    if batch.neighbors is not None:
        own = own[:, :, batch.neighbors]
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


def pair_numbers(batch: QueryBatch, num_relations: int) -> Tensor:
    """[B, 2R, 14] the same of what pairs of entities say."""
    own = batch.pair_numbers
    assert own is not None, "this model needs batches with numbers over pairs"
    if batch.neighbors is not None:
        own = own[:, :, batch.neighbors]
    both_ways = torch.cat(
        [own, own.roll(num_relations, dims=2)], dim=1
    )  # [B, 8, 2R] of y, then of inverse(y)
    # precision and recall, both ways
    relevance = both_ways.unflatten(1, (2, NUMBERS))[:, :, :2].flatten(1, 2)
    parts = [both_ways, torch.log(relevance + 1e-3) / 3, (relevance[:, ::2] <= 0).to(own.dtype)]
    return torch.cat(parts, dim=1).transpose(1, 2)


def relevance_to_query(batch: QueryBatch, num_relations: int) -> Tensor:
    """[B, 4, 2R] precision and recall for the query relation, then for its inverse; without the query's own fact."""
    if batch.own_relevance is not None:
        return batch.own_relevance
    precision, asked = batch.relation_precision, batch.query_relation
    assert precision is not None, "this model needs batches with the relation graph"
    back = inverse(asked, num_relations)
    recall = precision.T  # recall[a, b] is precision[b, a]
    return torch.stack([precision[asked], recall[asked], precision[back], recall[back]], dim=1)


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
            edge_weight=hop.edge_scale,
            short_cut=True,
        )


class CandidateHead(nn.Module):
    """A logit from what is known of a candidate, read in the light of the query vector. Starts at 0."""

    def __init__(self, dim: int, relevance: bool, features: bool, mass: bool) -> None:
        super().__init__()
        self.relevance, self.features, self.mass = relevance, features, mass
        self.inner = nn.Linear(3 * relevance + 2 * mass + (len(FEATURES) + 4) * features, HEAD_HIDDEN)
        self.by_query = nn.Linear(dim, HEAD_HIDDEN, bias=False)
        self.outer = nn.Linear(HEAD_HIDDEN, 1)
        nn.init.zeros_(self.outer.weight)
        nn.init.zeros_(self.outer.bias)

    def forward(self, batch: QueryBatch, query: Tensor) -> Tensor:
        """[B, N]"""
        hidden = self.inner(torch.stack(self._known(batch), dim=2))  # [B, N, H]
        hidden = hidden + self.by_query(query)[:, None]
        logit: Tensor = self.outer(torch.relu(hidden))[..., 0]
        return logit

    def _known(self, batch: QueryBatch) -> list[Tensor]:
        """Each [B, N]"""
        known: list[Tensor] = []
        if self.relevance:
            relevance = batch.candidate_relevance
            assert relevance is not None, "this model needs batches with candidate relevance"
            known += [relevance, torch.log(relevance + 1e-3) / 3, (relevance <= 0).float()]
        if self.mass:
            mass = batch.candidate_mass
            assert mass is not None, "this model needs batches with candidate mass"
            known += [torch.log(mass + LEAST_MASS) / 5, (mass <= 0).float()]
        if self.features:
            assert batch.candidate_features is not None, "this model needs batches with candidate features"
            known += batch.candidate_features.unbind(dim=2)
            assert batch.candidate_uses is not None, "this model needs batches with uses of candidates"
            uses, share = batch.candidate_uses.unbind(dim=1)
            head = functional.one_hot(batch.propagation.query_head, uses.size(1))
            known += [uses / 4, share, torch.log(share + 1e-4) / 4, head.to(uses.dtype)]
        return known
