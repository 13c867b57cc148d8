"""What a question can reach within a few hops, with a cap on the edges of each hop: the walk for graphs past memory.

Hop l looks at every edge that leaves the entities which hop l - 1 reached first, but for those it came by, and keeps
the best `cap` of them: by what a random walk from the head would carry along them, times how much they lead to what
looks like an answer (`best_first`). Relations are the groups that rows of a graph are sorted in, and the edges of a
group are alike but for where they lead, so which are kept is known from the ends of groups; an edge that is not kept
is never read. What comes out is a small graph, with the degrees and relation sets that its entities have in the whole
one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

import numba
import numpy as np
import numpy.typing as npt

from contextpool.context.counts import Cooccurrence
from contextpool.errors import ConfigError
from contextpool.graph.graph import Graph
from contextpool.graph.relations import inverse

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
LEAST_RELEVANCE = 0.1
"""What no answer is known to have may still lead to one."""


@dataclass(frozen=True, eq=False)
class Leaving:
    """Edges that leave a frontier, in groups of one head and one relation, by head and then by relation."""

    head: Integers
    """[G] place in the frontier."""
    relation: Integers  # [G]
    begin: Integers
    """[G] the first edge; the others of the group follow it."""
    size: Integers  # [G]
    relevance: Floats
    """[G] of the relation for the query relation, such as `arrival_relevance`."""
    mass: Floats
    """[G] what a random walk from the question's entity carries along each edge."""

    def take(self, places: Integers) -> Leaving:
        """Some groups, in another order."""
        return Leaving(*(getattr(self, field.name)[places] for field in fields(self)))

    def without(self, edges: Integers) -> Leaving:
        """Without these edges, ascending: a group falls into the parts between them."""
        edges, group = self._inside(edges)
        if not len(edges):
            return self
        end = self.begin + self.size
        begin = np.concatenate([edges + 1, self.begin])  # a part of nothing comes before the next group
        order = np.argsort(begin, kind="stable")
        size = np.sort(np.concatenate([edges, end])) - begin[order]  # parts end in the order they begin in
        parts = self.take(np.concatenate([group, np.arange(len(end))])[order])
        return replace(parts, begin=begin[order], size=size).take(np.flatnonzero(size))

    def best(self, room: int, gone: Integers, choose: Choose) -> Leaving:
        """The best `room` edges but for those that are `gone`, ascending: looked for among the best of all."""
        some = choose(self, room + len(gone))
        some = some.take(np.argsort(some.begin)).without(gone)
        return _first_edges(choose(some, room), room)

    def count(self, gone: Integers) -> int:
        """How many edges there are, but for those that are `gone`, ascending."""
        return int(self.size.sum()) - len(self._inside(gone)[0])

    def _inside(self, edges: Integers) -> tuple[Integers, Integers]:
        """Those of the edges, ascending, that are in a group, and in which."""
        if not (len(edges) and len(self.begin)):
            return edges[:0], edges[:0]
        group = np.searchsorted(self.begin, edges, "right") - 1
        inside = (group >= 0) & (edges < self.begin[group] + self.size[group])
        return edges[inside], group[inside]


Choose = Callable[[Leaving, int], Leaving]
"""(what leaves, how many edges are kept) -> the same, best first; groups beyond what is kept may be left out."""


@dataclass(frozen=True, eq=False)
class Neighborhood:
    """What a walk kept and reached, by the ids of the whole graph."""

    entities: Integers
    """[n] ascending, the head among them."""
    edges: Integers
    """[E] ascending; every fact that was kept, in both directions."""
    pair_entity: Integers
    """[P] place in `entities`; with `pair_relation`, all (e, r) with r in NR_e in the whole graph, sorted."""
    pair_relation: Integers  # [P]
    pair_size: Integers  # [P] edges of each there
    degree: Integers
    """[n] edges that leave each entity in the whole graph."""
    edges_seen: tuple[int, ...]
    """For each hop, the edges that were there to choose from; not those that lead back along kept ones."""
    edges_kept: tuple[int, ...]


def relevance_of(counts: Cooccurrence, query_relation: int) -> Floats:
    """[2R] precision x recall of each relation for the query relation (Definitions 5 and 6)."""
    both, support = counts.both[query_relation].astype(np.float64), counts.support
    found: Floats = both / np.maximum(support, 1) * (both / max(int(support[query_relation]), 1))
    return found


def arrival_relevance(counts: Cooccurrence, query_relation: int) -> Floats:
    """[2R] how much the ends of each relation look like answers.

    Where y leads to has inverse(y); that is as relevant for the inverse of the query relation, which answers have.
    """
    num_relations = counts.relations.num_relations
    return np.roll(relevance_of(counts, inverse(query_relation, num_relations)), num_relations)


def best_first(leaving: Leaving, room: int) -> Leaving:
    """By (least + relevance) x mass; ties in the order of their heads' labels, then of their relations'."""
    return by_key(leaving, room, (LEAST_RELEVANCE + leaving.relevance) * leaving.mass)


def by_key(leaving: Leaving, room: int, key: Floats) -> Leaving:
    """By falling key [G]; every group has an edge, so no more than `room` of them can matter."""
    places = np.arange(len(key))
    if room < len(key):
        places = np.flatnonzero(key >= np.partition(key, len(key) - room)[len(key) - room])
    return leaving.take(places[np.argsort(-key[places], kind="stable")[:room]])


def capped_walk(
    graph: Graph,
    head: int,
    relevance: Floats,
    num_hops: int,
    cap: int | None,
    *,
    hidden: int = -1,
    choose: Choose = best_first,
) -> Neighborhood:
    """Walk `num_hops` from an entity, keeping at most `cap` edges a hop (None: all).

    Edges of a relation with negative `relevance` [2R] do not exist for it, and neither does the fact of the edge
    `hidden`. Time and memory are those of the (entity, relation) groups of what is reached and of what is kept.
    """
    if num_hops < 1 or (cap is not None and cap < 1):
        raise ConfigError(
            f"the walk has {num_hops} hops and a cap of {cap} edges; both have to be at least 1."
        )
    rows = _Rows(graph, relevance, hidden)
    frontier = np.array([head], dtype=np.int64)
    mass: npt.NDArray[Any] = np.ones(1)
    reached, back = frontier, np.empty(0, dtype=np.int64)
    kept, seen, frontiers, left = [], [], [], []
    for hop in range(num_hops + 1):
        leaving = rows.leaving(frontier, mass)
        frontiers.append(frontier)
        left.append(leaving)
        if hop == num_hops:
            break
        total = leaving.count(back)
        leaving = leaving.without(back) if cap is None or cap >= total else leaving.best(cap, back, choose)
        edges = ranges(leaving.begin, leaving.size)
        kept.append(edges)
        seen.append(total)
        back = np.sort(rows.inverse[edges].astype(np.int64))
        tails = rows.tail[edges].astype(np.int64)
        fresh = _distinct(tails)
        frontier = np.setdiff1d(fresh, reached, assume_unique=True)
        reached = np.union1d(reached, frontier)
        carried = np.bincount(
            np.searchsorted(fresh, tails), weights=np.repeat(leaving.mass, leaving.size), minlength=len(fresh)
        )
        mass = carried[np.searchsorted(fresh, frontier)]
    edges = np.concatenate(kept)
    edges = _distinct(np.concatenate([edges, rows.inverse[edges].astype(np.int64)]))
    pairs, degree = _whole(reached, frontiers, left)
    return Neighborhood(reached, edges, *pairs, degree, tuple(seen), tuple(len(one) for one in kept))


def _whole(
    reached: Integers, frontiers: list[Integers], left: list[Leaving]
) -> tuple[tuple[Integers, Integers, Integers], Integers]:
    """The pairs of all entities, by entity and relation, their sizes, and degrees: from what leaves each frontier."""
    degree, groups = np.zeros(len(reached), dtype=np.int64), np.zeros(len(reached), dtype=np.int64)
    places = [np.searchsorted(reached, one) for one in frontiers]  # each entity is in one frontier
    for of_entity, leaving in zip(places, left, strict=True):
        groups[of_entity] = np.bincount(leaving.head, minlength=len(of_entity))
        degree[of_entity] = np.bincount(leaving.head, weights=leaving.size, minlength=len(of_entity))
    start = np.cumsum(groups) - groups
    place, relation = np.repeat(np.arange(len(reached)), groups), np.empty(int(groups.sum()), dtype=np.int64)
    size = np.empty_like(relation)
    for of_entity, leaving in zip(places, left, strict=True):
        rows = ranges(start[of_entity], groups[of_entity])
        relation[rows], size[rows] = leaving.relation, leaving.size
    fresh = np.ones(len(place), dtype=bool)  # what is hidden may have cut a group in two
    fresh[1:] = (place[1:] != place[:-1]) | (relation[1:] != relation[:-1])
    first = np.flatnonzero(fresh)
    size = np.add.reduceat(size, first) if len(first) else size
    return (place[fresh], relation[fresh], size), degree


def _first_edges(leaving: Leaving, room: int) -> Leaving:
    """The first `room` edges of groups in this order."""
    before = np.cumsum(leaving.size) - leaving.size
    size = np.clip(room - before, 0, leaving.size)
    return replace(leaving, size=size).take(np.flatnonzero(size))


class _Rows:
    """The rows of a graph as a walk sees them: without what is hidden, and without relations that do not exist."""

    def __init__(self, graph: Graph, relevance: Floats, hidden: int) -> None:
        self.start, self.relation = graph.row_start.numpy(), graph.edge_relation.numpy()
        self.tail, self.inverse = graph.edge_tail.numpy(), graph.edge_inverse.numpy()
        self.relevance = relevance
        self.hidden = np.unique([hidden, self.inverse[hidden]] if hidden >= 0 else []).astype(np.int64)

    def leaving(self, frontier: Integers, mass: Floats) -> Leaving:
        """All that leaves a frontier with this mass [F]."""
        head, begin, end = _groups(self.start, self.relation, frontier, self.relevance >= 0)
        relation = self.relation[begin].astype(np.int64)
        groups = Leaving(head, relation, begin, end - begin, self.relevance[relation], mass[head])
        found = groups.without(self.hidden)
        degree = np.bincount(found.head, weights=found.size, minlength=len(frontier))
        each = mass / np.maximum(degree, 1)  # [F]
        return replace(found, mass=each[found.head])


def _distinct(values: Integers) -> Integers:
    """Ascending, each once."""
    ordered = np.sort(values)
    fresh = np.ones(len(ordered), dtype=bool)
    fresh[1:] = ordered[1:] != ordered[:-1]
    return ordered[fresh]


def ranges(begin: Integers, sizes: Integers) -> Integers:
    """begin[0], begin[0] + 1, ..., then those of the next, `sizes` of each."""
    before = np.cumsum(sizes) - sizes
    return np.repeat(begin - before, sizes) + np.arange(int(sizes.sum()))


@numba.njit(cache=True, nogil=True)
def _groups(row_start, edge_relation, frontier, exists):  # type: ignore[no-untyped-def]
    """Place in the frontier, begin and end of the edges of each relation of each entity, entity by entity."""
    room = 1024
    group_head = np.empty(room, dtype=np.int64)
    group_begin = np.empty(room, dtype=np.int64)
    group_end = np.empty(room, dtype=np.int64)
    count = 0
    for place in range(len(frontier)):
        begin, last = row_start[frontier[place]], row_start[frontier[place] + 1]
        while begin < last:
            relation = edge_relation[begin]
            end = _group_end(edge_relation, begin, last, relation)
            if exists[relation]:
                if count == room:
                    group_head = np.append(group_head, np.empty(room, dtype=np.int64))
                    group_begin = np.append(group_begin, np.empty(room, dtype=np.int64))
                    group_end = np.append(group_end, np.empty(room, dtype=np.int64))
                    room *= 2
                group_head[count], group_begin[count], group_end[count] = place, begin, end
                count += 1
            begin = end
    return group_head[:count].copy(), group_begin[:count].copy(), group_end[:count].copy()


@numba.njit(cache=True, nogil=True)
def _group_end(edge_relation, begin, last, relation):  # type: ignore[no-untyped-def]
    """Where the edges of a relation end: by doubling steps, then by halving. O(log of their number)."""
    step = 1
    low = begin
    while low + step < last and edge_relation[low + step] == relation:
        low += step
        step *= 2
    high = min(low + step, last)
    while high - low > 1:
        middle = (low + high) // 2
        if edge_relation[middle] == relation:
            low = middle
        else:
            high = middle
    return high
