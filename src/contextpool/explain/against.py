"""What speaks against a claim: others that fit better, no way from one end to the other, what its ends lack."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from contextpool.context.counts import Cooccurrence
from contextpool.explain.evidence import Explanation
from contextpool.graph.graph import Graph
from contextpool.graph.relations import inverse

USUAL = 0.5
"""The share of a kind that has to have a relation before it is worth a word that one of them lacks it."""
MOST_LACKING = 1
"""Relations that are named of each end."""


@dataclass(frozen=True)
class Lacking:
    """A relation that an end of a claim lacks, and most of its kind have."""

    entity: str
    relation: str
    kind: str
    """What makes the kind: the claim's relation at a head, its inverse at a tail."""
    recall: float
    """The share of the kind that has the relation (Definition 6)."""


def lacking(
    graph: Graph, counts: Cooccurrence, claim: tuple[int, int, int], hidden: int | None
) -> tuple[Lacking, ...]:
    """The relations that most entities with the same relation have, and the ends of a claim (by id) do not.

    The claim itself, edge `hidden` of the graph where that holds it, is no relation of its ends.
    """
    head, relation, tail = claim
    back = inverse(relation, graph.num_relations)
    edges = (None, None) if hidden is None else (hidden, int(graph.edge_inverse[hidden]))
    found: list[Lacking] = []
    for entity, kind, own in ((tail, back, edges[1]), (head, relation, edges[0])):
        low, high = int(graph.row_start[entity]), int(graph.row_start[entity + 1])
        row = np.delete(graph.edge_relation[low:high].cpu().numpy(), [] if own is None else own - low)
        recall = counts.both[kind] / max(1, int(counts.support[kind]))  # [2R]
        missing = np.setdiff1d(np.flatnonzero(recall >= USUAL), [*row.tolist(), kind])
        labels = graph.relation_vocabulary.directed
        ranked = sorted((-float(recall[one]), labels[one]) for one in missing.tolist())[:MOST_LACKING]
        found += [Lacking(graph.entities[entity], name, labels[kind], -share) for share, name in ranked]
    return tuple(found)


def told_against(
    explanations: tuple[Explanation, Explanation],
    lacks: tuple[Lacking, ...],
    shown: Callable[[str], str],
) -> Iterator[str]:
    """In words: `explanations` are those of the claim's tail and of its head."""
    for explanation in explanations:
        better = int(np.ceil(explanation.rank)) - 1
        if better and explanation.rival is not None and explanation.rival.margin <= 0:
            first = shown(explanation.rival.entity)
            others = "stands" if better == 1 else f"and {better - 1:,} more stand"
            yield f"{explanation.question}: {first} {others} before {shown(explanation.answer)}"
    if not explanations[0].paths:
        ends = f"{shown(explanations[0].head)} to {shown(explanations[0].tail)}"
        yield f"no way leads from {ends} within the model's reach"
    for one in lacks:
        yield f"{shown(one.entity)} has no {shown(one.relation)}, as {one.recall:.0%} with {shown(one.kind)} do"
