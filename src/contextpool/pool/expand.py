"""Algorithm 2 for a whole batch of queries: walk out from the heads along relevant relations only."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce

import torch
from torch import Tensor

from contextpool.context.neighbors import RelationSelector
from contextpool.errors import ConfigError, DataError
from contextpool.graph.graph import Graph
from contextpool.pool.answers import BatchAnswers, batch_answers
from contextpool.pool.hide import HiddenEdges, check_ids, check_same_length, hidden_or_none
from contextpool.pool.incidence import in_main_memory, incidence_of


@dataclass(frozen=True, eq=False)
class EdgeSet:
    """One set of edges for each of B queries, K in all, sorted by (query, edge); each at most once a query."""

    edge_query: Tensor  # [K] int32
    edge: Tensor  # [K] int32, ids of the graph's directed edges
    num_queries: int

    def __len__(self) -> int:
        return len(self.edge)

    def __repr__(self) -> str:
        return f"EdgeSet({len(self):,} edges, number of queries {self.num_queries:,})"

    @property
    def query_start(self) -> Tensor:
        """[B + 1] int64 the edges of query b are edge[query_start[b]:query_start[b + 1]]."""
        queries = torch.arange(self.num_queries + 1, dtype=torch.int32, device=self.edge_query.device)
        return torch.searchsorted(self.edge_query, queries)

    def for_query(self, query: int) -> Tensor:
        """[k] int32 the edges of one query, ascending."""
        bounds = self.edge_query.new_tensor([query, query + 1])
        first, last = torch.searchsorted(self.edge_query, bounds).tolist()
        return self.edge[first:last]

    def union(self, other: EdgeSet) -> EdgeSet:
        """Edges that a query has in either set. One sort."""
        keys = [(part.edge_query.long() << 32) | part.edge for part in (self, other)]  # both in one number
        distinct = torch.unique(torch.cat(keys))
        return EdgeSet((distinct >> 32).int(), (distinct & (2**32 - 1)).int(), self.num_queries)


@dataclass(frozen=True, eq=False)
class PooledBatch:
    """The query-specific graphs of a batch (Algorithm 2): `hops[l - 1]` is G_context^l of every query."""

    hops: tuple[EdgeSet, ...]

    @property
    def num_hops(self) -> int:
        return len(self.hops)

    @property
    def num_queries(self) -> int:
        return self.hops[0].num_queries

    def union(self) -> EdgeSet:
        """The edges of all hops, each once a query: G_context."""
        return reduce(EdgeSet.union, self.hops)

    def for_query(self, query: int) -> tuple[Tensor, ...]:
        """The edges of one query: a tensor of ids for each hop."""
        return tuple(hop.for_query(query) for hop in self.hops)


def expand(
    graph: Graph,
    selector: RelationSelector,
    query_head: Tensor,
    query_relation: Tensor,
    num_hops: int,
    hidden: HiddenEdges | None = None,
    *,
    answers: BatchAnswers | None = None,
) -> PooledBatch:
    """Algorithm 2 for the queries (query_head [B], query_relation [B]), ids, relations in [0, 2R).

    Hop 1 holds the edges (h, r', t) with r' in select(NR_h, query relation). Hop l holds, for every edge
    (e', rho, e) of hop l - 1 (of that hop alone), the edges (e, r', t) with r' in select(NR_e, inverse(rho)).
    Edges hidden from a query, and what they add to NR_e, don't exist for it.

    Time is linear in the edges of the hops plus, for each entity asked, its |NR_e| times the relations it was arrived
    at by. The walk is compiled and threaded on the CPU wherever the graph is; the result is on the graph's device.
    `answers` replace the selector's own where they were looked up differently (`answers_left_out`).
    """
    if num_hops < 1:
        raise ConfigError(f"num_hops is {num_hops}; a walk has at least one hop.")
    query_head, query_relation = checked_queries(graph, query_head, query_relation)
    _check_vocabulary(graph, selector)
    hidden = hidden_or_none(hidden, graph, len(query_head))
    if answers is None:
        answers = batch_answers(graph, selector, query_head, query_relation, hidden)
    from contextpool.kernels.cpu_walk import PooledWalk, pooled_hops  # numba is loaded where it is needed

    incidence = incidence_of(in_main_memory(graph))
    walk = PooledWalk(
        entity_start=incidence.entity_start,
        pair_entity=incidence.pair_entity,
        pair_relation=incidence.pair_relation,
        pair_start=incidence.pair_start,
        edge_arrival=incidence.edge_arrival,
        hidden_start=hidden.start,
        hidden_edge=hidden.edge,
        rows=answers.rows,
        pair_row=answers.pair_row,
        query_head=query_head.int(),
        query_row=answers.query_row,
        changed_start=answers.changed_start,
        changed_pair=answers.changed_pair,
        changed_row=answers.changed_row,
    )
    hops = pooled_hops(walk, num_hops)
    return PooledBatch(
        tuple(EdgeSet(query.to(graph.device), edge.to(graph.device), len(query_head)) for query, edge in hops)
    )


def checked_queries(graph: Graph, query_head: Tensor, query_relation: Tensor) -> tuple[Tensor, Tensor]:
    """Heads [B] and relations [B] on the graph's device, after a look at their shapes and ranges."""
    check_ids("query_head", query_head, graph.num_entities)
    check_ids("query_relation", query_relation, graph.relation_vocabulary.num_directed)
    check_same_length("query_head and query_relation", query_head, query_relation)
    return query_head.to(graph.device), query_relation.to(graph.device)


def _check_vocabulary(graph: Graph, selector: RelationSelector) -> None:
    if selector.relations != graph.relation_vocabulary:
        raise DataError(
            f"the context numbers {selector.relations.num_relations:,} relations, the graph "
            f"{graph.num_relations:,}, and not alike. Align the graph first: graph.with_relations(context.relations)."
        )
