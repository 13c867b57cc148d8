"""What is known of a candidate c for (h, r, ?), by the relations NR_c it has: does it look like something r points to?

The relations y of NR_c are judged by precision[inverse(r), y] and recall[inverse(r), y]: of the entities that have y,
how many does r point to, and of those that r points to, how many have y. Besides, where a random walk from the head
goes (`walk_mass`). All without the fact a query must not see.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from contextpool.context.counts import CountsOf, QueryCounts
from contextpool.graph.graph import Graph
from contextpool.kernels.cpu_walk import walk_step
from contextpool.pool.incidence import cached_per_graph, incidence_of, is_part, whole_of

FEATURES = (
    "highest precision", "mean precision", "highest recall", "mean recall",
    "support of the most precise relation", "has the inverse of the query relation", "degree",
)  # fmt: skip
RAW = 7
"""Rows of what features are made of: see `raw_features`."""
DEGREE_BOUNDS = (1, 3, 7, 15, 31, 63, 127, 255)
"""A candidate of degree d is in bucket floor(log2(d + 1)), at most the last one."""
STEPS = 5
"""Steps of the random walk, also in the training-free scorer."""


def best_precision(graph: Graph, counts: CountsOf, queries: QueryCounts, left_out: Tensor) -> Tensor:
    """[B, N] float32 max over y in NR_c of precision[inverse(query relation), y]; 0 where c has no relation."""
    relevance = queries.precision(1).float()  # [B, 2R]
    whole = whole_of(graph)
    of_pair = relevance[:, whole.pair_relation]  # [B, P]
    result = relevance.new_zeros(len(relevance), graph.num_entities)
    place = whole.pair_entity.expand(len(relevance), -1)
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
    whole = whole_of(graph)
    relation = whole.pair_relation
    alive = _alive_pairs(graph, counts, left_out)  # [B, P]
    place = whole.pair_entity.expand(len(alive), -1)

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
    num_pairs = len(whole_of(graph).pair_entity)
    alive = torch.ones(len(left_out), num_pairs, dtype=torch.bool, device=graph.device)
    if is_part(graph):  # what is hidden was never there
        return alive
    incidence = incidence_of(graph)
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


def answer_uses(graph: Graph, back_relation: Tensor, hidden_edge: Tensor, num_facts: Tensor) -> Tensor:
    """[B, 2, N] log(1 + facts of the query relation that lead to each entity), and their share of all of its facts.

    For the inverse [B] of the query relation and num_facts [B] of it; hidden_edge [B] is none of them.
    """
    whole = whole_of(graph)
    count = torch.zeros(len(back_relation), graph.num_entities, device=graph.device)
    size = whole.pair_size * (whole.pair_relation == back_relation[:, None])  # [B, P]
    count.scatter_add_(1, whole.pair_entity.expand(len(count), -1), size.float())
    if graph.num_edges and not is_part(graph):
        tail = graph.edge_tail[hidden_edge.clamp(min=0)].long()
        count.scatter_add_(1, tail[:, None], -(hidden_edge >= 0).float()[:, None])
    return torch.stack([torch.log1p(count), count / num_facts.clamp(min=1)[:, None]], dim=1)


@cached_per_graph
def _degree_bounds(graph: Graph) -> Tensor:
    return torch.tensor(DEGREE_BOUNDS, device=graph.device)


def degrees_without(graph: Graph, hidden_edge: Tensor) -> Tensor:
    """[B, N] int64 edges that leave each entity, without hidden_edge [B] and its inverse; -1 hides nothing."""
    degree = whole_of(graph).degree.expand(len(hidden_edge), -1).clone()
    if graph.num_edges:
        hiding, edge = (hidden_edge >= 0).long()[:, None], hidden_edge.clamp(min=0)
        for end in (graph.edge_head, graph.edge_tail):
            degree.scatter_add_(1, end[edge].long()[:, None], -hiding)
    return degree


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
    product with a sparse matrix (`by_product`, on the CPU) or adds up what every edge brings.
    """
    result = torch.zeros(graph.num_entities, len(query_head), dtype=torch.float64, device=graph.device)
    if graph.num_edges == 0:
        return result.t().float()
    query = torch.arange(len(query_head), device=graph.device)
    hidden = _Hidden(graph, hidden_edge, query)
    on_cpu = graph.device.type == "cpu"
    arrive = hidden.product if (on_cpu if by_product is None else by_product) else hidden.edges
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
        arrived = walk_step(*_edges_between(self.graph), sent)
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
def _edges_between(graph: Graph) -> tuple[Tensor, Tensor, Tensor]:
    """How many edges join two entities, the same both ways, as compressed rows: start [N + 1], other end, count."""
    ends = graph.edge_head.long() * graph.num_entities + graph.edge_tail.long()  # [2T]
    pair, count = torch.unique(ends, return_counts=True)
    entity = torch.arange(graph.num_entities + 1, device=graph.device)
    start = torch.searchsorted(pair, entity * graph.num_entities)
    return start, (pair % graph.num_entities).int(), count.double()
