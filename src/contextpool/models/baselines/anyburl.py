"""AnyBURL (Meilicke, Chekol, Fink, Stuckenschmidt 2020): rules found by sampling paths, applied by maximum first.

Only its cyclic rules: those with constants say nothing about a graph of other entities (decision 0017).

Learning goes in rounds of sampled paths, each giving more rules, until the time is over. What kinds of paths a round
samples follows from what they were worth before: a kind is a body length, and it is worth the support times the
confidence of the new rules it gave, per edge looked at, halved with every atom. A tenth of the paths goes to all kinds
alike.

Candidates are ordered by their most trusted rule, those that tie by their second and so on; one rule more is better
than one less. The order becomes a score next to the confidence of the most trusted rule.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor

from contextpool.context.config import ContextConfig
from contextpool.context.counts import available_threads
from contextpool.errors import ConfigError, DataError
from contextpool.graph.graph import Graph
from contextpool.graph.relations import RelationVocabulary, inverse
from contextpool.kernels.threads import in_blocks
from contextpool.models.base import Learning, LinkPredictor
from contextpool.models.baselines.anyburl_compiled import (
    IndexedGraph,
    Rows,
    fired_rules,
    measure_rules,
    rows_of_batch,
    sample_rules,
)
from contextpool.models.rules import (
    BODY,
    MAX_LENGTH,
    NONE,
    RELATION,
    Floats,
    Int32s,
    Int64s,
    Rule,
    RuleSet,
)
from contextpool.pool.batch import QueryBatch
from contextpool.pool.propagation import Propagation

EXPLORED = 0.1
"""Share of the paths that all kinds get alike."""
IDLE_ROUNDS = 30
"""Rounds without a new rule after which there is hardly anything left to find."""
STEPS_A_PATH = 20
"""The cost of sampling one path, in edges looked at."""
ORDER_SHARE = 1e-3
"""Part of a score that is the place among the candidates; the rest is the confidence of the best rule."""
LEVELS_AT_ONCE = 64


@dataclass(frozen=True)
class AnyBURLConfig:
    """Settings of AnyBURL; the defaults are those of its published program where it has them."""

    length: int = 3
    """Atoms in the body of a rule, at the most."""
    seconds: float = 30.0
    """How long to learn; 0 for no limit. Rounds are not broken off, so it may take a little longer."""
    paths: int = 0
    """How many paths to sample; 0 for no limit. With this limit alone, a seed gives the same rules every time."""
    round_paths: int = 50_000
    """Paths between two looks at the clock and at what kinds of rules are worth it."""
    min_support: int = 2
    """True predictions that a rule needs."""
    min_confidence: float = 0.001
    """Confidence that a rule needs."""
    pessimism: float = 5.0
    """False predictions that every rule is charged beforehand."""
    predictions: int = 5_000
    """Predictions after which counting a rule stops."""
    steps: int = 200_000
    """Edges after which counting a rule stops."""

    def __post_init__(self) -> None:
        if not 1 <= self.length <= MAX_LENGTH:
            raise ConfigError(f"model.length is {self.length}; it lies in 1 to {MAX_LENGTH}.")
        for key in ("round_paths", "min_support", "predictions", "steps"):
            if getattr(self, key) < 1:
                raise ConfigError(f"model.{key} is {getattr(self, key)}; it is at least 1.")
        for key in ("seconds", "paths", "pessimism"):
            if not getattr(self, key) >= 0:
                raise ConfigError(f"model.{key} is {getattr(self, key)}; it cannot be negative.")
        if not 0 <= self.min_confidence <= 1:
            raise ConfigError(f"model.min_confidence is {self.min_confidence}; it has to lie in [0, 1].")
        if not (self.seconds or self.paths):
            raise ConfigError("model.seconds and model.paths are both 0; learning has to end some time.")


# -- learning


@dataclass
class Kind:
    """A kind of path, and what it was worth in the last round that had some of it."""

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
    seconds: float = field(init=False, default=0.0)
    """Spent in rounds; what others do between two of them is not counted."""

    def __post_init__(self) -> None:
        self._indexed = IndexedGraph.of(self.graph)
        self._width = BODY + self.settings.length
        self._kinds = [Kind(length) for length in range(1, self.settings.length + 1)]
        self._known: set[bytes] = set()
        self._rows: list[Int32s] = []
        self._counts: list[Int64s] = []
        self._mixed_seed = np.random.SeedSequence(self.seed).generate_state(1, np.uint64)[0]

    @property
    def num_rules(self) -> int:
        return sum(len(rows) for rows in self._rows)

    @property
    def done(self) -> float:
        """The share of the paths or seconds that is used up; 1 where sampling on would hardly find anything."""
        limits = ((self.settings.paths, self.paths), (self.settings.seconds, self.seconds))
        spent = max((min(1.0, spent / limit) for limit, spent in limits if limit), default=0.0)
        return 1.0 if self.idle >= IDLE_ROUNDS or self.graph.num_triples == 0 else spent

    def round(self) -> None:
        """Sample, count, keep."""
        began = time.perf_counter()
        left = self.settings.paths - self.paths if self.settings.paths else self.settings.round_paths
        shares = _shares(self._kinds, min(self.settings.round_paths, left))
        found = sum(
            self._learn(kind, count) for kind, count in zip(self._kinds, shares, strict=True) if count
        )
        self.idle = 0 if found else self.idle + 1
        self.seconds += time.perf_counter() - began

    def rules(self) -> RuleSet:
        """Everything found so far, the most trusted first."""
        rows = np.concatenate([np.zeros((0, self._width), dtype=np.int32), *self._rows])
        counts = np.concatenate([np.zeros((0, 3), dtype=np.int64), *self._counts])
        predicted, support = (np.ascontiguousarray(counts[:, place]) for place in (0, 1))
        return RuleSet(rows, predicted, support).sorted(self.settings.pessimism)

    def _learn(self, kind: Kind, count: int) -> int:
        """How many rules are new."""
        rows, settings = self._new_rows(kind, count), self.settings
        limits, threads = (settings.predictions, settings.steps), available_threads()
        parts = in_blocks(lambda a, b: measure_rules(a, b, rows, self._indexed, *limits), len(rows), threads)
        counts = np.concatenate(
            [np.zeros((0, 3), dtype=np.int64), *parts]
        )  # predicted, true, edges looked at
        confidence = counts[:, 1] / np.maximum(counts[:, 0], 1)
        keep = (counts[:, 1] >= settings.min_support) & (confidence >= settings.min_confidence)
        self._rows.append(rows[keep])
        self._counts.append(counts[keep])
        trusted = counts[keep, 1] / (counts[keep, 0] + settings.pessimism)
        gained = float((counts[keep, 1] * trusted).sum()) / 2**kind.length
        kind.worth = gained / float(counts[:, 2].sum() + STEPS_A_PATH * count)
        return int(keep.sum())

    def _new_rows(self, kind: Kind, count: int) -> Int32s:
        """Rules that nobody has seen yet, each once, in a fixed order."""
        begin, self.paths = self.paths, self.paths + count
        how = (self._mixed_seed, kind.length, self._width, self._indexed)
        parts = in_blocks(
            lambda first, last: sample_rules(begin + first, begin + last, *how), count, available_threads()
        )
        rows = np.unique(np.concatenate(parts), axis=0)
        fresh = [place for place, row in enumerate(rows) if row.tobytes() not in self._known]
        self._known.update(rows[place].tobytes() for place in fresh)
        return np.ascontiguousarray(rows[fresh])


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
def compile_learning() -> None:
    """Compile what learning runs, so that the clock of the first learner does not count it."""
    graph = Graph.from_triples([("a", "r", "b"), ("b", "r", "c"), ("a", "s", "c")])
    RuleLearner(graph, AnyBURLConfig(paths=64, round_paths=64)).round()


# -- answering


class OrderedRules(NamedTuple):
    """Rules as queries use them: for each directed relation those that answer it, in either direction."""

    rows: Int32s  # [K, 1 + L] as in a `RuleSet`; each directed relation's own, best first
    level: Int32s  # [K] the place of the rule's confidence among all, 0 for the highest
    start: Int64s  # [2R + 1] rules of each directed relation
    confidence: Floats  # [levels] descending

    @classmethod
    def of(cls, rules: RuleSet, confidence: Floats, num_relations: int) -> OrderedRules:
        """`confidence` [K] is what each rule is trusted."""
        kept = confidence > 0
        distinct, places = np.unique(-confidence[kept], return_inverse=True)
        rows = np.concatenate([rules.rows[kept], _turned(rules.rows[kept], num_relations)])
        level = np.tile(places.astype(np.int32), 2)
        order = np.lexsort((level, rows[:, RELATION]))
        start = np.searchsorted(rows[order, RELATION], np.arange(2 * num_relations + 1))
        return cls(rows[order], level[order], start.astype(np.int64), -distinct)


def _turned(rows: Int32s, num_relations: int) -> Int32s:
    """Rules for the question in the other direction: the body walked from its end."""
    turned = np.full_like(rows, NONE)
    turned[:, RELATION] = inverse(rows[:, RELATION], num_relations)
    lengths = (rows[:, BODY:] != NONE).sum(axis=1)
    for length in np.unique(lengths).tolist():
        of_length = lengths == length
        body = rows[of_length, BODY : BODY + length][:, ::-1]
        turned[of_length, BODY : BODY + length] = inverse(body, num_relations)
    return turned


def scores_of_batch(walk: Propagation, rows: Rows, rules: OrderedRules) -> Floats:
    """[B, N] for the queries of a walk."""
    scores = np.zeros((walk.num_queries, walk.num_entities))
    relation = walk.query_relation.cpu().contiguous().numpy()

    def score(first: int, last: int) -> None:
        for query in range(first, last):
            entity, level = fired_rules(query, relation[query], rows, rules, walk.num_entities)
            _score(entity, level, rules.confidence, scores[query])

    in_blocks(score, walk.num_queries, available_threads())
    return scores


def _score(entity: Int32s, level: Int32s, confidence: Floats, scores: Floats) -> None:
    """Fill the scores [N] from who was predicted at which levels; pairs come with ascending levels."""
    if len(entity) == 0:
        return
    candidates, number = np.unique(entity, return_inverse=True)
    levels = level[np.argsort(number, kind="stable")]
    stop = np.cumsum(np.bincount(number))  # the levels of candidate c are levels[start[c]:stop[c]]
    start = np.concatenate([[0], stop[:-1]])
    place = _places(start, stop, levels)
    groups = place.max() + 1
    order = ORDER_SHARE * (groups - place) / (groups + 1)
    scores[candidates] = (1 - ORDER_SHARE) * confidence[levels[start]] + order


def _places(start: Int64s, stop: Int64s, levels: Int32s) -> Int64s:
    """[C] the place of each candidate by its levels, compared one after the other; 0 for the most trusted."""
    place = np.zeros(len(start), dtype=np.int64)
    for first in range(0, int((stop - start).max()), LEVELS_AT_ONCE):
        column = start[:, None] + first + np.arange(LEVELS_AT_ONCE)  # [C, 64]
        known = np.where(
            column < stop[:, None], levels[np.minimum(column, len(levels) - 1)], np.iinfo(np.int32).max
        )
        key = np.column_stack([place, known]).astype(">u4")  # bytes that sort as the numbers do
        whole = np.ascontiguousarray(key).view(np.dtype((np.void, key.shape[1] * 4))).reshape(-1)
        place = np.unique(whole, return_inverse=True)[1].reshape(-1)
    return place


class AnyBURL(LinkPredictor):
    """Scores are confidences: that of a candidate's most trusted rule, ties broken by the next ones; 0 for no rule.

    Nothing is trained by gradient: `learn` fills the buffers, which hold the rules.
    """

    name: ClassVar[str] = "anyburl"
    config_class: ClassVar[type] = AnyBURLConfig
    takes_context: ClassVar[bool] = False
    sized_by_weights: ClassVar[bool] = True

    def __init__(
        self, num_relations: int, config: AnyBURLConfig | None = None, context: ContextConfig | None = None
    ) -> None:
        super().__init__(num_relations, config, context)
        self.set_rules(RuleSet.empty())

    @property
    def rule_set(self) -> RuleSet:
        """All rules, the most trusted first."""
        return self._rules

    def set_rules(self, rules: RuleSet) -> None:
        """Use these rules from now on."""
        self._rules = rules
        self._ordered = OrderedRules.of(rules, rules.confidence(self.settings.pessimism), self.num_relations)
        self.num_layers = max(self.settings.length, rules.longest)
        for name, tensor in rules.to_tensors().items():
            self.register_buffer(f"rules_{name}", tensor)

    def rules(self, relation: int, most: int | None = 10) -> list[Rule]:
        """The most trusted rules that answer (?, relation, ?), a directed relation; all of them with most=None."""
        chosen = self._rules_about(relation)[:most]
        return [self._rules.rule(int(number), self.settings.pessimism) for number in chosen]

    def rules_text(self, relations: RelationVocabulary) -> Iterator[str]:
        """One line a rule: predicted, support, their ratio, the rule."""
        return self._rules.lines(relations)

    def learn(self, graph: Graph, seed: int = 0) -> Iterator[Learning]:
        """Sample until the seconds or the paths are used up, or nothing new is found; only that time counts."""
        compile_learning()
        learner = RuleLearner(graph, self.settings, seed)
        while learner.done < 1:
            learner.round()
            if learner.done < 1:
                yield _progress(learner)
        self.set_rules(learner.rules())
        yield _progress(learner)

    def forward(self, batch: QueryBatch) -> Tensor:
        """[B, N] float64; on the CPU, wherever the batch is."""
        walk = batch.propagation
        scores = scores_of_batch(walk, rows_of_batch(walk), self._ordered)
        return torch.from_numpy(scores).to(walk.graph.device)

    def rules_behind(self, batch: QueryBatch, answer: int) -> list[Rule]:
        """The rules that predict an answer to the batch's one query, the most trusted first."""
        walk = batch.propagation
        rows, found = rows_of_batch(walk), []
        for number in self._rules_about(int(walk.query_relation[0])):
            alone = OrderedRules.of(self._rules.select(np.array([number])), np.ones(1), self.num_relations)
            if scores_of_batch(walk, rows, alone)[0, answer] > 0:
                found.append(self._rules.rule(int(number), self.settings.pessimism))
        return found

    def _rules_about(self, relation: int) -> Int64s:
        """Numbers of the rules that answer a directed relation, in either direction, the most trusted first."""
        forward = relation % self.num_relations
        wanted = np.flatnonzero(self._rules.rows[:, RELATION] % self.num_relations == forward)
        confidence = self._rules.confidence(self.settings.pessimism)
        return wanted[np.argsort(-confidence[wanted], kind="stable")]

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        """Take the stored rules, however many, in place of the present ones."""
        _without_constants(state_dict, f"{prefix}rules_")
        stored = {name: state_dict.get(f"{prefix}rules_{name}") for name in RuleSet.empty().to_tensors()}
        tensors = {name: tensor for name, tensor in stored.items() if tensor is not None}
        if len(tensors) == len(stored):
            self.set_rules(RuleSet.from_tensors(tensors, self.num_relations))
        super()._load_from_state_dict(state_dict, prefix, *rest)


def _without_constants(state_dict: dict[str, Any], prefix: str) -> None:
    """Rules as they were stored when some had constants: two columns of rows are for these, empty in all others."""
    constants, rows = state_dict.pop(f"{prefix}constants", None), state_dict.get(f"{prefix}rows")
    if constants is None or rows is None:
        return
    if rows.ndim != 2 or rows.size(1) < 3 or constants.numel() or (rows[:, 1:3] != NONE).any():
        raise DataError(
            "the stored rules are damaged, or name entities, which no rule does now. Train again."
        )
    state_dict[f"{prefix}rows"] = torch.cat([rows[:, :1], rows[:, 3:]], dim=1)


def _progress(learner: RuleLearner) -> Learning:
    left = learner.seconds / learner.done * (1 - learner.done) if learner.done else 0.0
    return Learning(learner.done, left, {"paths": learner.paths, "rules": learner.num_rules})
