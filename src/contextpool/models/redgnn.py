"""RED-GNN (Zhang, Yao, WWW 2022): relational digraphs, attention over (state, relation, query), gated update."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from contextpool.context.config import ContextConfig
from contextpool.errors import ConfigError
from contextpool.graph.graph import Graph
from contextpool.kernels.attention import edge_attention
from contextpool.kernels.interface import aggregate
from contextpool.models.base import LinkPredictor, padded, scatter_scores, where_real
from contextpool.models.own_head import OwnHead
from contextpool.models.relation_encoder import RelationEncoder, check_encoder, vectors_of
from contextpool.models.streams import ContextStreams, edge_gate
from contextpool.pool.batch import QueryBatch
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
        self.context = ContextStreams(context)
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

    @property
    def takes_padding(self) -> bool:
        return True

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
            state = where_real(state, hop.is_target)
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
        hop = hop.compact  # attention is a number per edge
        gate = edge_gate(gates, hop)
        relations = [stream.relations(enriched) for stream in self.streams]
        views = context.streams(relations)
        received = []
        for stream, view, relation in zip(self.streams, views, relations, strict=True):
            attention, staying = stream.attend(state, hop, query_relation, relation)
            weight = attention if gate is None else attention * gate
            ([total], _) = aggregate(
                hop, state, [view], message="transe", reductions=("sum",), edge_weight=weight
            )
            staying = padded(where_real(staying, hop.is_source), hop.num_targets)
            received.append(where_real(total[:, 0], hop.is_target) + staying)
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

    def attend(
        self, state: Tensor, hop: Hop, query_relation: Tensor, relation: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Attention [K] in (0, 1) of the edges, and the messages [M, D] that the sources send to themselves."""
        by_query = self._by_query(query_relation, relation)  # [B, A]
        by_relation = self.from_relation(relation) + by_query[:, None]  # [B, 2R + 1, A]
        by_node = self.from_state(state)  # [M, A]
        last = (self.attention.weight, self.attention.bias)
        asking = hop.node_query[: hop.num_sources]
        along = edge_attention(by_node, by_relation, *last, hop.sender, hop.edge_relation, hop.edge_query)
        nodes = torch.arange(hop.num_sources, device=state.device)
        staying = edge_attention(
            by_node, by_relation, *last, nodes, torch.full_like(nodes, self.stay), asking
        )
        return along, staying[:, None] * (state + self.relation.weight[self.stay])

    def _by_query(self, query_relation: Tensor, relation: Tensor) -> Tensor:
        """[B, A] attention's part by query; `relation` [(B,) 2R + 1, D]."""
        enriched = self.enrich is not None
        vector = vectors_of(relation, query_relation) if enriched else self.relation(query_relation)
        part: Tensor = self.from_query(vector)
        return part
