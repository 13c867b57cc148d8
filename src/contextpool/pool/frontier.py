"""What a question can reach within a few hops, with a cap on the edges of each hop: the walk for graphs past memory.

Hop l looks at every edge that leaves the entities which hop l - 1 reached first, and keeps the best `cap` of them: by
precision x recall of their relation for the query relation, then by label of relation, head and tail. Relations are the
groups that rows of a graph are sorted in, so which edges are kept is known from the ends of groups; an edge that is not
kept is never read. What comes out is a small graph, and everything that works on graphs works on it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numba
import numpy as np
import numpy.typing as npt

from contextpool.context.counts import Cooccurrence
from contextpool.context.relevance import neighborhood_precision, neighborhood_recall
from contextpool.errors import ConfigError
from contextpool.graph.graph import Graph
from contextpool.graph.relations import RelationVocabulary

Integers = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Neighborhood:
    """The facts that a walk kept, and the entities it reached, by their ids in the whole graph."""

    entities: Integers
    """[n] ascending, the head among them."""
    facts: Integers
    """[F, 3] head, relation in [0, R), tail; distinct, sorted."""
    edges_seen: tuple[int, ...]
    """For each hop, the edges that were there to choose from."""
    edges_kept: tuple[int, ...]


def relation_order(counts: Cooccurrence, query_relation: int) -> Integers:
    """[2R] the place of each relation in the order in which hops keep their edges; places are distinct."""
    relevance = neighborhood_precision(counts)[query_relation] * neighborhood_recall(counts)[query_relation]
    return order_of(relevance, counts.relations)


def order_of(relevance: npt.NDArray[np.float64], relations: RelationVocabulary) -> Integers:
    """[2R] places by falling relevance [2R], ties by sorted label."""
    place = np.empty(len(relevance), dtype=np.int64)
    place[np.lexsort((relations.sort_rank, -relevance))] = np.arange(len(relevance))
    return place


def capped_walk(
    graph: Graph, head: int, relation_place: Integers, num_hops: int, cap: int | None
) -> Neighborhood:
    """Walk `num_hops` from an entity, keeping at most `cap` edges a hop (None: all).

    `relation_place` [2R] says which relations come first; edges of a relation at place -1 are never walked. Time and
    memory are those of the (entity, relation) groups of the frontier and of what is kept, not of the graph.
    """
    if num_hops < 1 or (cap is not None and cap < 1):
        raise ConfigError(
            f"the walk has {num_hops} hops and a cap of {cap} edges; both have to be at least 1."
        )
    rows = (graph.row_start.numpy(), graph.edge_relation.numpy(), graph.edge_tail.numpy())
    frontier = np.array([head], dtype=np.int64)
    reached, kept, seen = frontier, [], []
    for _ in range(num_hops):
        room = -1 if cap is None else cap
        edges, total = _kept_edges(rows[0], rows[1], frontier, relation_place, room)
        kept.append(edges)
        seen.append(int(total))
        tails = np.unique(rows[2][edges]).astype(np.int64)
        frontier = np.setdiff1d(tails, reached, assume_unique=True)
        reached = np.union1d(reached, frontier)
    sizes = tuple(len(edges) for edges in kept)
    return Neighborhood(reached, _facts(graph, np.concatenate(kept)), tuple(seen), sizes)


def relation_groups(graph: Graph, entities: Integers, relation_place: Integers) -> tuple[Integers, Integers]:
    """Entity [P] and relation [P] of all pairs (e, r) with r in NR_e, of these entities, but for places of -1."""
    relations = graph.edge_relation.numpy()
    _, begin, _ = _groups(graph.row_start.numpy(), relations, entities, relation_place)
    return graph.edge_head.numpy()[begin].astype(np.int64), relations[begin].astype(np.int64)


def _facts(graph: Graph, edges: Integers) -> Integers:
    """[F, 3] edges walked either way as the facts they are, each once."""
    head, relation, tail = (
        column.numpy()[edges].astype(np.int64)
        for column in (graph.edge_head, graph.edge_relation, graph.edge_tail)
    )
    back = relation >= graph.num_relations
    rows = np.stack(
        [
            np.where(back, tail, head),
            np.where(back, relation - graph.num_relations, relation),
            np.where(back, head, tail),
        ],
        axis=1,
    )
    order = np.lexsort((rows[:, 2], rows[:, 1], rows[:, 0]))
    rows = rows[order]
    fresh = np.ones(len(rows), dtype=bool)
    fresh[1:] = (rows[1:] != rows[:-1]).any(axis=1)
    return rows[fresh]


def _kept_edges(
    row_start: Integers,
    edge_relation: npt.NDArray[np.int32],
    frontier: Integers,
    place: Integers,
    room: int,
) -> tuple[Integers, int]:
    """The places of the kept edges in the graph, and how many there were; room -1 is for all."""
    group_place, group_begin, group_end = _groups(row_start, edge_relation, frontier, place)
    sizes = group_end - group_begin
    total = int(sizes.sum())
    if 0 <= room < total:
        group_begin, sizes = _best_groups(group_place, group_begin, sizes, room, len(place))
    return _ranges(group_begin, sizes), total


def _best_groups(
    group_place: Integers, begin: Integers, sizes: Integers, room: int, num_places: int
) -> tuple[Integers, Integers]:
    """Begin and size of what is kept: all of the first places, and of the place where room ends the first heads."""
    of_place = np.bincount(group_place, weights=sizes, minlength=num_places).astype(np.int64)
    until = np.cumsum(of_place)
    last = int(np.searchsorted(until, room))  # the first place that does not fit as a whole
    whole, partly = np.flatnonzero(group_place < last), np.flatnonzero(group_place == last)
    left = room - int(until[last] - of_place[last])
    before = np.cumsum(sizes[partly]) - sizes[partly]  # groups come by head, so by label
    taken = np.clip(left - before, 0, sizes[partly])
    return np.append(begin[whole], begin[partly]), np.append(sizes[whole], taken)


def _ranges(begin: Integers, sizes: Integers) -> Integers:
    """begin[0], begin[0] + 1, ..., then those of the next, `sizes` of each."""
    before = np.cumsum(sizes) - sizes
    return np.repeat(begin - before, sizes) + np.arange(int(sizes.sum()))


@numba.njit(cache=True, nogil=True)
def _groups(row_start, edge_relation, frontier, place):  # type: ignore[no-untyped-def]
    """Place, begin and end of the edges of each relation of each entity of the frontier, entity by entity."""
    room = 1024
    group_place = np.empty(room, dtype=np.int64)
    group_begin = np.empty(room, dtype=np.int64)
    group_end = np.empty(room, dtype=np.int64)
    count = 0
    for entity in frontier:
        begin, last = row_start[entity], row_start[entity + 1]
        while begin < last:
            relation = edge_relation[begin]
            end = _group_end(edge_relation, begin, last, relation)
            if place[relation] >= 0:
                if count == room:
                    group_place = np.append(group_place, np.empty(room, dtype=np.int64))
                    group_begin = np.append(group_begin, np.empty(room, dtype=np.int64))
                    group_end = np.append(group_end, np.empty(room, dtype=np.int64))
                    room *= 2
                group_place[count], group_begin[count], group_end[count] = place[relation], begin, end
                count += 1
            begin = end
    return group_place[:count].copy(), group_begin[:count].copy(), group_end[:count].copy()


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
