"""Walks along the body of a rule, compiled: no node twice, since different variables are different entities.

Rows are compressed: the edges of node n are row_start[n]:row_start[n + 1], sorted by relation. They are a graph's own
(nodes are entities) or those of a batch (nodes are (query, entity) pairs); `entity_of` says which entity a node is.
"""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np
import numpy.typing as npt

from contextpool.graph.graph import Graph
from contextpool.pool._walk_cpu import first_at_least

Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]

ANY = -1
NO_LIMIT = np.iinfo(np.int64).max


class Rows(NamedTuple):
    """Edges by the node they leave, as the walks read them."""

    row_start: Int64s  # [M + 1]
    edge_relation: Int32s  # [K] ascending in each row
    edge_tail: Int32s  # [K] node
    entity_of: Int32s  # [M]


def rows_of_graph(graph: Graph) -> Rows:
    """A graph's own rows; a node is an entity."""
    tensors = (graph.row_start, graph.edge_relation, graph.edge_tail)
    start, relation, tail = (tensor.cpu().contiguous().numpy() for tensor in tensors)
    return Rows(start, relation, tail, np.arange(graph.num_entities, dtype=np.int32))


@numba.njit(cache=True, nogil=True)
def along(relation, node, row_start, edge_relation):  # type: ignore[no-untyped-def]
    """The edges [first, last) of a node along a relation."""
    stop = row_start[node + 1]
    first = first_at_least(edge_relation, row_start[node], stop, relation)
    return first, first_at_least(edge_relation, first, stop, relation + 1)


@numba.njit(cache=True, nogil=True)
def has_edge(head, relation, tail, rows):  # type: ignore[no-untyped-def]
    """Whether a graph's rows hold the fact; there the tails of a relation are ascending."""
    first, last = along(relation, head, rows.row_start, rows.edge_relation)
    place = first_at_least(rows.edge_tail, first, last, tail)
    return place < last and rows.edge_tail[place] == tail


@numba.njit(cache=True, nogil=True)
def new_stack(length):  # type: ignore[no-untyped-def]
    """Room for one walk: its nodes, and which edges are still to be tried at each."""
    return np.empty((3, length + 1), dtype=np.int64)


@numba.njit(cache=True, nogil=True)
def ends_of_walks(  # type: ignore[no-untyped-def]
    start, body, length, rows, avoid, wanted, most_ends, most_steps, seen, mark, found, stack
):
    """Distinct nodes at which walks from `start` along body[:length] end -> (how many, edges tried).

    The nodes are written to `found`. No walk goes through the entity `avoid`; with `wanted`, only walks that end
    at that entity count. Stops after `most_ends` nodes or `most_steps` edges. `seen` [M] holds `mark` at the
    nodes found; marks that were used before have to be other ones.
    """
    path, cursor, stop = stack[0], stack[1], stack[2]
    count, steps, depth = 0, 0, 0
    path[0] = start
    cursor[0], stop[0] = along(body[0], start, rows.row_start, rows.edge_relation)
    while depth >= 0:
        if cursor[depth] == stop[depth]:
            depth -= 1
            continue
        node = rows.edge_tail[cursor[depth]]
        cursor[depth] += 1
        steps += 1
        if steps > most_steps:
            return count, steps
        if rows.entity_of[node] == avoid or _is_on(path, depth, node):
            continue
        if depth + 1 < length:
            depth += 1
            path[depth] = node
            cursor[depth], stop[depth] = along(body[depth], node, rows.row_start, rows.edge_relation)
        elif seen[node] != mark and (wanted < 0 or rows.entity_of[node] == wanted):
            seen[node] = mark
            found[count] = node
            count += 1
            if count == most_ends:
                return count, steps
    return count, steps


@numba.njit(cache=True, nogil=True)
def _is_on(path, depth, node):  # type: ignore[no-untyped-def]
    for place in range(depth + 1):  # noqa: SIM110
        if path[place] == node:
            return True
    return False


@numba.njit(cache=True, nogil=True)
def body_length(row, first):  # type: ignore[no-untyped-def]
    """How many entries of a row, from `first` on, come before the filling."""
    place = first
    while place < len(row) and row[place] >= 0:
        place += 1
    return place - first
