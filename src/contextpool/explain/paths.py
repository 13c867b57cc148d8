"""The strongest simple paths between two nodes: a beam search over the layered walk."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
BEAM = 16
"""Paths that are kept for each node and length."""


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
    node twice. For each node and length only the best `beam` paths are continued: O(longest beam K log K).
    """
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
    return found[:most]


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
