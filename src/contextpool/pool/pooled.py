"""Algorithm 2 for one query, labels in and labels out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import torch

from contextpool.context.neighbors import RelationSelector
from contextpool.errors import ConfigError
from contextpool.graph.graph import Graph
from contextpool.pool.expand import PooledBatch, expand
from contextpool.pool.hide import HiddenEdges
from contextpool.triples.store import Triple


@dataclass(frozen=True, eq=False)
class PooledGraph:
    """The query-specific graph of (head, relation, ?): edges lead outward, inverse walks are `r^-1`."""

    head: str
    relation: str
    graph: Graph
    """The graph that was walked; the edge ids of `batch` are its own."""
    batch: PooledBatch
    """The one query as a batch."""

    @property
    def num_hops(self) -> int:
        return self.batch.num_hops

    @cached_property
    def hops(self) -> list[set[Triple]]:
        """hops[l - 1] is G_context^l: (head, relation, tail) labels."""
        return [set(self.graph.edge_labels(edges.long())) for edges in self.batch.for_query(0)]

    @cached_property
    def triples(self) -> set[Triple]:
        """The union of the hops: G_context."""
        return set().union(*self.hops)

    def __repr__(self) -> str:
        sizes = " + ".join(f"{len(hop):,}" for hop in self.batch.hops)
        return f"PooledGraph(({self.head}, {self.relation}, ?), {self.num_hops} hops, {sizes} edges)"


def pool(
    graph: Graph,
    context: RelationSelector,
    head: str,
    relation: str,
    hops: int,
    hide: Iterable[Triple] = (),
) -> PooledGraph:
    """Algorithm 2: walk `hops` out from `head`, at each step only along relations relevant to the one before.

    `relation` may be `r^-1`. The triples to `hide`, in either direction, don't exist for this walk; `context` is
    taken as it is, whatever it was mined from. A graph that lacks relations of the context is walked all the
    same; one that has relations unknown to the context is an error.
    """
    if hops < 1:
        raise ConfigError(f"hops is {hops}; a walk has at least one hop.")
    aligned = aligned_with(graph, context)
    query_head = torch.tensor([aligned.entity_id(head)])
    query_relation = torch.tensor([aligned.relation_id(relation)])
    hidden = HiddenEdges.from_triples(aligned, [hide])
    batch = expand(aligned, context, query_head, query_relation, hops, hidden)
    return PooledGraph(head, relation, aligned, batch)


def aligned_with(graph: Graph, context: RelationSelector) -> Graph:
    """The graph itself, or the same facts numbered by the context's relations, on the same device."""
    if graph.relation_vocabulary == context.relations:
        return graph
    return graph.with_relations(context.relations).to(graph.device)
