"""Edge dropout: every training query walks a graph from which a share of the facts is gone, another share each time.

Whether fact f is gone for query b of a step is decided by a hash of (seed of the step, b, f) against a threshold, so
there is nothing to store, both directions of a fact share its fate, and every device decides alike. What is dropped
cannot be walked; the statistics, and which relations an entity has, stay as they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from contextpool.errors import ConfigError
from contextpool.graph.graph import Graph
from contextpool.graph.hashing import mixed
from contextpool.graph.relations import inverse
from contextpool.pool.hidden import HiddenEdges
from contextpool.pool.incidence import cached_per_graph

DropBy = Literal["uniform", "relevance"]
FULL_SCALE = 2**32
"""A threshold of which every hash lies below."""
WEIGHT_STEPS = 2**20
"""Relevance is counted in so many steps: sums of whole numbers are the same in any order."""


@dataclass(frozen=True)
class EdgeDropout:
    """How to drop in one step."""

    share: float
    """Of the facts, expected."""
    seed: int
    """Of the step."""
    by: DropBy = "uniform"
    """Every fact alike, or the less relevant its relation to the query's, the more often."""
    first: int = 0
    """The number that the first query has within the step, of which this may be a share."""

    def __post_init__(self) -> None:
        if not 0 <= self.share < 1:
            raise ConfigError(f"the share of dropped edges is {self.share}; it has to lie in [0, 1).")

    def rule(self, graph: Graph, num_queries: int, relevance: Tensor | None, left_out: Tensor) -> DropRule:
        """For B queries; by relevance it takes [B, 2, 2R] precision and recall, found without left_out [B]."""
        salt = query_salts(self.seed, num_queries, graph.device, self.first)
        if self.by == "uniform":
            size = (num_queries, graph.relation_vocabulary.num_directed)
            limit = int(self.share * FULL_SCALE)
            return DropRule(salt, torch.full(size, limit, dtype=torch.int64, device=graph.device))
        assert relevance is not None, "dropping by relevance needs the relevance"
        return DropRule(salt, relevance_thresholds(graph, self.share, relevance, left_out))


@dataclass(frozen=True, eq=False)
class DropRule:
    """Fact f of relation x is gone for query b where mixed(mixed(f) ^ salt[b]) < threshold[b, x]."""

    salt: Tensor  # [B] int64 in [0, 2**32)
    threshold: Tensor  # [B, 2R] int64, equal for a relation and its inverse

    def dropped(self, graph: Graph) -> Tensor:
        """[B, 2T] which edges are gone."""
        facts = graph.forward_edges  # [T]
        number = torch.minimum(facts, graph.edge_inverse[facts].long())
        hashed = mixed(mixed(number)[None, :] ^ self.salt[:, None])  # [B, T]
        gone = hashed < self.threshold[:, graph.edge_relation[facts].long()]
        return gone[:, _fact_of_edge(graph)]

    def hidden_edges(self, graph: Graph, anyway: HiddenEdges) -> HiddenEdges:
        """What is dropped, and what each query must not see anyway."""
        gone = self.dropped(graph)
        gone[anyway.edge_query, anyway.edge.long()] = True
        start = torch.zeros(len(gone) + 1, dtype=torch.int64, device=graph.device)
        torch.cumsum(gone.sum(dim=1), 0, out=start[1:])
        return HiddenEdges(start, torch.nonzero(gone)[:, 1].int(), graph.num_edges)


def query_salts(seed: int, num_queries: int, device: torch.device, first: int = 0) -> Tensor:
    """[B] int64 in [0, 2**32), one for each query of a step, from number `first` on."""
    low, high = seed % FULL_SCALE, seed // FULL_SCALE % FULL_SCALE
    return mixed(mixed(torch.arange(first, first + num_queries, device=device) ^ low) ^ high)


def relevance_thresholds(graph: Graph, share: float, relevance: Tensor, left_out: Tensor) -> Tensor:
    """[B, 2R] p(x) * 2**32 with p(x) = share * (1 - relevance of x) / its mean over the facts, at most 1.

    The relevance of a fact is the highest of precision and recall, for the query relation, of its relation and of
    that one's inverse. Both, and the mean, are those of the graph without the fact that is left out.
    """
    num_relations = graph.num_relations
    best = relevance.amax(dim=1)  # [B, 2R]
    best = torch.maximum(best, best.roll(num_relations, dims=1))
    weight = ((1 - best.double()) * WEIGHT_STEPS).round().long()
    facts = _edges_by_relation(graph).expand(len(best), -1).clone()  # [B, 2R]
    known = (left_out >= 0).long()
    own = graph.edge_relation[left_out.clamp(min=0)].long() if graph.num_edges else left_out.clamp(min=0)
    for relation in (own, inverse(own, num_relations)):
        facts.scatter_add_(1, relation[:, None], -known[:, None])
    total = (facts * weight).sum(dim=1, keepdim=True).clamp(min=1)
    scaled = share * FULL_SCALE * (weight * facts.sum(dim=1, keepdim=True)).double() / total
    return scaled.clamp(max=FULL_SCALE).long()


@cached_per_graph
def _edges_by_relation(graph: Graph) -> Tensor:
    """[2R] edges that go by each directed relation."""
    return torch.bincount(graph.edge_relation.long(), minlength=graph.relation_vocabulary.num_directed)


@cached_per_graph
def _fact_of_edge(graph: Graph) -> Tensor:
    """[2T] the place of each edge's fact among the forward edges."""
    place = torch.empty(graph.num_edges, dtype=torch.int64, device=graph.device)
    order = torch.arange(graph.num_triples, device=graph.device)
    place[graph.forward_edges] = order
    place[graph.edge_inverse[graph.forward_edges].long()] = order
    return place
