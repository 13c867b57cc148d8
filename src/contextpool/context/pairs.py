"""Which questions (entity, relation, ?) are worth asking: those that are likely to have an answer the graph lacks.

`more.MoreAnswers` says how likely, for one pair; here it is for all pairs of a graph at once, over the relations that
entities have. The probability of a link is never above that: a pair below the probability wanted needs no model.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from contextpool.context.counts import Cooccurrence
from contextpool.errors import ConfigError, setting
from contextpool.graph.graph import Graph
from contextpool.graph.mapped import MappedGraph

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
NUMBERS_AT_ONCE = 1 << 22
"""Chances that are looked at together; bounds memory."""


@dataclass(frozen=True, eq=False)
class Pairs:
    """Q pairs, sorted by entity, then by relation."""

    entity: npt.NDArray[np.int32]  # [Q]
    relation: npt.NDArray[np.int32]  # [Q] directed
    chance: Floats  # [Q] of one more answer, in [0, 1]

    def __len__(self) -> int:
        return len(self.entity)

    def select(self, rows: npt.NDArray[np.generic] | slice) -> Pairs:
        """Some of them, in the order of `rows`."""
        return Pairs(self.entity[rows], self.relation[rows], self.chance[rows])


NO_PAIRS = Pairs(np.empty(0, np.int32), np.empty(0, np.int32), np.empty(0))


def likely_pairs(
    graph: Graph,
    counts: Cooccurrence,
    least: float,
    relations: Sequence[int],
    entities: Sequence[int] | None = None,
    most: int | None = None,
    relation_of: Integers | None = None,
) -> Pairs:
    """The pairs of these directed relations, and of these entities or all, whose chance is at least `least`.

    `counts` and `relation_of` as `MoreAnswers` takes them; relations are by the numbers of `counts`. Of more than
    `most` pairs the likeliest are kept; ties end at the smaller entity, then relation. Who has no fact has no pair.
    O(pairs in the graph x relations asked for) time, in blocks of entities.
    """
    if not 0 < least <= 1:
        raise ConfigError(f"min_chance is {least}; it has to be above 0 and at most 1.")
    if most is not None and most < 1:
        raise ConfigError(f"{setting('max_questions')} is {most}; ask at least one question.")
    asked = np.unique(np.asarray(relations, dtype=np.int64))
    size = graph.relation_vocabulary.num_directed
    numbers = np.arange(size) if relation_of is None else relation_of  # [2R of the graph]
    wanted = None if entities is None else np.unique(np.asarray(entities, dtype=np.int64))
    first, again = _chances_of_first(counts, asked), _ChancesOfMore(graph, numbers)
    found = [NO_PAIRS]
    for block in _blocks(graph, numbers, max(1, NUMBERS_AT_ONCE // max(1, len(asked)))):
        found.append(_of_block(block.of(wanted), first, again, asked, least))
    pairs = Pairs(*(np.concatenate(columns) for columns in zip(*map(_columns, found), strict=True)))
    if most is None or len(pairs) <= most:
        return pairs
    return pairs.select(np.sort(np.argsort(-pairs.chance, kind="stable")[:most]))


def _columns(pairs: Pairs) -> tuple[npt.NDArray[np.generic], ...]:
    return pairs.entity, pairs.relation, pairs.chance


def _chances_of_first(counts: Cooccurrence, asked: Integers) -> Floats:
    """[2R, A] what having each relation says of having those asked for."""
    usual = counts.support[asked] / max(1, counts.num_entities)  # [A]
    chances: Floats = (counts.both[asked].T + usual) / np.maximum(counts.support, 1)[:, None]
    return chances


class _ChancesOfMore:
    """Of the entities with at least n answers by a relation, how many have more."""

    def __init__(self, graph: Graph, numbers: Integers) -> None:
        self._usual_only = isinstance(graph, MappedGraph)  # which has the sums written down
        base, self._size = graph.num_edges + 2, int(numbers.max(initial=0)) + 1
        self._base = base
        keys, pairs = np.empty(0, np.int64), np.empty(0, np.int64)
        for block in _blocks(graph, numbers, NUMBERS_AT_ONCE):
            more, count = np.unique(block.relation * base + block.facts, return_counts=True)
            merged, place = np.unique(np.concatenate([keys, more]), return_inverse=True)
            pairs = np.bincount(place, np.concatenate([pairs, count]), len(merged)).astype(np.int64)
            keys = merged
        self._keys, self._below = keys, np.concatenate([[0], np.cumsum(pairs)])
        facts = np.bincount(keys // base, (keys % base) * pairs, self._size)
        self._usual = (facts - np.bincount(keys // base, pairs, self._size) + 1) / (facts + 2)  # [2R]

    def __call__(self, relation: Integers, facts: Integers) -> Floats:
        """[P] for relations [P] with so many answers [P] each."""
        usual = self._usual[relation]
        if self._usual_only:
            return usual
        key = relation * self._base
        end = self._pairs_before(key + self._base)
        enough = end - self._pairs_before(key + facts) - 1
        more = end - self._pairs_before(key + facts + 1)
        chances: Floats = (more + usual) / (enough + 1)
        return chances

    def _pairs_before(self, key: Integers) -> Integers:
        before: Integers = self._below[np.searchsorted(self._keys, key)]
        return before


@dataclass(frozen=True, eq=False)
class _Block:
    """The pairs (e, y) with y in NR_e of some entities, sorted by entity."""

    entity: Integers  # [P]
    relation: Integers  # [P]
    facts: Integers  # [P] how many edges leave e by y

    def of(self, entities: Integers | None) -> _Block:
        if entities is None:
            return self
        kept = np.isin(self.entity, entities)
        return _Block(self.entity[kept], self.relation[kept], self.facts[kept])


def _blocks(graph: Graph, numbers: Integers, most: int) -> Iterator[_Block]:
    """All pairs of a graph in blocks of about `most` edges; an entity's are in one block."""
    starts = graph.row_start.cpu().numpy()
    entity = 0
    while entity < graph.num_entities:
        last = int(np.searchsorted(starts, starts[entity] + most, side="right")) - 1
        last = min(max(last, entity + 1), graph.num_entities)
        edges = slice(int(starts[entity]), int(starts[last]))
        entity = last
        yield _block(graph.edge_head[edges].cpu().numpy(), numbers[graph.edge_relation[edges].cpu().numpy()])


def _block(head: npt.NDArray[np.int32], relation: Integers) -> _Block:
    opens = np.ones(len(head), dtype=bool)  # edges are sorted, so those of a pair are adjacent
    opens[1:] = (head[1:] != head[:-1]) | (relation[1:] != relation[:-1])
    first = np.flatnonzero(opens)
    facts = np.diff(np.append(first, len(head)))
    known = relation[first] >= 0
    return _Block(head[first][known].astype(np.int64), relation[first][known], facts[known])


def _of_block(block: _Block, first: Floats, again: _ChancesOfMore, asked: Integers, least: float) -> Pairs:
    """`first` [2R, A] for what an entity lacks, `again` for what it has."""
    if not len(block.entity) or not len(asked):
        return NO_PAIRS
    starts = np.flatnonzero(np.diff(block.entity, prepend=-1))
    chance = np.maximum.reduceat(first[block.relation], starts, axis=0)  # [entities of the block, A]
    place = np.minimum(np.searchsorted(asked, block.relation), len(asked) - 1)
    has = np.flatnonzero(asked[place] == block.relation)
    row = np.repeat(np.arange(len(starts)), np.diff(np.append(starts, len(block.entity))))
    chance[row[has], place[has]] = again(block.relation[has], block.facts[has])
    rows, columns = np.nonzero(chance >= least)
    entity = block.entity[starts[rows]].astype(np.int32)
    return Pairs(entity, asked[columns].astype(np.int32), chance[rows, columns])
