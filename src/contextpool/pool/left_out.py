"""Answers of Algorithm 3 for training queries, each mined as if its own fact had never been counted.

Hiding a fact changes counts in the rows and columns of its relation x and of inverse(x) alone. Most decisions
stay; the rows in which one does not are replaced for that query: every pair that asks with such a relation
gets an exception (`BatchAnswers`). Exact, and nothing of shape [B, 2R, 2R] is formed.
"""

from __future__ import annotations

import torch
from torch import Tensor

from contextpool.context.counts import CountsOf, QueryCounts
from contextpool.context.neighbors import ContextNeighbors
from contextpool.graph.graph import Graph
from contextpool.graph.relation_sets import WORD_BITS
from contextpool.graph.relations import inverse
from contextpool.pool.answers import BatchAnswers, pair_answers
from contextpool.pool.incidence import cached_per_graph, incidence_of


def answers_left_out(
    graph: Graph, context: ContextNeighbors, counts: CountsOf, query_relation: Tensor, hidden_edge: Tensor
) -> BatchAnswers:
    """What may be walked by queries [B] whose facts hidden_edge [B] (-1: none) count nowhere."""
    common = pair_answers(graph, context)
    rows = torch.stack([query_relation, inverse(query_relation, graph.num_relations)], dim=1)  # [B, 2]
    without = counts.for_queries(query_relation, hidden_edge)
    base = torch.from_numpy(context.mask).to(graph.device)  # [2R, 2R]
    own_rows, columns = _decisions(context, without, rows)
    replaced = (columns != base.T[rows]).any(dim=1)  # [B, 2R] rows whose bit for x or inverse(x) changes
    replaced = replaced.scatter(1, rows, (own_rows != base[rows]).any(dim=2))
    query, relation = torch.nonzero(replaced).unbind(1)  # [E]
    if len(query) == 0:
        return _plain(common.rows, common.pair_row, query_relation)
    bits = base[relation]  # [E, 2R], a copy
    bits = bits.scatter(1, rows[query], columns[query, :, relation])
    for place in (0, 1):
        is_own = relation == rows[query, place]
        bits = torch.where(is_own[:, None], own_rows[query, place], bits)
    number = torch.full(replaced.shape, -1, dtype=torch.int64, device=graph.device)
    number[query, relation] = len(common.rows) + torch.arange(len(query), device=graph.device)
    asked = number.gather(1, query_relation[:, None]).squeeze(1)
    pair_query, pair, row = _exceptions(graph, query, relation, number[query, relation])
    queries = torch.arange(len(query_relation) + 1, device=graph.device)
    return BatchAnswers(
        rows=torch.cat([common.rows, pack_words(bits)]),
        pair_row=common.pair_row,
        query_row=torch.where(asked >= 0, asked, query_relation).int(),
        changed_start=torch.searchsorted(pair_query, queries),
        changed_pair=pair.int(),
        changed_row=row.int(),
    )


def _decisions(context: ContextNeighbors, without: QueryCounts, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Rows [B, 2, 2R] of (x, inverse(x)) and columns [B, 2, 2R] of them, as booleans."""
    own_rows, columns = [], []
    for place in (0, 1):
        precision, recall = without.precision(place), without.recall(place)
        row = (precision > context.min_precision) & (recall > context.min_recall)
        column = (recall > context.min_precision) & (
            precision > context.min_recall
        )  # the measures swap roles
        own = rows[:, place : place + 1]
        keep = (
            without.support.gather(1, own) > 0
            if context.self_policy == "keep"
            else torch.zeros_like(own, dtype=torch.bool)
        )
        own_rows.append(row.scatter(1, own, keep))
        columns.append(column.scatter(1, own, keep))
    return torch.stack(own_rows, dim=1), torch.stack(columns, dim=1)


def _exceptions(graph: Graph, query: Tensor, relation: Tensor, row: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """query, pair, row for every pair that asks with a replaced (query, relation), sorted by (query, pair)."""
    start, order = _pairs_by_relation(graph)
    count = start[relation + 1] - start[relation]
    owner = torch.repeat_interleave(torch.arange(len(query), device=graph.device), count)
    first = count.cumsum(0) - count
    place = torch.arange(len(owner), device=graph.device) - first[owner] + start[relation][owner]
    pair = order[place]
    by_query = torch.argsort(query[owner] * len(order) + pair)
    return query[owner][by_query], pair[by_query], row[owner][by_query]


@cached_per_graph
def _pairs_by_relation(graph: Graph) -> tuple[Tensor, Tensor]:
    """Start [2R + 1] and pairs [P] ordered by relation."""
    relation = incidence_of(graph).pair_relation.long()
    order = torch.argsort(relation, stable=True)
    relations = torch.arange(2 * graph.num_relations + 1, device=graph.device)
    return torch.searchsorted(relation[order], relations), order


def _plain(rows: Tensor, pair_row: Tensor, query_relation: Tensor) -> BatchAnswers:
    no_start = torch.zeros(len(query_relation) + 1, dtype=torch.int64, device=rows.device)
    nothing = torch.empty(0, dtype=torch.int32, device=rows.device)
    return BatchAnswers(rows, pair_row, query_relation.int(), no_start, nothing, nothing)


def pack_words(bits: Tensor) -> Tensor:
    """[E, 2R] booleans to [E, W] int64 words, bit x % 64 of word x // 64."""
    width = max(1, -(-bits.size(1) // WORD_BITS))
    padded = torch.nn.functional.pad(bits.long(), (0, width * WORD_BITS - bits.size(1)))
    shifts = torch.arange(WORD_BITS, device=bits.device)
    return (padded.view(len(bits), width, WORD_BITS) << shifts).sum(dim=2)
