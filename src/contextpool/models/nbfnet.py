"""NBFNet (Zhu, Zhang, Xhonneux, Tang, NeurIPS 2021): generalised Bellman-Ford with learned messages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional

from contextpool.context.config import ContextConfig
from contextpool.errors import ConfigError
from contextpool.graph.graph import Graph
from contextpool.kernels.interface import Message, Reduction
from contextpool.kernels.layer import next_states, triton_takes
from contextpool.kernels.score import node_scores
from contextpool.kernels.update import UpdateWeights
from contextpool.models.base import LinkPredictor, multi_layer_perceptron, padded, scatter_scores
from contextpool.models.own_head import OwnHead
from contextpool.models.relation_encoder import RelationEncoder, check_encoder, vectors_of
from contextpool.models.streams import ContextStreams, edge_gate
from contextpool.pool.batch import QueryBatch
from contextpool.pool.propagation import Hop

PNA_REDUCTIONS: tuple[Reduction, ...] = ("mean", "max", "min", "std")


@dataclass(frozen=True)
class NBFNetConfig:
    """Settings of NBFNet; the defaults are its published inductive ones."""

    dim: int = 32
    """Width of the states."""
    layers: int = 6
    """How far messages travel."""
    message: Message = "distmult"
    """How a state and a relation make a message: distmult, transe or rotate."""
    aggregate: Literal["pna", "sum", "mean", "max"] = "pna"
    """How messages are reduced; sums do not survive a change of graph, means and PNA do."""
    dependent: bool = True
    """Relation weights that depend on the query relation."""
    layer_norm: bool = True
    short_cut: bool = True
    """Add the previous state to the next."""
    dropout: float = 0.0
    """Share of a layer's output that is dropped in training."""
    relation_encoder: bool = False
    """Enrich the vectors of relations by a small network over the graph of relations."""
    relation_layers: int = 1
    """Layers of that network."""
    exclude_head: bool = False
    """No query is answered with its own head, unless its relation does so in training."""

    def __post_init__(self) -> None:
        if self.dim < 1 or self.layers < 1:
            raise ConfigError(
                f"model.dim is {self.dim} and model.layers is {self.layers}; both are at least 1."
            )
        for key, allowed in (("message", get_args(Message)), ("aggregate", ("pna", "sum", "mean", "max"))):
            if getattr(self, key) not in allowed:
                raise ConfigError(
                    f"model.{key} is {getattr(self, key)!r}; it is one of {', '.join(allowed)}."
                )
        if self.message == "rotate" and self.dim % 2:
            raise ConfigError(f"model.dim is {self.dim}; rotate needs an even one.")
        if not 0 <= self.dropout < 1:
            raise ConfigError(f"model.dropout is {self.dropout}; it has to lie in [0, 1).")
        check_encoder(self.relation_layers)

    @property
    def reductions(self) -> tuple[Reduction, ...]:
        return PNA_REDUCTIONS if self.aggregate == "pna" else (self.aggregate,)


class NBFNet(LinkPredictor):
    """States start as the query's vector at the head and zero elsewhere, which also joins every aggregation."""

    name: ClassVar[str] = "nbfnet"
    config_class: ClassVar[type] = NBFNetConfig
    log_degree: Tensor

    def __init__(
        self, num_relations: int, config: NBFNetConfig | None = None, context: ContextConfig | None = None
    ) -> None:
        super().__init__(num_relations, config, context)
        self.num_layers = self.settings.layers
        self.context = ContextStreams(context)
        self.register_buffer("log_degree", torch.tensor(1.0))  # PNA's constant, the training graph's
        self.query = nn.Embedding(2 * num_relations, self.settings.dim)
        self.layers = nn.ModuleList(
            NBFNetLayer(num_relations, self.settings, self.context.num_streams)
            for _ in range(self.settings.layers)
        )
        self.score = multi_layer_perceptron([2 * self.settings.dim, 2 * self.settings.dim, 1])
        self.encoder = RelationEncoder.of(num_relations, self.settings)
        self.own_head = OwnHead(num_relations) if self.settings.exclude_head else None

    @classmethod
    def for_graph(cls, graph: Graph, config: Any = None, context: ContextConfig | None = None) -> NBFNet:
        """A new model whose PNA constant is the mean of log(degree + 1) over the graph."""
        model = cls(graph.num_relations, config, context)
        model.log_degree.fill_((graph.row_start.diff().double() + 1).log().mean().clamp(min=1e-3))
        if model.own_head is not None:
            model.own_head.look_at(graph)
        return model

    @property
    def reads_relations(self) -> bool:
        return self.encoder is not None

    def allow_reflexive(self, relation: Tensor) -> None:
        if self.own_head is not None:
            self.own_head.allow(relation)

    @property
    def takes_padding(self) -> bool:
        return not self._gates_edges and triton_takes(self.settings.dim, self.settings.reductions)

    @property
    def _gates_edges(self) -> bool:
        """A gate on messages that are not linear in the relation is a number per edge, which padding has none of."""
        return self.context.gate is not None and self.settings.message == "transe"

    def forward(self, batch: QueryBatch) -> Tensor:
        walk = batch.propagation
        query = self.query(batch.query_relation)  # [B, D]
        enriched = None if self.encoder is None else self.encoder(batch)  # [2R, D] or [B, 2R, D]
        if enriched is not None:
            query = query + vectors_of(enriched, batch.query_relation)
        gates = self.context.gate_table(batch)
        state = query  # [B, D] node b is the head of query b
        for layer, hop in zip(self.layers, walk.hops, strict=True):
            state = layer(state, hop, query, self.context, gates, self.log_degree, enriched)
        node_score, unreached = self._scores_of(state, query, walk.node_query)
        scores = self.context.add_candidate_logit(scatter_scores(batch, node_score, unreached), batch)
        return scores if self.own_head is None else self.own_head(scores, batch)

    def _scores_of(self, state: Tensor, query: Tensor, node_query: Tensor) -> tuple[Tensor, Tensor]:
        """Scores of nodes [M] and of what a query did not reach [B]: an MLP over (state, query), state 0 for those.

        The query's half of the first product is the same for all nodes of a query: it is done once.
        """
        first, last = self.score[0], self.score[-1]
        assert isinstance(first, nn.Linear)
        assert isinstance(last, nn.Linear)
        of_state, of_query = first.weight.split(self.settings.dim, dim=1)
        by_query = functional.linear(query, of_query, first.bias)  # [B, H]
        node_score = node_scores(state, by_query, node_query, of_state, last.weight, last.bias)
        return node_score, last(torch.relu(by_query)).squeeze(1).float()


class NBFNetLayer(nn.Module):
    """One step of the generalised Bellman-Ford iteration, over the full graph and every pooled one."""

    def __init__(self, num_relations: int, settings: NBFNetConfig, num_streams: int) -> None:
        super().__init__()
        dim = settings.dim
        self.settings = settings
        self.num_directed = 2 * num_relations
        self.reductions = settings.reductions
        self.scalers = 3 if settings.aggregate == "pna" else 1
        self.relation: nn.ModuleList = nn.ModuleList(
            nn.Linear(dim, self.num_directed * dim)
            if settings.dependent
            else nn.Embedding(self.num_directed, dim)
            for _ in range(num_streams)
        )
        self.own = nn.Linear(dim, dim)
        self.received = nn.ModuleList(
            nn.Linear(len(self.reductions) * dim, self.scalers * dim, bias=False) for _ in range(num_streams)
        )
        self.norm = nn.LayerNorm(dim) if settings.layer_norm else nn.Identity()
        self.dropout = nn.Dropout(settings.dropout)
        self._match_one_linear_layer(num_streams)
        self.enrich = nn.Linear(dim, dim, bias=False) if settings.relation_encoder else None

    @property
    def linears(self) -> list[nn.Linear]:
        """What projects each stream's aggregates."""
        return [linear for linear in self.received if isinstance(linear, nn.Linear)]

    def _match_one_linear_layer(self, num_streams: int) -> None:
        """Start as one linear layer over [state, all scaled aggregates] would: its fan-in is the sum of theirs."""
        dim = self.settings.dim
        bound = (dim * (1 + len(self.reductions) * self.scalers * num_streams)) ** -0.5
        for linear in (self.own, *self.received):
            nn.init.uniform_(linear.weight, -bound, bound)
        nn.init.uniform_(self.own.bias, -bound, bound)

    def forward(
        self,
        state: Tensor,
        hop: Hop,
        query: Tensor,
        context: ContextStreams,
        gates: Tensor | None,
        log_degree: Tensor,
        enriched: Tensor | None = None,
    ) -> Tensor:
        """States of the nodes reached before [num_sources, D] -> of those reached now [num_targets, D]."""
        drops = self.training and self.dropout.p > 0
        after = next_states(
            hop,
            state,
            context.streams(
                [self._relation_weight(stream, query, gates, enriched) for stream in self.relation]
            ),
            UpdateWeights.of(self.own, self.linears, self.norm, log_degree, self.scalers),
            message=self.settings.message,
            reductions=self.reductions,
            boundary=query,  # the heads' nodes come first
            edge_weight=edge_gate(None if self.gates_weights else gates, hop),
            short_cut=self.settings.short_cut and not drops,
        )
        if not drops:
            return after
        dropped: Tensor = self.dropout(after)
        return dropped + padded(state, hop.num_targets) if self.settings.short_cut else dropped

    @property
    def gates_weights(self) -> bool:
        """Messages that are linear in the relation are gated through it, which costs nothing per edge."""
        return self.settings.message != "transe"

    def _relation_weight(
        self,
        relation: nn.Module,
        query: Tensor,
        gates: Tensor | None = None,
        enriched: Tensor | None = None,
    ) -> Tensor:
        """[B, 2R, D] or [2R, D]"""
        if self.settings.dependent:
            weight: Tensor = relation(query)
            weight = weight.view(len(query), self.num_directed, self.settings.dim)
        else:
            assert isinstance(relation, nn.Embedding)
            weight = relation.weight
        if self.enrich is not None and enriched is not None:
            weight = weight + self.enrich(enriched)
        return weight if gates is None or not self.gates_weights else weight * gates[:, :, None]
