"""The training-free scorer: random-walk mass from the head times the candidate's relevance."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from contextpool.context.config import NO_CONTEXT, ContextConfig
from contextpool.errors import ConfigError
from contextpool.models.base import LinkPredictor
from contextpool.pool.batch import QueryBatch
from contextpool.pool.candidates import STEPS


@dataclass(frozen=True)
class WalkConfig:
    """Settings of the walk; nothing is learned."""

    steps: int = STEPS
    """How far the walk goes."""

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise ConfigError(f"model.steps is {self.steps}; a walk has at least one step.")


class Walk(LinkPredictor):
    """Mass that a random walk of up to `steps` steps leaves on each entity, times how much it looks like an answer.

    Takes candidate relevance from its batches (context with arrive=True): by the counts of the graph at hand, and of
    the training graph for relations that it had. The head itself comes last.
    """

    name: ClassVar[str] = "walk"
    config_class: ClassVar[type] = WalkConfig
    any_relation: ClassVar[bool] = True
    own_context: ClassVar[ContextConfig | None] = replace(NO_CONTEXT, arrive=True)

    def __init__(
        self, num_relations: int, config: WalkConfig | None = None, context: ContextConfig | None = None
    ) -> None:
        super().__init__(num_relations, config, context)
        self.num_layers = self.settings.steps

    def forward(self, batch: QueryBatch) -> Tensor:
        walk = batch.propagation
        hops = [hop.walked for hop in walk.hops]
        last = hops[-1]
        degree = torch.bincount(last.edge_source, minlength=last.num_targets).clamp(
            min=1
        )  # [M] edges that leave
        mass = torch.zeros(last.num_targets, dtype=torch.float64, device=degree.device)
        mass[: walk.num_queries] = 1.0
        visited = torch.zeros_like(mass)
        for hop in hops:
            sent = (mass / degree)[hop.edge_source]
            mass = torch.zeros_like(mass).index_add(0, hop.edge_target, sent)
            visited = visited + mass
        scores = torch.zeros(walk.num_queries, walk.num_entities, dtype=torch.float64, device=mass.device)
        scores[walk.node_query, walk.node_entity] = visited
        if batch.candidate_relevance is not None:
            scores = (scores + 1e-6) * batch.candidate_relevance
        scores[torch.arange(walk.num_queries, device=mass.device), walk.query_head] = -1.0
        return scores
