"""CompGCN (Vashishth, Sanyal, Nitin, Talukdar, ICLR 2020) in a form that needs no vectors of entities.

Published, a state starts as a learned vector of its entity. Here it starts as the mean of the vectors of the relations
that the entity has, in both directions, so that an entity never seen has one. States belong to (query, entity): they
are made of the edges of the query's walk, which lacks the query's own fact.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

import torch
from torch import Tensor, nn

from contextpool.context.config import ContextConfig
from contextpool.errors import ConfigError
from contextpool.graph.relations import inverse
from contextpool.kernels.hop import Hop
from contextpool.kernels.interface import FULL, Stream, aggregate
from contextpool.models.base import LinkPredictor, padded, scatter_scores
from contextpool.models.streams import edge_gate
from contextpool.pool.batch import QueryBatch
from contextpool.pool.propagation import Propagation

Normalization = Literal["mean", "symmetric", "sum"]


@dataclass(frozen=True)
class CompGCNConfig:
    """Settings of CompGCN."""

    dim: int = 64
    """Width of the states."""
    layers: int = 3
    """How often states are exchanged."""
    hops: int = 3
    """How far from the head candidates and the edges that are looked at may be."""
    normalization: Normalization = "mean"
    """How the sum of messages is normalized: by their number; by the root of that number times what the sender sends
    (both directions; the authors' code counts the same one for both ends); or not at all (a layer norm follows)."""
    mark_head: bool = False
    """Add the query relation's vector to the head's first state, so that states know where the question is asked."""
    incident: bool = True
    """Whether first states are the mean of an entity's relations; else they are zero but for what `mark_head` adds."""
    dropout: float = 0.1
    """Share of what is received that is dropped in training."""

    def __post_init__(self) -> None:
        for key in ("dim", "layers", "hops"):
            if getattr(self, key) < 1:
                raise ConfigError(f"model.{key} is {getattr(self, key)}; it is at least 1.")
        if not self.incident and not self.mark_head:
            raise ConfigError(
                "model.incident = false leaves every first state zero; set model.mark_head = true with it."
            )
        if self.normalization not in get_args(Normalization):
            allowed = ", ".join(get_args(Normalization))
            raise ConfigError(f"model.normalization is {self.normalization!r}; it is one of {allowed}.")
        if not 0 <= self.dropout < 1:
            raise ConfigError(f"model.dropout is {self.dropout}; it has to lie in [0, 1).")


class CompGCN(LinkPredictor):
    """DistMult between states of head and candidate; what was not reached has the state of an entity without edges."""

    name: ClassVar[str] = "compgcn"
    config_class: ClassVar[type] = CompGCNConfig
    takes_context: ClassVar[bool] = False

    def __init__(
        self, num_relations: int, config: CompGCNConfig | None = None, context: ContextConfig | None = None
    ) -> None:
        super().__init__(num_relations, config, context)
        self.num_layers = self.settings.hops
        self.relation = nn.Parameter(torch.empty(2 * num_relations, self.settings.dim))
        nn.init.xavier_normal_(self.relation)
        self.layers = nn.ModuleList(
            CompGCNLayer(num_relations, self.settings) for _ in range(self.settings.layers)
        )
        self.query = nn.Embedding(2 * num_relations, self.settings.dim) if self.settings.mark_head else None

    def forward(self, batch: QueryBatch) -> Tensor:
        walk, relation = batch.propagation, self.relation
        hop = walk.hops[-1].walked
        state = self.first_states(batch)
        for layer in self.layers:
            state, relation = layer(state, relation, hop)
        wanted = state[: walk.num_queries] * relation.index_select(0, batch.query_relation)  # [B, D]
        node_score = (wanted.index_select(0, walk.node_query) * state[:-1]).sum(dim=1).float()
        unreached = (wanted * state[-1]).sum(dim=1).float()
        return scatter_scores(batch, node_score, unreached)

    def first_states(self, batch: QueryBatch) -> Tensor:
        """[M + 1, D] from each node's relations and where the question is; the last row is an entity without any."""
        size = len(batch.propagation.node_query) + 1
        state = (
            self._mean_relations(batch.propagation, size)
            if self.settings.incident
            else self.relation.new_zeros(size, self.settings.dim)
        )
        if self.query is None:
            return state
        return state + padded(self.query(batch.query_relation), size)

    def _mean_relations(self, walk: Propagation, size: int) -> Tensor:
        """[size, D] mean vector of each node's relations, zero where there is none."""
        node, relation, scale = incident_relations(walk, self.num_relations)
        vectors = self.relation.index_select(0, relation)
        if scale is not None:
            vectors = vectors * scale[:, None]
        total = vectors.new_zeros(size, self.settings.dim).index_add(0, node, vectors)
        return total / _at_least_one(torch.bincount(node, minlength=size))


class CompGCNLayer(nn.Module):
    """Correlations, with weights for facts that lead here, for those that lead away, and for oneself."""

    def __init__(self, num_relations: int, settings: CompGCNConfig) -> None:
        super().__init__()
        dim = settings.dim
        self.num_relations, self.normalization = num_relations, settings.normalization
        self.along, self.against, self.stay = (nn.Linear(dim, dim, bias=False) for _ in range(3))
        self.stay_relation = nn.Parameter(torch.empty(1, dim))
        nn.init.xavier_normal_(self.stay_relation)
        self.relation = nn.Linear(dim, dim, bias=False)
        self.norm = nn.LayerNorm(dim)
        self.dropout = nn.Dropout(settings.dropout)

    def forward(self, state: Tensor, relation: Tensor, hop: Hop) -> tuple[Tensor, Tensor]:
        """States [M + 1, D] and relations [2R, D] -> the next ones."""
        along, against = received(state, relation, hop, self.normalization)
        update = self.dropout(self.along(along)) + self.dropout(self.against(against))
        update = update + self.stay(correlated(state, self.stay_relation))
        return torch.tanh(self.norm(update / 3)), self.relation(relation)


def incident_relations(walk: Propagation, num_relations: int) -> tuple[Tensor, Tensor, Tensor | None]:
    """Node [K], directed relation [K] and scale [K] of all that leads away from each node, a fact walked either way.

    Whatever leads away from a node inside the last shell is an edge of the walk. What leads away from one in the
    shell is known only where it leads inside: as an edge into it, turned round.
    """
    hop = walk.hops[-1].walked
    outer = torch.nonzero(hop.edge_target >= hop.num_sources).squeeze(1)
    node = torch.cat([hop.edge_source, hop.edge_target[outer]])
    relation = torch.cat([hop.edge_relation, inverse(hop.edge_relation[outer], num_relations)])
    scale = None if hop.edge_scale is None else torch.cat([hop.edge_scale, hop.edge_scale[outer]])
    return node, relation, scale


def received(
    state: Tensor, relation: Tensor, hop: Hop, normalization: Normalization = "mean"
) -> tuple[Tensor, Tensor]:
    """[M + 1, D] circular correlations along facts, and against them, added up and normalized.

    Through the kernel of every other model: no message of an edge is ever stored. A correlation is a product of
    Fourier transforms, which are taken before and after, of nodes and relations instead of edges.
    """
    sent = _spectrum(_as_sent(state, hop, normalization), conjugate=True)
    spectra = _complex_sums(sent, _spectrum(relation), hop)
    sums = [_from_spectrum(spectrum, state.size(1)) for spectrum in spectra]
    if normalization == "sum":
        return sums[0], sums[1]
    forward = hop.edge_relation < len(relation) // 2
    power = 0.5 if normalization == "symmetric" else 1.0
    along, against = (
        total / _at_least_one(torch.bincount(hop.edge_target[edges], minlength=len(state))) ** power
        for total, edges in zip(sums, (forward, ~forward), strict=True)
    )
    return along, against


def _as_sent(values: Tensor, hop: Hop, normalization: Normalization) -> Tensor:
    """[M + 1, D] values of nodes as their neighbors receive them."""
    if normalization != "symmetric":
        return values
    sends = _at_least_one(torch.bincount(hop.edge_source, minlength=len(values)))
    return values * sends.to(values.dtype) ** -0.5


def correlated(state: Tensor, relation: Tensor) -> Tensor:
    """[M, D] of states [M, D] and relations [M or 1, D]: component k is sum_i state_i relation_(i + k)."""
    spectrum = torch.fft.rfft(state.float()).conj() * torch.fft.rfft(relation.float())
    correlation: Tensor = torch.fft.irfft(spectrum, n=state.size(1))
    return correlation


def _sums(state: Tensor, relation: Tensor, hop: Hop) -> list[Tensor]:
    """[M + 1, D] products, summed over the edges of forward relations, and over those of inverse ones."""
    forward = (torch.arange(len(relation), device=relation.device) < len(relation) // 2)[:, None]
    streams = [Stream(FULL, relation * forward), Stream(FULL, relation * ~forward)]
    source, weight = state[: hop.num_sources], edge_gate(None, hop)
    totals, _ = aggregate(hop, source, streams, message="distmult", reductions=("sum",), edge_weight=weight)
    return [padded(total[:, 0], len(state)) for total in totals]


def _complex_sums(state: Tensor, relation: Tensor, hop: Hop) -> list[Tensor]:
    """`_sums` of products of complex numbers, the real halves of rows first: two sums of real products."""
    by_real, by_imaginary = (_sums(state, part.repeat(1, 2), hop) for part in relation.chunk(2, dim=1))
    totals = []
    for one, other in zip(by_real, by_imaginary, strict=True):
        real, imaginary = other.chunk(2, dim=1)
        totals.append(one + torch.cat([-imaginary, real], dim=1))
    return totals


def _spectrum(vectors: Tensor, conjugate: bool = False) -> Tensor:
    """[M, D] -> [M, 2F] real parts, then imaginary ones."""
    values = torch.fft.rfft(vectors.float())
    return torch.cat([values.real, -values.imag if conjugate else values.imag], dim=1)


def _from_spectrum(spectrum: Tensor, dim: int) -> Tensor:
    real, imaginary = spectrum.float().chunk(2, dim=1)
    vectors: Tensor = torch.fft.irfft(torch.complex(real, imaginary), n=dim)
    return vectors


def _at_least_one(count: Tensor) -> Tensor:
    """[M, 1] to divide by."""
    return count.clamp(min=1)[:, None]
