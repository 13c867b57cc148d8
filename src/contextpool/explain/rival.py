"""The closest rival of an answer, and which of the answer's evidence it lacks."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from contextpool.explain.evidence import Path, Rival
from contextpool.graph.graph import Graph


def rival_of(
    graph: Graph,
    answer: int,
    scores: Tensor,
    candidate: Tensor,
    chances: Tensor | None,
    start: int,
    hidden: int,
    paths: Sequence[Path],
) -> Rival | None:
    """The best of the candidates [N] but the answer; ties end at the sorted label. None where there is none."""
    others = candidate.clone()
    others[answer] = False
    if not bool(others.any()):
        return None
    rival = int(scores.masked_fill(~others, -torch.inf).argmax())  # the first of equals
    patterns = list(dict.fromkeys(path.pattern for path in paths))
    reached = [rival in reached_by(graph, start, pattern, hidden) for pattern in patterns]
    return Rival(
        graph.entities[rival],
        float(scores[rival]),
        None if chances is None else float(chances[rival]),
        float(scores[answer]) - float(scores[rival]),
        tuple(pattern for pattern, there in zip(patterns, reached, strict=True) if not there),
        tuple(pattern for pattern, there in zip(patterns, reached, strict=True) if there),
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
