"""Puts an explanation together: score, paths, context, rival."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from contextpool.errors import ConfigError, NonFiniteError
from contextpool.evaluate.calibration import Calibration
from contextpool.explain.attribution import Asking, Floats, by_gradient, by_removal
from contextpool.explain.context import QuestionContext
from contextpool.explain.evidence import Explanation, Method, Path
from contextpool.explain.paths import FoundPath, strongest_paths
from contextpool.explain.rival import rival_of
from contextpool.graph.graph import Graph
from contextpool.graph.relations import inverse
from contextpool.models.base import LinkPredictor
from contextpool.pool.batch import BatchBuilder
from contextpool.pool.propagation import Propagation

MOST_PATHS = 100


def explain_answer(
    model: LinkPredictor,
    builder: BatchBuilder,
    head: int,
    relation: int,
    tail: int,
    *,
    asked: Literal["tail", "head"] = "tail",
    calibration: Calibration | None = None,
    most_paths: int = 5,
    shown: Callable[[str], str] | None = None,
) -> Explanation:
    """Why `tail` answers (head, relation, ?) for a model on the builder's graph, or `head` (?, relation, tail).

    All by id, relations in [0, 2R). Where the graph holds the fact it is hidden first: a fact is no evidence
    for itself. `shown` names labels. Takes `attribution.STEPS` passes with gradients over the walk of the
    query and one without for every path; no gradient is left on the model, so threads may share it.
    """
    if asked not in ("tail", "head"):
        raise ConfigError(f"asked is {asked!r}; it is 'tail' or 'head'.")
    if not 1 <= most_paths <= MOST_PATHS:
        raise ConfigError(f"paths is {most_paths}; ask for 1 to {MOST_PATHS}.")
    graph = builder.graph
    start, toward, answer = (
        (head, relation, tail) if asked == "tail" else (tail, inverse(relation, graph.num_relations), head)
    )
    edge = graph.find_edge(start, toward, answer)
    asking = Asking(model, builder, start, toward, answer, -1 if edge is None else edge)
    labels = (graph.entities[head], graph.relation_vocabulary.directed[relation], graph.entities[tail])
    return _explained(asking, labels, asked, calibration, most_paths, shown)


def _explained(
    asking: Asking,
    labels: tuple[str, str, str],
    asked: Literal["tail", "head"],
    calibration: Calibration | None,
    most_paths: int,
    shown: Callable[[str], str] | None,
) -> Explanation:
    graph = asking.builder.graph
    batch = asking.batch()
    scores = asking.scores()
    if not bool(torch.isfinite(scores).all()):
        raise NonFiniteError("the model gave a score that is not finite; train it again, or report this.")
    candidate = _candidates(asking, graph)
    chances = None if calibration is None else calibration.probability(scores, ~candidate)
    paths, method, left = _paths(asking, batch.propagation, float(scores[asking.answer]), most_paths)
    context = QuestionContext(asking, batch)
    explanation = Explanation(
        *labels,
        asked=asked,
        score=float(scores[asking.answer]),
        probability=None if chances is None else float(chances[asking.answer]),
        rank=_rank(scores, candidate, asking.answer),
        candidates=int(candidate.sum()),
        known=asking.hidden >= 0,
        method=method,
        paths=paths,
        score_without=left,
        context=context.relations(),
        dropped=context.dropped(),
        pooled=context.pooled,
        candidate=context.candidate(),
        rival=rival_of(graph, asking.answer, scores, candidate, chances, asking.head, asking.hidden, paths),
    )
    return explanation if shown is None else _named(explanation, shown)


def _candidates(asking: Asking, graph: Graph) -> Tensor:
    """[N] bool: entities that the graph does not hold as answers, and the answer itself."""
    row = slice(int(graph.row_start[asking.head]), int(graph.row_start[asking.head + 1]))
    known = graph.edge_tail[row][graph.edge_relation[row] == asking.relation].long()
    candidate = torch.ones(graph.num_entities, dtype=torch.bool, device=graph.device)
    candidate[known] = False
    candidate[asking.answer] = True
    return candidate


def _rank(scores: Tensor, candidate: Tensor, answer: int) -> float:
    better = int(((scores > scores[answer]) & candidate).sum())
    equal = int(((scores == scores[answer]) & candidate).sum())
    return better + (equal + 1) / 2


def _paths(
    asking: Asking, walk: Propagation, score: float, most: int
) -> tuple[tuple[Path, ...], Method, float]:
    """The strongest paths from the head (node 0) to the answer, how they were found, the score without them all.

    There are none where the model does not reach the answer, or where it is the head itself.
    """
    end = torch.nonzero(walk.node_entity == asking.answer).squeeze(1).tolist()
    value = by_gradient(asking, walk) if len(walk.edge_source) else None
    method: Method = "removal" if value is None else "gradient"
    if not end or end[0] == 0:
        return (), method, score
    if value is None:
        value = by_removal(asking, walk, score, end[0])
    found = _search(walk, value, end[0], most)
    edges = [walk.edge_id[list(path.edges)].tolist() for path in found]
    *without, without_all = asking.scores_without([*edges, [edge for path in edges for edge in path]])
    drops = [score - left for left in without]
    return _weighed(asking.builder.graph, found, edges, drops), method, without_all


def _search(walk: Propagation, value: Floats, end: int, most: int) -> list[FoundPath]:
    columns = (walk.edge_source.long().cpu().numpy(), walk.edge_target.cpu().numpy())
    return strongest_paths(*columns, value, 0, end, walk.num_layers, most)


def _weighed(
    graph: Graph, found: list[FoundPath], edges: list[list[int]], drops: list[float]
) -> tuple[Path, ...]:
    """With weights that add up to 1, or are all 0 where no path adds anything to the score."""
    strength = np.array([max(path.strength, 0.0) for path in found])
    weight = strength / (strength.sum() or 1.0)
    return tuple(
        Path(tuple(graph.edge_label(edge) for edge in walked), float(share), path.strength, drop)
        for path, walked, share, drop in zip(found, edges, weight, drops, strict=True)
    )


def _named(explanation: Explanation, shown: Callable[[str], str]) -> Explanation:
    """With the names of all labels that occur in it."""
    labels = {explanation.head, explanation.relation, explanation.tail}
    labels |= {label for path in explanation.paths for edge in path.edges for label in edge}
    labels |= {one.relation for one in explanation.context}
    labels |= {one.relation for one in explanation.dropped}
    labels |= {label for label in (explanation.candidate.relation,) if label is not None}
    labels |= {explanation.rival.entity} if explanation.rival is not None else set()
    names = {label: shown(label) for label in sorted(labels)}
    return replace(explanation, names={label: name for label, name in names.items() if name != label})
