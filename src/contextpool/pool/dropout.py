"""Edge dropout: every training query walks a graph from which a share of the facts is gone, another share each time.

Whether fact f is gone for query b of a step is decided by a hash of (seed of the step, b, f) against a threshold, so
there is nothing to store, both directions of a fact share its fate, and every device decides alike. What is dropped
cannot be walked; the statistics, and which relations an entity has, stay as they are.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from contextpool.errors import ConfigError
from contextpool.graph.graph import Graph
from contextpool.graph.hashing import mixed
from contextpool.pool.hidden import HiddenEdges
from contextpool.pool.incidence import cached_per_graph

FULL_SCALE = 2**32
"""A threshold of which every hash lies below."""


@dataclass(frozen=True)
class EdgeDropout:
    """How to drop in one step: fact f is gone for query b where mixed(mixed(f) ^ salts[b]) < threshold."""

    share: float
    """Of the facts, expected."""
    seed: int
    """Of the step."""
    first: int = 0
    """The number that the first query has within the step, of which this may be a share."""

    def __post_init__(self) -> None:
        if not 0 <= self.share < 1:
            raise ConfigError(f"the share of dropped edges is {self.share}; it has to lie in [0, 1).")

    @property
    def threshold(self) -> int:
        return int(self.share * FULL_SCALE)

    def salts(self, num_queries: int, device: torch.device) -> Tensor:
        """[B] int64 in [0, 2**32), one for each query of the step, from number `first` on."""
        low, high = self.seed % FULL_SCALE, self.seed // FULL_SCALE % FULL_SCALE
        number = torch.arange(self.first, self.first + num_queries, device=device)
        return mixed(mixed(number ^ low) ^ high)

    def dropped(self, graph: Graph, num_queries: int) -> Tensor:
        """[B, 2T] which edges are gone."""
        facts = graph.forward_edges  # [T]
        number = torch.minimum(facts, graph.edge_inverse[facts].long())
        salt = self.salts(num_queries, graph.device)
        gone = mixed(mixed(number)[None, :] ^ salt[:, None]) < self.threshold  # [B, T]
        return gone[:, _fact_of_edge(graph)]

    def hidden_edges(self, graph: Graph, anyway: HiddenEdges) -> HiddenEdges:
        """What is dropped, and what each query must not see anyway."""
        gone = self.dropped(graph, anyway.num_queries)
        gone[anyway.edge_query, anyway.edge.long()] = True
        start = torch.zeros(len(gone) + 1, dtype=torch.int64, device=graph.device)
        torch.cumsum(gone.sum(dim=1), 0, out=start[1:])
        return HiddenEdges(start, torch.nonzero(gone)[:, 1].int(), graph.num_edges)


@cached_per_graph
def _fact_of_edge(graph: Graph) -> Tensor:
    """[2T] the place of each edge's fact among the forward edges."""
    place = torch.empty(graph.num_edges, dtype=torch.int64, device=graph.device)
    order = torch.arange(graph.num_triples, device=graph.device)
    place[graph.forward_edges] = order
    place[graph.edge_inverse[graph.forward_edges].long()] = order
    return place
