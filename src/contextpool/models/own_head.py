"""No query is answered with its own head, where its relation never relates an entity to itself in training."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from contextpool.graph.graph import Graph
from contextpool.pool.query_batch import QueryBatch

MARGIN = 10.0
"""How far below all others a head scores that cannot be the answer: e^-10 of the least likely one in a softmax, and
still a score like others to whoever fits a temperature to them.
"""


class OwnHead(nn.Module):
    """Which relations may lead back to where they start; part of a model's weights. New, it excludes nothing."""

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
        """Scores [B, N] with the query's own head out of the competition, where its relation is not reflexive.

        In the loss too: there is nothing to be learned from what is never asked.
        """
        head = batch.propagation.query_head[:, None]
        lowest = scores.detach().amin(dim=1, keepdim=True) - MARGIN  # [B, 1]
        allowed = self.reflexive[batch.query_relation][:, None]
        return scores.scatter(1, head, torch.where(allowed, scores.gather(1, head), lowest))
