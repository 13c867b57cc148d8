"""Puts an explanation together: score, paths, context, what pooling drops, the closest rival."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from contextpool.context.config import NO_CONTEXT
from contextpool.context.counts import Statistics
from contextpool.context.more import MoreAnswers
from contextpool.context.neighbors import ContextNeighbors, RelationSelector
from contextpool.context.relevance import neighborhood_precision, neighborhood_recall
from contextpool.errors import ConfigError, NonFiniteError, setting
from contextpool.evaluate.calibration import Calibration, shares
from contextpool.explain.attribution import Case, FoundPath, by_gradient, by_removal, strongest_paths
from contextpool.explain.evidence import (
    CandidateRelevance,
    ContextRelation,
    DroppedRelation,
    Explanation,
    Method,
    Path,
    Rival,
)
from contextpool.graph.graph import Graph
from contextpool.graph.relations import inverse
from contextpool.models.base import LinkPredictor
from contextpool.pool.batch import BatchBuilder, QueryBatch
from contextpool.pool.expand import PooledBatch, expand
from contextpool.pool.hide import HiddenEdges
from contextpool.pool.incidence import cached_per_graph, whole_of
from contextpool.pool.propagation import Propagation
from contextpool.triples.store import Triple

MOST_PATHS = 100
statistics_of = cached_per_graph(Statistics.of)


class PartKnown(NamedTuple):
    """What is known of an answer where the graph it is explained on is part of a larger one."""

    candidate: Tensor
    """[N] bool: entities that the larger graph does not hold as answers, and the answer itself."""
    known: bool
    """Whether it holds the answer."""


def explain_answer(
    model: LinkPredictor,
    builder: BatchBuilder,
    head: int,
    relation: int,
    tail: int,
    *,
    asked: Literal["tail", "head"] = "tail",
    calibration: Calibration | None = None,
    more: MoreAnswers | float | None = None,
    most_paths: int = 5,
    shown: Callable[[str], str] | None = None,
    part: PartKnown | None = None,
) -> Explanation:
    """Why `tail` answers (head, relation, ?) for a model on the builder's graph, or `head` (?, relation, tail).

    All by id, relations in [0, 2R). Where the graph holds the fact it is hidden first: a fact is no evidence
    for itself. `shown` names labels. `more` is the chance that there is one more answer, or what counts it; `part` is
    what a larger graph knows of the builder's, from which the fact has been hidden already. Takes `attribution.STEPS`
    passes with gradients over the walk of the query and one without for every path; no gradient is left on the model,
    so threads may share it.
    """
    if asked not in ("tail", "head"):
        raise ConfigError(f"{setting('asked')} is {asked!r}; it is 'tail' or 'head'.")
    if not 1 <= most_paths <= MOST_PATHS:
        raise ConfigError(f"{setting('paths')} is {most_paths}; ask for 1 to {MOST_PATHS}.")
    graph = builder.graph
    start, toward, answer = (
        (head, relation, tail) if asked == "tail" else (tail, inverse(relation, graph.num_relations), head)
    )
    edge = graph.find_edge(start, toward, answer)
    case = Case(model, builder, start, toward, answer, -1 if edge is None else edge)
    batch, scores = case.batch(), case.scores()
    if not bool(torch.isfinite(scores).all()):
        raise NonFiniteError("the model gave a score that is not finite; train it again, or report this.")
    score, candidate = float(scores[answer]), _candidates(case, graph) if part is None else part.candidate
    share = shares(scores, ~candidate, 1.0 if calibration is None else calibration.temperature)
    holds = more.chance(start, toward, edge is not None) if isinstance(more, MoreAnswers) else more
    chances = None if calibration is None else calibration.of_share(share) * (1.0 if holds is None else holds)
    paths, method, left = _paths(case, batch.propagation, score, most_paths)
    context = QuestionContext(case, batch)
    explanation = Explanation(
        graph.entities[head],
        graph.relation_vocabulary.directed[relation],
        graph.entities[tail],
        asked=asked,
        score=score,
        probability=None if chances is None else float(chances[answer]),
        share=float(share[answer]),
        rank=_rank(scores, candidate, answer),
        candidates=int(candidate.sum()),
        known=case.hidden >= 0 if part is None else part.known,
        method=method,
        paths=paths,
        score_without=left,
        context=context.relations(),
        dropped=context.dropped(),
        pooled=context.pooled,
        candidate=context.candidate(),
        rival=_rival(case, scores, candidate, chances, paths),
    )
    return explanation if shown is None else _named(explanation, shown)


def _candidates(case: Case, graph: Graph) -> Tensor:
    """[N] bool: entities that the graph does not hold as answers, and the answer itself."""
    row = slice(int(graph.row_start[case.head]), int(graph.row_start[case.head + 1]))
    known = graph.edge_tail[row][graph.edge_relation[row] == case.relation].long()
    candidate = torch.ones(graph.num_entities, dtype=torch.bool, device=graph.device)
    candidate[known] = False
    candidate[case.answer] = True
    return candidate


def _rank(scores: Tensor, candidate: Tensor, answer: int) -> float:
    better = int(((scores > scores[answer]) & candidate).sum())
    equal = int(((scores == scores[answer]) & candidate).sum())
    return better + (equal + 1) / 2


def _paths(case: Case, walk: Propagation, score: float, most: int) -> tuple[tuple[Path, ...], Method, float]:
    """The strongest paths to the answer, how they were found, the score without them all."""
    found, method = _strongest(case, walk, most)
    if not found:
        return (), method, score
    edges = [walk.edge_id[list(path.edges)].tolist() for path in found]
    *without, without_all = case.scores_without([*edges, [edge for path in edges for edge in path]])
    strength = np.array([max(path.strength, 0.0) for path in found])
    weight = strength / (strength.sum() or 1.0)  # adds up to 1, or is all 0 where no path adds anything
    graph = case.builder.graph
    paths = tuple(
        Path(tuple(graph.edge_label(edge) for edge in walked), float(share), path.strength, score - left)
        for path, walked, share, left in zip(found, edges, weight, without, strict=True)
    )
    return paths, method, without_all


def _strongest(case: Case, walk: Propagation, most: int) -> tuple[list[FoundPath], Method]:
    """The strongest paths over a walk from the head (node 0) to the answer, and how they were found.

    There are none where the model does not reach the answer, or where it is the head itself.
    """
    end = torch.nonzero(walk.node_entity == case.answer).squeeze(1).tolist()
    value = by_gradient(case, walk) if len(walk.edge_source) else None
    method: Method = "removal" if value is None else "gradient"
    if not end or end[0] == 0:
        return [], method
    columns = walk.edge_source.long().cpu().numpy(), walk.edge_target.cpu().numpy()
    ends = 0, end[0], walk.num_layers, most
    found = [] if value is None else strongest_paths(*columns, value, *ends)
    if any(path.strength > 0 for path in found):
        return found, method
    score = float(case.scores()[case.answer])  # no path all of whose edges add something: look at each edge
    by_edge = strongest_paths(*columns, by_removal(case, walk, score, end[0]), *ends)
    if value is None or any(path.strength > 0 for path in by_edge):
        return by_edge, "removal"
    return found, method


def best_path(
    model: LinkPredictor, builder: BatchBuilder, head: int, relation: int, tail: int
) -> tuple[Triple, ...]:
    """The edges of the first path that `explain_answer` would list for (head, relation, ?), and no more than that."""
    edge = builder.graph.find_edge(head, relation, tail)
    case = Case(model, builder, head, relation, tail, -1 if edge is None else edge)
    walk = case.batch().propagation
    found, _ = _strongest(case, walk, 1)
    edges = walk.edge_id[list(found[0].edges)].tolist() if found else []
    return tuple(builder.graph.edge_label(edge) for edge in edges)


def _named(explanation: Explanation, shown: Callable[[str], str]) -> Explanation:
    """The explanation with the names of all labels that occur in it."""
    labels = {explanation.head, explanation.relation, explanation.tail}
    labels |= {label for path in explanation.paths for edge in path.edges for label in edge}
    labels |= {one.relation for one in explanation.context}
    labels |= {one.relation for one in explanation.dropped}
    labels |= {label for label in (explanation.candidate.relation,) if label is not None}
    labels |= {explanation.rival.entity} if explanation.rival is not None else set()
    names = {label: shown(label) for label in sorted(labels)}
    return replace(explanation, names={label: name for label, name in names.items() if name != label})


def _rival(
    case: Case, scores: Tensor, candidate: Tensor, chances: Tensor | None, paths: Sequence[Path]
) -> Rival | None:
    """The best of the candidates [N] but the answer; ties end at the sorted label. None where there is none."""
    graph, others = case.builder.graph, candidate.clone()
    others[case.answer] = False
    if not bool(others.any()):
        return None
    rival = int(scores.masked_fill(~others, -torch.inf).argmax())  # the first of equals
    patterns = list(dict.fromkeys(path.pattern for path in paths))
    shared = [one for one in patterns if rival in reached_by(graph, case.head, one, case.hidden)]
    return Rival(
        graph.entities[rival],
        float(scores[rival]),
        None if chances is None else float(chances[rival]),
        float(scores[case.answer]) - float(scores[rival]),
        tuple(one for one in patterns if one not in shared),
        tuple(shared),
    )


def reached_by(graph: Graph, start: int, pattern: Sequence[str], hidden: int = -1) -> set[int]:
    """Entities that walks along these relations lead to, without the hidden fact. O(edges) a step."""
    at = torch.zeros(graph.num_entities, dtype=torch.bool, device=graph.device)
    at[start] = True
    usable = torch.ones(graph.num_edges, dtype=torch.bool, device=graph.device)
    if hidden >= 0:
        usable[[hidden, int(graph.edge_inverse[hidden])]] = False
    for label in pattern:
        walked = usable & (graph.edge_relation == graph.relation_id(label)) & at[graph.edge_head.long()]
        at = torch.zeros_like(at)
        at[graph.edge_tail[walked].long()] = True
    return set(torch.nonzero(at).squeeze(1).tolist())


class QuestionContext:
    """Relations that are relevant to the one asked for, by the counts that the model was given."""

    def __init__(self, case: Case, batch: QueryBatch) -> None:
        self.case, self.batch = case, batch
        builder = case.builder
        self.graph: Graph = builder.graph
        self.config = builder.context or NO_CONTEXT
        self.counts = (builder.statistics or statistics_of(self.graph)).counts
        self.pooled = bool(builder.selectors)
        default = (ContextNeighbors(self.counts, self_policy=self.config.self_policy),)
        self.selectors: tuple[RelationSelector, ...] = builder.selectors or default
        self.walks = [self._pool(selector) for selector in self.selectors]

    def _pool(self, selector: RelationSelector) -> PooledBatch:
        """Algorithm 2 as the model would walk it; corrected counts of the hidden fact aside."""
        case = self.case
        return pool_one(self.graph, selector, case.head, case.relation, self.config.hops, case.hidden)

    def relations(self) -> tuple[ContextRelation, ...]:
        """The relations that a view keeps for the one asked for: by precision, then recall, then label."""
        asked = self.case.relation
        precision = neighborhood_precision(self.counts)[asked]
        recall = neighborhood_recall(self.counts)[asked]
        facts, gates = facts_of(self.graph, self.case.head, asked, self.case.hidden), self._gates()
        labels = self.graph.relation_vocabulary.directed
        found = [
            ContextRelation(
                labels[one],
                float(precision[one]),
                float(recall[one]),
                int(facts[one]),
                None if gates is None else float(gates[one]),
            )
            for one in self._kept()
        ]
        return tuple(sorted(found, key=lambda one: (-one.precision, -one.recall, one.relation)))

    def _kept(self) -> list[int]:
        """Relations in row r of a mask (Algorithm 3), or that leave the head (Algorithm 1)."""
        kept: set[int] = set()
        for selector, walk in zip(self.selectors, self.walks, strict=True):
            if isinstance(selector, ContextNeighbors):
                kept |= set(np.flatnonzero(selector.mask[self.case.relation]).tolist())
            else:
                kept |= set(self.graph.edge_relation[walk.hops[0].edge.long()].tolist())
        return sorted(kept)

    def _gates(self) -> Tensor | None:
        """[2R] what the model multiplies messages with; None where it has no gate."""
        with torch.no_grad():
            table = self.case.model.gates(self.batch)
        return None if table is None else table[0].cpu()

    def dropped(self) -> tuple[DroppedRelation, ...]:
        """By forward relation, the facts within reach of the model that no pooled graph holds; most first."""
        reached = forward_edges(self.graph, self.batch.propagation.edge_id).unique()
        kept = torch.cat([forward_edges(self.graph, walk.union().edge.long()) for walk in self.walks])
        is_kept = torch.isin(reached, kept)
        relation = self.graph.edge_relation[reached].long()
        totals = torch.bincount(relation, minlength=self.graph.num_relations).tolist()
        held = torch.bincount(relation[is_kept], minlength=self.graph.num_relations).tolist()
        rows = [
            DroppedRelation(label, total - kept_here, kept_here)
            for label, total, kept_here in zip(self.graph.relations, totals, held, strict=True)
            if total > kept_here
        ]
        return tuple(sorted(rows, key=lambda row: (-row.dropped, row.relation)))

    def candidate(self) -> CandidateRelevance:
        """The largest precision[inverse(r), y] over the relations y of the answer, the hidden fact aside."""
        answer, wanted = self.case.answer, inverse(self.case.relation, self.graph.num_relations)
        whole = whole_of(self.graph)
        has = set(whole.pair_relation[whole.pair_entity == answer].tolist())
        if self.case.hidden >= 0 and not facts_of(self.graph, answer, wanted, self.case.hidden)[wanted]:
            has.discard(wanted)
        precision = neighborhood_precision(self.counts)[wanted]
        labels = self.graph.relation_vocabulary.directed
        best = min(((-float(precision[one]), labels[one]) for one in has), default=(0.0, ""))
        return CandidateRelevance(-best[0], best[1] if best[0] < 0 else None)


def pool_one(
    graph: Graph, selector: RelationSelector, head: int, relation: int, hops: int, hidden: int
) -> PooledBatch:
    """Algorithm 2 for one query by id, without the hidden edge; -1 hides nothing."""
    query = torch.tensor([head]), torch.tensor([relation])
    return expand(graph, selector, *query, hops, HiddenEdges.one_per_query(graph, torch.tensor([hidden])))


def facts_of(graph: Graph, entity: int, relation: int, hidden: int) -> Tensor:
    """[2R] facts of each directed relation at an entity, without the hidden one, which is of `relation`."""
    row = slice(int(graph.row_start[entity]), int(graph.row_start[entity + 1]))
    count = torch.bincount(graph.edge_relation[row].long(), minlength=2 * graph.num_relations)
    count[relation] -= int(hidden >= 0)
    return count


def forward_edges(graph: Graph, edges: Tensor) -> Tensor:
    """Each edge in the direction of its fact."""
    onwards = graph.edge_relation[edges] < graph.num_relations
    return torch.where(onwards, edges, graph.edge_inverse[edges].long())
