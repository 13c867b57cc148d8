"""Random walks and the rules they are instances of (Meilicke et al. 2020, section on bottom-up learning), compiled.

Path number k of a seed is the same whoever draws it, so neither threads nor batches change what is found.
"""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np
import numpy.typing as npt

from contextpool.graph.graph import Graph
from contextpool.graph.relations import inverse
from contextpool.models.baselines.anyburl._walks import Rows, rows_of_graph
from contextpool.models.baselines.anyburl.ruleset import BODY, CONSTANT, END, NONE, RELATION
from contextpool.pool._walk_cpu import first_at_least

Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]


class Sampled(NamedTuple):
    """A graph as the sampler reads it."""

    rows: Rows
    pair_tail: Int32s
    """[2T] tails of each row, ascending: the edges between two entities lie side by side."""
    pair_relation: Int32s
    """[2T] relations in the same order."""
    head: Int32s  # [T] of the facts
    relation: Int32s  # [T]
    tail: Int32s  # [T]
    inverse_of: Int32s  # [2R]

    @classmethod
    def of(cls, graph: Graph) -> Sampled:
        head, relation, tail = (
            tensor.cpu().numpy() for tensor in (graph.edge_head, graph.edge_relation, graph.edge_tail)
        )
        order = np.lexsort((relation, tail, head))
        fact = graph.forward_edges.cpu().numpy()
        directed = np.arange(2 * graph.num_relations, dtype=np.int32)
        return cls(
            rows_of_graph(graph),
            np.ascontiguousarray(tail[order]),
            np.ascontiguousarray(relation[order]),
            np.ascontiguousarray(head[fact]),
            np.ascontiguousarray(relation[fact]),
            np.ascontiguousarray(tail[fact]),
            inverse(directed, graph.num_relations),
        )


@numba.njit(cache=True, nogil=True)
def next_random(state):  # type: ignore[no-untyped-def]
    """SplitMix64: the next state, and a number below 2^53 made of this one."""
    state += np.uint64(0x9E3779B97F4A7C15)
    mixed = state
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed = mixed ^ (mixed >> np.uint64(31))
    return state, np.int64(mixed >> np.uint64(11))


@numba.njit(cache=True, nogil=True)
def sample_rules(first, last, seed, cyclic, length, width, graph):  # type: ignore[no-untyped-def]
    """Rows of the rules that paths number first..last-1 are instances of, in their order.

    Cyclic: one rule for each path that closes. Acyclic: one that ends where the path does, one that ends anywhere.
    """
    out = np.full((2 * (last - first), width), NONE, dtype=np.int32)
    path, steps = np.empty(length + 2, dtype=np.int64), np.empty(length + 1, dtype=np.int32)
    used = 0
    for number in range(first, last):
        state = np.uint64(seed) ^ (np.uint64(number) * np.uint64(0xD1342543DE82EF95))
        state, _ = next_random(state)
        state, drawn = next_random(state)
        fact = drawn % len(graph.head)
        state, drawn = next_random(state)
        if cyclic:
            used += _cyclic(fact, drawn % 2 == 1, length, graph, state, path, steps, out[used])
        else:
            used += _acyclic(fact, drawn % 2 == 1, length, graph, state, path, steps, out[used : used + 2])
    return out[:used]


@numba.njit(cache=True, nogil=True)
def _walk(state, here, goal, length, graph, path, steps):  # type: ignore[no-untyped-def]
    """`length` random steps, no entity twice and never to `goal` -> (whether it got there, state)."""
    path[0] = here
    for step in range(length):
        first, stop = graph.rows.row_start[here], graph.rows.row_start[here + 1]
        if first == stop:
            return False, state
        state, drawn = next_random(state)
        edge = first + drawn % (stop - first)
        here = np.int64(graph.rows.edge_tail[edge])
        steps[step] = graph.rows.edge_relation[edge]
        if here == goal:
            return False, state
        for place in range(step + 1):
            if path[place] == here:
                return False, state
        path[step + 1] = here
    return True, state


@numba.njit(cache=True, nogil=True)
def _cyclic(fact, turned, length, graph, state, path, steps, row):  # type: ignore[no-untyped-def]
    """A walk from one end of the fact, all but its last step at random; the last leads to the other end."""
    head, relation, tail = np.int64(graph.head[fact]), graph.relation[fact], np.int64(graph.tail[fact])
    if turned:
        head, relation, tail = tail, graph.inverse_of[relation], head
    if head == tail:
        return 0
    came, state = _walk(state, head, tail, length - 1, graph, path, steps)
    if not came:
        return 0
    here = path[length - 1]
    stop = graph.rows.row_start[here + 1]
    first = first_at_least(graph.pair_tail, graph.rows.row_start[here], stop, tail)
    last = first_at_least(graph.pair_tail, first, stop, tail + 1)
    if first == last:
        return 0
    state, drawn = next_random(state)
    steps[length - 1] = graph.pair_relation[first + drawn % (last - first)]
    if length == 1 and steps[0] == relation:
        return 0
    row[RELATION] = graph.inverse_of[relation] if turned else relation
    for step in range(length):
        row[BODY + step] = graph.inverse_of[steps[length - 1 - step]] if turned else steps[step]
    return 1


@numba.njit(cache=True, nogil=True)
def _acyclic(fact, turned, length, graph, state, path, steps, pair):  # type: ignore[no-untyped-def]
    """A walk from one end of the fact away from the other, which becomes the constant that is predicted.

    A single step may lead to the constant too, by another relation than the fact's.
    """
    head, relation, tail = np.int64(graph.head[fact]), graph.relation[fact], np.int64(graph.tail[fact])
    if turned:
        head, relation, tail = tail, graph.inverse_of[relation], head
    if head == tail:
        return 0
    goal = tail if length > 1 else np.int64(NONE)
    came, state = _walk(state, head, goal, length, graph, path, steps)
    if not came or (length == 1 and path[1] == tail and steps[0] == relation):
        return 0
    rules = 1 if length == 0 or path[length] == tail else 2
    for number in range(rules):
        row = pair[number]
        row[RELATION], row[CONSTANT] = relation, tail
        row[END] = path[length] if number == 0 and length > 0 else NONE
        for step in range(length):
            row[BODY + step] = steps[step]
    return rules
