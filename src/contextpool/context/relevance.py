"""Neighborhood precision and recall (Definitions 5 and 6) for single relations."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from contextpool.context.cooccurrence import Cooccurrence

Ratios = npt.NDArray[np.float64]


def neighborhood_precision(counts: Cooccurrence) -> Ratios:
    """[query, neighbor] P(query | neighbor): of the entities having the neighbor, how many have the query."""
    return _ratio(counts.both, counts.support[None, :])


def neighborhood_recall(counts: Cooccurrence) -> Ratios:
    """[query, neighbor] P(neighbor | query): of the entities having the query, how many have the neighbor."""
    return _ratio(counts.both, counts.support[:, None])


def _ratio(both: npt.NDArray[np.int64], support: npt.NDArray[np.int64]) -> Ratios:
    """A ratio of integers in float64; 0/0, a relation that nobody has, reads 0."""
    return both / np.maximum(support, 1)
