"""Neighborhood precision and recall (Definitions 5 and 6) for single relations."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import numpy.typing as npt
from torch import Tensor

from contextpool.context.cooccurrence import Cooccurrence

Ratios = npt.NDArray[np.float64]
Numbers = TypeVar("Numbers", Ratios, Tensor)


def neighborhood_precision(counts: Cooccurrence, shrinkage: float = 0.0) -> Ratios:
    """[query, neighbor] P(query | neighbor): of the entities having the neighbor, how many have the query."""
    return _ratio(counts, counts.support[None, :], counts.support[:, None], shrinkage)


def neighborhood_recall(counts: Cooccurrence, shrinkage: float = 0.0) -> Ratios:
    """[query, neighbor] P(neighbor | query): of the entities having the query, how many have the neighbor."""
    return _ratio(counts, counts.support[:, None], counts.support[None, :], shrinkage)


def _ratio(
    counts: Cooccurrence, support: npt.NDArray[np.int64], wanted: npt.NDArray[np.int64], shrinkage: float
) -> Ratios:
    """A ratio of integers in float64; 0/0, a relation that nobody has, reads 0."""
    if shrinkage == 0:
        return counts.both / np.maximum(support, 1)
    columns = (counts.both.astype(np.float64), support.astype(np.float64), wanted.astype(np.float64))
    return shrunk_ratio(*columns, shrinkage, counts.num_entities)


def shrunk_ratio(
    both: Numbers, support: Numbers, wanted: Numbers, shrinkage: float, num_entities: int
) -> Numbers:
    """(both + k * wanted / N) / (support + k) for k = shrinkage > 0, as one ratio; all in float64.

    As if k more entities had been seen that have what is wanted as often as entities have it at all: the rarer
    the relation, the closer to that base rate. Numerator and denominator are multiplied by N, so with a whole k
    both are exact integers, and every device rounds alike, once.
    """
    entities = float(max(num_entities, 1))
    return (both * entities + shrinkage * wanted) / (entities * (support + shrinkage))
