"""AnyBURL (Meilicke, Chekol, Fink, Stuckenschmidt 2020): rules found by sampling paths, applied by maximum first."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from contextpool.context.config import ContextConfig
from contextpool.context.threads import available_threads
from contextpool.graph.graph import Graph
from contextpool.graph.relations import RelationVocabulary
from contextpool.models.base import Learning, LinkPredictor
from contextpool.models.baselines.anyburl._apply import BoundRules, bind, rows_of_batch, score_block
from contextpool.models.baselines.anyburl._measure import Measured
from contextpool.models.baselines.anyburl._sampling import Sampled
from contextpool.models.baselines.anyburl._walks import Rows
from contextpool.models.baselines.anyburl.config import AnyBURLConfig
from contextpool.models.baselines.anyburl.learner import RuleLearner, compiled
from contextpool.models.baselines.anyburl.ruleset import (
    CONSTANT,
    END,
    NONE,
    RELATION,
    Floats,
    Int64s,
    RuleSet,
)
from contextpool.models.rules import Rule
from contextpool.pool._walk_cpu import in_blocks
from contextpool.pool.batch import QueryBatch
from contextpool.pool.propagation import Propagation


class AnyBURL(LinkPredictor):
    """Scores are confidences: that of a candidate's most trusted rule, ties broken by the next ones; 0 for no rule.

    Nothing is trained by gradient: `learn` fills the buffers, which hold the rules. Cyclic rules know relations
    only; those with constants name entities, and say nothing where a graph has none of that name.
    """

    name: ClassVar[str] = "anyburl"
    config_class: ClassVar[type] = AnyBURLConfig
    takes_context: ClassVar[bool] = False

    def __init__(
        self, num_relations: int, config: AnyBURLConfig | None = None, context: ContextConfig | None = None
    ) -> None:
        super().__init__(num_relations, config, context)
        self.num_layers = self.settings.longest
        self.set_rules(RuleSet.empty())

    # the rules

    @property
    def rule_set(self) -> RuleSet:
        """All rules, the most trusted first."""
        return self._rules

    def set_rules(self, rules: RuleSet) -> None:
        """Use these rules from now on."""
        self._rules = rules
        self._bound: tuple[Graph, BoundRules, Measured] | None = None
        self.num_layers = max(self.settings.longest, rules.longest)
        for name, tensor in rules.to_tensors().items():
            self.register_buffer(f"rules_{name}", tensor)

    @classmethod
    def from_text(
        cls, lines: Iterable[str], relations: RelationVocabulary, config: AnyBURLConfig | None = None
    ) -> AnyBURL:
        """A model of rules that were written as text, by this program or by AnyBURL itself."""
        model = cls(relations.num_relations, config)
        rules = RuleSet.from_lines(lines, relations)
        model.set_rules(rules.sorted(model.settings.pessimism))
        return model

    def rules(self, relation: int, most: int | None = 10) -> list[Rule]:
        """The most trusted rules that answer (?, relation, ?), a directed relation; all of them with most=None."""
        chosen = self._rules_about(relation)[:most]
        return [self._rules.rule(int(number), self.settings.pessimism) for number in chosen]

    def rules_text(self, relations: RelationVocabulary) -> Iterator[str]:
        """One line a rule, as `from_text` reads it."""
        return self._rules.lines(relations)

    def trust(self, rules: RuleSet) -> Floats:
        """[K] confidence with the pessimistic constant, less for rules whose body says little about the entity."""
        rows, confidence = rules.rows, rules.confidence(self.settings.pessimism)
        acyclic, empty = rows[:, CONSTANT] != NONE, rules.length == 0
        ends_anywhere = acyclic & (rows[:, END] == NONE) & ~empty
        weight = np.where(ends_anywhere, self.settings.open_weight, 1.0)
        return confidence * np.where(empty, self.settings.empty_weight, weight)

    # learning

    def learn(self, graph: Graph, seed: int = 0) -> Iterator[Learning]:
        """Sample until the seconds or the paths are used up, or nothing new is found; only that time counts."""
        compiled()
        learner, clock = RuleLearner(graph, self.settings, seed), _Clock()
        snapshots = list(self.settings.snapshots)
        while not self._has_ended(learner, clock):
            clock.run()
            learner.round()
            clock.stop()
            due = bool(snapshots) and clock.seconds >= snapshots[0]
            if due:
                snapshots = [at for at in snapshots if at > clock.seconds]
                self.set_rules(learner.rules())
            if not self._has_ended(learner, clock):
                yield self._progress(learner, clock, due)
        self.set_rules(learner.rules())
        yield self._progress(learner, clock, True)

    def _has_ended(self, learner: RuleLearner, clock: _Clock) -> bool:
        limits = ((self.settings.paths, learner.paths), (self.settings.seconds, clock.seconds))
        return learner.saturated or any(limit and spent >= limit for limit, spent in limits)

    def _progress(self, learner: RuleLearner, clock: _Clock, snapshot: bool) -> Learning:
        limits = ((self.settings.paths, learner.paths), (self.settings.seconds, clock.seconds))
        done = max((min(1.0, spent / limit) for limit, spent in limits if limit), default=0.0)
        left = clock.seconds / done * (1 - done) if done else 0.0
        return Learning(done, left, {"paths": learner.paths, "rules": learner.num_rules}, snapshot)

    # answering

    def forward(self, batch: QueryBatch) -> Tensor:
        """[B, N] float64; on the CPU, wherever the batch is."""
        walk = batch.propagation
        bound, measured = self._bound_to(walk.graph)
        scores = _scores(walk, rows_of_batch(walk), bound, measured)
        return torch.from_numpy(scores).to(walk.graph.device)

    def rules_behind(self, batch: QueryBatch, answer: int) -> list[Rule]:
        """The rules that predict an answer to the batch's one query, the most trusted first."""
        walk = batch.propagation
        rows, (_, measured) = rows_of_batch(walk), self._bound_to(walk.graph)
        found = []
        for number in self._rules_about(int(walk.query_relation[0])):
            alone = bind(self._rules.select(np.array([number])), np.ones(1), walk.graph)
            if _scores(walk, rows, alone, measured)[0, answer] > 0:
                found.append(self._rules.rule(int(number), self.settings.pessimism))
        return found

    def _rules_about(self, relation: int) -> Int64s:
        """Numbers of the rules that answer a directed relation, in either direction, the most trusted first."""
        forward = relation % self.num_relations
        wanted = np.flatnonzero(self._rules.rows[:, RELATION] % self.num_relations == forward)
        return wanted[np.argsort(-self.trust(self._rules)[wanted], kind="stable")]

    def _bound_to(self, graph: Graph) -> tuple[BoundRules, Measured]:
        """The rules with this graph's entities for constants; kept for the last graph."""
        kept = self._bound
        if kept is None or kept[0] is not graph:
            inverse_of = Sampled.of(graph).inverse_of
            bound = bind(self._rules, self.trust(self._rules), graph)
            kept = self._bound = (graph, bound, Measured.of(graph, inverse_of))
        return kept[1], kept[2]

    # storing

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        """As many rules as were stored, whatever there are now."""
        stored = {name: state_dict.get(f"{prefix}rules_{name}") for name in RuleSet.empty().to_tensors()}
        if all(tensor is not None for tensor in stored.values()):
            tensors = {name: tensor for name, tensor in stored.items() if tensor is not None}
            self.set_rules(RuleSet.from_tensors(tensors, self.num_relations))
        super()._load_from_state_dict(state_dict, prefix, *rest)


def _scores(walk: Propagation, rows: Rows, bound: BoundRules, measured: Measured) -> Floats:
    """[B, N] for the queries of a walk."""
    scores = np.zeros((walk.num_queries, walk.num_entities))
    head, relation = (ids.cpu().contiguous().numpy() for ids in (walk.query_head, walk.query_relation))
    in_blocks(
        lambda first, last: score_block(first, last, head, relation, rows, bound, measured, scores),
        walk.num_queries,
        available_threads(),
    )
    return scores


class _Clock:
    """Seconds spent learning; what others do between two rounds is not counted."""

    def __init__(self) -> None:
        self.seconds, self._began = 0.0, 0.0

    def run(self) -> None:
        self._began = time.perf_counter()

    def stop(self) -> None:
        self.seconds += time.perf_counter() - self._began
