"""Entities having both of two relations: the integer counts that precision and recall are made of."""

from __future__ import annotations

from dataclasses import dataclass

import numba
import numpy as np
import numpy.typing as npt

from contextpool.context.threads import available_threads
from contextpool.errors import DataError
from contextpool.graph.graph import Graph
from contextpool.graph.relations import RelationVocabulary

Counts = npt.NDArray[np.int64]
MAX_BYTES_A_THREAD = 2**27
MAX_DIRECTED = 20_000
"""2R beyond this would need more than 3 GB for the counts."""


@dataclass(frozen=True, eq=False)
class Cooccurrence:
    """both[a, b] = entities whose relation set holds a and b. Counts of two graphs add."""

    relations: RelationVocabulary
    both: Counts
    """[2R, 2R] symmetric; its diagonal is the support of each relation."""
    num_entities: int

    @property
    def support(self) -> Counts:
        """[2R] entities having each relation."""
        return self.both.diagonal()

    def __add__(self, other: Cooccurrence) -> Cooccurrence:
        """Counts over the entities of both graphs; they have to share a relation vocabulary."""
        if self.relations != other.relations:
            raise DataError(
                "co-occurrence counts of different relation vocabularies don't add; align them first."
            )
        return Cooccurrence(self.relations, self.both + other.both, self.num_entities + other.num_entities)


def count_cooccurrence(graph: Graph) -> Cooccurrence:
    """Count a graph's co-occurrences. Its edges are sorted by entity and relation already."""
    relations = graph.relation_vocabulary
    check_relation_count(relations.num_directed)
    both = count_rows(
        graph.row_start.cpu().numpy(), graph.edge_relation.cpu().numpy(), relations.num_directed
    )
    return Cooccurrence(relations, both, graph.num_entities)


def count_from_columns(
    head: npt.NDArray[np.integer], relation: npt.NDArray[np.integer], tail: npt.NDArray[np.integer],
    num_entities: int, num_relations: int,
) -> Counts:  # fmt: skip
    """[2R, 2R] counts straight from triple columns [T], unsorted, duplicates allowed.

    A counting sort by entity and one pass of stamps: O(T + sum of |NR_e|^2) time, 8 T bytes beside the input.
    """
    check_relation_count(2 * num_relations)
    shares = available_threads()
    starts, relations = _group_by_entity(head, relation, tail, num_entities, num_relations, shares)
    return count_rows(starts, relations, 2 * num_relations)


def check_relation_count(num_directed: int) -> None:
    """Refuse a number of relations whose counts could not be held."""
    if num_directed > MAX_DIRECTED:
        raise DataError(
            f"{num_directed // 2:,} relations make a {num_directed:,} x {num_directed:,} matrix of counts, "
            f"{num_directed**2 * 8 / 1e9:.0f} GB; the most is {MAX_DIRECTED // 2:,}. "
            "Are head and relation columns swapped?"
        )


def count_rows(starts: npt.NDArray[np.int64], relations: npt.NDArray[np.int32], num_directed: int) -> Counts:
    """Counts over rows of relations, duplicates allowed: one matrix a thread, or one for all where it is large."""
    matrix_bytes = 8 * num_directed**2
    shares = available_threads() if matrix_bytes <= MAX_BYTES_A_THREAD else 1
    counts: Counts = _count_shares(starts, relations, num_directed, shares)
    return counts


@numba.njit(cache=True, parallel=True, nogil=True)
def _group_by_entity(head, relation, tail, num_entities, num_relations, shares):  # type: ignore[no-untyped-def]
    """Counting sort of the 2T (entity, directed relation) pairs by entity: starts [N + 1], relations [2T].

    Every thread reads all triples and writes for the entities of one residue class, so none share a cell.
    """
    starts = np.zeros(num_entities + 1, dtype=np.int64)
    for share in numba.prange(shares):
        _count_degrees(head, tail, share, shares, starts)
    for e in range(num_entities):
        starts[e + 1] += starts[e]
    cursor = starts[:-1].copy()
    relations = np.empty(2 * len(head), dtype=np.int32)
    for share in numba.prange(shares):
        _place_relations(head, relation, tail, num_relations, share, shares, cursor, relations)
    return starts, relations


@numba.njit(cache=True, nogil=True)
def _count_degrees(head, tail, share, shares, starts):  # type: ignore[no-untyped-def]
    for k in range(len(head)):
        if head[k] % shares == share:
            starts[head[k] + 1] += 1
        if tail[k] % shares == share:
            starts[tail[k] + 1] += 1


@numba.njit(cache=True, nogil=True)
def _place_relations(head, relation, tail, num_relations, share, shares, cursor, relations):  # type: ignore[no-untyped-def]
    for k in range(len(head)):
        if head[k] % shares == share:
            relations[cursor[head[k]]] = relation[k]
            cursor[head[k]] += 1
        if tail[k] % shares == share:
            relations[cursor[tail[k]]] = relation[k] + num_relations
            cursor[tail[k]] += 1


@numba.njit(cache=True, parallel=True, nogil=True)
def _count_shares(starts, relations, num_directed, shares):  # type: ignore[no-untyped-def]
    """Each share of the entities is counted into its own matrix; integers, so the sum is exact."""
    partial = np.zeros((shares, num_directed, num_directed), dtype=np.int32)  # an entity counts once: fits
    for share in numba.prange(shares):
        first = _share_start(starts, share, shares)
        last = _share_start(starts, share + 1, shares)
        _count_share(starts, relations, first, last, partial[share])
    both = np.zeros((num_directed, num_directed), dtype=np.int64)
    for share in range(shares):
        for a in range(num_directed):
            both[a, a] += partial[share, a, a]
            for b in range(a):
                pairs = np.int64(partial[share, a, b]) + partial[share, b, a]  # each pair stands on one side
                both[a, b] += pairs
                both[b, a] += pairs
    return both


@numba.njit(cache=True, nogil=True)
def _share_start(starts, share, shares):  # type: ignore[no-untyped-def]
    """The first entity of a share: shares hold about equally many edges."""
    if share == shares:
        return len(starts) - 1
    return np.searchsorted(starts, starts[-1] * share // shares)


@numba.njit(cache=True, nogil=True)
def _count_share(starts, relations, first, last, both):  # type: ignore[no-untyped-def]
    """Add each unordered pair of an entity's relations once, on either side of the diagonal."""
    stamp = np.full(both.shape[0], -1, dtype=np.int64)  # the entity that last had each relation
    distinct = np.empty(both.shape[0], dtype=np.int64)
    for entity in range(first, last):
        count = 0
        for k in range(starts[entity], starts[entity + 1]):
            r = relations[k]
            if stamp[r] != entity:
                stamp[r] = entity
                distinct[count] = r
                count += 1
        for i in range(count):
            row = both[distinct[i]]
            for j in range(i + 1):
                row[distinct[j]] += 1
