"""Neural LP and DRUM: weighted chains of relation operators, and the rules that can be read off them.

A chain starts with the number 1 at the query's head. An operator moves numbers along the edges of its relation; each
step takes a weighted mean of all operators, with weights that a recurrent network chooses for the query relation.
Several chains (the rank) run side by side, and a candidate's score is the logarithm of its share of what arrives in all
of them. The softmax loss over such scores is the published one: minus the logarithm of the answer's share.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from contextpool.context.config import ContextConfig
from contextpool.errors import ConfigError
from contextpool.graph.relations import RelationVocabulary
from contextpool.kernels.hop import Hop
from contextpool.kernels.interface import aggregate
from contextpool.models.base import LinkPredictor, padded, scatter_scores
from contextpool.models.rules import MAX_LENGTH, Rule
from contextpool.models.streams import ContextStreams, edge_gate
from contextpool.pool.batch import QueryBatch

LEAST = 1e-20
"""Added to what arrives, so that the logarithm of zero is finite."""
BEAM = 128
"""Beginnings of rules that are followed."""

Bodies = Mapping[tuple[int, ...], float]
"""Bodies of rules with the weight of their chain."""


@dataclass(frozen=True)
class ChainConfig:
    """Settings of Neural LP and DRUM; the defaults are the published ones."""

    dim: int = 128
    """Width of the embedding of a query relation."""
    hidden: int = 128
    """Width of the recurrent network's states."""
    layers: int = 3
    """Steps of a chain: atoms in the body of a rule, at the most."""
    rank: int = 3
    """Chains side by side."""

    def __post_init__(self) -> None:
        for key in ("dim", "hidden", "rank"):
            if getattr(self, key) < 1:
                raise ConfigError(f"model.{key} is {getattr(self, key)}; it is at least 1.")
        if not 1 <= self.layers <= MAX_LENGTH:
            raise ConfigError(f"model.layers is {self.layers}; it lies in 1 to {MAX_LENGTH}.")


class ChainModel(LinkPredictor):
    """Base of both. With context every pooled view brings 2R operators of its own, over its edges alone."""

    config_class: ClassVar[type] = ChainConfig

    def __init__(
        self, num_relations: int, config: ChainConfig | None = None, context: ContextConfig | None = None
    ) -> None:
        super().__init__(num_relations, config, context)
        self.num_layers = self.settings.layers
        self.context = ContextStreams(context)
        self.query = nn.Embedding(2 * num_relations, self.settings.dim)

    @property
    def num_moves(self) -> int:
        """Operators that move along edges: 2R for the full graph and for each view."""
        return self.context.num_streams * 2 * self.num_relations

    def moved(self, state: Tensor, hop: Hop, weight: Tensor, gates: Tensor | None) -> Tensor:
        """[num_sources, rank] by operator weights [B, num_moves, rank] -> [num_targets, rank]."""
        streams = self.context.streams(list(weight.chunk(self.context.num_streams, dim=1)))
        received, _ = aggregate(
            hop, state, streams, message="distmult", reductions=("sum",), edge_weight=edge_gate(gates, hop)
        )
        return torch.stack([part[:, 0] for part in received]).sum(dim=0)

    def scores(self, batch: QueryBatch, arrived: Tensor) -> Tensor:
        """[B, N] from what arrived at the nodes [M, rank].

        Divided by the query's total, so that an answer out of reach pulls on nothing in training.
        """
        walk, arrived = batch.propagation, arrived.sum(dim=1)
        total = arrived.new_zeros(walk.num_queries).index_add(0, walk.node_query, arrived)
        share = arrived / total.clamp(min=LEAST).index_select(0, walk.node_query)
        node_score = (share + LEAST).log()
        unreached = node_score.new_full((walk.num_queries,), LEAST).log()
        return self.context.add_candidate_logit(scatter_scores(batch, node_score, unreached), batch)

    # rules

    def rules(self, relation: int, most: int | None = 10) -> list[Rule]:
        """The chains of the largest weight that answer a directed relation, as rules; all found with most=None.

        A weight is the product of the attention along the chain, in all ranks together and divided by their
        number, so those of all rules add up to 1. Only the most promising beginnings are followed.
        """
        with torch.no_grad():
            bodies = self.weighted_bodies(torch.tensor([relation], device=self.query.weight.device))
        ordered = sorted(bodies.items(), key=lambda item: (-item[1], len(item[0]), item[0]))
        found = [Rule(relation, body, weight) for body, weight in ordered if body and body != (relation,)]
        return found[:most]

    def rules_text(self, relations: RelationVocabulary) -> Iterator[str]:
        """The ten heaviest rules of every directed relation: weight and rule, with a tab between them."""
        for relation in range(relations.num_directed):
            for rule in self.rules(relation):
                yield f"{rule.confidence:.6f}\t{rule.text(relations)}"

    def weighted_bodies(self, query_relation: Tensor) -> Bodies:
        """Bodies for one query relation [1]."""
        raise NotImplementedError

    def by_relation(self, weight: Tensor) -> Tensor:
        """[num_moves, ...] -> [2R, ...] with the streams' weights added."""
        streams: Tensor = weight.unflatten(0, (self.context.num_streams, 2 * self.num_relations))
        return streams.sum(dim=0)


def extended(bodies: Bodies, attention: Tensor) -> dict[tuple[int, ...], float]:
    """Every body with every relation behind it, by attention [2R]; no more than the beam takes."""
    weights = attention.tolist()
    longer = {
        (*body, relation): weight * share
        for body, weight in bodies.items()
        for relation, share in enumerate(weights)
    }
    return cut(longer)


def cut(bodies: Bodies) -> dict[tuple[int, ...], float]:
    """The heaviest ones, ties by relation."""
    ordered = sorted(bodies.items(), key=lambda item: (-item[1], item[0]))
    return dict(ordered[:BEAM])


def added(*parts: tuple[float, Bodies]) -> dict[tuple[int, ...], float]:
    """Weighted sum of bodies."""
    total: dict[tuple[int, ...], float] = defaultdict(float)
    for share, bodies in parts:
        for body, weight in bodies.items():
            total[body] += share * weight
    return dict(total)


class NeuralLP(ChainModel):
    """Every step starts from a mixture of all steps before it (Yang, Yang, Cohen, NIPS 2017).

    A recurrent network for each rank attends to operators (which relation to follow) and to the memory of earlier
    steps (where to start from); what it reads at the end is a mixture of all steps, which makes rules of every
    length up to the number of steps.
    """

    name: ClassVar[str] = "neural_lp"

    def __init__(
        self, num_relations: int, config: ChainConfig | None = None, context: ContextConfig | None = None
    ) -> None:
        super().__init__(num_relations, config, context)
        dim, hidden = self.settings.dim, self.settings.hidden
        self.end = nn.Parameter(torch.randn(dim))
        self.network = nn.ModuleList(nn.LSTM(dim, hidden) for _ in range(self.settings.rank))
        self.attend = nn.Linear(hidden, self.num_moves)

    def attention(self, query_relation: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Operators [L, B, num_moves, rank], and of step t = 1..L + 1 the memory [t, B, rank] it starts from."""
        repeated = self.query(query_relation).expand(self.num_layers, -1, -1)  # [L, B, D]
        inputs = torch.cat([repeated, self.end.expand(1, len(query_relation), -1)])
        states = torch.stack([network(inputs)[0] for network in self.network], dim=-1)  # [L + 1, B, H, rank]
        operators = self.attend(states[:-1].transpose(2, 3)).transpose(2, 3)  # [L, B, num_moves, rank]
        before = torch.cat([torch.zeros_like(states[:1]), states])  # of steps 0..L + 1
        memory = [
            (before[:step] * before[step]).sum(dim=2).float().softmax(dim=0)
            for step in range(1, self.num_layers + 2)
        ]
        return operators.float().softmax(dim=2), memory

    def forward(self, batch: QueryBatch) -> Tensor:
        walk = batch.propagation
        operators, memory = self.attention(batch.query_relation)
        gates = self.context.gate_table(batch)
        steps = [operators.new_ones(walk.num_queries, self.settings.rank)]  # node b is the head of query b
        for weight, share, hop in zip(operators, memory[:-1], walk.hops, strict=True):
            start = _read(steps, share, hop.node_query[: hop.num_sources])
            steps.append(self.moved(start, hop, weight, gates))
        return self.scores(batch, _read(steps, memory[-1], walk.node_query))

    def weighted_bodies(self, query_relation: Tensor) -> Bodies:
        operators, memory = self.attention(query_relation)
        found = []
        for rank in range(self.settings.rank):
            steps: list[Bodies] = [{(): 1.0}]
            for weight, share in zip(operators[:, 0, :, rank], memory[:-1], strict=True):
                steps.append(extended(_mixed(steps, share[:, 0, rank]), self.by_relation(weight)))
            found.append((1 / self.settings.rank, _mixed(steps, memory[-1][:, 0, rank])))
        return added(*found)


def _read(steps: list[Tensor], share: Tensor, node_query: Tensor) -> Tensor:
    """The mixture [M, rank] of the states of earlier steps, by share [steps, B, rank] of each node's query."""
    parts = [
        share[number].index_select(0, node_query) * padded(state, len(node_query))
        for number, state in enumerate(steps)
    ]
    return torch.stack(parts).sum(dim=0)


def _mixed(steps: list[Bodies], share: Tensor) -> Bodies:
    return added(*zip(share.tolist(), steps, strict=True))


class DRUM(ChainModel):
    """Chains of a fixed number of steps, one of which may be none (Sadeghian, Armandpour, Ding, Wang, NeurIPS 2019).

    A rank has a bidirectional recurrent network of its own, so that a step knows those before and after it. Besides
    the relations there is an operator that stays where it is: chains with it are shorter rules.
    """

    name: ClassVar[str] = "drum"

    def __init__(
        self, num_relations: int, config: ChainConfig | None = None, context: ContextConfig | None = None
    ) -> None:
        super().__init__(num_relations, config, context)
        dim, hidden = self.settings.dim, self.settings.hidden
        self.network = nn.ModuleList(
            nn.LSTM(dim, hidden, bidirectional=True) for _ in range(self.settings.rank)
        )
        self.attend = nn.Linear(2 * hidden, self.num_moves + 1)  # the last operator stays

    def attention(self, query_relation: Tensor) -> Tensor:
        """[L, B, num_moves + 1, rank] adds up to 1 over the operators."""
        repeated = self.query(query_relation).expand(self.num_layers, -1, -1)  # [L, B, D]
        logits = [self.attend(network(repeated)[0]) for network in self.network]
        return torch.stack(logits, dim=-1).float().softmax(dim=2)

    def forward(self, batch: QueryBatch) -> Tensor:
        walk = batch.propagation
        attention = self.attention(batch.query_relation)
        gates = self.context.gate_table(batch)
        state = attention.new_ones(walk.num_queries, self.settings.rank)  # node b is the head of query b
        for weight, hop in zip(attention, walk.hops, strict=True):
            moves, stay = weight[:, :-1], weight[:, -1]
            staying = stay.index_select(0, hop.node_query[: len(state)]) * state
            state = self.moved(state, hop, moves, gates) + padded(staying, hop.num_targets)
        return self.scores(batch, state)

    def weighted_bodies(self, query_relation: Tensor) -> Bodies:
        attention = self.attention(query_relation)[:, 0]  # [L, num_moves + 1, rank]
        found = []
        for rank in range(self.settings.rank):
            bodies: Bodies = {(): 1.0}
            for weight in attention[:, :, rank]:
                longer = extended(bodies, self.by_relation(weight[:-1]))
                bodies = cut(added((1.0, longer), (float(weight[-1]), bodies)))
            found.append((1 / self.settings.rank, bodies))
        return added(*found)
