"""Where a random walk from the head goes: mass that it leaves on each entity, without the fact a query must not see."""

from __future__ import annotations

import torch
from torch import Tensor

from contextpool.graph.graph import Graph
from contextpool.pool.candidates import degrees_without
from contextpool.pool.incidence import cached_per_graph

STEPS = 5
"""Of the walk; what the training-free scorer takes, too."""


def walk_mass(
    graph: Graph,
    query_head: Tensor,
    hidden_edge: Tensor,
    steps: int = STEPS,
    *,
    by_product: bool | None = None,
) -> Tensor:
    """[B, N] float32 expected visits in 1..`steps` steps that each take any edge alike; 0 at the head itself.

    hidden_edge [B] is walked in neither direction and counted in no degree; -1 hides nothing. The walk is of the whole
    graph, B at a time: O(steps B edges). In double precision, so that the order of a sum does not show. A step is a
    product with a sparse matrix (`by_product`; by default on the CPU) or adds up what every edge brings: on CUDA the
    product made trainings three to five times as long.
    """
    result = torch.zeros(graph.num_entities, len(query_head), dtype=torch.float64, device=graph.device)
    if graph.num_edges == 0:
        return result.t().float()
    query = torch.arange(len(query_head), device=graph.device)
    hidden = _Hidden(graph, hidden_edge, query)
    arrive = (
        hidden.product if by_product or (by_product is None and graph.device.type == "cpu") else hidden.edges
    )
    degree = degrees_without(graph, hidden_edge).t().clamp(min=1)  # [N, B]
    mass = torch.zeros_like(result)
    mass[query_head, query] = 1.0
    for _ in range(steps):
        mass = arrive(mass / degree)
        result += mass
    result[query_head, query] = 0.0
    return result.t().float().contiguous()


class _Hidden:
    """One fact less for each query, both ways. A step: what entities send along each edge [N, B] -> what arrives."""

    def __init__(self, graph: Graph, hidden_edge: Tensor, query: Tensor) -> None:
        self.graph, self.query = graph, query
        self.hides = (hidden_edge >= 0).double()  # [B]
        self.edge = hidden_edge.clamp(min=0)
        self.inverse = graph.edge_inverse[self.edge].long()
        self.head, self.tail = graph.edge_head[self.edge].long(), graph.edge_tail[self.edge].long()

    def product(self, sent: Tensor) -> Tensor:
        """Over all edges at once, and what came along the hidden ones taken off again."""
        arrived = _edges_between(self.graph) @ sent
        for start, end in ((self.head, self.tail), (self.tail, self.head)):
            arrived[end, self.query] -= self.hides * sent[start, self.query]
        return arrived.clamp_(min=0)

    def edges(self, sent: Tensor) -> Tensor:
        """Edge by edge: along the inverse of edge k its tail sends to its head."""
        brought = sent[self.graph.edge_tail]  # [2T, B]
        for edge in (self.edge, self.inverse):
            brought[edge, self.query] *= 1 - self.hides
        return torch.zeros_like(sent).index_add_(0, self.graph.edge_head, brought)


@cached_per_graph
def _edges_between(graph: Graph) -> Tensor:
    """[N, N] sparse, how many edges lead from each entity to each other one; the same both ways."""
    place = torch.stack([graph.edge_tail.long(), graph.edge_head.long()])
    ones = torch.ones(graph.num_edges, dtype=torch.float64, device=graph.device)
    size = (graph.num_entities, graph.num_entities)
    # older torch warns where nothing says whether to check
    with torch.sparse.check_sparse_tensor_invariants(True):
        return torch.sparse_coo_tensor(place, ones, size).coalesce()
