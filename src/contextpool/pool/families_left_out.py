"""Answers of Algorithm 1 for training queries, each mined as if its own fact had never been counted.

`LeftOutFamilies` says which (relation set, query) pairs are answered otherwise. Here they become exceptions
(`BatchAnswers`): every pair (e, r) whose entity has such a set, and all pairs of entities whose sets are smaller
because edges are hidden. Looked up on the CPU; the result is on the graph's device.
"""

from __future__ import annotations

from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from contextpool.context.families import ContextFamilies
from contextpool.context.left_out_families import (
    KEEPS,
    ChangedAnswers,
    LeftOutFamilies,
    LostFact,
    Situation,
    SmallerSet,
)
from contextpool.graph.graph import Graph
from contextpool.graph.relation_sets import WORD_BITS, Words
from contextpool.pool.answers import BatchAnswers, batch_answers, changed_entities
from contextpool.pool.hidden import HiddenEdges
from contextpool.pool.incidence import cached_per_graph, incidence_of, relation_sets_of

Int64s = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
PairRows = tuple[Int64s, Int64s, Int64s]
"""query [C], pair [C] and row [C] of exceptions."""


def family_answers_left_out(
    graph: Graph,
    families: ContextFamilies,
    query_head: Tensor,
    query_relation: Tensor,
    hidden: HiddenEdges,
    left_out: Tensor,
) -> BatchAnswers:
    """What may be walked by queries [B] from which edges are hidden, and whose facts left_out [B] were never mined.

    left_out is an edge, in either direction, or -1: all facts were mined.
    """
    usual = batch_answers(
        graph, families, query_head, query_relation, HiddenEdges.none(graph, len(query_head))
    )
    index, head, relation = _index_of(graph), _numpy(query_head), _numpy(query_relation)
    unusual = _unusual_queries(graph, index, hidden, _numpy(left_out), head, relation)
    if not unusual.situations:
        return usual
    asked = _Asked.of(unusual, _left_out(graph, families).answers(unusual.situations.values()))
    first_row = _first_rows(index, unusual, asked, head, relation)
    return _joined(usual, asked.rows, first_row, _exceptions(index, unusual, asked))


_known: WeakKeyDictionary[Graph, WeakKeyDictionary[ContextFamilies, LeftOutFamilies]] = WeakKeyDictionary()


def _left_out(graph: Graph, families: ContextFamilies) -> LeftOutFamilies:
    """Remembered as long as both graph and families live; it holds neither."""
    of_graph = _known.setdefault(graph, WeakKeyDictionary())
    left_out = of_graph.get(families)
    if left_out is None:
        left_out = of_graph[families] = LeftOutFamilies(families, relation_sets_of(graph))
    return left_out


@dataclass(frozen=True, eq=False)
class _Index:
    """A graph as arrays on the CPU."""

    num_sets: int
    """S"""
    num_directed: int
    """2R"""
    set_of_entity: Int64s  # [N]
    head: Int64s  # [2T]
    relation: Int64s  # [2T]
    tail: Int64s  # [2T]
    backward: Int64s
    """[2T] the inverse of each edge."""
    forward: Int64s
    """[2T] that direction of each edge which goes by a forward relation."""
    is_only: Bools
    """[2T] whether the head of an edge has no other edge by its relation."""
    pair_entity: Int64s  # [P]
    pair_key: Int64s
    """[P] entity * 2R + relation, ascending."""
    by_set: Int64s
    """[P] the pairs ordered by the set of the entity, then relation."""
    set_key: Int64s
    """[P] set * 2R + relation of those, ascending."""


@cached_per_graph
def _index_of(graph: Graph) -> _Index:
    incidence, sets = incidence_of(graph), relation_sets_of(graph)
    num_directed = graph.relation_vocabulary.num_directed
    relation, backward = _numpy(graph.edge_relation), _numpy(graph.edge_inverse)
    pair_entity, pair_relation = _numpy(incidence.pair_entity), _numpy(incidence.pair_relation)
    set_of_entity = sets.set_of_entity.astype(np.int64)
    set_key = set_of_entity[pair_entity] * num_directed + pair_relation
    by_set = np.argsort(set_key, kind="stable")
    return _Index(
        num_sets=len(sets.words),
        num_directed=num_directed,
        set_of_entity=set_of_entity,
        head=_numpy(graph.edge_head),
        relation=relation,
        tail=_numpy(graph.edge_tail),
        backward=backward,
        forward=np.where(relation < graph.num_relations, np.arange(graph.num_edges), backward),
        is_only=np.diff(_numpy(incidence.pair_start))[_numpy(incidence.edge_pair)] == 1,
        pair_entity=pair_entity,
        pair_key=pair_entity * num_directed + pair_relation,
        by_set=by_set,
        set_key=set_key[by_set],
    )


@dataclass(frozen=True, eq=False)
class _Unusual:
    """The queries that are answered otherwise, and the C (query, entity) with a smaller relation set, sorted."""

    situations: dict[int, Situation]
    """By query; the others are answered as usual."""
    num_entities: int
    """N"""
    key: Int64s
    """[C] query * N + entity."""
    slot: Int64s
    """[C] which of its situation's smaller sets the entity has."""

    def slot_of(self, query: Int64s, entity: Int64s) -> Int64s:
        """[K] the slot of each entity for its query; -1 where its set is the usual one."""
        return _looked_up(self.key, self.slot, query * self.num_entities + entity)

    def entity_in(self, query: Int64s, slot: Int64s) -> Int64s:
        """[K] the other way round."""
        owner, entity = np.divmod(self.key, max(self.num_entities, 1))
        most = 1 + self.slot.max(initial=0)
        order = np.argsort(owner * most + self.slot)
        return _looked_up((owner * most + self.slot)[order], entity[order], query * most + slot)


def _unusual_queries(
    graph: Graph, index: _Index, hidden: HiddenEdges, left_out: Int64s, head: Int64s, relation: Int64s
) -> _Unusual:
    """Every query for which mining loses a fact that counts, or an entity a relation."""
    sets = relation_sets_of(graph)
    changed = changed_entities(graph, sets, hidden)
    smaller: dict[int, list[tuple[SmallerSet, int]]] = {}
    columns = (changed.query.tolist(), changed.entity.tolist(), changed.words)
    for place, (query, entity, words) in enumerate(zip(*columns, strict=True)):
        row, asked = int(index.set_of_entity[entity]), int(relation[query])
        is_foreign = entity == head[query] and not _has(sets.words[row], asked)
        left = SmallerSet(row, words.tobytes(), asked if is_foreign else -1)
        smaller.setdefault(query, []).append((left, place))
    situations, slot = {}, np.zeros(len(changed.query), dtype=np.int64)
    for query, fact in enumerate(_lost_facts(index, left_out)):
        ordered = sorted(smaller.get(query, []))  # not by entity: equal situations are to be found again
        slot[[place for _, place in ordered]] = np.arange(len(ordered))
        if ordered or not fact.is_harmless:
            situations[query] = Situation(fact, tuple(left for left, _ in ordered))
    key = changed.query * graph.num_entities + changed.entity
    return _Unusual(situations, graph.num_entities, key, slot)


def _lost_facts(index: _Index, left_out: Int64s) -> list[LostFact]:
    """What mining loses with each of the edges [B]; -1 loses nothing."""
    facts = [LostFact(0, KEEPS, KEEPS, False)] * len(left_out)
    query = np.flatnonzero(left_out >= 0)  # [H]
    edge = index.forward[left_out[query]]
    head, tail = index.head[edge], index.tail[edge]
    head_set = np.where(index.is_only[edge], index.set_of_entity[head], KEEPS)
    tail_set = np.where(index.is_only[index.backward[edge]], index.set_of_entity[tail], KEEPS)
    columns = (query, index.relation[edge], head_set, tail_set, head == tail)
    for number, *values in zip(*(column.tolist() for column in columns), strict=True):
        facts[number] = LostFact(*values)
    return facts


@dataclass(frozen=True, eq=False)
class _Asked:
    """X (query, relation set, relation) that are answered otherwise, sorted."""

    query: Int64s  # [X]
    set_row: Int64s  # [X] S + slot for smaller sets
    relation: Int64s  # [X]
    row: Int64s  # [X] row of `rows`
    rows: Words  # [Y, W]

    @classmethod
    def of(cls, unusual: _Unusual, changed: dict[Situation, ChangedAnswers]) -> _Asked:
        """Queries in equal situations share rows."""
        size = np.array([len(answers.query) for answers in changed.values()])
        first_row = dict(zip(changed, np.cumsum(size) - size, strict=True))
        parts = [changed[situation] for situation in unusual.situations.values()]
        counts = [len(part.query) for part in parts]
        first = np.repeat([first_row[situation] for situation in unusual.situations.values()], counts)
        return cls(
            np.repeat(list(unusual.situations), counts),
            np.concatenate([part.set_row for part in parts]),
            np.concatenate([part.query for part in parts]),
            first + np.concatenate([np.arange(count) for count in counts]),
            np.concatenate([answers.answer for answers in changed.values()]),
        )


def _first_rows(index: _Index, unusual: _Unusual, asked: _Asked, head: Int64s, relation: Int64s) -> Int64s:
    """[B] the row that the first hop asks for; -1 where it asks as usual."""
    queries = np.arange(len(head))
    slot = unusual.slot_of(queries, head)
    set_row = np.where(slot >= 0, index.num_sets + slot, index.set_of_entity[head])
    most = 1 + max(asked.set_row.max(initial=0), set_row.max(initial=0))
    keys = (asked.query * most + asked.set_row) * index.num_directed + asked.relation
    return _looked_up(keys, asked.row, (queries * most + set_row) * index.num_directed + relation)


def _exceptions(index: _Index, unusual: _Unusual, asked: _Asked) -> PairRows:
    """Every pair that is answered otherwise, sorted by (query, pair)."""
    is_smaller = asked.set_row >= index.num_sets
    parts = (
        _pairs_of_smaller(index, unusual, asked, is_smaller),
        _pairs_of_sets(index, unusual, asked, ~is_smaller),
    )
    query, pair, row = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    order = np.lexsort((pair, query))
    return query[order], pair[order], row[order]


def _pairs_of_smaller(index: _Index, unusual: _Unusual, asked: _Asked, chosen: Bools) -> PairRows:
    """At most one pair each. Those of lost relations are among them: nothing arrives there."""
    query, row = asked.query[chosen], asked.row[chosen]
    entity = unusual.entity_in(query, asked.set_row[chosen] - index.num_sets)
    wanted = entity * index.num_directed + asked.relation[chosen]
    pair = _looked_up(index.pair_key, np.arange(len(index.pair_key)), wanted)
    return query[pair >= 0], pair[pair >= 0], row[pair >= 0]


def _pairs_of_sets(index: _Index, unusual: _Unusual, asked: _Asked, chosen: Bools) -> PairRows:
    """The pairs of all entities that have the relation set, for this query, too."""
    key = asked.set_row[chosen] * index.num_directed + asked.relation[chosen]
    first = np.searchsorted(index.set_key, key, side="left")
    size = np.searchsorted(index.set_key, key, side="right") - first
    place = np.repeat(first - (np.cumsum(size) - size), size) + np.arange(size.sum())
    query, row, pair = (
        np.repeat(asked.query[chosen], size),
        np.repeat(asked.row[chosen], size),
        index.by_set[place],
    )
    has_it = unusual.slot_of(query, index.pair_entity[pair]) < 0
    return query[has_it], pair[has_it], row[has_it]


def _joined(usual: BatchAnswers, rows: Words, first_row: Int64s, exceptions: PairRows) -> BatchAnswers:
    """The new rows follow the usual ones."""
    device, offset = usual.rows.device, len(usual.rows)
    query, pair, row = exceptions
    start = np.searchsorted(query, np.arange(len(first_row) + 1))
    query_row = np.where(first_row < 0, usual.query_row.cpu().numpy(), first_row + offset)
    return BatchAnswers(
        rows=torch.cat([usual.rows, torch.from_numpy(rows.view(np.int64)).to(device)]),
        pair_row=usual.pair_row,
        query_row=torch.from_numpy(query_row).int().to(device),
        changed_start=torch.from_numpy(start).long().to(device),
        changed_pair=torch.from_numpy(pair).int().to(device),
        changed_row=torch.from_numpy(row + offset).int().to(device),
    )


def _looked_up(keys: Int64s, values: Int64s, wanted: Int64s) -> Int64s:
    """[K] the value of each wanted key among ascending ones; -1 where it is missing."""
    if len(keys) == 0:
        return np.full(wanted.shape, -1)
    place = np.searchsorted(keys, wanted).clip(max=len(keys) - 1)
    return np.where(keys[place] == wanted, values[place], -1)


def _has(words: Words, relation: int) -> bool:
    return bool((words[relation // WORD_BITS] >> np.uint64(relation % WORD_BITS)) & np.uint64(1))


def _numpy(tensor: Tensor) -> Int64s:
    array: Int64s = tensor.cpu().numpy().astype(np.int64)
    return array
