"""A model of somebody's own, as a user would write one: nothing registered, named by module and class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from contextpool.context.config import ContextConfig
from contextpool.models.base import LinkPredictor, scatter_scores
from contextpool.pool.batch import QueryBatch


@dataclass(frozen=True)
class ReachConfig:
    """Settings of Reach."""

    layers: int = 2


class Reach(LinkPredictor):
    """One learned score for each relation that is asked and each number of hops."""

    name: ClassVar[str] = "reach"
    config_class: ClassVar[type] = ReachConfig

    def __init__(
        self, num_relations: int, config: ReachConfig | None = None, context: ContextConfig | None = None
    ) -> None:
        super().__init__(num_relations, config, context)
        self.num_layers = self.settings.layers
        self.score = nn.Embedding(2 * num_relations, self.num_layers + 2)

    def forward(self, batch: QueryBatch) -> Tensor:
        walk = batch.propagation
        sizes = torch.tensor((0, *walk.layer_sizes)).diff()
        node_hop = torch.repeat_interleave(torch.arange(len(sizes)), sizes)  # [M]
        table = self.score(batch.query_relation)  # [B, L + 2]
        return scatter_scores(batch, table[walk.node_query, node_hop], table[:, -1])
