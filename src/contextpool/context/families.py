"""Algorithm 1: the context neighbor families, exactly, without enumerating the power set."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from numbers import Real
from operator import index
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt

from contextpool.context.family_search import (
    Goal,
    Members,
    SearchRule,
    begin_listing,
    find_members,
    new_search,
    search_rule,
    select_for_set,
)
from contextpool.context.itemsets import (
    Ints,
    Transactions,
    by_id,
    by_label,
    count_families,
    share_out,
    transactions,
)
from contextpool.context.neighbors import SelectionTable
from contextpool.errors import ConfigError
from contextpool.graph.graph import Graph
from contextpool.graph.relation_sets import RelationSets, Words, pack_bits, relation_sets, unpack_bits
from contextpool.graph.relations import RelationVocabulary

Measure = Literal["precision", "recall"]
FIRST_BATCH, LARGEST_BATCH = 16, 2**14


@dataclass(frozen=True, eq=False)
class ContextFamilies:
    """CNF of the paper: for each query relation, the sets of relations whose relevance exceeds the threshold.

    Nothing is listed beforehand: `len()` counts, iteration walks and `in` looks the entities up.
    """

    relations: RelationVocabulary
    sets: RelationSets
    """The relation sets of the entities it is mined from."""
    measure: Measure = "precision"
    threshold: float = 0.1
    """Relevance a member has to exceed (the paper's R_0); strictly."""
    sizes: tuple[int, ...] = (1, 2, 3, 4, 5)
    """How many relations a member may have; ascending. Sizes beyond 2R are left out: no set is that large."""

    def __post_init__(self) -> None:
        if self.measure not in get_args(Measure):
            raise ConfigError(f"measure is {self.measure!r}; it is 'precision' or 'recall'.")
        if not isinstance(self.threshold, Real) or not 0 <= self.threshold < 1:
            raise ConfigError(
                f"threshold is {self.threshold!r}; a member has to exceed it, so it has to lie in [0, 1)."
            )

    @property
    def num_entities(self) -> int:
        """|E|: all entities, those without any relation included."""
        return int(self.sets.weight.sum())

    def __getitem__(self, relation: str) -> Family:
        """CNF[r]; empty where the relation is unknown."""
        return Family(self, relation)

    def __iter__(self) -> Iterator[str]:
        """The directed relations, in the order of their ids."""
        return iter(self.relations.directed)

    def __len__(self) -> int:
        """2R"""
        return self.relations.num_directed

    def __contains__(self, relation: object) -> bool:
        return relation in self.relations.index

    @property
    def total(self) -> int:
        """Members of all families together."""
        return sum(self.counts.sum(axis=1).tolist())

    @functools.cached_property
    def counts(self) -> Ints:
        """[2R, K + 1] how many members of each size each family has. Counted once, when first asked for."""
        by_rank = count_families(self.transactions, self.by_recall, float(self.threshold), self.sizes)
        return by_rank[self.relations.sort_rank]

    @functools.cached_property
    def transactions(self) -> Transactions:
        """The relation sets as the kernels read them, numbered by label."""
        return transactions(self.sets, self.relations)

    @functools.cached_property
    def search_rule(self) -> SearchRule:
        """What a member is, as the kernels read it."""
        return search_rule(self.transactions, self.by_recall, float(self.threshold))

    @property
    def by_recall(self) -> bool:
        return self.measure == "recall"

    def _holding(self, labels: Iterable[str]) -> npt.NDArray[np.bool_]:
        """[D] which distinct relation sets hold all of these relations."""
        mask = _words_of(self.relations, labels)
        having: npt.NDArray[np.bool_] = ((self.sets.words & mask) == mask).all(axis=1)
        return having

    @property
    def depends_on_entity(self) -> bool:
        return True

    def selection_table(self, sets: Words, wanted: npt.NDArray[np.bool_]) -> SelectionTable:
        """CNFGenerate of Algorithm 1 for the wanted pairs of relation set [S, W] and query [S, 2R].

        Row 0 is the empty set: the answer where no member is similar, and filler where none is wanted.
        """
        row, query = np.nonzero(wanted)
        answers = self._select(by_label(sets, self.relations), row, self.relations.sort_rank[query])
        rows, row_of_pair = _distinct_rows(answers)
        row_of = np.zeros(wanted.shape, dtype=np.int32)
        row_of[row, query] = row_of_pair
        return SelectionTable(row_of, by_id(rows, self.relations))

    def _select(self, sets: Words, row: Ints, query: Ints, num_unknown: int = 0) -> Words:
        """[P, W] NR_max of every pair (sets[row], query), all numbered by label."""
        pairs = Pairs(sets, row, query, num_unknown)
        return most_similar(self.transactions, self.search_rule, pairs, self.sizes) & sets[row]

    def __repr__(self) -> str:
        size = f"{len(self):,} directed relations, {self.num_entities:,} entities"
        return f"ContextFamilies({self.rule_in_words}, {size})"

    @property
    def rule_in_words(self) -> str:
        """`precision > 0.1, sizes 1-5`"""
        return f"{self.measure} > {self.threshold:g}, sizes {_spelled(self.sizes)}"


class Family(Set[frozenset[str]]):
    """CNF[r]: sets of relation labels, by size, then by sorted labels. Equal to any set of the same members."""

    def __init__(self, families: ContextFamilies, relation: str) -> None:
        self._families = families
        self.relation = relation

    @property
    def _is_known(self) -> bool:
        return self.relation in self._families.relations.index

    def __len__(self) -> int:
        if not self._is_known:
            return 0
        return int(self._families.counts[self._families.relations.index[self.relation]].sum())

    def __contains__(self, members: object) -> bool:
        """Whether an iterable of labels is a member, as a set. A single string is a label, not a set."""
        if isinstance(members, str) or not isinstance(members, Iterable):
            return False
        labels, known = set(members), self._families.relations.index
        if self.relation in labels or len(labels) not in self._families.sizes:
            return False
        return self._is_known and labels <= known.keys() and self._is_relevant(labels)

    def _is_relevant(self, neighbors: Iterable[str]) -> bool:
        """Rel(NR', r) > R_0 (Definitions 5, 6), by looking at every distinct relation set."""
        weight = self._families.sets.weight
        having, asked = self._families._holding(neighbors), self._families._holding([self.relation])
        both = int(weight[having & asked].sum())
        total = int(weight[asked if self._families.by_recall else having].sum())
        return both > 0 and both / total > self._families.threshold

    def __iter__(self) -> Iterator[frozenset[str]]:
        labels = self._families.relations.directed
        for size in self._families.sizes:
            for batch in self._batches(size):
                for ids in batch.tolist():
                    yield frozenset(labels[relation] for relation in ids)

    def member_ids(self, size: int) -> Members:
        """[M, size] relation ids of all members of one size, each row by sorted label. 2 M size bytes."""
        return np.concatenate([np.empty((0, size), np.uint16), *self._batches(size)])

    def _batches(self, size: int) -> Iterator[Members]:
        """The members of one size as relation ids, in blocks [B, size] that grow."""
        if size not in self._families.sizes or not self._is_known:
            return
        if size == 0:
            yield np.empty((int(self._is_relevant([])), 0), dtype=np.uint16)
        elif size <= self._families.transactions.longest:
            yield from self._walk(size)

    def _walk(self, size: int) -> Iterator[Members]:
        data, rule, relations = (
            self._families.transactions,
            self._families.search_rule,
            self._families.relations,
        )
        everything = np.full(data.words.shape[1], 2**64 - 1, dtype=np.uint64)
        goal = Goal(int(relations.sort_rank[relations.index[self.relation]]), everything, size, size)
        state = new_search(data, size)
        begin_listing(data, rule, goal, state)
        id_of_rank = np.argsort(relations.sort_rank).astype(np.uint16)
        room = FIRST_BATCH
        while state.depth[0] >= 0:
            found = np.empty((room, size), dtype=np.uint16)
            yield id_of_rank[found[: find_members(data, rule, goal, state, found)]]
            room = min(2 * room, LARGEST_BATCH)

    @classmethod
    def _from_iterable(cls, members: Iterable[Any]) -> set[Any]:
        return set(members)

    def __repr__(self) -> str:
        return f"Family({self.relation!r}, {self._families.rule_in_words})"


def mine_families(
    graph: Graph, measure: Measure = "precision", threshold: float = 0.1, sizes: Iterable[int] = range(1, 6)
) -> ContextFamilies:
    """CNFTrain of Algorithm 1 for all 2R relations: NR' with Rel(NR', r) > threshold and |NR'| in `sizes`.

    Takes O(edges) time; counting, listing and selecting are done when they are asked for.
    """
    relations = graph.relation_vocabulary
    kept = checked_sizes(sizes, relations.num_directed)
    return ContextFamilies(relations, relation_sets(graph), measure, threshold, kept)


def select_relations(families: ContextFamilies, relation_set: Iterable[str], query: str) -> frozenset[str]:
    """CNFGenerate of Algorithm 1: NR' ∩ NR_e for the member NR' of CNF[query] that is most similar to NR_e.

    Jaccard similarity, strictly above 0, else the empty set. Ties go to the larger intersection, then the
    smaller member, then the sorted labels of the member. NR_e may hold relations that the families don't know.
    """
    labels, relations = set(relation_set), families.relations
    known = labels & relations.index.keys()
    if query not in relations.index or not known:
        return frozenset()
    words = by_label(_words_of(relations, known), relations)
    rank = relations.sort_rank[[relations.index[query]]]
    answer = families._select(words, np.zeros(1, np.int64), rank, num_unknown=len(labels) - len(known))
    chosen = unpack_bits(by_id(answer, relations), relations.num_directed)[0]
    return frozenset(relations.directed[relation] for relation in np.flatnonzero(chosen))


class Pairs(NamedTuple):
    """P questions, numbered by label: which member of CNF[query] is most similar to the relation set NR_e?"""

    sets: Words
    """[S, W] relation sets; they need not occur in the training graph."""
    row: Ints
    """[P] row of `sets`, ascending."""
    query: Ints
    """[P] item."""
    num_unknown: int = 0
    """Relations that every NR_e has besides: in no member, but in the union that similarity divides by."""


def most_similar(data: Transactions, rule: SearchRule, pairs: Pairs, sizes: Sequence[int]) -> Words:
    """[P, W] for every pair the most similar member as bits; cut down to NR_e it is NR_max. On all cores.

    A pair costs a search of its family from the most similar kind of member downwards, up to the first hit:
    microseconds where families are dense or small, at worst a walk over the family a kind.
    """
    members = np.zeros((len(pairs.row), data.words.shape[1]), dtype=np.uint64)
    share_out(_runs(pairs.row), lambda: _searcher(data, rule, pairs, sizes, members))
    return members


def _searcher(
    data: Transactions, rule: SearchRule, pairs: Pairs, sizes: Sequence[int], members: Words
) -> Callable[[tuple[int, int]], None]:
    """Fills `members` [P, W] for one run of pairs at a time; a thread needs its own."""
    kept = tuple(size for size in sizes if 0 < size <= data.longest)
    state = new_search(data, max(kept, default=1))
    num_known = np.bitwise_count(pairs.sets).sum(axis=1, dtype=np.int64)

    def search(run: tuple[int, int]) -> None:
        place, row = slice(*run), pairs.row[run[0]]
        kinds = member_kinds(int(num_known[row]), pairs.num_unknown, kept)
        select_for_set(data, rule, state, pairs.sets[row], pairs.query[place], kinds, members[place])

    return search


@functools.lru_cache(maxsize=4096)
def member_kinds(num_known: int, num_unknown: int, sizes: tuple[int, ...]) -> Ints:
    """[C, 2] (relations shared with NR_e, size) of the members that share any, the most similar first.

    Jaccard similarity is shared / (|NR_e| + size - shared), so a kind has one; float64 tells all of them apart.
    Ties go to the larger intersection. Of two members equal in both neither is smaller.
    """
    kinds = [(shared, size) for size in sizes for shared in range(1, min(size, num_known) + 1)]
    table = np.array(kinds, dtype=np.int64).reshape(-1, 2)
    shared, size = table[:, 0], table[:, 1]
    similarity = shared / (num_known + num_unknown + size - shared)
    return table[np.lexsort((-shared, -similarity))]


def _runs(row: Ints) -> list[tuple[int, int]]:
    """First and last (exclusive) place of each run of equal rows."""
    starts = np.flatnonzero(np.diff(row, prepend=-1))
    return list(zip(starts.tolist(), [*starts[1:].tolist(), len(row)], strict=True)) if len(row) else []


def checked_sizes(sizes: Iterable[int], most: int) -> tuple[int, ...]:
    """Distinct sizes in ascending order, those above `most` left out; a range may be as long as it likes."""
    if isinstance(sizes, range) and len(sizes) > 0 and min(sizes[0], sizes[-1]) >= 0:
        return tuple(size for size in range(most + 1) if size in sizes)
    try:
        distinct = sorted({index(size) for size in sizes})
    except TypeError as error:
        raise ConfigError(
            f"sizes is {sizes!r}; it has to be an iterable of whole numbers, such as range(1, 6)."
        ) from error
    if distinct and distinct[0] < 0:
        raise ConfigError(f"sizes holds {distinct[0]}; a set has 0 relations or more.")
    return tuple(size for size in distinct if size <= most)


def _words_of(relations: RelationVocabulary, labels: Iterable[str]) -> Words:
    """[1, W] a set of known labels as bits, numbered by relation id."""
    row = np.zeros((1, relations.num_directed), dtype=bool)
    row[0, [relations.index[label] for label in labels]] = True
    return pack_bits(row)


def _distinct_rows(answers: Words) -> tuple[Words, Ints]:
    """The distinct rows of [P, W], the empty set first and always there, and the row of each answer [P]."""
    with_empty = np.concatenate([np.zeros((1, answers.shape[1]), dtype=np.uint64), answers])
    as_bytes = with_empty.view(np.dtype((np.void, answers.shape[1] * 8))).reshape(-1)
    _, first, row = np.unique(as_bytes, return_index=True, return_inverse=True)
    return with_empty[first], row.reshape(-1)[1:]


def _spelled(sizes: tuple[int, ...]) -> str:
    """`1-5` for a run of sizes, else all of them."""
    if len(sizes) > 1 and sizes[-1] - sizes[0] == len(sizes) - 1:
        return f"{sizes[0]}-{sizes[-1]}"
    return ", ".join(str(size) for size in sizes) or "none"
