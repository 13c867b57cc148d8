"""What is known of a candidate c for (h, r, ?), by the relations NR_c it has: does it look like something r points to?

The relations y of NR_c are judged by precision[inverse(r), y] and recall[inverse(r), y]: of the entities that have y,
how many does r point to, and of those that r points to, how many have y. All without the fact a query must not see.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from contextpool.context.counts import CountsOf, QueryCounts
from contextpool.graph.graph import Graph
from contextpool.pool.incidence import cached_per_graph, candidate_pairs, incidence_of

FEATURES = (
    "highest precision", "mean precision", "highest recall", "mean recall",
    "support of the most precise relation", "has the inverse of the query relation", "degree",
)  # fmt: skip
RAW = 7
"""Rows of what features are made of: see `raw_features`."""
DEGREE_BOUNDS = (1, 3, 7, 15, 31, 63, 127, 255)
"""A candidate of degree d is in bucket floor(log2(d + 1)), at most the last one."""


def best_precision(graph: Graph, counts: CountsOf, queries: QueryCounts, left_out: Tensor) -> Tensor:
    """[B, N] float32 max over y in NR_c of precision[inverse(query relation), y]; 0 where c has no relation."""
    relevance = queries.precision(1).float()  # [B, 2R]
    pair_entity, pair_relation = candidate_pairs(graph)
    of_pair = relevance[:, pair_relation]  # [B, P]
    result = relevance.new_zeros(len(relevance), graph.num_entities)
    place = pair_entity.expand(len(relevance), -1)
    result.scatter_reduce_(1, place, of_pair, "amax", include_self=True)
    hiding = torch.nonzero(left_out >= 0).squeeze(1)
    if len(hiding):
        head, head_set, tail, tail_set = counts.sets_without(left_out[hiding])
        for entity, has in ((head, head_set), (tail, tail_set)):
            result[hiding, entity] = (relevance[hiding] * has).amax(dim=1)
    return result


def raw_features(
    graph: Graph, counts: CountsOf, queries: QueryCounts, back_relation: Tensor, left_out: Tensor
) -> Tensor:
    """[B, RAW, N] float32 over the relations of each entity, for the inverse [B] of the query relation.

    Highest and summed precision, highest and summed recall, support of the most precise relation (the highest, where
    several are), how many there are, and whether the inverse of the query relation is one.
    """
    incidence = incidence_of(graph)
    relation, entity = incidence.pair_relation.long(), incidence.pair_entity.long()
    alive = _alive_pairs(graph, counts, left_out)  # [B, P]
    place = entity.expand(len(alive), -1)

    def reduced(values: Tensor, how: str) -> Tensor:
        result = torch.zeros(len(alive), graph.num_entities, device=graph.device)
        return result.scatter_reduce_(1, place, values.float() * alive, how, include_self=True)

    precision, recall = (part.float()[:, relation] for part in (queries.precision(1), queries.recall(1)))
    best = reduced(precision, "amax")
    is_best = alive & (precision == best.gather(1, place))
    rows = [
        best,
        reduced(precision, "sum"),
        reduced(recall, "amax"),
        reduced(recall, "sum"),
        reduced(queries.support[:, relation] * is_best, "amax"),
        reduced(alive, "sum"),
        reduced(relation == back_relation[:, None], "amax"),
    ]
    return torch.stack(rows, dim=1)


def _alive_pairs(graph: Graph, counts: CountsOf, left_out: Tensor) -> Tensor:
    """[B, P] which (entity, relation) pairs there are for each query."""
    incidence = incidence_of(graph)
    alive = torch.ones(len(left_out), incidence.num_pairs, dtype=torch.bool, device=graph.device)
    query = torch.nonzero(left_out >= 0).squeeze(1)
    edge = left_out[query]
    for way in (edge, graph.edge_inverse[edge].long()):
        alone = counts.only_one[way]
        alive[query[alone], incidence.edge_pair[way[alone]].long()] = False
    return alive


def features_of(raw: Tensor, graph: Graph, hidden_edge: Tensor, num_counted: int) -> Tensor:
    """[B, N, FEATURES] in [0, 1]; `num_counted` entities were counted, hidden_edge [B] has no part in degrees."""
    best, precision, recall_best, recall, support, size, has_back = raw.unbind(dim=1)
    several = size.clamp(min=1)
    degree = degrees_without(graph, hidden_edge)
    bucket = torch.bucketize(degree, _degree_bounds(graph), right=True).float()
    columns = [
        best,
        precision / several,
        recall_best,
        recall / several,
        torch.log1p(support) / math.log1p(max(num_counted, 1)),
        has_back,
        bucket / len(DEGREE_BOUNDS),
    ]
    return torch.stack(columns, dim=2)


@cached_per_graph
def _degree_bounds(graph: Graph) -> Tensor:
    return torch.tensor(DEGREE_BOUNDS, device=graph.device)


def degrees_without(graph: Graph, hidden_edge: Tensor) -> Tensor:
    """[B, N] int64 edges that leave each entity, without hidden_edge [B] and its inverse; -1 hides nothing."""
    degree = graph.row_start.diff().expand(len(hidden_edge), -1).clone()
    if graph.num_edges:
        hiding, edge = (hidden_edge >= 0).long()[:, None], hidden_edge.clamp(min=0)
        for end in (graph.edge_head, graph.edge_tail):
            degree.scatter_add_(1, end[edge].long()[:, None], -hiding)
    return degree
