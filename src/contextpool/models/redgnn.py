"""RED-GNN (Zhang, Yao, WWW 2022): relational digraphs, attention over (state, relation, query), gated update."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from contextpool.errors import ConfigError
from contextpool.graph.graph import Graph
from contextpool.kernels.interface import aggregate
from contextpool.models.base import LinkPredictor, padded, scatter_scores
from contextpool.models.own_head import OwnHead
from contextpool.models.relation_encoder import RelationEncoder, check_encoder, vectors_of
from contextpool.models.streams import ContextStreams, edge_gate
from contextpool.pool.batch import ContextConfig, QueryBatch
from contextpool.pool.propagation import Hop

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu,
    "tanh": torch.tanh,
    "idd": lambda value: value,
}


@dataclass(frozen=True)
class REDGNNConfig:
    """Settings of RED-GNN; the published ones differ per dataset and are in its recipes."""

    dim: int = 48
    """Width of the states."""
    layers: int = 3
    """How far messages travel."""
    attention_dim: int = 5
    """Width of the attention's hidden layer."""
    activation: Literal["relu", "tanh", "idd"] = "relu"
    """After the aggregation; "idd" is the identity."""
    dropout: float = 0.2
    """Share of a layer's output that is dropped in training."""
    relation_encoder: bool = False
    """Enrich the vectors of relations by a small network over the graph of relations."""
    relation_layers: int = 1
    """Layers of that network."""
    exclude_head: bool = False
    """No query is answered with its own head, unless its relation does so in training."""

    def __post_init__(self) -> None:
        if min(self.dim, self.layers, self.attention_dim) < 1:
            raise ConfigError("model.dim, model.layers and model.attention_dim are at least 1.")
        if self.activation not in ACTIVATIONS:
            raise ConfigError(
                f"model.activation is {self.activation!r}; it is one of {', '.join(ACTIVATIONS)}."
            )
        if not 0 <= self.dropout < 1:
            raise ConfigError(f"model.dropout is {self.dropout}; it has to lie in [0, 1).")
        check_encoder(self.relation_layers)


class REDGNN(LinkPredictor):
    """States start at zero at the head; the entities that no message reaches tie at zero."""

    name: ClassVar[str] = "redgnn"
    config_class: ClassVar[type] = REDGNNConfig

    def __init__(
        self, num_relations: int, config: REDGNNConfig | None = None, context: ContextConfig | None = None
    ) -> None:
        super().__init__(num_relations, config, context)
        self.num_layers = self.settings.layers
        self.context = ContextStreams(context, num_relations)
        self.layers = nn.ModuleList(
            REDGNNLayer(num_relations, self.settings, self.context.num_streams)
            for _ in range(self.settings.layers)
        )
        self.gru = nn.GRUCell(self.settings.dim, self.settings.dim)
        self.dropout = nn.Dropout(self.settings.dropout)
        self.score = nn.Linear(self.settings.dim, 1, bias=False)
        self.encoder = RelationEncoder.of(num_relations, self.settings)
        self.own_head = OwnHead(num_relations) if self.settings.exclude_head else None

    @classmethod
    def for_graph(cls, graph: Graph, config: Any = None, context: ContextConfig | None = None) -> REDGNN:
        model = cls(graph.num_relations, config, context)
        if model.own_head is not None:
            model.own_head.look_at(graph)
        return model

    @property
    def reads_relations(self) -> bool:
        return self.encoder is not None

    def allow_reflexive(self, relation: Tensor) -> None:
        if self.own_head is not None:
            self.own_head.allow(relation)

    def forward(self, batch: QueryBatch) -> Tensor:
        walk = batch.propagation
        gates = self.context.gate_table(batch)
        enriched = None if self.encoder is None else self.encoder(batch)  # [2R, D] or [B, 2R, D]
        state = self.score.weight.new_zeros(walk.num_queries, self.settings.dim)  # [B, D]
        for layer, hop in zip(self.layers, walk.hops, strict=True):
            update = layer(state, hop, batch.query_relation, self.context, gates, enriched)
            state = self.gru(self.dropout(update), padded(state, hop.num_targets))
        node_score = self.score(state).squeeze(1).float()
        unreached = node_score.new_zeros(walk.num_queries)
        scores = self.context.add_candidate_logit(scatter_scores(batch, node_score, unreached), batch)
        return scores if self.own_head is None else self.own_head(scores, batch)


class REDGNNLayer(nn.Module):
    """Attentive sum over the full graph and every pooled one; each stream has its own attention and relations."""

    def __init__(self, num_relations: int, settings: REDGNNConfig, num_streams: int) -> None:
        super().__init__()
        self.settings = settings
        self.streams: list[REDGNNStream] = nn.ModuleList(  # type: ignore[assignment]
            REDGNNStream(num_relations, settings) for _ in range(num_streams)
        )
        self.update = nn.Linear(num_streams * settings.dim, settings.dim, bias=False)

    def forward(
        self,
        state: Tensor,
        hop: Hop,
        query_relation: Tensor,
        context: ContextStreams,
        gates: Tensor | None,
        enriched: Tensor | None = None,
    ) -> Tensor:
        """[num_sources, D] -> [num_targets, D]"""
        hop = hop.walked  # attention is a number per edge
        gate = edge_gate(gates, hop)
        relations = [stream.relations(enriched) for stream in self.streams]
        views = context.streams(relations)
        received = []
        for stream, view, relation in zip(self.streams, views, relations, strict=True):
            attention = stream.edge_attention(state, hop, query_relation, relation)  # [K]
            weight = attention if gate is None else attention * gate
            ([total], _) = aggregate(
                hop, state, [view], message="transe", reductions=("sum",), edge_weight=weight
            )
            asking = hop.node_query[: hop.num_sources]
            staying = stream.self_message(state, asking, query_relation, relation)
            received.append(total[:, 0] + padded(staying, hop.num_targets))
        update: Tensor = self.update(torch.cat(received, dim=1))
        return ACTIVATIONS[self.settings.activation](update)


class REDGNNStream(nn.Module):
    """Relations and attention of one stream. Relation 2R is staying where one is."""

    def __init__(self, num_relations: int, settings: REDGNNConfig) -> None:
        super().__init__()
        self.stay = 2 * num_relations
        self.relation = nn.Embedding(2 * num_relations + 1, settings.dim)
        self.from_state = nn.Linear(settings.dim, settings.attention_dim, bias=False)
        self.from_relation = nn.Linear(settings.dim, settings.attention_dim, bias=False)
        self.from_query = nn.Linear(settings.dim, settings.attention_dim)
        self.attention = nn.Linear(settings.attention_dim, 1)
        self.enrich = nn.Linear(settings.dim, settings.dim, bias=False) if settings.relation_encoder else None

    def relations(self, enriched: Tensor | None) -> Tensor:
        """[2R + 1, D], or [B, 2R + 1, D] where they are a query's own. Staying borrows from nobody."""
        if self.enrich is None or enriched is None:
            return self.relation.weight
        return self.relation.weight + nn.functional.pad(self.enrich(enriched), (0, 0, 0, 1))

    def edge_attention(self, state: Tensor, hop: Hop, query_relation: Tensor, relation: Tensor) -> Tensor:
        """[K] in (0, 1)"""
        by_relation, by_query = self.from_relation(relation), self._by_query(query_relation, relation)
        place = hop.edge_relation
        if by_relation.dim() == 3:
            place = hop.edge_query * by_relation.size(1) + place
        hidden = (
            self.from_state(state).index_select(0, hop.edge_source)
            + by_relation.flatten(0, -2).index_select(0, place)
            + by_query.index_select(0, hop.edge_query)
        )
        return torch.sigmoid(self.attention(torch.relu(hidden)).squeeze(1))

    def self_message(
        self, state: Tensor, node_query: Tensor, query_relation: Tensor, relation: Tensor
    ) -> Tensor:
        """[M, D] what a node sends to itself."""
        by_relation = self.from_relation(self.relation.weight)
        by_query = self._by_query(query_relation, relation)
        hidden = self.from_state(state) + by_relation[self.stay] + by_query[node_query]
        attention = torch.sigmoid(self.attention(torch.relu(hidden)))  # [M, 1]
        return attention * (state + self.relation.weight[self.stay])

    def _by_query(self, query_relation: Tensor, relation: Tensor) -> Tensor:
        """[B, A] attention's part by query; `relation` [(B,) 2R + 1, D]."""
        enriched = self.enrich is not None
        vector = vectors_of(relation, query_relation) if enriched else self.relation(query_relation)
        part: Tensor = self.from_query(vector)
        return part
