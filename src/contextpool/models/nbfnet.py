"""NBFNet (Zhu, Zhang, Xhonneux, Tang, NeurIPS 2021): generalised Bellman-Ford with learned messages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.nn import functional

from contextpool.context.config import ContextConfig
from contextpool.errors import ConfigError
from contextpool.graph.graph import Graph
from contextpool.kernels.hop import Hop
from contextpool.kernels.interface import Reduction, UpdateWeights, next_states, node_scores, triton_takes
from contextpool.models.base import LinkPredictor, multi_layer_perceptron, padded, scatter_scores
from contextpool.models.relation_encoder import RelationEncoder, vectors_of
from contextpool.models.streams import ContextStreams
from contextpool.pool.batch import QueryBatch

REDUCTIONS: tuple[Reduction, ...] = ("mean", "max", "min", "std")
"""Principal neighbourhood aggregation (PNA, Corso et al. 2020); each is scaled by degree in SCALERS ways."""
SCALERS = 3
HEAD_MARGIN = 10.0
"""How far below all other entities a query's own head scores where it cannot be the answer. In a softmax that is e^-10
of the least likely entity, and the score is still small enough for a temperature to be fitted to all of them.
"""


_log_degree: WeakKeyDictionary[Graph, Tensor] = WeakKeyDictionary()


def mean_log_degree(graph: Graph) -> Tensor:
    """[] PNA's constant: the mean of log(degree + 1) over a graph, counted once, or what was set."""
    if graph not in _log_degree:
        logs = (graph.row_start.diff().double() + 1).log()
        set_mean_log_degree(graph, logs.mean().nan_to_num().clamp(min=1e-3).float())
    return _log_degree[graph]


def set_mean_log_degree(graph: Graph, value: Tensor) -> None:
    """Say what the constant is where a graph is part of a larger one."""
    _log_degree[graph] = value.to(graph.device)


@dataclass(frozen=True)
class NBFNetConfig:
    """Settings of NBFNet; the defaults are its published inductive ones."""

    dim: int = 32
    """Width of the states."""
    layers: int = 6
    """How far messages travel."""
    dropout: float = 0.0
    """Share of a layer's output that is dropped in training."""
    relation_encoder: bool = False
    """Enrich the vectors of relations by a small network over the graph of relations."""
    exclude_head: bool = False
    """No query is answered with its own head, unless its relation does so in training."""

    def __post_init__(self) -> None:
        if self.dim < 1 or self.layers < 1:
            raise ConfigError(
                f"model.dim is {self.dim} and model.layers is {self.layers}; both are at least 1."
            )
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
        self.encoder = (
            RelationEncoder(num_relations, self.settings.dim) if self.settings.relation_encoder else None
        )
        self.own_head = OwnHead(num_relations) if self.settings.exclude_head else None

    @classmethod
    def for_graph(cls, graph: Graph, config: Any = None, context: ContextConfig | None = None) -> NBFNet:
        """A new model whose PNA constant is the mean of log(degree + 1) over the graph."""
        model = cls(graph.num_relations, config, context)
        model.log_degree.copy_(mean_log_degree(graph))
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
        return triton_takes(self.settings.dim, REDUCTIONS)

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
        node_score, unreached = scores_of_states(self.score, state, query, walk.node_query)
        scores = self.context.add_candidate_logit(scatter_scores(batch, node_score, unreached), batch)
        return scores if self.own_head is None else self.own_head(scores, batch)


def scores_of_states(
    head: nn.Sequential, state: Tensor, query: Tensor, node_query: Tensor
) -> tuple[Tensor, Tensor]:
    """Scores of nodes [M] and of what a query did not reach [B]: an MLP over (state, query), state 0 for those.

    The query's half of the first product is the same for all nodes of a query: it is done once.
    """
    first, last = head[0], head[-1]
    assert isinstance(first, nn.Linear)
    assert isinstance(last, nn.Linear)
    of_state, of_query = first.weight.split(state.size(1), dim=1)
    by_query = functional.linear(query, of_query, first.bias)  # [B, H]
    node_score = node_scores(state, by_query, node_query, of_state, last.weight, last.bias)
    return node_score, last(torch.relu(by_query)).squeeze(1).float()


class NBFNetLayer(nn.Module):
    """One step of the generalised Bellman-Ford iteration, over the full graph and every pooled one.

    A message is the product of the sender's state and a relation's vector, which depends on the query's relation.
    """

    def __init__(self, num_relations: int, settings: NBFNetConfig, num_streams: int) -> None:
        super().__init__()
        dim = settings.dim
        self.num_directed = 2 * num_relations
        self.relation = nn.ModuleList(nn.Linear(dim, self.num_directed * dim) for _ in range(num_streams))
        self.own = nn.Linear(dim, dim)
        self.received = nn.ModuleList(
            nn.Linear(len(REDUCTIONS) * dim, SCALERS * dim, bias=False) for _ in range(num_streams)
        )
        self.norm = nn.LayerNorm(dim)
        self.dropout = nn.Dropout(settings.dropout)
        self._match_one_linear_layer()
        self.enrich = nn.Linear(dim, dim, bias=False) if settings.relation_encoder else None

    @property
    def linears(self) -> list[nn.Linear]:
        """What projects each stream's aggregates."""
        return [linear for linear in self.received if isinstance(linear, nn.Linear)]

    def _match_one_linear_layer(self) -> None:
        """Start as one linear layer over [state, all scaled aggregates] would: its fan-in is the sum of theirs."""
        bound = (self.own.in_features * (1 + len(REDUCTIONS) * SCALERS * len(self.received))) ** -0.5
        for linear in (self.own, *self.linears):
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
        weights = [self._relation_weight(relation, query, gates, enriched) for relation in self.relation]
        after = next_states(
            hop,
            state,
            context.streams(weights),
            UpdateWeights.of(self.own, self.linears, self.norm, log_degree, SCALERS),
            message="distmult",
            reductions=REDUCTIONS,
            boundary=query,  # the heads' nodes come first
            edge_weight=hop.edge_scale,
            short_cut=not drops,
        )
        if not drops:
            return after
        dropped: Tensor = self.dropout(after)
        return dropped + padded(state, hop.num_targets)

    def _relation_weight(
        self, relation: nn.Module, query: Tensor, gates: Tensor | None, enriched: Tensor | None
    ) -> Tensor:
        """[B, 2R, D]. Messages are linear in it, so a gate is applied here, which costs nothing per edge."""
        weight: Tensor = relation(query)
        weight = weight.view(len(query), self.num_directed, query.size(1))
        if self.enrich is not None and enriched is not None:
            weight = weight + self.enrich(enriched)
        return weight if gates is None else weight * gates[:, :, None]


class OwnHead(nn.Module):
    """Takes the query's own head out of the answers, unless its relation relates an entity to itself in training.

    Which relations do is part of the model's weights. A new one excludes nothing.
    """

    reflexive: Tensor

    def __init__(self, num_relations: int) -> None:
        super().__init__()
        self.register_buffer("reflexive", torch.ones(2 * num_relations, dtype=torch.bool))

    def look_at(self, graph: Graph) -> None:
        """Allow the relations that have a fact (e, r, e) in the training graph, and no others."""
        self.reflexive.fill_(False)
        loops = graph.edge_head == graph.edge_tail
        self.allow(graph.edge_relation[loops].long())

    def allow(self, relation: Tensor) -> None:
        """Allow these directed relations [K], too."""
        self.reflexive[relation.to(self.reflexive.device)] = True

    def forward(self, scores: Tensor, batch: QueryBatch) -> Tensor:
        """Scores [B, N] with the head far below all others where it cannot be the answer, in the loss as well."""
        head = batch.propagation.query_head[:, None]
        lowest = scores.detach().amin(dim=1, keepdim=True) - HEAD_MARGIN  # [B, 1]
        allowed = self.reflexive[batch.query_relation][:, None]
        return scores.scatter(1, head, torch.where(allowed, scores.gather(1, head), lowest))
