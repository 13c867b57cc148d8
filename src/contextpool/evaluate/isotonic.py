"""A non-decreasing curve through noisy zeros and ones, and how far claimed is from observed."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Block = tuple[float, float, float]
"""Sum of x, sum of y, number of points."""


def isotonic_blocks(x: Floats, y: Floats, fewest: int = 1) -> tuple[Floats, Floats, Floats]:
    """Least squares of y [P] by a non-decreasing function of x [P]: mean x, mean y, size of each block.

    Pool adjacent violators over the distinct x; then blocks of fewer than `fewest` points join a neighbour.
    O(P log P).
    """
    values, member = np.unique(x, return_inverse=True)
    weight = np.bincount(member).astype(np.float64)
    pooled: list[Block] = []
    for block in zip(values * weight, np.bincount(member, y), weight, strict=True):
        pooled.append(block)
        while len(pooled) > 1 and _mean(pooled[-2]) >= _mean(pooled[-1]):
            pooled[-2:] = [_merged(*pooled[-2:])]
    sum_x, sum_y, size = np.array(_large_enough(pooled, fewest)).T
    return sum_x / size, sum_y / size, size


def _large_enough(blocks: list[Block], fewest: int) -> list[Block]:
    """Neighbours joined from the left until each has enough; means stay in order. A short rest joins the last."""
    kept: list[Block] = []
    for block in blocks:
        if kept and kept[-1][2] < fewest:
            kept[-1] = _merged(kept[-1], block)
        else:
            kept.append(block)
    if len(kept) > 1 and kept[-1][2] < fewest:
        kept[-2:] = [_merged(*kept[-2:])]
    return kept


def _mean(block: Block) -> float:
    return block[1] / block[2]


def _merged(one: Block, other: Block) -> Block:
    return one[0] + other[0], one[1] + other[1], one[2] + other[2]


def expected_calibration_error(probability: Floats, hit: Floats, bins: int = 15) -> float:
    """Mean distance between claimed and observed over equal bins of [0, 1], weighted by their points."""
    place = np.minimum((probability * bins).astype(np.int64), bins - 1)
    gap = np.bincount(place, probability, bins) - np.bincount(place, hit, bins)  # [bins]
    return float(np.abs(gap).sum() / len(probability))
