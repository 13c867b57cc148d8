"""GraIL (Teru, Denis, Hamilton, ICML 2020): a candidate is judged by the subgraph that encloses it and the head.

A relational graph network runs over the enclosing subgraph of every (head, candidate) pair, on nothing but its
double-radius labels. All pairs of a batch go together, in chunks. A candidate farther than 2k hops from the head has an
empty subgraph, as has the head itself; these tie, and cost nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from contextpool.context.config import ContextConfig
from contextpool.errors import ConfigError
from contextpool.kernels.interface import FULL, Stream, aggregate
from contextpool.models.base import LinkPredictor, scatter_scores
from contextpool.models.baselines.enclosing import EnclosingSubgraphs, empty_subgraphs, enclosing_subgraphs
from contextpool.pool.batch import QueryBatch
from contextpool.pool.propagation import Hop, Propagation

EDGES_AT_ONCE = {"cpu": 2**20, "cuda": 2**24}
"""Edges that the subgraphs of a chunk have together, at the very most: what caches hold, or what fills a device."""


@dataclass(frozen=True)
class GraILConfig:
    """Settings of GraIL; the defaults are the published ones."""

    dim: int = 32
    """Width of the states, and of the vectors of relations."""
    layers: int = 3
    """How often messages are sent within a subgraph."""
    hops: int = 3
    """Radius k of the subgraphs: candidates up to 2k hops away have one."""
    bases: int = 4
    """Matrices that those of all relations are mixed from."""
    attention_dim: int = 32
    """Width of the attention's hidden layer."""
    edge_dropout: float = 0.5
    """Share of a subgraph's messages that are dropped in training, another one in each layer."""

    def __post_init__(self) -> None:
        for key in ("dim", "layers", "hops", "bases", "attention_dim"):
            if getattr(self, key) < 1:
                raise ConfigError(f"model.{key} is {getattr(self, key)}; it is at least 1.")
        if not 0 <= self.edge_dropout < 1:
            raise ConfigError(f"model.edge_dropout is {self.edge_dropout}; it has to lie in [0, 1).")


class GraIL(LinkPredictor):
    """Train it with sampled negatives (train.loss = "bce"): a softmax needs the subgraph of every candidate."""

    name: ClassVar[str] = "grail"
    config_class: ClassVar[type] = GraILConfig
    takes_context: ClassVar[bool] = False

    def __init__(
        self, num_relations: int, config: GraILConfig | None = None, context: ContextConfig | None = None
    ) -> None:
        super().__init__(num_relations, config, context)
        dim = self.settings.dim
        self.num_layers = 2 * self.settings.hops
        sizes = [2 * (self.settings.hops + 1)] + [dim] * self.settings.layers
        self.layers = nn.ModuleList(
            GraILLayer(num_relations, size_in, size_out, self.settings)
            for size_in, size_out in pairwise(sizes)
        )
        self.attention_relation = nn.Embedding(2 * num_relations, dim)
        self.query = nn.Embedding(2 * num_relations, dim)
        self.score = nn.Linear((3 * self.settings.layers + 1) * dim, 1)

    def forward(self, batch: QueryBatch) -> Tensor:
        """Every reached candidate through its subgraph."""
        walk = batch.propagation
        unreached = self._score(empty_subgraphs(walk), batch)
        reached = torch.arange(walk.num_queries, len(walk.node_query), device=unreached.device)
        return scatter_scores(batch, torch.cat([unreached, self._node_scores(reached, batch)]), unreached)

    def scores_of(self, batch: QueryBatch, candidates: Tensor) -> Tensor:
        """[B, C] of candidates [B, C], without a look at any other."""
        unreached = self._score(empty_subgraphs(batch.propagation), batch)
        node = nodes_of(batch.propagation, candidates).view(-1)  # [B * C]
        scores = unreached.repeat_interleave(candidates.size(1))
        place = torch.nonzero(node >= batch.propagation.num_queries).squeeze(1)  # reached, and no head
        asked, number = torch.unique(node[place], return_inverse=True)
        return scores.scatter(0, place, self._node_scores(asked, batch)[number]).view_as(candidates)

    def _node_scores(self, node: Tensor, batch: QueryBatch) -> Tensor:
        """[P] of nodes [P] of the walk as candidates of their queries."""
        walk = batch.propagation
        edges_of_query = len(walk.edge_source) // max(walk.num_queries, 1) + 1
        room = EDGES_AT_ONCE.get(node.device.type, EDGES_AT_ONCE["cpu"])
        parts = [
            self._score(enclosing_subgraphs(walk, part, self.settings.hops, self.num_relations), batch)
            for part in node.split(max(room // edges_of_query, 1))
        ]
        return torch.cat(parts)

    def _score(self, subgraphs: EnclosingSubgraphs, batch: QueryBatch) -> Tensor:
        """[P] from the mean state, the head's and the candidate's of each layer, and the query relation."""
        query_relation = batch.query_relation
        state = (
            functional.one_hot(subgraphs.label, self.settings.hops + 1).flatten(1).to(self.score.weight.dtype)
        )
        read = []
        for layer in self.layers:
            state = layer(state, subgraphs.hop, query_relation, self.attention_relation.weight)
            read += [pooled(state, subgraphs), state[subgraphs.head], state[subgraphs.candidate]]
        asked = query_relation[subgraphs.hop.node_query[subgraphs.head]]
        scores: Tensor = self.score(torch.cat([*read, self.query(asked)], dim=1))
        return scores.squeeze(1).float()


class GraILLayer(nn.Module):
    """R-GCN with basis decomposition and attention by source, target, relation and query relation (section 3.2)."""

    def __init__(self, num_relations: int, size_in: int, size_out: int, settings: GraILConfig) -> None:
        super().__init__()
        self.bases, self.edge_dropout = settings.bases, settings.edge_dropout
        self.mixture = nn.Parameter(torch.empty(2 * num_relations, settings.bases))
        nn.init.xavier_uniform_(self.mixture)
        self.basis = nn.Linear(settings.bases * size_in, size_out, bias=False)
        self.stay = nn.Linear(size_in, size_out, bias=False)
        self.from_source, self.from_target = (
            nn.Linear(size_in, settings.attention_dim, bias=False) for _ in range(2)
        )
        self.from_relation = nn.Linear(settings.dim, settings.attention_dim, bias=False)
        self.from_query = nn.Linear(settings.dim, settings.attention_dim)
        self.attention = nn.Linear(settings.attention_dim, 1)

    def forward(self, state: Tensor, hop: Hop, query_relation: Tensor, relation: Tensor) -> Tensor:
        """[Z, size_in] -> [Z, size_out]; matrices are applied to sums instead of messages."""
        weight = self.edge_attention(state, hop, query_relation, relation)
        weight = functional.dropout(weight, self.edge_dropout, self.training)
        if hop.edge_scale is not None:
            weight = weight * hop.edge_scale
        mixture = self.mixture.repeat_interleave(state.size(1), dim=1)  # [2R, bases * size_in]
        ([total], _) = aggregate(
            hop,
            state.repeat(1, self.bases),
            [Stream(FULL, mixture)],
            message="distmult",
            reductions=("sum",),
            edge_weight=weight,
        )
        return torch.relu(self.stay(state) + self.basis(total[:, 0]))

    def edge_attention(self, state: Tensor, hop: Hop, query_relation: Tensor, relation: Tensor) -> Tensor:
        """[E] in (0, 1)"""
        by_query = self.from_query(relation).index_select(0, query_relation)  # [B, A]
        table = self.from_relation(relation) + by_query[:, None]  # [B, 2R, A]
        place = hop.edge_query * len(relation) + hop.edge_relation
        hidden = table.flatten(0, 1).index_select(0, place)
        hidden = hidden + self.from_source(state).index_select(0, hop.edge_source)
        hidden = hidden + self.from_target(state).index_select(0, hop.edge_target)
        return torch.sigmoid(self.attention(torch.relu(hidden)).squeeze(1))


def pooled(state: Tensor, subgraphs: EnclosingSubgraphs) -> Tensor:
    """[P, D] mean state of each subgraph's nodes."""
    total = state.new_zeros(subgraphs.num_pairs, state.size(1)).index_add(0, subgraphs.pair, state)
    return total / subgraphs.num_nodes[:, None]


def nodes_of(walk: Propagation, candidates: Tensor) -> Tensor:
    """[B, C] the node of each candidate [B, C]; -1 where its query did not reach it."""
    number = candidates.new_full((walk.num_queries * walk.num_entities,), -1)
    number[walk.node_query * walk.num_entities + walk.node_entity] = torch.arange(
        len(walk.node_query), device=number.device
    )
    return number.view(walk.num_queries, walk.num_entities).gather(1, candidates)
