"""Contexts without meaning, to compare a context with: what a pooled stream does for a model by being there at all.

A control has the streams and the parameters of the context that it is made from.

    duplicate     every stream walks the full graph
    random        for every query relation as many neighbors as the context has, drawn at random
    shuffled      every query relation has the neighbors of another one
    complement    the neighbors that the context leaves out

Whether r itself may be walked decides a lot and is no part of what is compared: a relation's place in its own row stays
as the context has it (`self_policy`; of the shuffled Algorithm 1 it is the other relation's). Random and shuffled
contexts are drawn once for a seed and are the same for all queries, whatever a query must not see; neighbors are drawn
by rank, so a row that has one more on another graph keeps those it had. The complement is taken after leave-one-out.

Gate and arrive have a control of their own: every neighbor has the relevance of another one (`shuffled_neighbors`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from contextpool.context.families import ContextFamilies
from contextpool.context.neighbors import ContextNeighbors
from contextpool.context.selection import MaskSelector, RelationSelector, SelectionTable
from contextpool.graph.hashing import mixed
from contextpool.graph.relation_sets import Words, pack_bits, unpack_bits
from contextpool.graph.relations import RelationVocabulary

Control = Literal["none", "duplicate", "random", "shuffled", "complement"]
RelevanceControl = Literal["none", "shuffled"]
_RELEVANCE = 255
"""In the place of a view's number, where it is not a view that is drawn for."""
Bools = npt.NDArray[np.bool_]
Int64s = npt.NDArray[np.int64]


def shuffled_neighbors(num_directed: int, seed: int) -> Int64s:
    """[2R] for every neighbor another one whose relevance to take instead; each is taken once."""
    return Draw.of(num_directed, seed, _RELEVANCE).other


def fixed_control(selector: RelationSelector, control: Control, seed: int, view: int) -> RelationSelector:
    """The random or shuffled context in the place of a mined one, the `view`-th of its kind."""
    draw = Draw.of(selector.relations.num_directed, seed, view)
    if isinstance(selector, ContextNeighbors):
        has_support = selector.counts.support > 0
        make = random_mask if control == "random" else shuffled_mask
        return MaskSelector(selector.relations, make(selector.mask, has_support, draw))
    assert isinstance(selector, ContextFamilies)
    return ControlledFamilies(selector, control == "random", draw)


@dataclass(frozen=True, eq=False)
class Draw:
    """What chance decides, from a seed."""

    rank: Int64s
    """[query, neighbor] random numbers; the lowest of a row are drawn first."""
    other: Int64s
    """[2R] another relation for each; a permutation in which none stays where there are two."""

    @classmethod
    def of(cls, num_directed: int, seed: int, view: int) -> Draw:
        relation = np.arange(num_directed, dtype=np.int64)
        salt = int(mixed(np.array([seed ^ (view << 16)]))[0])
        by_row = mixed(relation ^ salt)[:, None]
        rank = mixed(by_row ^ mixed(relation)[None, :]) * max(num_directed, 1) + relation[None, :]  # no ties
        order = np.argsort(mixed(relation ^ salt ^ 0x5BD1E995), kind="stable")
        other = np.empty_like(order)
        other[order] = np.roll(order, 1)  # one ring through all relations
        return cls(rank, other)


def random_mask(mask: Bools, has_support: Bools, draw: Draw) -> Bools:
    """As many neighbors a row as [query, neighbor] has, among the relations that anybody has."""
    size = len(mask)
    diagonal = np.eye(size, dtype=bool)
    wanted = (mask & ~diagonal).sum(axis=1)  # [2R]
    drawn = _lowest(draw.rank, has_support[None, :] & ~diagonal, wanted)
    return np.where(diagonal, mask, drawn)


def _lowest(rank: Int64s, allowed: Bools, count: Int64s) -> Bools:
    """[K, 2R] in every row the `count` [K] allowed ones of the lowest rank; all of them where there are fewer."""
    order = np.where(allowed, rank, np.iinfo(np.int64).max).argsort(axis=1, kind="stable")
    place = order.argsort(axis=1, kind="stable")  # 0, 1, ... from the lowest on
    drawn: Bools = allowed & (place < count[:, None])
    return drawn


def shuffled_mask(mask: Bools, has_support: Bools, draw: Draw) -> Bools:
    """Row q is that of another relation p, in which q and p have changed places."""
    result = mask[draw.other]
    query = np.arange(len(mask))
    result[query, query] = mask[draw.other, draw.other]
    result[query, draw.other] = mask[draw.other, query]
    return result


@dataclass(frozen=True, eq=False)
class ControlledFamilies:
    """Algorithm 1 as a control: what is drawn or shuffled is what may leave an entity with a relation set."""

    families: ContextFamilies
    random: bool
    draw: Draw
    depends_on_entity: bool = True

    @property
    def relations(self) -> RelationVocabulary:
        return self.families.relations

    def selection_table(self, sets: Words, wanted: Bools) -> SelectionTable:
        """For (relation set, q): as many of its relations as Algorithm 1 takes, or what it takes for another q."""
        if not self.random:
            asked = np.zeros_like(wanted)
            asked[:, self.draw.other] = wanted
            table = self.families.selection_table(sets, asked)
            return SelectionTable(table.row_of[:, self.draw.other], table.rows)
        table = self.families.selection_table(sets, wanted)
        members = unpack_bits(sets, wanted.shape[1])  # [S, 2R]
        place, query = np.nonzero(wanted)  # [K]
        taken = unpack_bits(table.rows[table.row_of[place, query]], wanted.shape[1]) & members[place]
        itself = np.arange(wanted.shape[1])[None, :] == query[:, None]  # [K, 2R]
        count = (taken & ~itself).sum(axis=1)
        drawn = _lowest(self.draw.rank[query], members[place] & ~itself, count)
        rows = pack_bits(np.where(itself, taken, drawn))
        row_of = np.zeros(wanted.shape, dtype=np.int32)
        row_of[place, query] = np.arange(len(place), dtype=np.int32)
        return SelectionTable(row_of, rows if len(rows) else np.zeros((1, sets.shape[1]), dtype=np.uint64))
