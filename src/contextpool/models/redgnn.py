"""RED-GNN (Zhang, Yao, WWW 2022): relational digraphs, attention over (state, relation, query), gated update."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from contextpool.context.config import ContextConfig
from contextpool.errors import ConfigError
from contextpool.kernels.hop import Hop
from contextpool.kernels.interface import aggregate, edge_attention
from contextpool.models.base import LinkPredictor, padded, scatter_scores, where_real
from contextpool.models.streams import ContextStreams, edge_gate
from contextpool.pool.batch import QueryBatch

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

    def __post_init__(self) -> None:
        if min(self.dim, self.layers, self.attention_dim) < 1:
            raise ConfigError("model.dim, model.layers and model.attention_dim are at least 1.")
        if self.activation not in ACTIVATIONS:
            raise ConfigError(
                f"model.activation is {self.activation!r}; it is one of {', '.join(ACTIVATIONS)}."
            )
        if not 0 <= self.dropout < 1:
            raise ConfigError(f"model.dropout is {self.dropout}; it has to lie in [0, 1).")


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

    @property
    def takes_padding(self) -> bool:
        return True

    def forward(self, batch: QueryBatch) -> Tensor:
        walk = batch.propagation
        gates = self.context.gate_table(batch)
        state = self.score.weight.new_zeros(walk.num_queries, self.settings.dim)  # [B, D]
        for layer, hop in zip(self.layers, walk.hops, strict=True):
            update = layer(state, hop, batch.query_relation, self.context, gates)
            state = self.gru(self.dropout(update), padded(state, hop.num_targets))
            state = where_real(state, hop.is_target)
        node_score = self.score(state).squeeze(1).float()
        unreached = node_score.new_zeros(walk.num_queries)
        return self.context.add_candidate_logit(scatter_scores(batch, node_score, unreached), batch)


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
    ) -> Tensor:
        """[num_sources, D] -> [num_targets, D]"""
        hop = hop.compact  # attention is a number per edge
        gate = edge_gate(gates, hop)
        views = context.streams([stream.relation.weight for stream in self.streams])
        received = []
        for stream, view in zip(self.streams, views, strict=True):
            attention, staying = stream.attend(state, hop, query_relation)
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

    def attend(self, state: Tensor, hop: Hop, query_relation: Tensor) -> tuple[Tensor, Tensor]:
        """Attention [K] in (0, 1) of the edges, and the messages [M, D] that the sources send to themselves."""
        by_query = self.from_query(self.relation(query_relation))  # [B, A]
        by_relation = self.from_relation(self.relation.weight) + by_query[:, None]  # [B, 2R + 1, A]
        by_node = self.from_state(state)  # [M, A]
        last = (self.attention.weight, self.attention.bias)
        asking = hop.node_query[: hop.num_sources]
        along = edge_attention(by_node, by_relation, *last, hop.sender, hop.edge_relation, hop.edge_query)
        nodes = torch.arange(hop.num_sources, device=state.device)
        staying = edge_attention(
            by_node, by_relation, *last, nodes, torch.full_like(nodes, self.stay), asking
        )
        return along, staying[:, None] * (state + self.relation.weight[self.stay])
