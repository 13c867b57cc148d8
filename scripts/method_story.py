"""The question that docs/method.md tells the method with, and every number it needs, counted on the embedded world.

Counts are made here from plain sets, as the definitions say them, and compared with what the package mines.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from functools import cached_property

import contextpool as cp
from contextpool.graph.graph import walk_back
from contextpool.graph.relations import inverse_label
from contextpool.triples.store import Triple

HEAD, RELATION, ANSWER = "Iceland", "official_language", "Icelandic"
MIN_PRECISION = 0.1
THRESHOLDS = (0.0, 0.1, 0.5, 0.7, 0.8)
HOPS = 3


@dataclass(frozen=True)
class Relevance:
    """How a neighboring relation bears on a query relation (Definitions 5, 6), as counts of entities."""

    relation: str
    having: int
    both: int
    having_query: int

    @property
    def precision(self) -> float:
        return self.both / self.having

    @property
    def recall(self) -> float:
        return self.both / self.having_query


class Story:
    """Statistics from the half of the world that is trained on, a question about the other half."""

    def __init__(self) -> None:
        dataset = cp.load_dataset("world")
        self.training = cp.Graph.from_triples(dataset.training_graph)
        self.graph = cp.Graph.from_triples(dataset.inference_graph)
        held_out = set(dataset.evaluation_queries("P1"))
        if (HEAD, RELATION, ANSWER) not in held_out or (HEAD, RELATION, ANSWER) in self.graph.triples:
            raise ValueError(f"({HEAD}, {RELATION}, {ANSWER}) is no fact that was held out of `world`.")

    # what leaves an entity

    @cached_property
    def leaving(self) -> dict[str, list[Triple]]:
        """Every fact of the inference graph at both of its ends, walked away from there; sorted."""
        return _leaving(self.graph)

    @cached_property
    def known_relations(self) -> dict[str, set[str]]:
        """NR_e of the training graph."""
        return {entity: {r for _, r, _ in edges} for entity, edges in _leaving(self.training).items()}

    # relevance

    def relevance(self, query: str, neighbor: str) -> Relevance:
        sets = self.known_relations.values()
        having = sum(neighbor in one for one in sets)
        both = sum(neighbor in one and query in one for one in sets)
        found = Relevance(neighbor, having, both, sum(query in one for one in sets))
        context = self.context(0.0)
        mined = (context.precision(query, neighbor), context.recall(query, neighbor))
        if mined != (found.precision, found.recall):
            raise ValueError(f"{query}, {neighbor}: counted {found}, mined {mined}.")
        return found

    def neighbors(self, query: str) -> list[Relevance]:
        """Every relation that shares an entity with `query`, most precise first."""
        return [self.relevance(query, one) for one in self.context(0.0).neighbors(query)]

    def context(self, min_precision: float) -> cp.ContextNeighbors:
        return cp.mine_context(self.training, min_precision=min_precision)

    # pooling

    def pooled(self, min_precision: float = MIN_PRECISION, hops: int = HOPS) -> cp.PooledGraph:
        return cp.pool(self.graph, self.context(min_precision), head=HEAD, relation=RELATION, hops=hops)

    def offered(self, hop: int, min_precision: float = MIN_PRECISION) -> set[Triple]:
        """All edges that leave what the pooled walk has reached by the hop before."""
        sources = {HEAD} if hop == 1 else {tail for _, _, tail in self.pooled(min_precision).hops[hop - 2]}
        return {edge for source in sources for edge in self.leaving[source]}

    def within(self, hops: int) -> set[Triple]:
        """All edges that a walk of so many hops without a filter takes."""
        reached, edges = {HEAD}, set()
        for _ in range(hops):
            edges |= {edge for entity in reached for edge in self.leaving[entity]}
            reached |= {tail for _, _, tail in edges}
        return edges

    def dropped(self, hop: int) -> Counter[tuple[str, str]]:
        """How many edges of each (entity, relation) the hop leaves out."""
        left = self.offered(hop) - set(self.pooled().hops[hop - 1])
        return Counter((head, relation) for head, relation, _ in left)

    # arriving

    def candidate_relevance(self, entity: str) -> tuple[float, str]:
        """The highest precision(inverse(r), y) of y in NR_c, and that y; 1 where c is an answer already."""
        asked, has = inverse_label(RELATION), {r for _, r, _ in self.leaving[entity]}
        if asked in has:
            return 1.0, asked
        context = self.context(0.0)
        return max((context.precision(asked, one), one) for one in sorted(has))


def _leaving(graph: cp.Graph) -> dict[str, list[Triple]]:
    rows: defaultdict[str, list[Triple]] = defaultdict(list)
    for triple in graph.triples:
        for edge in (triple, walk_back(triple)):
            rows[edge[0]].append(edge)
    return {entity: sorted(edges) for entity, edges in rows.items()}
