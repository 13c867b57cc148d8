"""Algorithm 2 for a whole batch of queries: walk out from the heads along relevant relations only."""

from __future__ import annotations

from torch import Tensor

from contextpool.context.neighbors import RelationSelector
from contextpool.errors import DataError
from contextpool.graph.graph import Graph
from contextpool.pool import _walk_torch
from contextpool.pool._backend import SCRATCH_BYTES, Backend, check_choice, runs_on_cpu
from contextpool.pool._checks import check_ids, check_same_length
from contextpool.pool.answers import BatchAnswers, batch_answers
from contextpool.pool.edge_set import PooledBatch
from contextpool.pool.hidden import HiddenEdges, hidden_or_none


def expand(
    graph: Graph,
    selector: RelationSelector,
    query_head: Tensor,
    query_relation: Tensor,
    num_hops: int,
    hidden: HiddenEdges | None = None,
    *,
    answers: BatchAnswers | None = None,
    backend: Backend = "auto",
    scratch_bytes: int = SCRATCH_BYTES,
) -> PooledBatch:
    """Algorithm 2 for the queries (query_head [B], query_relation [B]), ids, relations in [0, 2R).

    Hop 1 holds the edges (h, r', t) with r' in select(NR_h, query relation). Hop l holds, for every edge
    (e', rho, e) of hop l - 1 (of that hop alone), the edges (e, r', t) with r' in select(NR_e, inverse(rho)).
    Edges hidden from a query, and what they add to NR_e, don't exist for it.

    `backend` "cpu" is compiled and threaded, "torch" runs on the graph's device; "auto" takes the first where
    the graph is on the CPU. Both give the same sets. Time is linear in the edges of the hops plus, for each
    entity asked, its |NR_e| times the relations it was arrived at by. `scratch_bytes` bounds what is held
    beside input and result; queries are taken in as many parts as that takes. `answers` replace the
    selector's own where they were looked up differently (`left_out`).
    """
    check_choice(backend, num_hops, scratch_bytes)
    query_head, query_relation = checked_queries(graph, query_head, query_relation)
    _check_vocabulary(graph, selector)
    hidden = hidden_or_none(hidden, graph, len(query_head))
    if answers is None:
        answers = batch_answers(graph, selector, query_head, query_relation, hidden)
    if runs_on_cpu(backend, graph):
        from contextpool.pool import _walk_cpu  # numba is loaded where it is needed

        return PooledBatch(_walk_cpu.walk(graph, query_head, answers, hidden, num_hops, scratch_bytes))
    return PooledBatch(_walk_torch.walk(graph, query_head, answers, hidden, num_hops, scratch_bytes))


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
