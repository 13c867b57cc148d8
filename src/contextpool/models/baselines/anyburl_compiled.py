"""The compiled loops of AnyBURL: sampling paths, counting what a rule predicts, applying rules to queries.

No walk comes to a node twice, since different variables are different entities. Rows are compressed: the edges of node
n are row_start[n]:row_start[n + 1], sorted by relation. They are a graph's own (nodes are entities) or those of a batch
(nodes are (query, entity) pairs); `entity_of` says which entity a node is.
"""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np
import numpy.typing as npt

from contextpool.graph.graph import Graph
from contextpool.graph.relations import inverse
from contextpool.kernels.cpu_walk import first_at_least
from contextpool.models.rules import BODY, NONE, RELATION
from contextpool.pool.propagation import Propagation

Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]

NO_LIMIT = np.iinfo(np.int64).max
HEADS_SEED = np.uint64(0x2545F4914F6CDD1D)


class Rows(NamedTuple):
    """Edges by the node they leave."""

    row_start: Int64s  # [M + 1]
    edge_relation: Int32s  # [K] ascending in each row
    edge_tail: Int32s  # [K] node
    entity_of: Int32s  # [M]


def rows_of_batch(walk: Propagation) -> Rows:
    """The edges of a batch; those from no node of the walk are left out."""
    tensors = (walk.edge_source, walk.edge_relation, walk.edge_target, walk.node_entity)
    source, relation, target, entity = (tensor.cpu().contiguous().numpy() for tensor in tensors)
    known = np.flatnonzero(source < len(entity))
    order = known[np.lexsort((relation[known], source[known]))]
    start = np.zeros(len(entity) + 1, dtype=np.int64)
    np.cumsum(np.bincount(source[known], minlength=len(entity)), out=start[1:])
    return Rows(start, relation[order], target[order].astype(np.int32), entity.astype(np.int32))


class IndexedGraph(NamedTuple):
    """A graph as sampling and counting read it."""

    rows: Rows
    pair_tail: Int32s  # [2T] tails of each row, ascending: the edges between two entities lie side by side
    pair_relation: Int32s  # [2T] relations in the same order
    head: Int32s  # [T] of the facts
    relation: Int32s  # [T]
    tail: Int32s  # [T]
    heads_start: Int64s  # [2R + 1]
    heads: Int32s
    """Entities that have a relation, ascending; those of relation r are heads_start[r]:heads_start[r + 1]."""
    inverse_of: Int32s  # [2R]

    @classmethod
    def of(cls, graph: Graph) -> IndexedGraph:
        tensors = (
            graph.row_start,
            graph.edge_head,
            graph.edge_relation,
            graph.edge_tail,
            graph.forward_edges,
        )
        start, head, relation, tail, fact = (tensor.cpu().contiguous().numpy() for tensor in tensors)
        by_tail = np.lexsort((relation, tail, head))
        size, directed = max(graph.num_entities, 1), np.arange(2 * graph.num_relations, dtype=np.int32)
        having = np.unique(relation.astype(np.int64) * size + head)  # (relation, head)
        return cls(
            Rows(start, relation, tail, np.arange(graph.num_entities, dtype=np.int32)),
            tail[by_tail],
            relation[by_tail],
            head[fact],
            relation[fact],
            tail[fact],
            np.searchsorted(having, np.arange(len(directed) + 1) * size).astype(np.int64),
            (having % size).astype(np.int32),
            inverse(directed, graph.num_relations),
        )


# -- walks


@numba.njit(cache=True, nogil=True)
def _along(relation, node, rows):  # type: ignore[no-untyped-def]
    """The edges [first, last) of a node along a relation."""
    stop = rows.row_start[node + 1]
    first = first_at_least(rows.edge_relation, rows.row_start[node], stop, relation)
    return first, first_at_least(rows.edge_relation, first, stop, relation + 1)


@numba.njit(cache=True, nogil=True)
def _has_edge(head, relation, tail, rows):  # type: ignore[no-untyped-def]
    """Whether a graph's rows hold the fact; there the tails of a relation are ascending."""
    first, last = _along(relation, head, rows)
    place = first_at_least(rows.edge_tail, first, last, tail)
    return place < last and rows.edge_tail[place] == tail


@numba.njit(cache=True, nogil=True)
def _ends_of_walks(  # type: ignore[no-untyped-def]
    start, body, length, rows, most_steps, seen, mark, found, stack
):
    """Distinct nodes at which walks from `start` along body[:length] end -> (how many, edges tried).

    The nodes are written to `found`. Stops after `most_steps` edges. `seen` [M] holds `mark` at the nodes found;
    marks that were used before have to be other ones. `stack` [3, length + 1] has room for one walk.
    """
    path, cursor, stop = stack[0], stack[1], stack[2]
    count, steps, depth = 0, 0, 0
    path[0] = start
    cursor[0], stop[0] = _along(body[0], start, rows)
    while depth >= 0:
        if cursor[depth] == stop[depth]:
            depth -= 1
            continue
        node = rows.edge_tail[cursor[depth]]
        cursor[depth] += 1
        steps += 1
        if steps > most_steps:
            return count, steps
        if _is_on(path, depth + 1, node):
            continue
        if depth + 1 < length:
            depth += 1
            path[depth] = node
            cursor[depth], stop[depth] = _along(body[depth], node, rows)
        elif seen[node] != mark:
            seen[node] = mark
            found[count] = node
            count += 1
    return count, steps


@numba.njit(cache=True, nogil=True)
def _is_on(path, length, node):  # type: ignore[no-untyped-def]
    for place in range(length):  # noqa: SIM110
        if path[place] == node:
            return True
    return False


@numba.njit(cache=True, nogil=True)
def _body_length(rule):  # type: ignore[no-untyped-def]
    place = BODY
    while place < len(rule) and rule[place] >= 0:
        place += 1
    return place - BODY


# -- sampling (Meilicke et al. 2020, section on bottom-up learning)


@numba.njit(cache=True, nogil=True)
def _next_random(state):  # type: ignore[no-untyped-def]
    """SplitMix64: the next state, and a number below 2^53 made of this one."""
    state += np.uint64(0x9E3779B97F4A7C15)
    mixed = state
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed = mixed ^ (mixed >> np.uint64(31))
    return state, np.int64(mixed >> np.uint64(11))


@numba.njit(cache=True, nogil=True)
def sample_rules(first, last, seed, length, width, graph):  # type: ignore[no-untyped-def]
    """Rows of the rules that paths number first..last-1 are instances of, in their order: one for each that closes.

    Path number k of a seed is the same whoever draws it, so neither threads nor batches change what is found.
    """
    out = np.full((last - first, width), NONE, dtype=np.int32)
    path, steps = np.empty(length, dtype=np.int64), np.empty(length, dtype=np.int32)
    used = 0
    for number in range(first, last):
        state = np.uint64(seed) ^ (np.uint64(number) * np.uint64(0xD1342543DE82EF95))
        state, _ = _next_random(state)
        state, drawn = _next_random(state)
        fact = drawn % len(graph.head)
        state, drawn = _next_random(state)
        turned = drawn % 2 == 1
        head, relation, tail = np.int64(graph.head[fact]), graph.relation[fact], np.int64(graph.tail[fact])
        if turned:
            head, relation, tail = tail, graph.inverse_of[relation], head
        if head == tail:
            continue
        used += _closed(head, relation, tail, turned, length, graph, state, path, steps, out[used])
    return out[:used]


@numba.njit(cache=True, nogil=True)
def _walk(state, here, goal, length, graph, path, steps):  # type: ignore[no-untyped-def]
    """`length` random steps, no entity twice and never to `goal` -> (whether it got there, state)."""
    path[0] = here
    for step in range(length):
        first, stop = graph.rows.row_start[here], graph.rows.row_start[here + 1]
        if first == stop:
            return False, state
        state, drawn = _next_random(state)
        edge = first + drawn % (stop - first)
        here = np.int64(graph.rows.edge_tail[edge])
        steps[step] = graph.rows.edge_relation[edge]
        if here == goal or _is_on(path, step + 1, here):
            return False, state
        path[step + 1] = here
    return True, state


@numba.njit(cache=True, nogil=True)
def _closed(head, relation, tail, turned, length, graph, state, path, steps, row):  # type: ignore[no-untyped-def]
    """A walk from one end of the fact, all but its last step at random; the last leads to the other end."""
    came, state = _walk(state, head, tail, length - 1, graph, path, steps)
    if not came:
        return 0
    here = path[length - 1]
    stop = graph.rows.row_start[here + 1]
    first = first_at_least(graph.pair_tail, graph.rows.row_start[here], stop, tail)
    last = first_at_least(graph.pair_tail, first, stop, tail + 1)
    if first == last:
        return 0
    state, drawn = _next_random(state)
    steps[length - 1] = graph.pair_relation[first + drawn % (last - first)]
    if length == 1 and steps[0] == relation:
        return 0
    row[RELATION] = graph.inverse_of[relation] if turned else relation
    for step in range(length):
        row[BODY + step] = graph.inverse_of[steps[length - 1 - step]] if turned else steps[step]
    return 1


# -- counting


@numba.njit(cache=True, nogil=True)
def measure_rules(first, last, rules, graph, most_predictions, most_steps):  # type: ignore[no-untyped-def]
    """[last - first, 3] predictions, true ones, and edges that were looked at, for rules first..last-1.

    Exact while a rule predicts at most `most_predictions` and takes at most `most_steps` edges; beyond that it is
    counted on a part of the graph that depends on the rule alone.
    """
    num_entities = len(graph.rows.entity_of)
    seen, found = np.zeros(num_entities, dtype=np.int64), np.empty(num_entities, dtype=np.int64)
    stack = np.empty((3, rules.shape[1] - BODY + 1), dtype=np.int64)
    out = np.zeros((last - first, 3), dtype=np.int64)
    mark = np.int64(1)
    for number in range(first, last):
        counts = out[number - first]
        mark = _measure(rules[number], graph, most_predictions, most_steps, seen, mark, found, stack, counts)
    return out


@numba.njit(cache=True, nogil=True)
def _measure(rule, graph, most_predictions, most_steps, seen, mark, found, stack, out):  # type: ignore[no-untyped-def]
    """Pairs (start, end) of the body, and those that the head relation joins."""
    body, length = rule[BODY:], _body_length(rule)
    heads = graph.heads[graph.heads_start[body[0]] : graph.heads_start[body[0] + 1]]
    offset, stride = _spread(rule, len(heads))
    for turn in range(len(heads)):
        start = np.int64(heads[(offset + turn * stride) % len(heads)])
        left = most_steps - out[2]
        count, steps = _ends_of_walks(start, body, length, graph.rows, left, seen, mark, found, stack)
        mark += 1
        out[2] += steps
        out[0] += count
        for place in range(count):
            out[1] += _has_edge(start, rule[RELATION], found[place], graph.rows)
        if out[0] >= most_predictions or out[2] >= most_steps:
            break
    return mark


@numba.njit(cache=True, nogil=True)
def _spread(rule, count):  # type: ignore[no-untyped-def]
    """A start and a stride that visit each of `count` heads once, in mixed order.

    Two numbers are skipped, those of two columns that rows once had: counts are those that results/ were made with.
    """
    state, _ = _next_random(HEADS_SEED ^ np.uint64(np.int64(rule[RELATION]) + 1))
    state, _ = _next_random(state)
    state, _ = _next_random(state)
    for value in rule[BODY:]:
        state, _ = _next_random(state ^ np.uint64(np.int64(value) + 1))
    if count < 2:
        return 0, 1
    state, drawn = _next_random(state)
    offset = drawn % count
    state, drawn = _next_random(state)
    stride = 1 + drawn % count
    while _common_divisor(stride, count) != 1:
        stride += 1
    return offset, stride


@numba.njit(cache=True, nogil=True)
def _common_divisor(one, other):  # type: ignore[no-untyped-def]
    while other:
        one, other = other, one % other
    return one


# -- applying


@numba.njit(cache=True, nogil=True)
def fired_rules(query, relation, rows, rules, num_entities):  # type: ignore[no-untyped-def]
    """Entities that rules predict for a query and the levels of these rules, ascending -> ([F], [F]).

    The query starts at node number `query` of the batch's `rows`; `rules` are a model's `OrderedRules`.
    """
    seen, found = np.zeros(len(rows.entity_of), dtype=np.int64), np.empty(num_entities, dtype=np.int64)
    stack = np.empty((3, rules.rows.shape[1] - BODY + 1), dtype=np.int64)
    fired, used = np.empty((2, 1024), dtype=np.int32), 0
    for number in range(rules.start[relation], rules.start[relation + 1]):
        rule = rules.rows[number]
        count, _ = _ends_of_walks(
            query, rule[BODY:], _body_length(rule), rows, NO_LIMIT, seen, number + 1, found, stack
        )
        if used + count > fired.shape[1]:
            longer = np.empty((2, max(2 * fired.shape[1], used + count)), dtype=np.int32)
            longer[:, :used] = fired[:, :used]
            fired = longer
        for place in range(count):
            fired[0, used + place] = rows.entity_of[found[place]]
        fired[1, used : used + count] = rules.level[number]
        used += count
    return fired[0, :used], fired[1, :used]
