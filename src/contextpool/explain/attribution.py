"""What each edge adds to the score of an answer, and the strongest paths that follow from it.

Integrated gradients (Sundararajan, Taly, Yan, ICML 2017) over one weight an edge, shared by all layers, from no
message at all (0) to the graph as it is (1). The gradient at the graph itself, which NBFNet takes, says little
where several paths carry the same: with any of them gone the others suffice, so each one's gradient is near zero.
Integrals share the score among them; over all edges they add up to what the messages added to it.

A model that has no gradient by its edges is asked again without each edge.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from contextpool.models.base import LinkPredictor
from contextpool.pool.batch import BatchBuilder, QueryBatch
from contextpool.pool.hide import HiddenEdges
from contextpool.pool.propagation import Propagation

STEPS = 8
"""Points of the integral (Gauss-Legendre)."""
EDGES_AT_ONCE = 1 << 19
"""The most edges in a batch over all copies of the query; bounds memory."""
MOST_REMOVED = 256
"""The most edges that are removed one by one, those on the shortest paths first."""

BEAM = 16
"""Paths that are kept for each node and length."""

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Case:
    """One query and one answer, asked as often as an explanation needs to."""

    model: LinkPredictor
    builder: BatchBuilder
    head: int
    relation: int
    answer: int
    hidden: int
    """The edge that is the answer itself; -1 where the graph does not hold it."""

    def batch(self, copies: int = 1, removed: HiddenEdges | None = None) -> QueryBatch:
        """The query, `copies` times, with no other edges than those that the model walks."""
        head, relation, hidden = (
            torch.full((copies,), value) for value in (self.head, self.relation, self.hidden)
        )
        batch = self.builder.build(head, relation, hidden, removed=removed)
        return replace(batch, propagation=batch.propagation.walked)

    def scores(self) -> Tensor:
        """[N] of all entities."""
        with torch.no_grad():
            scores: Tensor = self.model(self.batch())[0]
        return scores

    def scores_without(self, edge_sets: Sequence[Sequence[int]]) -> list[float]:
        """The answer's score without each set of edges of the graph, both directions of them."""
        found: list[float] = []
        size = max(1, EDGES_AT_ONCE // max(1, 2 * self.builder.graph.num_edges))
        for start in range(0, len(edge_sets), size):
            found += self._scores_without(edge_sets[start : start + size])
        return found

    def _scores_without(self, edge_sets: Sequence[Sequence[int]]) -> list[float]:
        own = [] if self.hidden < 0 else [self.hidden]
        pairs = [(row, edge) for row, edges in enumerate(edge_sets) for edge in [*edges, *own]]
        query, edge = torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2).unbind(1)
        removed = HiddenEdges.of_edges(self.builder.graph, query, edge, len(edge_sets))
        with torch.no_grad():
            scores = self.model(self.batch(len(edge_sets), removed))
        values: list[float] = scores[:, self.answer].double().tolist()
        return values


def by_gradient(case: Case, walk: Propagation) -> Floats | None:
    """[K] what each edge of the walk of one query adds; None where the model has no gradient by its edges."""
    point, weight = np.polynomial.legendre.leggauss(STEPS)
    at_once = min(STEPS, max(1, EDGES_AT_ONCE // max(1, len(walk.edge_source))))
    total = np.zeros(len(walk.edge_source))
    for start in range(0, STEPS, at_once):
        part = slice(start, start + at_once)
        slopes = _slopes(case, (point[part] + 1) / 2)
        if slopes is None:
            return None
        total += (weight[part, None] / 2 * slopes).sum(axis=0)
    return total


def _slopes(case: Case, scales: Floats) -> Floats | None:
    """[copies, K] derivative of the answer's score by each edge, all messages scaled by scales [copies]."""
    batch = case.batch(len(scales))
    walk = batch.propagation
    copy = walk.node_query[walk.edge_target]  # [copies * K]
    scale = torch.from_numpy(scales).float().to(copy.device)[copy].requires_grad_()
    scaled = replace(batch, propagation=replace(walk, edge_scale=scale))
    with torch.enable_grad():
        score = case.model(scaled)[:, case.answer].sum()
    if not score.requires_grad:
        return None
    (slope,) = torch.autograd.grad(score, scale, allow_unused=True)
    if slope is None:
        return None
    order = torch.argsort(copy, stable=True)  # the edges of one copy are in the order of a walk of one query
    rows: Floats = slope[order].view(len(scales), -1).double().cpu().numpy()
    return rows


def by_removal(case: Case, walk: Propagation, score: float, end: int) -> Floats:
    """[K] how much the score falls without each edge; 0 for those far from every short way to node `end`."""
    near = _nearest_edges(walk, end)
    edges = walk.edge_id[torch.from_numpy(near)].tolist()
    value = np.zeros(len(walk.edge_source))
    value[near] = score - np.array(case.scores_without([[edge] for edge in edges]))
    return value


def _nearest_edges(walk: Propagation, end: int) -> npt.NDArray[np.int64]:
    """Up to `MOST_REMOVED` edges by the length of the shortest way from the head to the answer through them."""
    source, target = walk.edge_source.long().cpu().numpy(), walk.edge_target.cpu().numpy()
    hop = np.repeat(np.arange(len(walk.layer_sizes)), np.diff([0, *walk.layer_sizes]))  # [M]
    left = np.full(len(hop), np.inf)
    left[end] = 0
    for _ in range(walk.num_layers):
        np.minimum.at(left, source, left[target] + 1)
    through = hop[source] + 1 + left[target]  # [K]
    useful = np.flatnonzero(through <= walk.num_layers)
    return useful[np.argsort(through[useful], kind="stable")][:MOST_REMOVED]


@dataclass(frozen=True)
class FoundPath:
    """Positions of the edges, in the order they are walked."""

    edges: tuple[int, ...]
    strength: float
    """The smallest value of its edges."""
    mean: float
    """The mean value of its edges; decides between paths of equal strength."""


@dataclass(frozen=True, eq=False)
class _Beam:
    """P simple paths of m edges each."""

    nodes: Integers  # [P, m + 1]
    edges: Integers  # [P, m]
    strength: Floats  # [P]
    total: Floats  # [P]

    def select(self, rows: npt.NDArray[np.generic]) -> _Beam:
        return _Beam(self.nodes[rows], self.edges[rows], self.strength[rows], self.total[rows])


def strongest_paths(
    edge_source: Integers,
    edge_target: Integers,
    edge_value: Floats,
    start: int,
    end: int,
    longest: int,
    most: int,
    beam: int = BEAM,
) -> list[FoundPath]:
    """Up to `most` paths from start to end of at most `longest` edges, the strongest first.

    A path is as strong as its weakest edge: it carries nothing that one of its edges does not carry. Ties
    end at the larger mean, then at the shorter path, then at the edges that come first. No path visits a
    node twice. For each node and length only the best `beam` paths are continued.

    The strongest go first in every beam, so weaker ones never change what becomes of them: they are looked for over
    the strongest edges alone, and over more of them until there are enough. O(longest beam K log K) for K edges in use.
    """
    for least in _thresholds(edge_source, edge_target, edge_value, start, end, longest):
        used = np.flatnonzero(edge_value >= least)
        found = beam_search(edge_source[used], edge_target[used], edge_value[used], start, end, longest, beam)
        if len(found) >= most:
            break
    return [replace(path, edges=tuple(used[list(path.edges)].tolist())) for path in found[:most]]


def _thresholds(
    source: Integers, target: Integers, value: Floats, start: int, end: int, longest: int
) -> Iterator[float]:
    """How strong an edge has to be: as the strongest path is, then so that four times as many are, then anyhow.

    The strongest path is the strongest walk, found node by node: a walk without its circles
    is no weaker.
    """
    best = np.full(_count(source, target, start, end), -np.inf)
    best[start] = np.inf
    for _ in range(longest):
        through = np.minimum(best[source], value)
        np.maximum.at(best, target, through)
    descending = -np.sort(-value)
    least = float(best[end])
    used = int((value >= least).sum()) if np.isfinite(least) else len(value)
    while used < len(value):
        yield least
        used = max(4 * used, int((value >= least).sum()) + 1)
        least = float(descending[min(used, len(value)) - 1])
    yield -np.inf


def beam_search(
    edge_source: Integers,
    edge_target: Integers,
    edge_value: Floats,
    start: int,
    end: int,
    longest: int,
    beam: int = BEAM,
) -> list[FoundPath]:
    """All paths that `strongest_paths` chooses from, over all of these edges."""
    order = np.argsort(edge_source, kind="stable")
    first = np.searchsorted(edge_source[order], np.arange(_count(edge_source, edge_target, start, end) + 1))
    empty = np.empty((1, 0), dtype=np.int64)
    paths = _Beam(np.array([[start]]), empty, np.array([np.inf]), np.zeros(1))
    found: list[FoundPath] = []
    for _ in range(longest):
        paths = _extended(paths, order, first, edge_target, edge_value)
        arrived = paths.nodes[:, -1] == end
        found += _as_found(paths.select(arrived))
        paths = _best_of_each_node(paths.select(~arrived), beam)
        if not len(paths.strength):
            break
    found.sort(key=lambda path: (-path.strength, -path.mean, len(path.edges), path.edges))
    return found


def _count(source: Integers, target: Integers, *nodes: int) -> int:
    return 1 + max([*nodes, int(source.max(initial=0)), int(target.max(initial=0))])


def _extended(paths: _Beam, order: Integers, first: Integers, target: Integers, value: Floats) -> _Beam:
    """Every path with every edge that leaves its last node for a node it has not visited."""
    last = paths.nodes[:, -1]
    degree = first[last + 1] - first[last]  # [P]
    row = np.repeat(np.arange(len(last)), degree)  # [X]
    place = np.arange(len(row)) - np.repeat(degree.cumsum() - degree, degree) + np.repeat(first[last], degree)
    edge = order[place]
    fresh = ~(paths.nodes[row] == target[edge][:, None]).any(axis=1)
    row, edge = row[fresh], edge[fresh]
    return _Beam(
        np.column_stack([paths.nodes[row], target[edge]]),
        np.column_stack([paths.edges[row], edge]),
        np.minimum(paths.strength[row], value[edge]),
        paths.total[row] + value[edge],
    )


def _best_of_each_node(paths: _Beam, beam: int) -> _Beam:
    """The best `beam` paths to each last node; among equals those whose edges come first."""
    keys = (*paths.edges.T[::-1], -paths.total, -paths.strength, paths.nodes[:, -1])
    ordered = paths.select(np.lexsort(keys))
    last = ordered.nodes[:, -1]
    place_in_group = np.arange(len(last)) - np.searchsorted(last, last)
    return ordered.select(place_in_group < beam)


def _as_found(paths: _Beam) -> list[FoundPath]:
    length = max(paths.edges.shape[1], 1)
    return [
        FoundPath(tuple(edges), strength, total / length)
        for edges, strength, total in zip(
            paths.edges.tolist(), paths.strength.tolist(), paths.total.tolist(), strict=True
        )
    ]
