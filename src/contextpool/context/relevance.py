"""Neighborhood precision and recall (Definitions 5 and 6) for single relations."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from contextpool.context.counts import Cooccurrence
from contextpool.graph.hashing import mixed

Ratios = npt.NDArray[np.float64]


def neighborhood_precision(counts: Cooccurrence) -> Ratios:
    """[query, neighbor] P(query | neighbor): the share of entities with the neighbor that also have the query."""
    return counts.both / np.maximum(counts.support[None, :], 1)


def neighborhood_recall(counts: Cooccurrence) -> Ratios:
    """[query, neighbor] P(neighbor | query): the share of entities with the query that also have the neighbor."""
    return counts.both / np.maximum(counts.support[:, None], 1)


def shuffled_neighbors(num_directed: int, seed: int) -> npt.NDArray[np.int64]:
    """[2R] for every neighbor another one whose relevance to take instead: the shuffled control of gate and arrive.

    A permutation that is one ring through all relations, so none keeps its place where there are two or more.
    """
    relation = np.arange(num_directed, dtype=np.int64)
    salt = int(mixed(np.array([seed ^ (255 << 16)]))[0])
    order = np.argsort(mixed(relation ^ salt ^ 0x5BD1E995), kind="stable")
    other = np.empty_like(order)
    other[order] = np.roll(order, 1)
    return other
