"""What Neural LP and DRUM share: weighted chains of relation operators, and the rules that can be read off them.

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
from contextpool.kernels.interface import aggregate
from contextpool.models.base import LinkPredictor, scatter_scores
from contextpool.models.rules import MAX_LENGTH, Rule
from contextpool.models.streams import ContextStreams, edge_gate
from contextpool.pool.batch import QueryBatch
from contextpool.pool.propagation import Hop

LEAST = 1e-20
"""Added to what arrives, so that nothing has a finite logarithm."""
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
