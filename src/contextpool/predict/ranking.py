"""From scores to answers: who is a candidate, who is known already, who comes first."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from contextpool.errors import DataError, NonFiniteError
from contextpool.evaluate.calibration import Calibration
from contextpool.graph.graph import Graph
from contextpool.predict.answers import Answer, Selection
from contextpool.predict.names import Names, Resolver


def known_answers(graph: Graph, entity: Tensor, relation: Tensor) -> Tensor:
    """[B, N] bool: what the graph holds already as answers to (entity [B], relation [B] in [0, 2R))."""
    known = torch.zeros(len(entity), graph.num_entities, dtype=torch.bool, device=graph.device)
    for row, (one, asked) in enumerate(zip(entity.tolist(), relation.tolist(), strict=True)):
        edges = slice(int(graph.row_start[one]), int(graph.row_start[one + 1]))
        known[row, graph.edge_tail[edges][graph.edge_relation[edges] == asked].long()] = True
    return known


def candidate_mask(graph: Graph, selection: Selection, resolver: Resolver) -> Tensor | None:
    """[N] bool: the entities that may be answers; None for all. Unknown names are the resolver's to tell."""
    allowed = None
    if selection.candidates is not None:
        ids = [resolver.entity(text, "candidates") for text in selection.candidates]
        resolver.check()
        if not ids:
            raise DataError("candidates: the list is empty, so nothing can be answered. Name some entities.")
        allowed = _mask_of(graph, torch.tensor(ids))
    for text in selection.having:
        relation = resolver.relation(text, "having")
        resolver.check()
        having = _mask_of(graph, graph.edge_head[graph.edge_relation == relation].long())
        allowed = having if allowed is None else allowed & having
    if allowed is not None and not bool(allowed.any()):
        raise DataError(
            f"having {', '.join(map(repr, selection.having))}: no candidate is left. "
            "Ask for other relations, or 'r^-1' for those that r points to."
        )
    return allowed


def _mask_of(graph: Graph, ids: Tensor) -> Tensor:
    mask = torch.zeros(graph.num_entities, dtype=torch.bool, device=graph.device)
    mask[ids.to(graph.device)] = True
    return mask


def refuse_non_finite_rows(scores: Tensor) -> None:
    """Nothing is answered from a score that is not a number."""
    if not bool(torch.isfinite(scores).all()):
        raise NonFiniteError("the model gave a score that is not finite; train it again, or report this.")


def best_places(values: Tensor, k: int) -> list[int]:
    """The places of the k largest values [N] above -inf, best first; ties end at the smaller place.

    Places are ids, which follow sorted labels. O(N) but for the last sort, of about k values.
    """
    size = min(k, len(values))
    lowest = values.topk(size).values[-1] if size else values.new_tensor(torch.inf)
    place = torch.nonzero((values >= lowest) & (values > -torch.inf)).squeeze(1)
    order = torch.sort(values[place], descending=True, stable=True).indices[:k]
    chosen: list[int] = place[order].tolist()
    return chosen


def best_answers(
    graph: Graph,
    scores: Tensor,
    known: Tensor,
    allowed: Tensor | None,
    selection: Selection,
    calibration: Calibration | None,
    names: Names,
) -> list[list[Answer]]:
    """The answers of each row of scores [B, N], best first.

    A probability is that among all entities the graph does not already know as answers, whichever are
    allowed: showing fewer candidates makes none of them truer.
    """
    refuse_non_finite_rows(scores)
    chances = None if calibration is None else calibration.probability(scores, known)
    shut = known if not selection.known else torch.zeros_like(known)
    if allowed is not None:
        shut = shut | ~allowed
    open_scores = scores.masked_fill(shut, -torch.inf)
    rows = zip(open_scores, scores, known, strict=True)
    return [
        _row(graph, best_places(row, selection.k), own, is_known, _row_of(chances, number), names)
        for number, (row, own, is_known) in enumerate(rows)
    ]


def _row_of(chances: Tensor | None, number: int) -> Tensor | None:
    return None if chances is None else chances[number]


def _row(
    graph: Graph, places: Sequence[int], scores: Tensor, known: Tensor, chances: Tensor | None, names: Names
) -> list[Answer]:
    score, is_known = scores[list(places)].tolist(), known[list(places)].tolist()
    chance = [None] * len(score) if chances is None else chances[list(places)].tolist()
    labels = [graph.entities[place] for place in places]
    return [
        Answer(label, value, probability, marked, names.name(label))
        for label, value, probability, marked in zip(labels, score, chance, is_known, strict=True)
    ]
