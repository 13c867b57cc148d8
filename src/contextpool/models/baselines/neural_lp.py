"""Neural LP (Yang, Yang, Cohen, NIPS 2017): chains whose every step starts from a mixture of all steps before it.

A recurrent network attends to operators (which relation to follow) and to the memory of earlier steps (where to start
from); what it reads at the end is a mixture of all steps, which makes rules of every length up to the number of steps.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

from contextpool.context.config import ContextConfig
from contextpool.models.base import padded
from contextpool.models.baselines.chains import Bodies, ChainConfig, ChainModel, added, extended
from contextpool.pool.batch import QueryBatch


class NeuralLP(ChainModel):
    """Operators and memory with attention, one recurrent network a rank."""

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
