"""Anytime bottom-up learning: rounds of sampled paths, each giving more rules, until somebody says enough.

What kinds of paths a round samples follows from what they were worth before: a kind is a body length, cyclic or not,
and it is worth the support times the confidence of the new rules it gave, per edge looked at, halved with every atom
(Meilicke et al. 2020). A tenth of the paths goes to all kinds alike.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from contextpool.context.threads import available_threads
from contextpool.graph.graph import Graph
from contextpool.models.baselines.anyburl._measure import Measured, measure_rules
from contextpool.models.baselines.anyburl._sampling import Sampled, sample_rules
from contextpool.models.baselines.anyburl.config import AnyBURLConfig
from contextpool.models.baselines.anyburl.ruleset import BODY, RuleSet
from contextpool.pool._walk_cpu import in_blocks

Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]

EXPLORED = 0.1
"""Share of the paths that all kinds get alike."""
IDLE_ROUNDS = 30
"""Rounds without a new rule after which there is hardly anything left to find."""
STEPS_A_PATH = 20
"""What a path counts, in edges looked at."""


@dataclass
class Kind:
    """A kind of path, and what it was worth in the last round that had some of it."""

    cyclic: bool
    length: int
    worth: float = 1.0


@dataclass
class RuleLearner:
    """Learns from one graph. The rules depend on the settings, the seed and the number of paths, nothing else."""

    graph: Graph
    settings: AnyBURLConfig
    seed: int = 0
    paths: int = field(init=False, default=0)
    """Sampled so far."""
    idle: int = field(init=False, default=0)
    """Rounds since the last new rule."""

    def __post_init__(self) -> None:
        self._sampled = Sampled.of(self.graph)
        self._measured = Measured.of(self.graph, self._sampled.inverse_of)
        self._width = BODY + self.settings.longest
        self._kinds = kinds_of(self.settings)
        self._known: set[bytes] = set()
        self._rows: list[Int32s] = []
        self._counts: list[Int64s] = []
        self._mixed_seed = np.random.SeedSequence(self.seed).generate_state(1, np.uint64)[0]

    @property
    def num_rules(self) -> int:
        return sum(len(rows) for rows in self._rows)

    @property
    def saturated(self) -> bool:
        """Whether sampling on would hardly find anything new."""
        return self.idle >= IDLE_ROUNDS or self.graph.num_triples == 0

    def round(self) -> int:
        """Sample, count, keep; how many rules are new."""
        left = self.settings.paths - self.paths if self.settings.paths else self.settings.round_paths
        shares = _shares(self._kinds, min(self.settings.round_paths, left))
        found = sum(
            self._learn(kind, count) for kind, count in zip(self._kinds, shares, strict=True) if count
        )
        self.idle = 0 if found else self.idle + 1
        return found

    def rules(self) -> RuleSet:
        """Everything found so far, the most trusted first."""
        rows = np.concatenate([np.zeros((0, self._width), dtype=np.int32), *self._rows])
        counts = np.concatenate([np.zeros((0, 3), dtype=np.int64), *self._counts])
        predicted, support = (np.ascontiguousarray(counts[:, place]) for place in (0, 1))
        return RuleSet(rows, predicted, support, self.graph.entities).sorted(self.settings.pessimism)

    def _learn(self, kind: Kind, count: int) -> int:
        rows = self._new_rows(kind, count)
        counts = self._measure(rows)
        confidence = counts[:, 1] / np.maximum(counts[:, 0], 1)
        keep = (counts[:, 1] >= self.settings.min_support) & (confidence >= self.settings.min_confidence)
        self._rows.append(rows[keep])
        self._counts.append(counts[keep])
        trusted = counts[keep, 1] / (counts[keep, 0] + self.settings.pessimism)
        gained = float((counts[keep, 1] * trusted).sum()) / 2**kind.length
        kind.worth = gained / float(counts[:, 2].sum() + STEPS_A_PATH * count)
        return int(keep.sum())

    def _new_rows(self, kind: Kind, count: int) -> Int32s:
        """Rules that nobody has seen yet, each once, in a fixed order."""
        begin, self.paths = self.paths, self.paths + count
        parts = in_blocks(
            lambda first, last: sample_rules(
                begin + first,
                begin + last,
                self._mixed_seed,
                kind.cyclic,
                kind.length,
                self._width,
                self._sampled,
            ),
            count,
            available_threads(),
        )
        rows = np.unique(np.concatenate(parts), axis=0)
        fresh = [place for place, row in enumerate(rows) if row.tobytes() not in self._known]
        self._known.update(rows[place].tobytes() for place in fresh)
        return np.ascontiguousarray(rows[fresh])

    def _measure(self, rows: Int32s) -> Int64s:
        """[K, 3] predictions, true ones, edges looked at."""
        limits = (self.settings.predictions, self.settings.steps)
        parts = in_blocks(
            lambda first, last: measure_rules(first, last, rows, self._measured, *limits),
            len(rows),
            available_threads(),
        )
        return np.concatenate([np.zeros((0, 3), dtype=np.int64), *parts])


def kinds_of(settings: AnyBURLConfig) -> list[Kind]:
    """Cyclic paths of every length; with constants also acyclic ones, and the fact alone."""
    kinds = [Kind(True, length) for length in range(1, settings.length + 1)]
    if settings.constants:
        kinds += [Kind(False, length) for length in range(settings.constant_length + 1)]
    return kinds


def _shares(kinds: Sequence[Kind], paths: int) -> list[int]:
    """How many paths of each kind: by their worth, and a part of them alike; they add up."""
    worth = np.array([kind.worth for kind in kinds])
    even = np.full(len(kinds), 1 / len(kinds))
    share = even if worth.sum() <= 0 else (1 - EXPLORED) * worth / worth.sum() + EXPLORED * even
    ends = np.rint(np.cumsum(share) * paths).astype(np.int64)
    ends[-1] = paths
    counts: list[int] = np.diff(ends, prepend=0).tolist()
    return counts


@functools.cache
def compiled() -> None:
    """Compile what learning runs, so that the clock of the first learner does not count it."""
    graph = Graph.from_triples([("a", "r", "b"), ("b", "r", "c"), ("a", "s", "c")])
    learner = RuleLearner(graph, AnyBURLConfig(paths=64, round_paths=64))
    learner.round()
