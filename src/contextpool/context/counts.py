"""What is counted of a graph's relations, and the counts as they would be without one fact.

`Cooccurrence` counts the entities having both of two relations: the integers that precision and recall are made of.
`Statistics` adds the distinct relation sets; a run stores those of its training graph. Counts of two graphs add.
`CountsOf` gives the counts without the hidden fact of each query, exactly: hiding the edge (h, x, t) can take x out of
NR_h and inverse(x) out of NR_t, so counts change in the rows of x and of inverse(x), and in their columns, alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import repeat
from pathlib import Path
from typing import Any

import numba
import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from contextpool.errors import DataError
from contextpool.graph.graph import Graph
from contextpool.graph.relation_sets import (
    WORD_BITS,
    RelationSets,
    entity_words,
    num_words,
    pack_bits,
    relation_sets,
)
from contextpool.graph.relations import RelationVocabulary, inverse

Counts = npt.NDArray[np.int64]
MAX_BYTES_A_THREAD = 2**27
LEAST_SHARED = 2**20
"""Edges; fewer are counted sooner than threads are started."""
BYTES_A_PAIR = 24
"""Of two relations: counts of entities and of pairs, what threads count, precision, and a copy of it."""
MAX_DIRECTED = 20_000
"""2R beyond this would need more than 10 GB."""


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

    def __repr__(self) -> str:
        return f"Cooccurrence({len(self.both):,} directed relations, {self.num_entities:,} entities)"

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


def check_relation_count(num_directed: int, free: int | None = None) -> None:
    """Refuse a number of relations whose counts could not be held, before memory is taken for them.

    `free` is how many bytes there are; by default what the system says.
    """
    needed = BYTES_A_PAIR * num_directed**2
    matrix = f"{num_directed // 2:,} relations make a {num_directed:,} x {num_directed:,} matrix of counts"
    if num_directed > MAX_DIRECTED:
        raise DataError(
            f"{matrix}, {needed / 1e9:,.0f} GB with what is made of it; the most is {MAX_DIRECTED // 2:,} relations. "
            "Are head and relation columns swapped? Leave out the rare ones otherwise."
        )
    free = free_memory() if free is None and needed > MAX_BYTES_A_THREAD else free
    if free is not None and needed > free:
        raise DataError(
            f"{matrix}, which takes {needed / 1e9:.1f} GB with what is made of it, and {free / 1e9:.1f} GB are free. "
            "Leave out the facts of rare relations, or use a machine with more memory."
        )


def free_memory() -> int | None:
    """Bytes that can be had without swapping; None where the system does not say."""
    try:
        lines = Path("/proc/meminfo").read_text("ascii").splitlines()
        return next(1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable"))
    except (OSError, ValueError, StopIteration):
        return None


def count_rows(starts: npt.NDArray[np.int64], relations: npt.NDArray[np.int32], num_directed: int) -> Counts:
    """Counts over rows of relations, duplicates allowed: one matrix a thread, or one for all where it is large."""
    bounds = rows_by_thread(starts, 8 * num_directed**2)
    shares = len(bounds) - 1
    partial = np.zeros((shares, num_directed, num_directed), dtype=np.int32)  # an entity counts once: fits
    with ThreadPoolExecutor(shares) as threads:  # numba's own take seconds to compile for
        counted = threads.map(_count_share, repeat(starts), repeat(relations), bounds, bounds[1:], partial)
        assert len(list(counted)) == shares
    counts = np.zeros(partial.shape[1:], dtype=np.int64)
    add_shares(partial, counts)
    return counts


def rows_by_thread(starts: npt.NDArray[np.int64], bytes_a_thread: int) -> npt.NDArray[np.intp]:
    """Where the rows of each thread begin, and the end: about equally many edges each; one thread where it pays not."""
    several = starts[-1] >= LEAST_SHARED and bytes_a_thread <= MAX_BYTES_A_THREAD
    shares = available_threads() if several else 1
    return np.append(np.searchsorted(starts, starts[-1] * np.arange(shares) // shares), len(starts) - 1)


def available_threads() -> int:
    """How many threads numba may use.

    Asked for the first time, numba starts its own threads, and where it finds torch's OpenMP library it sets torch's
    number to theirs: that is put back. So this is asked before any compiled code that works in parallel.
    """
    before = torch.get_num_threads()
    available: int = numba.get_num_threads()
    if torch.get_num_threads() != before:
        torch.set_num_threads(before)
    return available


@dataclass(frozen=True, eq=False)
class Statistics:
    """Integer counts, so sums over graphs are exact; a run stores those of its training graph."""

    counts: Cooccurrence
    sets: RelationSets
    """Distinct relation sets with how many entities have each; `set_of_entity` belongs to the graph alone."""

    @classmethod
    def of(cls, graph: Graph) -> Statistics:
        return cls(count_cooccurrence(graph), relation_sets(graph))

    @property
    def relations(self) -> RelationVocabulary:
        return self.counts.relations

    def over(self, relations: RelationVocabulary) -> Statistics:
        """The same counts numbered by other relations: zero for what was not counted, nothing of what they lack."""
        if relations == self.relations:
            return self
        place = np.array([relations.index.get(label, -1) for label in self.relations.directed], dtype=np.intp)
        old = np.flatnonzero(place >= 0)
        new = place[old]
        both = np.zeros((relations.num_directed, relations.num_directed), dtype=self.counts.both.dtype)
        both[np.ix_(new, new)] = self.counts.both[np.ix_(old, old)]
        members = np.zeros((len(self.sets.words), relations.num_directed), dtype=bool)
        members[:, new] = self.sets.members()[:, old]
        sets = RelationSets(
            relations.num_directed, pack_bits(members), self.sets.weight, self.sets.set_of_entity
        )
        return Statistics(Cooccurrence(relations, both, self.counts.num_entities), sets)

    def __add__(self, other: Statistics) -> Statistics:
        """Over the entities of both graphs."""
        counts = self.counts + other.counts
        stacked = np.concatenate([self.sets.words, other.sets.words])
        weight = np.concatenate([self.sets.weight, other.sets.weight])
        words, place = np.unique(stacked, axis=0, return_inverse=True)
        total = np.bincount(place.reshape(-1), weights=weight, minlength=len(words)).astype(np.int64)
        nobody = np.empty(0, dtype=np.int32)
        return Statistics(counts, RelationSets(self.sets.num_directed, words, total, nobody))

    def to_tensors(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """As tensors and a few plain values, to be stored."""
        tensors = {
            "both": torch.from_numpy(self.counts.both.copy()),
            "set_words": torch.from_numpy(self.sets.words.view(np.int64).copy()),
            "set_weight": torch.from_numpy(self.sets.weight.copy()),
        }
        return tensors, {"num_entities": self.counts.num_entities}

    @classmethod
    def from_tensors(
        cls, relations: RelationVocabulary, tensors: Mapping[str, Tensor], meta: Mapping[str, Any]
    ) -> Statistics:
        """What `to_tensors` gave, for the same relations."""
        cls.check_shapes(relations, {name: (one.dtype, tuple(one.shape)) for name, one in tensors.items()})
        both, words, weight = (tensors[name].cpu().numpy() for name in ("both", "set_words", "set_weight"))
        size, entities = relations.num_directed, meta.get("num_entities")
        beyond = (
            size % WORD_BITS
        )  # bits of the last word that stand for no relation: compiled code would follow them
        stray = len(words) and beyond and (words[:, -1].view(np.uint64) >> np.uint64(beyond)).any()
        if type(entities) is not int or entities < 0 or stray or (both < 0).any() or (weight < 0).any():
            raise DataError("the stored context holds numbers that are no counts of a graph. It is damaged.")
        nobody = np.empty(0, dtype=np.int32)
        sets = RelationSets(size, words.view(np.uint64), weight, nobody)
        return cls(Cooccurrence(relations, both, entities), sets)

    @staticmethod
    def check_shapes(
        relations: RelationVocabulary, shapes: Mapping[str, tuple[torch.dtype, tuple[int, ...]]]
    ) -> None:
        """Refuse tensors that cannot be the counts of these relations."""
        size, width = relations.num_directed, num_words(relations.num_directed)
        sets = shapes.get("set_weight", (None, ()))[1][:1]  # [S]
        expected = {"both": (size, size), "set_words": (*sets, width), "set_weight": sets}
        if shapes != {name: (torch.int64, shape) for name, shape in expected.items()} or not sets:
            raise DataError(f"the stored context does not belong to {relations.num_relations} relations.")


@dataclass(frozen=True, eq=False)
class QueryCounts:
    """The rows of counts that B queries ask for, each without what it must not know."""

    both: Tensor
    """[B, 2, 2R] int64 entities having (the query relation, its inverse) and each relation."""
    support: Tensor
    """[B, 2R] int64 entities having each relation."""
    own: Tensor
    """[B, 2] int64 entities having (the query relation, its inverse)."""

    def with_neighbors(self, other: Tensor) -> QueryCounts:
        """The counts of neighbor other[y] in the place of those of y; other [2R]."""
        return replace(self, both=self.both[:, :, other], support=self.support[:, other])

    def precision(self, row: int) -> Tensor:
        """[B, 2R] P(query | neighbor); row 0 for the query relation, 1 for its inverse."""
        return self.both[:, row].double() / self.support.clamp(min=1)

    def recall(self, row: int) -> Tensor:
        """[B, 2R] P(neighbor | query); rows as for precision."""
        return self.both[:, row].double() / self.own[:, row, None].clamp(min=1)

    def relevance(self) -> Tensor:
        """[B, 4, 2R] float32: precision and recall for the query relation, then for its inverse."""
        rows = [self.precision(0), self.recall(0), self.precision(1), self.recall(1)]
        return torch.stack(rows, dim=1).float()


class CountsOf:
    """Counts and relation sets of one graph on a device, ready to be asked with facts left out."""

    def __init__(self, graph: Graph, counts: Cooccurrence) -> None:
        self.num_relations, self.num_entities = graph.num_relations, counts.num_entities
        self.both = torch.from_numpy(counts.both).to(graph.device)  # [2R, 2R], read only
        self.support = self.both.diagonal().clone()  # [2R]
        self._graph = graph
        self.words = torch.from_numpy(entity_words(graph).view("int64")).to(graph.device)  # [N, W]
        self.only_one = _is_only_edge_of_its_pair(graph)  # [2T]

    def relation_sets(self, entity: Tensor) -> Tensor:
        """[B, 2R] whether each of the entities [B] has each relation."""
        shifts = torch.arange(WORD_BITS, device=entity.device)
        bits = (self.words[entity][:, :, None] >> shifts) & 1  # [B, W, 64]
        return bits.flatten(1)[:, : 2 * self.num_relations] != 0

    def for_queries(self, query_relation: Tensor, hidden_edge: Tensor) -> QueryCounts:
        """Counts for queries [B], each without its hidden edge [B]; -1 hides nothing.

        The hidden edge is the query itself: its relation is the query relation.
        """
        rows = torch.stack([query_relation, inverse(query_relation, self.num_relations)], dim=1)  # [B, 2]
        both = self.both[rows]  # [B, 2, 2R], a copy
        support = self.support.expand(len(rows), -1).clone()
        hiding = torch.nonzero(hidden_edge >= 0).squeeze(1)
        if len(hiding):
            both[hiding] -= self._lost(rows[hiding], hidden_edge[hiding])
            support[hiding] = support[hiding].scatter(
                1, rows[hiding], both[hiding].gather(2, rows[hiding][:, :, None])[..., 0]
            )
        return QueryCounts(both, support, own=support.gather(1, rows))

    def _lost(self, rows: Tensor, edge: Tensor) -> Tensor:
        """[B, 2, 2R] how many entities (head, tail) stop having both relations when the edge is hidden."""
        head, head_set, tail, tail_set = self.sets_without(edge)
        at_head = _both(self.relation_sets(head), rows) - _both(head_set, rows)
        at_tail = _both(self.relation_sets(tail), rows) - _both(tail_set, rows)
        return at_head + torch.where((head == tail)[:, None, None], 0, at_tail)

    def sets_without(self, hidden_edge: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Head [B], its relation set [B, 2R], tail [B], its relation set, both without the hidden edge [B] >= 0."""
        edge, back = hidden_edge, self._graph.edge_inverse[hidden_edge].long()
        head, tail = self._graph.edge_head[edge].long(), self._graph.edge_tail[edge].long()
        head_set, tail_set = self.relation_sets(head), self.relation_sets(tail)
        loop = head == tail
        for sets, first, second in ((head_set, edge, back), (tail_set, back, edge)):
            _drop(sets, self._graph.edge_relation[first].long(), self.only_one[first])
            _drop(sets, self._graph.edge_relation[second].long(), self.only_one[second] & loop)
        return head, head_set, tail, tail_set


def _both(sets: Tensor, rows: Tensor) -> Tensor:
    """[B, 2, 2R] int64 whether a relation set [B, 2R] has one of the rows [B, 2] and each relation."""
    return (sets.gather(1, rows)[:, :, None] & sets[:, None, :]).long()


def _drop(sets: Tensor, relation: Tensor, where: Tensor) -> None:
    rows = torch.nonzero(where).squeeze(1)
    sets[rows, relation[rows]] = False


def _is_only_edge_of_its_pair(graph: Graph) -> Tensor:
    """[2T] whether no other edge leaves the same head by the same relation."""
    head, relation = graph.edge_head, graph.edge_relation
    same_as_next = torch.zeros(graph.num_edges + 1, dtype=torch.bool, device=graph.device)
    same_as_next[1:-1] = (head[1:] == head[:-1]) & (relation[1:] == relation[:-1])
    return ~(same_as_next[:-1] | same_as_next[1:])


@numba.njit(cache=True, nogil=True)
def add_shares(partial, both):  # type: ignore[no-untyped-def]
    """Add all shares' matrices [shares, 2R, 2R], both sides of the diagonal."""
    for share in range(len(partial)):
        for a in range(len(both)):
            both[a, a] += partial[share, a, a]
            for b in range(a):
                pairs = np.int64(partial[share, a, b]) + partial[share, b, a]  # each pair stands on one side
                both[a, b] += pairs
                both[b, a] += pairs


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
