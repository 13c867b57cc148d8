"""DRUM (Sadeghian, Armandpour, Ding, Wang, NeurIPS 2019): chains of a fixed number of steps, one of which may be none.

A rank has a bidirectional recurrent network of its own, so that a step knows those before and after it. Besides the
relations there is an operator that stays where it is: chains with it are shorter rules.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

from contextpool.context.config import ContextConfig
from contextpool.models.base import padded
from contextpool.models.baselines.chains import Bodies, ChainConfig, ChainModel, added, cut, extended
from contextpool.pool.batch import QueryBatch


class DRUM(ChainModel):
    """Sum over ranks of products over steps of attention-weighted operators."""

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
