"""GraIL (Teru, Denis, Hamilton, ICML 2020): a candidate is judged by the subgraph that encloses it and the head.

The enclosing subgraph of a pair has every node that is within k hops of the head without passing the candidate and
within k hops of the candidate without passing the head; these two distances are its label. The head itself is (0, 1),
the candidate (1, 0). Edges are all those between these nodes but loops. It is read off a walk of 2k hops from the head,
so a fact that is hidden from a query is in none of its subgraphs. Torch operations only, on any device.

A relational graph network runs over the enclosing subgraph of every (head, candidate) pair, on nothing but its
double-radius labels. All pairs of a batch go together, in chunks. A candidate farther than 2k hops from the head has an
empty subgraph, as has the head itself; these tie, and cost nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from contextpool.context.config import ContextConfig
from contextpool.errors import ConfigError
from contextpool.graph.relations import inverse
from contextpool.kernels.hop import Hop, entries_of_rows
from contextpool.kernels.interface import FULL, Stream, aggregate
from contextpool.models.base import LinkPredictor, scatter_scores
from contextpool.pool.batch import QueryBatch
from contextpool.pool.propagation import Propagation

EDGES_AT_ONCE = {"cpu": 2**20, "cuda": 2**24}
"""Edges that the subgraphs of a chunk have together, at the very most: what caches hold, or what fills a device."""


@dataclass(frozen=True)
class GraILConfig:
    """Settings of GraIL; the defaults are the published ones."""

    dim: int = 32
    """Width of the states, and of the vectors of relations."""
    layers: int = 3
    """How often messages are sent within a subgraph."""
    hops: int = 3
    """Radius k of the subgraphs: candidates up to 2k hops away have one."""
    bases: int = 4
    """Matrices that those of all relations are mixed from."""
    attention_dim: int = 32
    """Width of the attention's hidden layer."""
    edge_dropout: float = 0.5
    """Share of a subgraph's messages that are dropped in training, another one in each layer."""

    def __post_init__(self) -> None:
        for key in ("dim", "layers", "hops", "bases", "attention_dim"):
            if getattr(self, key) < 1:
                raise ConfigError(f"model.{key} is {getattr(self, key)}; it is at least 1.")
        if not 0 <= self.edge_dropout < 1:
            raise ConfigError(f"model.edge_dropout is {self.edge_dropout}; it has to lie in [0, 1).")


class GraIL(LinkPredictor):
    """Train it with sampled negatives (train.loss = "bce"): a softmax needs the subgraph of every candidate."""

    name: ClassVar[str] = "grail"
    config_class: ClassVar[type] = GraILConfig
    takes_context: ClassVar[bool] = False

    def __init__(
        self, num_relations: int, config: GraILConfig | None = None, context: ContextConfig | None = None
    ) -> None:
        super().__init__(num_relations, config, context)
        dim = self.settings.dim
        self.num_layers = 2 * self.settings.hops
        sizes = [2 * (self.settings.hops + 1)] + [dim] * self.settings.layers
        self.layers = nn.ModuleList(
            GraILLayer(num_relations, size_in, size_out, self.settings)
            for size_in, size_out in pairwise(sizes)
        )
        self.attention_relation = nn.Embedding(2 * num_relations, dim)
        self.query = nn.Embedding(2 * num_relations, dim)
        self.score = nn.Linear((3 * self.settings.layers + 1) * dim, 1)

    def forward(self, batch: QueryBatch) -> Tensor:
        """Every reached candidate through its subgraph."""
        walk = batch.propagation
        unreached = self._score(empty_subgraphs(walk), batch)
        reached = torch.arange(walk.num_queries, len(walk.node_query), device=unreached.device)
        return scatter_scores(batch, torch.cat([unreached, self._node_scores(reached, batch)]), unreached)

    def scores_of(self, batch: QueryBatch, candidates: Tensor) -> Tensor:
        """[B, C] of candidates [B, C], without a look at any other."""
        unreached = self._score(empty_subgraphs(batch.propagation), batch)
        node = nodes_of(batch.propagation, candidates).view(-1)  # [B * C]
        scores = unreached.repeat_interleave(candidates.size(1))
        place = torch.nonzero(node >= batch.propagation.num_queries).squeeze(1)  # reached, and no head
        asked, number = torch.unique(node[place], return_inverse=True)
        return scores.scatter(0, place, self._node_scores(asked, batch)[number]).view_as(candidates)

    def _node_scores(self, node: Tensor, batch: QueryBatch) -> Tensor:
        """[P] of nodes [P] of the walk as candidates of their queries."""
        walk = batch.propagation
        edges_of_query = len(walk.edge_source) // max(walk.num_queries, 1) + 1
        room = EDGES_AT_ONCE.get(node.device.type, EDGES_AT_ONCE["cpu"])
        parts = [
            self._score(enclosing_subgraphs(walk, part, self.settings.hops, self.num_relations), batch)
            for part in node.split(max(room // edges_of_query, 1))
        ]
        return torch.cat(parts)

    def _score(self, subgraphs: EnclosingSubgraphs, batch: QueryBatch) -> Tensor:
        """[P] from the mean state, the head's and the candidate's of each layer, and the query relation."""
        query_relation = batch.query_relation
        state = (
            functional.one_hot(subgraphs.label, self.settings.hops + 1).flatten(1).to(self.score.weight.dtype)
        )
        read = []
        for layer in self.layers:
            state = layer(state, subgraphs.hop, query_relation, self.attention_relation.weight)
            read += [pooled(state, subgraphs), state[subgraphs.head], state[subgraphs.candidate]]
        asked = query_relation[subgraphs.hop.node_query[subgraphs.head]]
        scores: Tensor = self.score(torch.cat([*read, self.query(asked)], dim=1))
        return scores.squeeze(1).float()


class GraILLayer(nn.Module):
    """R-GCN with basis decomposition and attention by source, target, relation and query relation (section 3.2)."""

    def __init__(self, num_relations: int, size_in: int, size_out: int, settings: GraILConfig) -> None:
        super().__init__()
        self.bases, self.edge_dropout = settings.bases, settings.edge_dropout
        self.mixture = nn.Parameter(torch.empty(2 * num_relations, settings.bases))
        nn.init.xavier_uniform_(self.mixture)
        self.basis = nn.Linear(settings.bases * size_in, size_out, bias=False)
        self.stay = nn.Linear(size_in, size_out, bias=False)
        self.from_source, self.from_target = (
            nn.Linear(size_in, settings.attention_dim, bias=False) for _ in range(2)
        )
        self.from_relation = nn.Linear(settings.dim, settings.attention_dim, bias=False)
        self.from_query = nn.Linear(settings.dim, settings.attention_dim)
        self.attention = nn.Linear(settings.attention_dim, 1)

    def forward(self, state: Tensor, hop: Hop, query_relation: Tensor, relation: Tensor) -> Tensor:
        """[Z, size_in] -> [Z, size_out]; matrices are applied to sums instead of messages."""
        weight = self.edge_attention(state, hop, query_relation, relation)
        weight = functional.dropout(weight, self.edge_dropout, self.training)
        if hop.edge_scale is not None:
            weight = weight * hop.edge_scale
        mixture = self.mixture.repeat_interleave(state.size(1), dim=1)  # [2R, bases * size_in]
        ([total], _) = aggregate(
            hop,
            state.repeat(1, self.bases),
            [Stream(FULL, mixture)],
            message="distmult",
            reductions=("sum",),
            edge_weight=weight,
        )
        return torch.relu(self.stay(state) + self.basis(total[:, 0]))

    def edge_attention(self, state: Tensor, hop: Hop, query_relation: Tensor, relation: Tensor) -> Tensor:
        """[E] in (0, 1)"""
        by_query = self.from_query(relation).index_select(0, query_relation)  # [B, A]
        table = self.from_relation(relation) + by_query[:, None]  # [B, 2R, A]
        place = hop.edge_query * len(relation) + hop.edge_relation
        hidden = table.flatten(0, 1).index_select(0, place)
        hidden = hidden + self.from_source(state).index_select(0, hop.edge_source)
        hidden = hidden + self.from_target(state).index_select(0, hop.edge_target)
        return torch.sigmoid(self.attention(torch.relu(hidden)).squeeze(1))


def pooled(state: Tensor, subgraphs: EnclosingSubgraphs) -> Tensor:
    """[P, D] mean state of each subgraph's nodes."""
    total = state.new_zeros(subgraphs.num_pairs, state.size(1)).index_add(0, subgraphs.pair, state)
    return total / subgraphs.num_nodes[:, None]


def nodes_of(walk: Propagation, candidates: Tensor) -> Tensor:
    """[B, C] the node of each candidate [B, C]; -1 where its query did not reach it."""
    number = candidates.new_full((walk.num_queries * walk.num_entities,), -1)
    number[walk.node_query * walk.num_entities + walk.node_entity] = torch.arange(
        len(walk.node_query), device=number.device
    )
    return number.view(walk.num_queries, walk.num_entities).gather(1, candidates)


# -- enclosing subgraphs


@dataclass(frozen=True, eq=False)
class EnclosingSubgraphs:
    """The subgraphs of P pairs: Z nodes in order of (pair, node of the walk), and the edges between them."""

    pair: Tensor  # [Z] int64
    node: Tensor  # [Z] int64 node of the walk; of a candidate that was not reached, one past all of them
    label: Tensor  # [Z, 2] int64 distance to the head, distance to the candidate
    head: Tensor  # [P] int64 in [0, Z)
    candidate: Tensor  # [P] int64 in [0, Z)
    hop: Hop
    """The edges, as the kernels take them; `hop.node_query` is the query of each node."""

    @property
    def num_pairs(self) -> int:
        return len(self.head)

    @cached_property
    def num_nodes(self) -> Tensor:
        """[P] nodes of each subgraph."""
        return torch.bincount(self.pair, minlength=self.num_pairs)


def enclosing_subgraphs(
    walk: Propagation, candidate: Tensor, num_hops: int, num_relations: int
) -> EnclosingSubgraphs:
    """The subgraph enclosing each candidate (a node [P] of the walk, no head) and the head of its query; 2k hops.

    O(edges within k hops of head and candidate) a pair.
    """
    assert walk.num_layers == 2 * num_hops, "a walk of 2k hops"
    hop, size = walk.hops[-1].walked, len(walk.node_query)
    pairs = torch.arange(len(candidate), device=candidate.device)
    head = walk.node_query[candidate]  # node q is the head of query q
    key, to_head, to_candidate = _between(walk, hop, head, candidate, num_hops)
    keys = torch.cat([pairs * size + head, pairs * size + candidate, key])
    one, zero = torch.ones_like(pairs), torch.zeros_like(pairs)
    label = torch.stack(
        [torch.cat([zero, one, to_head]), torch.cat([one, zero, to_candidate])], dim=1
    )  # [Z, 2]
    keys, order = torch.sort(keys)
    pair, node = keys // max(size, 1), keys % max(size, 1)
    place = torch.empty_like(order).scatter(0, order, torch.arange(len(order), device=order.device))
    heads, candidates = place[: len(pairs)], place[len(pairs) : 2 * len(pairs)]
    edges = _edges(hop, keys, pair, node, candidates, num_relations)
    return EnclosingSubgraphs(pair, node, label[order], heads, candidates, edges.hop(head[pair], hop))


def empty_subgraphs(walk: Propagation) -> EnclosingSubgraphs:
    """For each query, its head and a candidate out of reach, with nothing between them."""
    queries = torch.arange(walk.num_queries, device=walk.node_query.device)
    pair = queries.repeat_interleave(2)
    node = torch.stack([queries, torch.full_like(queries, len(walk.node_query))], dim=1).view(-1)
    label = torch.tensor([[0, 1], [1, 0]], device=queries.device).repeat(len(queries), 1)
    nothing = queries[:0]
    edges = _Edges(nothing, nothing, nothing, nothing)
    return EnclosingSubgraphs(
        pair, node, label, 2 * queries, 2 * queries + 1, edges.hop(pair, walk.hops[-1].walked)
    )


def distances(hop: Hop, start: Tensor, blocked: Tensor, limits: Sequence[int]) -> tuple[Tensor, Tensor]:
    """What is within len(limits) hops of the starts [P] if no path may pass the blocked node [P] of the pair.

    Keys pair * M + node [Z], ascending, and the distances [Z]. After step t only the first limits[t - 1] nodes count.
    """
    size = hop.num_targets
    pairs = torch.arange(len(start), device=start.device)
    barrier = pairs * size + blocked
    found = newest = pairs * size + start
    distance = torch.zeros_like(found)
    degree = hop.row_start.diff()
    for step, limit in enumerate(limits, start=1):
        pair, node = newest // max(size, 1), newest % max(size, 1)
        row, edge = entries_of_rows(hop.row_start[node], degree[node])
        reached = hop.edge_source[edge]
        keys = torch.unique((pair[row] * size + reached)[reached < limit])
        newest = keys[~_among(keys, found) & ~_among(keys, barrier)]
        found, order = torch.sort(torch.cat([found, newest]))
        distance = torch.cat([distance, torch.full_like(newest, step)])[order]
    return found, distance


def _between(
    walk: Propagation, hop: Hop, head: Tensor, candidate: Tensor, num_hops: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Key pair * M + node, distance to the head and distance to the candidate of the nodes that are neither.

    A node t steps from the candidate counts only where the head can be near enough: within 2k - t hops.
    """
    limits = [walk.layer_sizes[2 * num_hops - step] for step in range(1, num_hops + 1)]
    key, to_candidate = distances(hop, candidate, head, limits)
    to_head = _distances_to_head(walk, hop, head, candidate, key, num_hops)
    kept = (to_candidate > 0) & (to_head <= num_hops)
    return key[kept], to_head[kept], to_candidate[kept]


def _distances_to_head(
    walk: Propagation, hop: Hop, head: Tensor, candidate: Tensor, key: Tensor, num_hops: int
) -> Tensor:
    """[Z] without passing the candidate, for keys [Z]; more than k where it is farther.

    A candidate k hops away is on no shortest path of up to k hops to another node: there the walk's own distance
    will do. Only those nearer are walked round.
    """
    size = len(walk.node_query)
    sizes = torch.tensor(walk.layer_sizes, device=key.device)
    pair, node = key // max(size, 1), key % max(size, 1)
    first_hop = torch.searchsorted(sizes, node, right=True)
    near = candidate < walk.layer_sizes[num_hops - 1]  # [P]
    chosen = torch.nonzero(near).squeeze(1)
    limits = [walk.layer_sizes[step] for step in range(1, num_hops + 1)]
    found, distance = distances(hop, head[chosen], candidate[chosen], limits)
    number = near.cumsum(0) - 1  # of each near pair among them
    place, there = _looked_up(number[pair] * size + node, found)
    around = torch.where(there, _taken(distance, place), num_hops + 1)
    return torch.where(near[pair], around, first_hop)


@dataclass(frozen=True, eq=False)
class _Edges:
    source: Tensor  # [E] in [0, Z)
    target: Tensor  # [E] in [0, Z)
    relation: Tensor  # [E]
    walked: Tensor  # [E] the edge of the walk

    def hop(self, node_query: Tensor, walk: Hop) -> Hop:
        """Sorted by target, with the scale of the walk's edges."""
        target, order = torch.sort(self.target, stable=True)
        scale = walk.edge_scale
        return Hop(
            num_sources=len(node_query),
            num_targets=len(node_query),
            row_start=torch.searchsorted(target, torch.arange(len(node_query) + 1, device=target.device)),
            edge_source=self.source[order],
            edge_relation=self.relation[order],
            edge_views=torch.zeros(len(order), dtype=torch.uint8, device=target.device),
            node_query=node_query,
            complete=True,
            edge_scale=None if scale is None else scale[self.walked[order]],
        )


def _edges(
    hop: Hop, keys: Tensor, pair: Tensor, node: Tensor, candidates: Tensor, num_relations: int
) -> _Edges:
    """All edges between nodes of one pair. Those from a candidate are those into it turned round: a walk has no others
    from its last shell.
    """
    target, walked = entries_of_rows(hop.row_start[node], hop.row_start.diff()[node])
    source, there = _looked_up(pair[target] * hop.num_targets + hop.edge_source[walked], keys)
    from_candidate = source == candidates[pair[target]]
    kept = there & (source != target) & ~from_candidate
    source, target, walked = source[kept], target[kept], walked[kept]
    relation = hop.edge_relation[walked]
    turned = torch.nonzero(target == candidates[pair[target]]).squeeze(1)
    return _Edges(
        source=torch.cat([source, target[turned]]),
        target=torch.cat([target, source[turned]]),
        relation=torch.cat([relation, inverse(relation[turned], num_relations)]),
        walked=torch.cat([walked, walked[turned]]),
    )


def _looked_up(wanted: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
    """Place [W] among ascending keys, and whether it is there [W]."""
    place = torch.searchsorted(keys, wanted).clamp(max=max(len(keys) - 1, 0))
    return place, _taken(keys, place) == wanted


def _taken(values: Tensor, place: Tensor) -> Tensor:
    """values[place]; -1 where there are no values."""
    return values[place] if len(values) else torch.full_like(place, -1)


def _among(wanted: Tensor, keys: Tensor) -> Tensor:
    return _looked_up(wanted, keys)[1]
