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
from contextpool.models.rules import BODY, CONSTANT, END, NONE, RELATION
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
    start, body, length, rows, avoid, wanted, most_ends, most_steps, seen, mark, found, stack
):
    """Distinct nodes at which walks from `start` along body[:length] end -> (how many, edges tried).

    The nodes are written to `found`. No walk goes through the entity `avoid`; with `wanted`, only walks that end
    at that entity count. Stops after `most_ends` nodes or `most_steps` edges. `seen` [M] holds `mark` at the
    nodes found; marks that were used before have to be other ones. `stack` [3, length + 1] has room for one walk.
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
        if rows.entity_of[node] == avoid or _is_on(path, depth + 1, node):
            continue
        if depth + 1 < length:
            depth += 1
            path[depth] = node
            cursor[depth], stop[depth] = _along(body[depth], node, rows)
        elif seen[node] != mark and (wanted < 0 or rows.entity_of[node] == wanted):
            seen[node] = mark
            found[count] = node
            count += 1
            if count == most_ends:
                return count, steps
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
def sample_rules(first, last, seed, cyclic, length, width, graph):  # type: ignore[no-untyped-def]
    """Rows of the rules that paths number first..last-1 are instances of, in their order.

    Cyclic: one rule for each path that closes. Acyclic: one that ends where the path does, one that ends anywhere.
    Path number k of a seed is the same whoever draws it, so neither threads nor batches change what is found.
    """
    out = np.full((2 * (last - first), width), NONE, dtype=np.int32)
    path, steps = np.empty(length + 2, dtype=np.int64), np.empty(length + 1, dtype=np.int32)
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
        if cyclic:
            used += _cyclic(head, relation, tail, turned, length, graph, state, path, steps, out[used])
        else:
            used += _acyclic(head, relation, tail, length, graph, state, path, steps, out[used : used + 2])
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
def _cyclic(head, relation, tail, turned, length, graph, state, path, steps, row):  # type: ignore[no-untyped-def]
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


@numba.njit(cache=True, nogil=True)
def _acyclic(head, relation, tail, length, graph, state, path, steps, pair):  # type: ignore[no-untyped-def]
    """A walk from one end of the fact away from the other, which becomes the constant that is predicted.

    A single step may lead to the constant too, by another relation than the fact's.
    """
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


# -- counting


@numba.njit(cache=True, nogil=True)
def measure_rules(first, last, rules, graph, most_predictions, most_steps):  # type: ignore[no-untyped-def]
    """[last - first, 3] predictions, true ones, and edges that were looked at, for rules first..last-1.

    Exact while a rule predicts at most `most_predictions` and takes at most `most_steps` edges; beyond that it is
    counted on a part of the graph that depends on the rule alone.
    """
    num_entities, width = len(graph.rows.entity_of), rules.shape[1] - BODY
    seen, found = np.zeros(num_entities, dtype=np.int64), np.empty(num_entities, dtype=np.int64)
    stack, back = np.empty((3, width + 1), dtype=np.int64), np.empty(width, dtype=np.int32)
    out = np.zeros((last - first, 3), dtype=np.int64)
    mark = np.int64(1)
    for number in range(first, last):
        rule, counts = rules[number], out[number - first]
        if rule[CONSTANT] < 0:
            mark = _measure_cyclic(
                rule, graph, most_predictions, most_steps, seen, mark, found, stack, counts
            )
            continue
        counts[0], counts[2], mark = _entities_of_body(
            rule, graph, most_predictions, most_steps, seen, mark, found, stack, back
        )
        for place in range(counts[0]):
            counts[1] += _has_edge(found[place], rule[RELATION], rule[CONSTANT], graph.rows)
    return out


@numba.njit(cache=True, nogil=True)
def _measure_cyclic(rule, graph, most_predictions, most_steps, seen, mark, found, stack, out):  # type: ignore[no-untyped-def]
    """Pairs (start, end) of the body, and those that the head relation joins."""
    body, length = rule[BODY:], _body_length(rule)
    heads = graph.heads[graph.heads_start[body[0]] : graph.heads_start[body[0] + 1]]
    offset, stride = _spread(rule, len(heads))
    for turn in range(len(heads)):
        start = np.int64(heads[(offset + turn * stride) % len(heads)])
        left = most_steps - out[2]
        count, steps = _ends_of_walks(
            start, body, length, graph.rows, NONE, NONE, NO_LIMIT, left, seen, mark, found, stack
        )
        mark += 1
        out[2] += steps
        out[0] += count
        for place in range(count):
            out[1] += _has_edge(start, rule[RELATION], found[place], graph.rows)
        if out[0] >= most_predictions or out[2] >= most_steps:
            break
    return mark


@numba.njit(cache=True, nogil=True)
def _entities_of_body(rule, graph, most_found, most_steps, seen, mark, found, stack, back):  # type: ignore[no-untyped-def]
    """Write the entities for which an acyclic body holds to `found` -> (how many, edges looked at, next mark)."""
    body, length, constant, end = rule[BODY:], _body_length(rule), rule[CONSTANT], rule[END]
    if length > 0 and end >= 0:  # from its end, backwards
        for step in range(length):
            back[step] = graph.inverse_of[body[length - 1 - step]]
        avoid = constant if end != constant else NONE
        count, steps = _ends_of_walks(
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
            holds, tried = _ends_of_walks(
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
    """A start and a stride that visit each of `count` heads once, in mixed order."""
    state = HEADS_SEED
    for value in rule:
        state, drawn = _next_random(state ^ np.uint64(np.int64(value) + 1))
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
def fired_rules(query, head, relation, rows, rules, graph, num_entities):  # type: ignore[no-untyped-def]
    """Entities that rules predict for a query and the levels of these rules, ascending -> ([F], [F]).

    The query starts at node number `query` of the batch's `rows`; `rules` are a model's `BoundRules`.
    """
    seen, seen_entity = np.zeros(len(rows.entity_of), dtype=np.int64), np.zeros(num_entities, dtype=np.int64)
    found, width = np.empty(num_entities, dtype=np.int64), rules.rows.shape[1] - BODY
    stack, back = np.empty((3, width + 1), dtype=np.int64), np.empty(width, dtype=np.int32)
    fired, used, mark = np.empty((2, 1024), dtype=np.int32), 0, np.int64(1)
    one, one_stop = rules.start[relation], rules.start[relation + 1]
    key = np.int64(relation) * num_entities + head
    two = first_at_least(rules.from_key, 0, len(rules.from_key), key)
    two_stop = first_at_least(rules.from_key, two, len(rules.from_key), key + 1)
    while one < one_stop or two < two_stop:  # both runs are by level: take the lower one
        if two == two_stop or (one < one_stop and rules.level[one] <= rules.from_level[two]):
            count = _fired(rules.rows[one], query, head, rows, seen, mark, found, stack)
            level = rules.level[one]
            mark += 1
            one += 1
        else:
            count, _, mark = _entities_of_body(
                rules.from_rows[two], graph, NO_LIMIT, NO_LIMIT, seen_entity, mark, found, stack, back
            )
            level = rules.from_level[two]
            two += 1
        if used + count > fired.shape[1]:
            longer = np.empty((2, max(2 * fired.shape[1], used + count)), dtype=np.int32)
            longer[:, :used] = fired[:, :used]
            fired = longer
        fired[0, used : used + count] = found[:count]
        fired[1, used : used + count] = level
        used += count
    return fired[0, :used], fired[1, :used]


@numba.njit(cache=True, nogil=True)
def _fired(rule, node, head, rows, seen, mark, found, stack):  # type: ignore[no-untyped-def]
    """Write the entities that a rule predicts for the head to `found` -> how many."""
    body, length, constant, end = rule[BODY:], _body_length(rule), rule[CONSTANT], rule[END]
    if constant < 0:
        count, _ = _ends_of_walks(
            node, body, length, rows, NONE, NONE, NO_LIMIT, NO_LIMIT, seen, mark, found, stack
        )
        for place in range(count):
            found[place] = rows.entity_of[found[place]]
        return count
    if constant == head:
        return 0
    count = 1
    if length > 0:
        avoid = constant if end != constant else NONE
        count, _ = _ends_of_walks(node, body, length, rows, avoid, end, 1, NO_LIMIT, seen, mark, found, stack)
    found[0] = constant
    return count
