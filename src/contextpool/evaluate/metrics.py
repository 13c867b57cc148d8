"""Metrics of ranks: each is a mean over queries of one number a query, with a bootstrap interval."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt

from contextpool.errors import DataError

TieRule = Literal["optimistic", "realistic", "pessimistic"]
TIE_RULES: tuple[TieRule, ...] = get_args(TieRule)
HITS_AT = (1, 3, 10)
SAMPLED_NEGATIVES = 50
PYKEEN_NAMES = {
    "mrr": "inverse_harmonic_mean_rank",
    "mr": "arithmetic_mean_rank",
    **{f"hits@{k}": f"hits_at_{k}" for k in HITS_AT},
}

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


class Interval(NamedTuple):
    low: float
    high: float


@dataclass(frozen=True, eq=False)
class RankMetrics:
    """Metrics under one rule for ties, as fractions (the mean rank aside)."""

    ranks: Floats
    """[Q], 1 being best; halves occur under the realistic rule."""
    found_among_sampled: Floats
    """[Q] the probability of rank <= 10 against 50 sampled negatives: see `chance_among_sampled`."""

    def __post_init__(self) -> None:
        if len(self.ranks) == 0:
            raise DataError("metrics of no ranks: there has to be at least one query.")

    @cached_property
    def per_query(self) -> dict[str, Floats]:
        """[Q] of each metric; the metric is their mean."""
        hits = {f"hits@{k}": (self.ranks <= k).astype(np.float64) for k in HITS_AT}
        return {"mrr": 1 / self.ranks, "mr": self.ranks, **hits, "hits@10_50": self.found_among_sampled}

    @property
    def mrr(self) -> float:
        """Mean of 1 / rank."""
        return float(self.per_query["mrr"].mean())

    @property
    def mr(self) -> float:
        """Mean rank."""
        return float(self.ranks.mean())

    @property
    def hits(self) -> dict[int, float]:
        """{k: share of ranks <= k} for k = 1, 3, 10."""
        return {k: float(self.per_query[f"hits@{k}"].mean()) for k in HITS_AT}

    @property
    def hits_at_10_of_50(self) -> float:
        """Expected share of ranks <= 10 against 50 sampled negatives."""
        return float(self.found_among_sampled.mean())

    @property
    def num_queries(self) -> int:
        return len(self.ranks)

    def to_dict(self) -> dict[str, float]:
        """mrr, mr, hits@1, hits@3, hits@10, hits@10_50, num_queries."""
        figures = {name: float(values.mean()) for name, values in self.per_query.items()}
        return {**figures, "num_queries": self.num_queries}

    def select(self, rows: Bools) -> RankMetrics:
        """The metrics of the queries where `rows` [Q] is true."""
        return RankMetrics(self.ranks[rows], self.found_among_sampled[rows])

    def __repr__(self) -> str:
        return f"RankMetrics({self.in_words})"

    @property
    def in_words(self) -> str:
        """`mrr 0.5121, hits@1 0.4012, hits@3 0.5803, hits@10 0.7210, 1,336 ranks`"""
        hits = ", ".join(f"hits@{k} {share:.4f}" for k, share in self.hits.items())
        return f"mrr {self.mrr:.4f}, {hits}, {self.num_queries:,} ranks"


@dataclass(frozen=True, eq=False)
class RankTable:
    """The ranks of Q queries under both extreme rules, from which every metric follows."""

    optimistic: Floats
    pessimistic: Floats
    candidates: Integers

    def __repr__(self) -> str:
        return f"RankTable({len(self.optimistic):,} ranks)"

    def under(self, rule: TieRule) -> RankMetrics:
        """The metrics under one rule for ties."""
        better, tied = self.optimistic - 1, self.pessimistic - self.optimistic
        worse = self.candidates - self.pessimistic
        if rule == "optimistic":
            ranks, tied, worse = self.optimistic, np.zeros_like(tied), worse + tied
        elif rule == "pessimistic":
            ranks, better, tied = self.pessimistic, better + tied, np.zeros_like(tied)
        else:
            ranks = (self.optimistic + self.pessimistic) / 2
        return RankMetrics(ranks, chance_among_sampled(better, tied, worse))

    def select(self, rows: Bools) -> RankTable:
        return RankTable(self.optimistic[rows], self.pessimistic[rows], self.candidates[rows])


def chance_among_sampled(
    better: Floats, tied: Floats, worse: Floats, k: int = 10, negatives: int = SAMPLED_NEGATIVES
) -> Floats:
    """[Q] the probability that an answer ranks <= k against `negatives` drawn without replacement.

    Nothing is drawn: of the other candidates `better` [Q] score higher, `tied` [Q] the same and `worse` [Q]
    lower, so the numbers drawn of each follow the multivariate hypergeometric distribution, and ties count
    half a place (realistic). This is the exact expectation of the figure that GraIL and NBFNet estimate by
    drawing; where there are fewer candidates than `negatives`, all are taken. O(Q k^2).
    """
    chance = np.empty(len(better))
    for low in range(0, len(better), 4096):  # [4096, k^2] at a time
        rows = slice(low, low + 4096)
        chance[rows] = _chance_of_rows(better[rows], tied[rows], worse[rows], k, negatives)
    return chance


def _chance_of_rows(better: Floats, tied: Floats, worse: Floats, k: int, negatives: int) -> Floats:
    """Sum over every (x better, y tied) with 1 + x + y / 2 <= k of the probability to draw just those."""
    pairs = [(x, y) for x in range(k) for y in range(2 * (k - 1 - x) + 1)]
    x, y = np.array(pairs).T  # [P] and [P]
    drawn = np.minimum(better + tied + worse, negatives).astype(np.int64)  # [Q]
    left = drawn[:, None] - x - y  # [Q, P] drawn of the worse ones
    ways_worse = np.take_along_axis(_log_choose(worse, negatives), np.maximum(left, 0), axis=1)
    ways_all = np.take_along_axis(_log_choose(better + tied + worse, negatives), drawn[:, None], axis=1)
    ways = _log_choose(better, k)[:, x] + _log_choose(tied, 2 * k)[:, y] + ways_worse - ways_all
    chance: Floats = np.exp(np.where(left >= 0, ways, -np.inf)).sum(axis=1)
    return np.minimum(chance, 1.0)


def _log_choose(count: Floats, most: int) -> Floats:
    """[Q, most + 1] log of `count` choose 0 ... most, by its factors; -inf where it is 0. Never cancels."""
    step = np.arange(most)
    factor = (count[:, None] - step) / (step + 1)  # [Q, most]
    logs = np.log(np.maximum(factor, np.finfo(np.float64).tiny))
    logs = np.where(factor > 0, logs, -np.inf)
    return np.concatenate([np.zeros((len(count), 1)), np.cumsum(logs, axis=1)], axis=1)


def bootstrap_intervals(
    metrics: RankMetrics, group: Integers, *, seed: int, samples: int = 1000, level: float = 0.95
) -> dict[str, Interval]:
    """Percentile intervals of every metric, drawing whole groups of queries with replacement.

    `group` [Q] in [0, G): queries that belong together, such as the two directions of one triple, whose
    ranks are not independent. O(samples G) time, in pieces of about 32 MB.
    """
    values = np.stack(list(metrics.per_query.values()), axis=1)  # [Q, M]
    num_groups = int(group.max()) + 1
    sums = np.stack([np.bincount(group, column, num_groups) for column in values.T], axis=1)  # [G, M]
    sizes = np.bincount(group, minlength=num_groups)  # [G]
    rng = np.random.default_rng(seed)
    means = [
        (drawn @ sums) / (drawn @ sizes)[:, None]  # [S, M]
        for drawn in _draws(rng, num_groups, samples)
    ]
    ends = np.quantile(np.concatenate(means), [(1 - level) / 2, (1 + level) / 2], axis=0)  # [2, M]
    return {name: Interval(*ends[:, place].tolist()) for place, name in enumerate(metrics.per_query)}


def _draws(rng: np.random.Generator, num_groups: int, samples: int) -> Iterator[Integers]:
    """How often each group is drawn, [samples, G] in pieces of at most 4 million numbers."""
    piece = max(1, 4_000_000 // num_groups)
    for done in range(0, samples, piece):
        size = min(piece, samples - done)
        yield rng.multinomial(num_groups, np.full(num_groups, 1 / num_groups), size=size)
