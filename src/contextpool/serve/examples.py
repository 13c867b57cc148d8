"""A few questions of the graph at hand, for whoever sees it for the first time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from contextpool.context.pairs import likely_pairs
from contextpool.graph.mapped import MappedGraph
from contextpool.predict.answers import BET, Selection
from contextpool.predict.asking import Asking

EXAMPLES = 3
TRIED = 48
"""Questions that are asked to find them."""
OF_A_RELATION = 8
Asked = tuple[int, int]


def example_questions(asking: Asking) -> list[Asked]:
    """(entity, relation), each of another relation: what the graph lacks and the model would bet on.

    Of entities with many facts first, which people know. Where there are too few such questions, those that the model
    is surest of, then those that the graph answers itself. A mapped graph is not searched.
    """
    likely = [] if isinstance(asking.graph, MappedGraph) else list(_unanswered(asking))
    choice = asking.choose(Selection(k=1))
    found = asking.answer([((entity, relation, -1), choice) for entity, relation in likely])
    chance = [(answers[0].probability or 0.0) if answers else 0.0 for answers in found]
    facts = np.diff(asking.graph.row_start.cpu().numpy())
    best = sorted(
        zip(chance, likely, strict=True),
        key=lambda one: (one[0] < BET, -int(facts[one[1][0]]) if one[0] >= BET else 0, -one[0]),
    )
    return list(_of_different_relations([*(asked for _, asked in best), *_of_facts(asking)]))


def _unanswered(asking: Asking) -> Iterator[Asked]:
    """Pairs that probably have an answer, and none in the graph; the likeliest few of every relation."""
    graph = asking.graph
    counts = asking.predictor.counts_with(graph)
    pairs = likely_pairs(graph, counts, 0.2, range(graph.num_relations), most=2000)
    taken: dict[int, int] = {}
    total = 0
    for place in np.argsort(-pairs.chance, kind="stable").tolist():
        entity, relation = int(pairs.entity[place]), int(pairs.relation[place])
        row = slice(int(graph.row_start[entity]), int(graph.row_start[entity + 1]))
        if taken.get(relation, 0) < OF_A_RELATION and not bool((graph.edge_relation[row] == relation).any()):
            taken[relation] = taken.get(relation, 0) + 1
            total += 1
            yield entity, relation
        if total == TRIED:
            return


def _of_facts(asking: Asking) -> Iterator[Asked]:
    """The first facts of a few relations."""
    graph = asking.graph
    for relation in range(min(graph.num_relations, EXAMPLES)):
        edges = (graph.edge_relation == relation).nonzero()
        if len(edges):
            yield int(graph.edge_head[int(edges[0])]), relation


def _of_different_relations(questions: Iterable[Asked]) -> Iterator[Asked]:
    seen: set[int] = set()
    for entity, relation in questions:
        if relation not in seen and len(seen) < EXAMPLES:
            seen.add(relation)
            yield entity, relation
