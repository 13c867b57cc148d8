"""Look-ups over one graph's facts that the audit's questions need: pairs, triples, neighbours, hops."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from contextpool.triples.store import Ids, Triples

Integers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

_WORD_BITS = 64


@dataclass(frozen=True, eq=False)
class FactIndex:
    """Facts sorted by (head, tail) pair. Pair codes, head * N + tail, fit 64 bits for any int32 ids."""

    num_entities: int
    num_relations: int
    pairs: Integers
    """[P] codes of the linked (head, tail) pairs, sorted, each once."""
    keys: Integers
    """[T] position of the fact's pair * R + its relation, sorted."""

    @classmethod
    def of(cls, triples: Triples) -> FactIndex:
        """O(T log T) time, O(T) memory."""
        return cls.of_ids(triples.ids, len(triples.entities), len(triples.relations))

    @classmethod
    def of_ids(cls, ids: Ids, num_entities: int, num_relations: int) -> FactIndex:
        """As `of`, for the rows [T, 3] of an array."""
        codes = ids[:, 0].astype(np.int64) * num_entities + ids[:, 2]
        pairs = sorted_distinct(codes)
        keys = sorted_distinct(np.searchsorted(pairs, codes) * num_relations + ids[:, 1])
        return cls(num_entities, num_relations, pairs, keys)

    @property
    def pair_heads(self) -> Integers:
        """[P]"""
        return self.pairs // max(self.num_entities, 1)

    @property
    def pair_tails(self) -> Integers:
        """[P]"""
        return self.pairs % max(self.num_entities, 1)

    @property
    def fact_pairs(self) -> Integers:
        """[T] the pair of each fact, as a position in `pairs`."""
        return self.keys // max(self.num_relations, 1)

    @property
    def fact_relations(self) -> Integers:
        """[T]"""
        return self.keys % max(self.num_relations, 1)

    def pair_position(self, heads: Integers, tails: Integers) -> Integers:
        """[Q] where each pair stands in `pairs`; -1 where it is not linked, as a negative id never is."""
        known = (heads >= 0) & (tails >= 0)
        return np.where(known, _position_in(self.pairs, heads * self.num_entities + tails), -1)

    def has_pair(self, heads: Integers, tails: Integers) -> Flags:
        """[Q] whether any relation leads from head to tail."""
        return self.pair_position(heads, tails) >= 0

    def has_triple(self, heads: Integers, relations: Integers, tails: Integers) -> Flags:
        """[Q] whether the triple is a fact."""
        position = self.pair_position(heads, tails)
        found = _position_in(self.keys, position * self.num_relations + relations) >= 0
        return found & (position >= 0) & (relations >= 0)

    def has_related(self, heads: Integers, relations: Integers, tails: Integers, related: Integers) -> Flags:
        """[Q] whether some (head, x, tail) is a fact with relation * R + x among the sorted `related`."""
        position = self.pair_position(heads, tails)
        asked = np.flatnonzero(position >= 0)
        first = np.searchsorted(self.keys, position[asked] * self.num_relations)
        stop = np.searchsorted(self.keys, (position[asked] + 1) * self.num_relations)
        owner = np.repeat(asked, stop - first)  # [K] one row per (query, fact on its pair)
        facts = ranges(first, stop)  # [K]
        match = _position_in(related, relations[owner] * self.num_relations + self.fact_relations[facts]) >= 0
        answered = np.zeros(len(heads), dtype=bool)
        answered[owner[match]] = True
        return answered


def sorted_distinct(codes: Integers) -> Integers:
    """The codes in ascending order, each once. Sorting beats the hashing of `np.unique` on many codes."""
    ordered = np.sort(codes)
    first = np.ones(len(ordered), dtype=bool)
    first[1:] = ordered[1:] != ordered[:-1]
    return ordered[first]


def ranges(first: Integers, stop: Integers) -> Integers:
    """first[0], ..., stop[0] - 1, first[1], ...: the members of several ranges, one after another."""
    lengths = stop - first
    ends = np.cumsum(lengths)
    within: Integers = np.arange(lengths.sum()) - np.repeat(ends - lengths, lengths)
    return np.repeat(first, lengths) + within


def _position_in(sorted_codes: Integers, codes: Integers) -> Integers:
    """[Q] position of each code among the sorted ones; -1 where it is missing."""
    if len(sorted_codes) == 0:
        return np.full(len(codes), -1, dtype=np.int64)
    position = np.minimum(np.searchsorted(sorted_codes, codes), len(sorted_codes) - 1)
    return np.where(sorted_codes[position] == codes, position, -1)


@dataclass(frozen=True, eq=False)
class Neighbors:
    """Who is one step from whom, whatever the relation and its direction, in compressed rows."""

    num_entities: int
    nodes: Integers
    """[M] entities that have an edge, sorted."""
    starts: Integers
    """[M] where the neighbours of each begin in `targets`."""
    targets: Integers
    """[K]"""

    @classmethod
    def of(cls, index: FactIndex) -> Neighbors:
        """O(P log P) time, O(P) memory, P linked pairs."""
        size = max(index.num_entities, 1)
        codes = sorted_distinct(np.concatenate([index.pairs, index.pair_tails * size + index.pair_heads]))
        sources = codes // size
        starts = np.flatnonzero(np.diff(sources, prepend=-1))
        return cls(index.num_entities, sources[starts], starts, codes % size)


def hops_between(neighbors: Neighbors, heads: Integers, tails: Integers, most: int) -> Integers:
    """[Q] steps from head to tail, edges walked either way; `most` + 1 where it takes more.

    Sixty-four queries walk at once, one bit each: O(K Q / 64) time a step, O(N + K) memory.
    """
    hops = np.full(len(heads), most + 1, dtype=np.int64)
    for start in range(0, len(heads), _WORD_BITS):
        block = slice(start, start + _WORD_BITS)
        hops[block] = _hops_of_block(neighbors, heads[block], tails[block], most)
    return hops


def _hops_of_block(neighbors: Neighbors, heads: Integers, tails: Integers, most: int) -> Integers:
    bit = np.uint64(1) << np.arange(len(heads), dtype=np.uint64)
    reached = np.zeros(neighbors.num_entities, dtype=np.uint64)  # [N] the queries that reached an entity
    np.bitwise_or.at(reached, heads, bit)
    hops = np.where(heads == tails, 0, most + 1)
    for hop in range(1, most + 1):
        if len(neighbors.nodes) == 0 or (hops <= most).all():
            break
        arriving = np.bitwise_or.reduceat(reached[neighbors.targets], neighbors.starts)
        reached[neighbors.nodes] |= arriving
        arrived = (reached[tails] & bit) != 0
        hops = np.where(arrived, np.minimum(hops, hop), hops)
    return hops
