"""NBFNet (Zhu, Zhang, Xhonneux, Tang, NeurIPS 2021): generalised Bellman-Ford with learned messages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, get_args

import torch
from torch import Tensor, nn

from contextpool.errors import ConfigError
from contextpool.graph.graph import Graph
from contextpool.kernels.interface import Message, Reduction, aggregate
from contextpool.models.base import LinkPredictor, multi_layer_perceptron, padded, scatter_scores
from contextpool.models.streams import ContextStreams, edge_gate
from contextpool.pool.batch import ContextConfig, QueryBatch
from contextpool.pool.propagation import Hop

PNA_REDUCTIONS: tuple[Reduction, ...] = ("mean", "max", "min", "std")
MIN_SCALE = 1e-2


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

    @classmethod
    def for_graph(cls, graph: Graph, config: Any = None, context: ContextConfig | None = None) -> NBFNet:
        """A new model whose PNA constant is the mean of log(degree + 1) over the graph."""
        model = cls(graph.num_relations, config, context)
        model.log_degree.fill_((graph.row_start.diff().double() + 1).log().mean().clamp(min=1e-3))
        return model

    def forward(self, batch: QueryBatch) -> Tensor:
        walk = batch.propagation
        query = self.query(batch.query_relation)  # [B, D]
        gates = self.context.gate_table(batch)
        state = query  # [B, D] node b is the head of query b
        for layer, hop in zip(self.layers, walk.hops, strict=True):
            state = layer(state, hop, query, self.context, gates, self.log_degree)
        node_query = query[walk.node_query]  # [M, D]
        node_score = self.score(torch.cat([state, node_query], dim=1)).squeeze(1).float()
        unreached = self.score(torch.cat([torch.zeros_like(query), query], dim=1)).squeeze(1).float()
        return self.context.add_candidate_logit(scatter_scores(batch, node_score, unreached), batch)


class NBFNetLayer(nn.Module):
    """One step of the generalised Bellman-Ford iteration, over the full graph and every pooled one."""

    def __init__(self, num_relations: int, settings: NBFNetConfig, num_streams: int) -> None:
        super().__init__()
        dim = settings.dim
        self.settings = settings
        self.num_directed = 2 * num_relations
        self.reductions = PNA_REDUCTIONS if settings.aggregate == "pna" else (settings.aggregate,)
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
    ) -> Tensor:
        """States of the nodes reached before [num_sources, D] -> of those reached now [num_targets, D]."""
        results, degrees = aggregate(
            hop,
            state,
            context.streams([self._relation_weight(stream, query) for stream in self.relation]),
            message=self.settings.message,
            reductions=self.reductions,
            boundary=query,  # the heads' nodes come first
            edge_weight=edge_gate(gates, hop),
        )
        before = padded(state, hop.num_targets)
        update = self.own(before)
        for linear, result, degree in zip(self.received, results, degrees, strict=True):
            update = update + self._scaled(linear(result.flatten(1)), degree, log_degree)
        after: Tensor = self.dropout(torch.relu(self.norm(update)))
        return after + before if self.settings.short_cut else after

    def _relation_weight(self, relation: nn.Module, query: Tensor) -> Tensor:
        """[B, 2R, D] or [2R, D]"""
        if self.settings.dependent:
            weight: Tensor = relation(query)
            return weight.view(len(query), self.num_directed, self.settings.dim)
        assert isinstance(relation, nn.Embedding)
        return relation.weight

    def _scaled(self, projected: Tensor, degree: Tensor, log_degree: Tensor) -> Tensor:
        """PNA's degree scalers are numbers per node: scaling the projection equals projecting scaled copies."""
        if self.scalers == 1:
            return projected
        plain, amplified, damped = projected.chunk(3, dim=1)
        scale = (degree.log() / log_degree).to(projected.dtype)[:, None]  # degree >= 1: the boundary counts
        return plain + scale * amplified + damped / scale.clamp(min=MIN_SCALE)
