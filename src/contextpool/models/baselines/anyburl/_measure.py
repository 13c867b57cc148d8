"""How much a rule predicts on a graph, and how much of that is true, compiled.

Both are exact while a rule predicts at most `most_predictions` and takes at most `most_steps` edges; beyond that they
are counted on a part of the graph that depends on the rule alone.
"""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np
import numpy.typing as npt

from contextpool.graph.graph import Graph
from contextpool.models.baselines.anyburl._sampling import next_random
from contextpool.models.baselines.anyburl._walks import (
    NO_LIMIT,
    Rows,
    body_length,
    ends_of_walks,
    has_edge,
    new_stack,
    rows_of_graph,
)
from contextpool.models.baselines.anyburl.ruleset import BODY, CONSTANT, END, NONE, RELATION

Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]
HEADS_SEED = np.uint64(0x2545F4914F6CDD1D)


class Measured(NamedTuple):
    """A graph as counting reads it."""

    rows: Rows
    heads_start: Int64s  # [2R + 1]
    heads: Int32s
    """Entities that have a relation, ascending; those of relation r are heads_start[r]:heads_start[r + 1]."""
    inverse_of: Int32s  # [2R]

    @classmethod
    def of(cls, graph: Graph, inverse_of: Int32s) -> Measured:
        head, relation = graph.edge_head.cpu().numpy(), graph.edge_relation.cpu().numpy()
        number = np.unique(relation.astype(np.int64) * max(graph.num_entities, 1) + head)
        start = np.searchsorted(number, np.arange(2 * graph.num_relations + 1) * max(graph.num_entities, 1))
        heads = (number % max(graph.num_entities, 1)).astype(np.int32)
        return cls(rows_of_graph(graph), start.astype(np.int64), heads, inverse_of)


@numba.njit(cache=True, nogil=True)
def measure_rules(first, last, rules, graph, most_predictions, most_steps):  # type: ignore[no-untyped-def]
    """[last - first, 3] predictions, true ones, and edges that were looked at, for rules first..last-1."""
    num_entities = len(graph.rows.entity_of)
    seen, found = np.zeros(num_entities, dtype=np.int64), np.empty(num_entities, dtype=np.int64)
    stack, back = new_stack(rules.shape[1] - BODY), np.empty(rules.shape[1] - BODY, dtype=np.int32)
    out = np.zeros((last - first, 3), dtype=np.int64)
    mark = np.int64(1)
    for number in range(first, last):
        rule = rules[number]
        if rule[CONSTANT] < 0:
            mark = _measure_cyclic(
                rule, graph, most_predictions, most_steps, seen, mark, found, stack, out[number - first]
            )
        else:
            mark = _measure_acyclic(
                rule, graph, most_predictions, most_steps, seen, mark, found, stack, back, out[number - first]
            )
    return out


@numba.njit(cache=True, nogil=True)
def _measure_cyclic(rule, graph, most_predictions, most_steps, seen, mark, found, stack, out):  # type: ignore[no-untyped-def]
    """Pairs (start, end) of the body, and those that the head relation joins."""
    body, length = rule[BODY:], body_length(rule, BODY)
    heads = graph.heads[graph.heads_start[body[0]] : graph.heads_start[body[0] + 1]]
    offset, stride = _spread(rule, len(heads))
    for turn in range(len(heads)):
        start = np.int64(heads[(offset + turn * stride) % len(heads)])
        left = most_steps - out[2]
        count, steps = ends_of_walks(
            start, body, length, graph.rows, NONE, NONE, NO_LIMIT, left, seen, mark, found, stack
        )
        mark += 1
        out[2] += steps
        out[0] += count
        for place in range(count):
            if has_edge(start, rule[RELATION], found[place], graph.rows):
                out[1] += 1
        if out[0] >= most_predictions or out[2] >= most_steps:
            break
    return mark


@numba.njit(cache=True, nogil=True)
def _measure_acyclic(rule, graph, most_predictions, most_steps, seen, mark, found, stack, back, out):  # type: ignore[no-untyped-def]
    """Entities for which the body holds, and those that the head relation joins with the constant."""
    count, steps, mark = entities_of_body(
        rule, rule[CONSTANT], rule[END], graph, most_predictions, most_steps, seen, mark, found, stack, back
    )
    out[0], out[2] = count, steps
    for place in range(count):
        if has_edge(found[place], rule[RELATION], rule[CONSTANT], graph.rows):
            out[1] += 1
    return mark


@numba.njit(cache=True, nogil=True)
def entities_of_body(  # type: ignore[no-untyped-def]
    rule, constant, end, graph, most_found, most_steps, seen, mark, found, stack, back
):
    """Write the entities for which an acyclic body holds to `found` -> (how many, edges looked at, next mark)."""
    body, length = rule[BODY:], body_length(rule, BODY)
    if length > 0 and end >= 0:  # from its end, backwards
        for step in range(length):
            back[step] = graph.inverse_of[body[length - 1 - step]]
        avoid = constant if end != constant else NONE
        count, steps = ends_of_walks(
            end, back, length, graph.rows, avoid, NONE, NO_LIMIT, most_steps, seen, mark, found, stack
        )
        return count, steps, mark + 1
    having = body[0] if length > 0 else rule[RELATION]
    heads = graph.heads[graph.heads_start[having] : graph.heads_start[having + 1]]
    offset, stride = _spread(rule, len(heads))
    held, steps = 0, 0
    for turn in range(len(heads)):
        start = np.int64(heads[(offset + turn * stride) % len(heads)])
        if start == constant or held >= most_found or steps >= most_steps:
            continue
        holds = np.int64(1)
        if length > 0:
            scratch = found[held:]  # one place is enough, and it is taken only if the body holds
            holds, tried = ends_of_walks(
                start, body, length, graph.rows, constant, NONE, 1, most_steps, seen, mark, scratch, stack
            )
            mark += 1
            steps += tried
        if holds:
            found[held] = start
            held += 1
    return held, steps, mark


@numba.njit(cache=True, nogil=True)
def _spread(rule, count):  # type: ignore[no-untyped-def]
    """Where to begin among `count` heads and how far to go each time, so that all come once, in no order."""
    state = HEADS_SEED
    for value in rule:
        state, drawn = next_random(state ^ np.uint64(np.int64(value) + 1))
    if count < 2:
        return 0, 1
    state, drawn = next_random(state)
    offset = drawn % count
    state, drawn = next_random(state)
    stride = 1 + drawn % count
    while _common_divisor(stride, count) != 1:
        stride += 1
    return offset, stride


@numba.njit(cache=True, nogil=True)
def _common_divisor(one, other):  # type: ignore[no-untyped-def]
    while other:
        one, other = other, one % other
    return one
