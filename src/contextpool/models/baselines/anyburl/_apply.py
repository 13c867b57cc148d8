"""Rules applied to a batch of queries, compiled: which rules predict which candidates, compared by maximum first.

Candidates are ordered by their most trusted rule, those that tie by their second and so on (max-plus); one rule more
is better than one less. The order becomes a score next to the confidence of the most trusted rule.
"""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np
import numpy.typing as npt

from contextpool.graph.graph import Graph
from contextpool.graph.relations import inverse
from contextpool.models.baselines.anyburl._measure import entities_of_body
from contextpool.models.baselines.anyburl._walks import NO_LIMIT, Rows, body_length, ends_of_walks, new_stack
from contextpool.models.baselines.anyburl.ruleset import BODY, CONSTANT, END, NONE, RELATION, RuleSet
from contextpool.pool._walk_cpu import first_at_least, with_room
from contextpool.pool.propagation import Propagation

Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

ORDER_SHARE = 1e-3
"""Part of a score that is the place among the candidates; the rest is the confidence of the best rule."""


class BoundRules(NamedTuple):
    """Rules as the queries over one graph use them; those with constants that it lacks are left out."""

    rows: Int32s
    """[K, 3 + L] as in a `RuleSet`, constants as entities of the graph; each directed relation's own, best first."""
    level: Int32s  # [K] the place of the rule's confidence among all, 0 for the highest
    start: Int64s  # [2R + 1] rules of each directed relation that any head may use
    from_rows: Int32s
    """[F, 3 + L] the same for the other direction: only the constant itself may ask, for whom the body holds."""
    from_level: Int32s  # [F]
    from_key: Int64s
    """[F] ascending: asked relation times N, plus the constant."""
    confidence: Floats  # [levels] descending


def bind(rules: RuleSet, confidence: Floats, graph: Graph) -> BoundRules:
    """`confidence` [K] is what each rule is trusted."""
    numbers = np.array([graph.entity_vocabulary.index.get(label, NONE) for label in rules.constants] + [NONE])
    rows = rules.rows.copy()
    rows[:, CONSTANT : END + 1] = numbers[rows[:, CONSTANT : END + 1]]
    lost = (rows[:, CONSTANT : END + 1] == NONE) & (rules.rows[:, CONSTANT : END + 1] != NONE)
    kept = ~lost.any(axis=1) & (confidence > 0)
    rows, confidence = rows[kept], confidence[kept]
    distinct, level = np.unique(-confidence, return_inverse=True)
    level = level.astype(np.int32)
    cyclic = rows[:, CONSTANT] == NONE
    turned = _turned(rows[cyclic], graph.num_relations)
    general = np.concatenate([rows, turned])
    general_level = np.concatenate([level, level[cyclic]])
    order = np.lexsort((general_level, general[:, RELATION]))
    general = np.ascontiguousarray(general[order])
    start = np.searchsorted(general[:, RELATION], np.arange(2 * graph.num_relations + 1))
    own = ~cyclic & (rows[:, BODY:] != NONE).any(axis=1)
    asked = inverse(rows[own, RELATION].astype(np.int64), graph.num_relations)
    key = asked * max(graph.num_entities, 1) + rows[own, CONSTANT]
    by_key = np.lexsort((level[own], key))
    return BoundRules(
        general,
        general_level[order],
        start.astype(np.int64),
        np.ascontiguousarray(rows[own][by_key]),
        level[own][by_key],
        key[by_key],
        -distinct,
    )


def _turned(rows: Int32s, num_relations: int) -> Int32s:
    """Cyclic rules for the question in the other direction: the body walked from its end."""
    turned = np.full_like(rows, NONE)
    turned[:, RELATION] = inverse(rows[:, RELATION], num_relations)
    lengths = (rows[:, BODY:] != NONE).sum(axis=1)
    for length in np.unique(lengths).tolist():
        of_length = lengths == length
        body = rows[of_length, BODY : BODY + length][:, ::-1]
        turned[of_length, BODY : BODY + length] = inverse(body, num_relations)
    return turned


def rows_of_batch(walk: Propagation) -> Rows:
    """The edges of a batch by the node they leave, sorted by relation; a node is a (query, entity) pair."""
    tensors = (walk.edge_source, walk.edge_relation, walk.edge_target, walk.node_entity)
    source, relation, target, entity = (tensor.cpu().contiguous().numpy() for tensor in tensors)
    start, order = _by_source_and_relation(source, relation, len(entity), 2 * walk.graph.num_relations)
    return Rows(start, relation[order], target[order].astype(np.int32), entity.astype(np.int32))


@numba.njit(cache=True, nogil=True)
def _by_source_and_relation(source, relation, num_nodes, num_relations):  # type: ignore[no-untyped-def]
    """Row starts and the order of the edges; two counting sorts. Edges from no node of the walk are left out."""
    by_relation = np.zeros(num_relations + 1, dtype=np.int64)
    start = np.zeros(num_nodes + 1, dtype=np.int64)
    for edge in range(len(source)):
        if source[edge] < num_nodes:
            by_relation[relation[edge] + 1] += 1
            start[source[edge] + 1] += 1
    for place in range(num_relations):
        by_relation[place + 1] += by_relation[place]
    for place in range(num_nodes):
        start[place + 1] += start[place]
    first = np.empty(start[-1], dtype=np.int64)
    for edge in range(len(source)):
        if source[edge] < num_nodes:
            first[by_relation[relation[edge]]] = edge
            by_relation[relation[edge]] += 1
    order, place_of = np.empty(len(first), dtype=np.int64), start[:-1].copy()
    for edge in first:
        order[place_of[source[edge]]] = edge
        place_of[source[edge]] += 1
    return start, order


@numba.njit(cache=True, nogil=True)
def score_block(first, last, head, relation, rows, rules, graph, scores):  # type: ignore[no-untyped-def]
    """Fill scores[first:last, N]; query b starts at node b of `rows`, which are the batch's, `graph` is the graph's."""
    num_entities = scores.shape[1]
    seen = np.zeros(len(rows.entity_of), dtype=np.int64)
    seen_entity = np.zeros(num_entities, dtype=np.int64)
    found = np.empty(num_entities, dtype=np.int64)
    width = rules.rows.shape[1] - BODY
    stack, back = new_stack(width), np.empty(width, dtype=np.int32)
    fired_entity, fired_level = np.empty(1024, dtype=np.int32), np.empty(1024, dtype=np.int32)
    mark = np.int64(1)
    for query in range(first, last):
        used = np.int64(0)
        one, one_stop = rules.start[relation[query]], rules.start[relation[query] + 1]
        key = np.int64(relation[query]) * num_entities + head[query]
        two = first_at_least(rules.from_key, 0, len(rules.from_key), key)
        two_stop = first_at_least(rules.from_key, two, len(rules.from_key), key + 1)
        while one < one_stop or two < two_stop:  # both runs are by level: take the lower one
            if two == two_stop or (one < one_stop and rules.level[one] <= rules.from_level[two]):
                count, mark = _fired(rules.rows[one], query, head[query], rows, seen, mark, found, stack)
                level = rules.level[one]
                one += 1
            else:
                rule = rules.from_rows[two]
                count, _, mark = entities_of_body(
                    rule, rule[CONSTANT], rule[END], graph, NO_LIMIT, NO_LIMIT, seen_entity, mark, found,
                    stack, back,
                )  # fmt: skip
                level = rules.from_level[two]
                two += 1
            fired_entity = with_room(fired_entity, used, count)
            fired_level = with_room(fired_level, used, count)
            for place in range(count):
                fired_entity[used + place], fired_level[used + place] = found[place], level
            used += count
        _score(fired_entity[:used], fired_level[:used], rules.confidence, scores[query])


@numba.njit(cache=True, nogil=True)
def _fired(rule, node, head, rows, seen, mark, found, stack):  # type: ignore[no-untyped-def]
    """Write the entities that a rule predicts for the head to `found` -> (how many, next mark)."""
    length = body_length(rule, BODY)
    constant, end = rule[CONSTANT], rule[END]
    if constant < 0:
        count, _ = ends_of_walks(
            node, rule[BODY:], length, rows, NONE, NONE, NO_LIMIT, NO_LIMIT, seen, mark, found, stack
        )
        for place in range(count):
            found[place] = rows.entity_of[found[place]]
        return count, mark + 1
    if constant == head:
        return 0, mark
    count = 1
    if length > 0:
        avoid = constant if end != constant else NONE
        count, _ = ends_of_walks(
            node, rule[BODY:], length, rows, avoid, end, 1, NO_LIMIT, seen, mark, found, stack
        )
    found[0] = constant
    return count, mark + 1


@numba.njit(cache=True, nogil=True)
def _score(entity, level, confidence, scores):  # type: ignore[no-untyped-def]
    """Scores [N] from who was predicted at which levels; pairs come with ascending levels."""
    start = np.zeros(len(scores) + 1, dtype=np.int64)
    for fired in entity:
        start[fired + 1] += 1
    candidates = np.flatnonzero(start[1:])
    for place in range(len(scores)):
        start[place + 1] += start[place]
    levels, place_of = np.empty(len(entity), dtype=np.int32), start[:-1].copy()
    for place in range(len(entity)):
        levels[place_of[entity[place]]] = level[place]
        place_of[entity[place]] += 1
    order = _sorted_by_levels(candidates, start, levels)  # the least trusted first
    groups = 0
    for place in range(len(order)):
        if place == 0 or _compared(order[place - 1], order[place], start, levels) != 0:
            groups += 1
        scores[order[place]] = groups
    for candidate in order:
        best = confidence[levels[start[candidate]]]
        scores[candidate] = (1 - ORDER_SHARE) * best + ORDER_SHARE * scores[candidate] / (groups + 1)


@numba.njit(cache=True, nogil=True)
def _compared(one, other, start, levels):  # type: ignore[no-untyped-def]
    """-1 where `one` is trusted less than `other`, 1 where more, 0 where alike."""
    first, second = start[one], start[other]
    while first < start[one + 1] and second < start[other + 1]:
        if levels[first] != levels[second]:
            return -1 if levels[first] > levels[second] else 1
        first += 1
        second += 1
    return np.int64(first < start[one + 1]) - np.int64(second < start[other + 1])


@numba.njit(cache=True, nogil=True)
def _sorted_by_levels(candidates, start, levels):  # type: ignore[no-untyped-def]
    """Merge sort, bottom up."""
    order, other = candidates.copy(), candidates.copy()
    size = 1
    while size < len(order):
        for low in range(0, len(order), 2 * size):
            middle, high = min(low + size, len(order)), min(low + 2 * size, len(order))
            left, right = low, middle
            for place in range(low, high):
                take_left = right == high or (
                    left < middle and _compared(order[left], order[right], start, levels) <= 0
                )
                if take_left:
                    other[place] = order[left]
                    left += 1
                else:
                    other[place] = order[right]
                    right += 1
        order, other = other, order
        size *= 2
    return order
