"""Which relations an entity has (NR_e of the paper), and the few distinct sets of them in a graph."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from contextpool.graph.graph import Graph

Words = npt.NDArray[np.uint64]
WORD_BITS = 64


@dataclass(frozen=True, eq=False)
class RelationSets:
    """The D distinct relation sets of a graph's entities. Directed relation x is bit x % 64 of word x // 64."""

    num_directed: int
    words: Words
    """[D, W] the distinct sets as bits, in ascending order of their words."""
    weight: npt.NDArray[np.int64]
    """[D] how many entities have exactly this set."""
    set_of_entity: npt.NDArray[np.int32]
    """[N] row of `words` for each entity; an isolated entity has the empty set."""

    @property
    def sizes(self) -> npt.NDArray[np.int64]:
        """[D] relations in each set."""
        sizes: npt.NDArray[np.int64] = np.bitwise_count(self.words).sum(axis=1, dtype=np.int64)
        return sizes

    def __repr__(self) -> str:
        size = f"{self.num_directed:,} directed relations, {int(self.weight.sum()):,} entities"
        return f"RelationSets({len(self.words):,} distinct sets, {size})"

    def members(self) -> npt.NDArray[np.bool_]:
        """[D, 2R] the sets as booleans."""
        return unpack_bits(self.words, self.num_directed)


def relation_sets(graph: Graph) -> RelationSets:
    """The distinct relation sets of a graph. O(edges + N W log N) time, O(N W) memory, W = 2R / 64."""
    words = entity_words(graph)
    as_bytes = words.view(np.dtype((np.void, words.shape[1] * 8))).reshape(-1)
    _, first, membership, weight = np.unique(
        as_bytes, return_index=True, return_inverse=True, return_counts=True
    )
    return RelationSets(
        graph.relation_vocabulary.num_directed,
        np.ascontiguousarray(words[first]),
        weight.astype(np.int64),
        membership.astype(np.int32).reshape(-1),
    )


def entity_words(graph: Graph) -> Words:
    """[N, W] the relation set of each entity as bits."""
    words = np.zeros((graph.num_entities, num_words(graph.relation_vocabulary.num_directed)), dtype=np.uint64)
    head, relation = graph.edge_head.cpu().numpy(), graph.edge_relation.cpu().numpy()
    if len(head) == 0:
        return words
    first = np.ones(
        len(head), dtype=bool
    )  # edges are sorted, so an (entity, relation) pair's edges are adjacent
    first[1:] = (head[1:] != head[:-1]) | (relation[1:] != relation[:-1])
    head, relation = head[first], relation[first]
    np.bitwise_or.at(
        words, (head, relation // WORD_BITS), np.uint64(1) << (relation % WORD_BITS).astype(np.uint64)
    )
    return words


def num_words(num_directed: int) -> int:
    """Words that hold one bit per directed relation; at least one, so that arrays never have zero width."""
    return max(1, -(-num_directed // WORD_BITS))


def pack_bits(rows: npt.NDArray[np.bool_]) -> Words:
    """[D, 2R] booleans to [D, W] words."""
    padded = np.zeros((len(rows), num_words(rows.shape[1]) * WORD_BITS), dtype=bool)
    padded[:, : rows.shape[1]] = rows
    packed = np.packbits(padded, axis=1, bitorder="little")
    return np.ascontiguousarray(packed).view("<u8").astype(np.uint64)


def unpack_bits(words: Words, num_directed: int) -> npt.NDArray[np.bool_]:
    """[D, W] words to [D, 2R] booleans."""
    as_bytes = np.ascontiguousarray(words.astype("<u8")).view(np.uint8)
    return np.unpackbits(as_bytes, axis=1, bitorder="little")[:, :num_directed].astype(bool)
