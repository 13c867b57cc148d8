"""Where a random walk from the head goes: mass that it leaves on each entity, without the fact a query must not see."""

from __future__ import annotations

import torch
from torch import Tensor

from contextpool.graph.graph import Graph
from contextpool.pool.incidence import cached_per_graph

STEPS = 5
"""Of the walk; what the training-free scorer takes, too."""


def walk_mass(graph: Graph, query_head: Tensor, hidden_edge: Tensor, steps: int = STEPS) -> Tensor:
    """[B, N] float32 expected visits in 1..`steps` steps that each take any edge alike; 0 at the head itself.

    hidden_edge [B] is walked in neither direction and counted in no degree; -1 hides nothing. The walk is of the whole
    graph, B at a time: O(steps B edges). In double precision, so that the order of a sum does not show.
    """
    result = torch.zeros(graph.num_entities, len(query_head), dtype=torch.float64, device=graph.device)
    if graph.num_edges == 0:
        return result.t().float()
    hidden = _Hidden(graph, hidden_edge)
    mass = torch.zeros_like(result)  # [N, B]
    mass[query_head, hidden.query] = 1.0
    for _ in range(steps):
        mass = hidden.step(_edges_between(graph), mass)
        result += mass
    result[query_head, hidden.query] = 0.0
    return result.t().float().contiguous()


class _Hidden:
    """One fact less for each query."""

    def __init__(self, graph: Graph, hidden_edge: Tensor) -> None:
        self.query = torch.arange(len(hidden_edge), device=graph.device)
        edge = hidden_edge.clamp(min=0)
        self.ends = graph.edge_head[edge].long(), graph.edge_tail[edge].long()
        self.weight = (hidden_edge >= 0).double()  # [B]
        self.degree = graph.row_start.diff().double()[:, None]  # [N, 1]

    def step(self, edges: Tensor, mass: Tensor) -> Tensor:
        """[N, B] -> [N, B] what leaves each entity in equal shares arrives."""
        sent = mass / self.degree.clamp(min=1)
        head, tail = self.ends
        for end in (
            head,
            tail,
        ):  # shares are larger where an edge is missing; the share of a loop's ends is set alike
            left = self.degree[end, 0] - self._lost(end)
            share = mass[end, self.query] / left.clamp(min=1)
            sent[end, self.query] = torch.where(self.weight > 0, share * (left > 0), sent[end, self.query])
        arrived = edges @ sent
        for start, end in ((head, tail), (tail, head)):
            place = (end, self.query)
            arrived[place] = arrived[place] - self.weight * sent[(start, self.query)]
        return arrived.clamp_(min=0)

    def _lost(self, end: Tensor) -> Tensor:
        """[B] edges that an end of the hidden fact lost: two where the fact is a loop."""
        head, tail = self.ends
        return self.weight * ((end == head).double() + (end == tail).double())


@cached_per_graph
def _edges_between(graph: Graph) -> Tensor:
    """[N, N] sparse, how many edges lead from each entity to each other one; the same both ways."""
    place = torch.stack([graph.edge_tail.long(), graph.edge_head.long()])
    ones = torch.ones(graph.num_edges, dtype=torch.float64, device=graph.device)
    size = (graph.num_entities, graph.num_entities)
    return torch.sparse_coo_tensor(place, ones, size, check_invariants=True).coalesce()
