"""Whether probabilities mean what they say: claimed against observed, by bins (the data of a reliability diagram)."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch

from contextpool.errors import ConfigError
from contextpool.evaluate.calibration import (
    Calibration,
    Floats,
    Points,
    expected_calibration_error,
    masked_points,
)
from contextpool.evaluate.ranks import DirectedQueries, Scorer, check_same_numbers, in_canonical_order
from contextpool.triples.filters import KnownAnswers
from contextpool.triples.store import Triples

EDGES = (0.0, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0)
"""Finer at both ends, where most candidates and most decisions are."""


@dataclass(frozen=True)
class ReliabilityBin:
    """Candidates whose probability lies in [low, high); the last bin holds 1 too."""

    low: float
    high: float
    claimed: float
    """Their mean probability."""
    observed: float
    """The share of them that was the answer."""
    count: int


@dataclass(frozen=True)
class Reliability:
    """The bins that hold anything, and the expected calibration error over all points."""

    bins: tuple[ReliabilityBin, ...]
    error: float
    num_points: int

    def to_dict(self) -> dict[str, Any]:
        """As JSON holds it."""
        return asdict(self)


def reliability(
    scorer: Scorer,
    queries: Triples,
    known: KnownAnswers,
    calibration: Calibration,
    *,
    top: int = 10,
    batch_size: int = 64,
    device: torch.device | str | None = None,
) -> Reliability:
    """Bins over the best `top` candidates of every query in both directions, without known answers."""
    check_same_numbers(queries, known)
    queries = in_canonical_order(queries)
    asked = DirectedQueries.of(queries)
    chunks = masked_points(scorer, queries, asked, known, calibration.temperature, top, batch_size, device)
    points = Points.joined(list(chunks))
    probability = np.interp(points.share, calibration.knots, calibration.values)
    return binned(probability, points.hit)


def binned(probability: Floats, hit: Floats, edges: tuple[float, ...] = EDGES) -> Reliability:
    """Probabilities [P] and hits [P] (1, or the share of a hit among ties) by bins."""
    if len(edges) < 2 or any(low >= high for low, high in pairwise(edges)):
        raise ConfigError(f"edges are {edges}; they have to ascend.")
    place = np.clip(np.searchsorted(edges, probability, side="right") - 1, 0, len(edges) - 2)
    bins = [
        ReliabilityBin(
            edges[number],
            edges[number + 1],
            float(probability[place == number].mean()),
            float(hit[place == number].mean()),
            int((place == number).sum()),
        )
        for number in np.unique(place).tolist()
    ]
    return Reliability(tuple(bins), expected_calibration_error(probability, hit), len(probability))
