"""CNFGenerate of Algorithm 1 over the relation sets of a graph, as if one fact had never been mined."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from contextpool.context.families import ContextFamilies
from contextpool.context.family_changes import (
    Losses,
    Questions,
    changed_pairs,
    count_members,
    rule_without,
    without_losses,
)
from contextpool.context.family_selection import Pairs, most_similar, most_similar_alone
from contextpool.context.itemsets import Ints, by_id, by_label, share_out, transactions
from contextpool.errors import DataError
from contextpool.graph.relation_sets import WORD_BITS, RelationSets, Words, unpack_bits
from contextpool.graph.relations import inverse

CACHE_BYTES = 2**28
"""How much of what was found for earlier facts is remembered; the least recently used goes first."""
OBJECT_BYTES = 1024
"""About what a remembered situation takes beside its arrays."""
KEEPS = -1


class LostFact(NamedTuple):
    """All that matters to mining of a fact (h, x, t): facts alike in this change the families alike."""

    relation: int
    """x, a forward relation."""
    head_set: int
    """The relation set of h as a row of the graph's, where h loses x; else KEEPS."""
    tail_set: int
    """The relation set of t, where it loses inverse(x); else KEEPS."""
    is_loop: bool
    """h is t, which then loses either or both."""

    @property
    def is_harmless(self) -> bool:
        """No relation set changes, so nothing does."""
        return self.head_set == KEEPS == self.tail_set


class SmallerSet(NamedTuple):
    """What an entity has left where edges are hidden from a walk."""

    row: int
    """Its relation set with nothing hidden, as a row of the graph's; it is asked with the relations of this one."""
    words: bytes
    """[W] what is left of it."""
    also: int = -1
    """A relation besides that it is asked with; -1 for none."""


class Situation(NamedTuple):
    """What is never mined, and which entities ask with fewer relations; equal situations have equal answers."""

    fact: LostFact
    smaller: tuple[SmallerSet, ...]


class ChangedAnswers(NamedTuple):
    """What is answered otherwise in a situation; sorted by (set, query). Relations by id."""

    set_row: Ints
    """[X] row of the graph's S relation sets, or S + i for the i-th smaller set."""
    query: Ints  # [X]
    answer: Words
    """[X, W] the relations that may leave."""

    @property
    def num_bytes(self) -> int:
        return OBJECT_BYTES + self.set_row.nbytes + self.query.nbytes + self.answer.nbytes


class LeftOutFamilies:
    """Families that were mined with every fact of a graph, asked as if one had never been there.

    A situation costs a look at each pair of a relation set and a query in it, plus a search where the answer may
    change: about a millisecond, once for all queries in it. Threads may share it.
    """

    def __init__(self, families: ContextFamilies, sets: RelationSets) -> None:
        self._relations, self._sets, self._sizes = families.relations, sets, families.sizes
        self._data, self._rule = families.transactions, families.search_rule
        self._row_of_words = {words.tobytes(): row for row, words in enumerate(families.sets.words)}
        self._questions = _questions(families, sets)
        largest = max((size for size in self._sizes if size <= self._data.longest), default=0)
        self._size_wanted = np.isin(np.arange(largest + 1), self._sizes)  # [K + 1]
        self._known: OrderedDict[Situation, ChangedAnswers] = OrderedDict()
        self._known_bytes = 0
        self._lock = threading.Lock()

    def answers(self, situations: Iterable[Situation]) -> dict[Situation, ChangedAnswers]:
        """What is answered otherwise in each situation; new ones are shared out over the cores."""
        wanted = set(situations)
        found = self._remembered(wanted)
        new = sorted(wanted - found.keys())

        def make_worker() -> Callable[[Situation], tuple[Situation, ChangedAnswers]]:
            return lambda situation: (situation, self._find(situation))

        fresh = {situation: changed for part in share_out(new, make_worker) for situation, changed in part}
        self._remember(fresh)
        return found | fresh

    @property
    def remembered_bytes(self) -> int:
        """What is remembered takes, at most CACHE_BYTES."""
        return self._known_bytes

    def _find(self, situation: Situation) -> ChangedAnswers:
        """Search anew wherever an answer may have changed, and keep those that have."""
        data, rule, pair = self._data, self._rule, np.empty(0, dtype=np.int64)
        if not situation.fact.is_harmless:
            losses = self._losses(situation.fact)
            marked = changed_pairs(data, rule, self._questions, losses, self._size_wanted)
            pair = np.flatnonzero(marked & self._is_asked(situation)[self._questions.row])
            data = without_losses(data, losses)
            rule = rule_without(rule, data, losses)
        smaller, smaller_row, smaller_query = self._asked_of_smaller(situation)
        sets = np.concatenate([self._questions.sets.words, smaller])
        row = np.concatenate([self._questions.row[pair], smaller_row])
        query = np.concatenate([self._questions.sets.items[pair], smaller_query])
        answer = most_similar_alone(data, rule, Pairs(sets, row, query), self._sizes) & sets[row]
        before = self._questions.member[pair] & sets[row[: len(pair)]]
        differs = np.append(
            (answer[: len(pair)] != before).any(axis=1), np.ones(len(smaller_row), dtype=bool)
        )
        return self._by_id(row[differs], query[differs], answer[differs])

    def _losses(self, fact: LostFact) -> Losses:
        """Who loses what, numbered by label; refused where the families don't count the fact."""
        lost = [fact.relation, inverse(fact.relation, self._relations.num_relations)]
        taken = [
            (row, relation)
            for row, relation in zip((fact.head_set, fact.tail_set), lost, strict=True)
            if row != KEEPS
        ]
        loser = np.zeros(len(taken), dtype=np.int64) if fact.is_loop else np.arange(len(taken))
        rows = [row for row, _ in (taken[:1] if fact.is_loop else taken)]
        before = self._sets.words[rows]  # [C, W], a copy
        after = before.copy()
        for who, (_, relation) in zip(loser, taken, strict=True):
            after[who, relation // WORD_BITS] &= ~(np.uint64(1) << np.uint64(relation % WORD_BITS))
        return Losses(
            self._mined_rows(before),
            by_label(before, self._relations),
            by_label(after, self._relations),
            self._relations.sort_rank[[relation for _, relation in taken]],
            loser,
        )

    def _mined_rows(self, before: Words) -> Ints:
        """[C] where the families count the losers."""
        rows = np.array([self._row_of_words.get(words.tobytes(), -1) for words in before], dtype=np.int64)
        counted = np.array([(rows == row).sum() <= self._data.weight[row] for row in rows if row >= 0])
        if len(counted) < len(rows) or not counted.all():
            raise DataError(
                "the families have never counted an entity whose fact is hidden, so it can't be left out of them. Mine "
                "them on the graph that is walked, or set context.leave_one_out to false."
            )
        return rows

    def _is_asked(self, situation: Situation) -> npt.NDArray[np.bool_]:
        """[S] relation sets of anybody but entities with smaller ones."""
        left = self._sets.weight.copy()
        np.subtract.at(left, [smaller.row for smaller in situation.smaller], 1)
        return left > 0

    def _asked_of_smaller(self, situation: Situation) -> tuple[Words, Ints, Ints]:
        """The smaller sets [C, W]; row and query of all that they are asked with. Numbered by label."""
        words = [np.frombuffer(smaller.words, dtype=np.uint64) for smaller in situation.smaller]
        sets = np.array(words, dtype=np.uint64).reshape(-1, self._sets.words.shape[1])
        rows = [smaller.row for smaller in situation.smaller]
        asked = unpack_bits(self._sets.words[rows], self._relations.num_directed)  # [C, 2R]
        for place, smaller in enumerate(situation.smaller):
            if smaller.also >= 0:
                asked[place, smaller.also] = True
        row, relation = np.nonzero(asked)
        return (
            by_label(sets, self._relations),
            row + len(self._sets.words),
            self._relations.sort_rank[relation],
        )

    def _by_id(self, row: Ints, query: Ints, answer: Words) -> ChangedAnswers:
        relation = np.argsort(self._relations.sort_rank)[query]
        order = np.lexsort((relation, row))
        return ChangedAnswers(row[order], relation[order], by_id(answer[order], self._relations))

    def _remembered(self, situations: Iterable[Situation]) -> dict[Situation, ChangedAnswers]:
        with self._lock:
            found = {key: self._known[key] for key in situations if key in self._known}
            for key in found:
                self._known.move_to_end(key)
            return found

    def _remember(self, fresh: dict[Situation, ChangedAnswers]) -> None:
        with self._lock:
            for situation, changed in fresh.items():
                if situation not in self._known:
                    self._known[situation] = changed
                    self._known_bytes += changed.num_bytes
            while self._known_bytes > CACHE_BYTES:
                self._known_bytes -= self._known.popitem(last=False)[1].num_bytes


def _questions(families: ContextFamilies, graph_sets: RelationSets) -> Questions:
    """Every pair of a relation set of the graph and a query in it, answered with nothing left out."""
    sets = transactions(graph_sets, families.relations)
    row = np.repeat(np.arange(len(sets.words)), np.diff(sets.item_start))
    query = sets.items.astype(np.int64)
    member = most_similar(
        families.transactions, families.search_rule, Pairs(sets.words, row, query), families.sizes
    )
    both, total = count_members(families.transactions, families.by_recall, sets, row, member)
    shared, size, num_known = _bits(member & sets.words[row]), _bits(member), _bits(sets.words)[row]
    similarity = shared / np.maximum(num_known + size - shared, 1)
    return Questions(sets, row, np.argsort(query, kind="stable"), member, both, total, similarity)


def _bits(words: Words) -> Ints:
    """[P] how many bits each row has."""
    count: Ints = np.bitwise_count(words).sum(axis=1, dtype=np.int64)
    return count
