"""Has a question one more answer than the graph holds? By counting, without a model.

France has a currency, and of the other countries that have one hardly any has two; Minsk has no capital, and nothing
else with the relations of a city has one. So however well a candidate fits among all candidates, it is hardly true.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt

from contextpool.context.counts import Cooccurrence
from contextpool.graph.graph import Graph
from contextpool.graph.mapped import MappedGraph

Integers = npt.NDArray[np.int64]


class MoreAnswers:
    """P((entity, relation, ?) has an answer that the graph lacks), for any entity and relation of a graph."""

    def __init__(self, graph: Graph, counts: Cooccurrence, relation_of: Integers | None = None) -> None:
        """`counts` are at least those of the graph; relation_of [2R of the graph] are their numbers, -1 for none."""
        self._graph, self._counts = graph, counts
        size = graph.relation_vocabulary.num_directed
        self._relation_of = np.arange(size) if relation_of is None else relation_of
        self._rows = graph.row_start.cpu().numpy(), graph.edge_relation.cpu().numpy()
        self._sizes = lru_cache(maxsize=None)(self._count_sizes)

    def chance(self, entity: int, relation: int, hidden: bool = False) -> float:
        """In [0, 1]; the relation by the numbers of `counts`. `hidden`: as if one answer were not in the graph.

        With n answers, n > 0: of the other entities that have at least n, how many have more. With none: of the other
        entities that share a relation with this one, how many have the relation asked for, by the relation that says
        so most (precision, Definition 5). Either is the share among those others and one more, imagined entity, which
        stands for how it is with the relation at large.
        """
        start, edges = self._rows
        has = self._relation_of[edges[int(start[entity]) : int(start[entity + 1])]]
        answers = int((has == relation).sum()) - hidden
        if answers > 0:
            return self._of_several(relation, answers, hidden)
        both, support = self._counts.both, self._counts.support
        usual = (int(support[relation]) - hidden) / max(1, self._counts.num_entities)
        others = np.unique(has[(has != relation) & (has >= 0)])
        if not len(others):
            return usual
        return float(((both[relation, others] - hidden + usual) / support[others]).max())

    def _of_several(self, relation: int, answers: int, hidden: bool) -> float:
        sizes, facts, pairs = self._sizes(relation)
        usual = (facts - pairs + 1) / (facts + 2)  # of all facts, those that are not an entity's first
        if sizes is None:
            return usual
        enough = pairs - int(np.searchsorted(sizes, answers)) - 1
        more = pairs - int(np.searchsorted(sizes, answers + 1)) - hidden
        return (more + usual) / (enough + 1)

    def _count_sizes(self, relation: int) -> tuple[Integers | None, int, int]:
        """Of one relation: how many answers the entities have that have some, ascending; their sum; how many they are.

        A mapped graph has the sums written down, and no more is looked at.
        """
        places = np.flatnonzero(self._relation_of == relation)
        if not len(places):
            return np.empty(0, dtype=np.int64), 0, 0
        place = int(places[0])
        if isinstance(self._graph, MappedGraph):
            label = self._graph.relations[place % self._graph.num_relations]
            return None, self._graph.triples_of_relation[label], int(self._graph.both[place, place])
        entity = self._graph.edge_head[self._graph.edge_relation == place].cpu().numpy()  # sorted
        sizes = np.sort(np.unique(entity, return_counts=True)[1]).astype(np.int64)
        return sizes, len(entity), len(sizes)
