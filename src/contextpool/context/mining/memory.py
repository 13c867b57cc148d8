"""The in-memory engine: all columns at once, one counting sort (`cooccurrence.count_from_columns`)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from contextpool.context.counts import Cooccurrence, count_from_columns
from contextpool.context.mining.codes import RelationCodes, by_sorted_label, mining_batches
from contextpool.errors import DataError
from contextpool.triples.sources.address import Address

MAX_SPREAD = 2
"""Ids that run past this many times the ends of the triples are renumbered."""


def mine_in_memory(address: Address) -> tuple[Cooccurrence, int]:
    """Counts and rows read. About 30 bytes a triple beside the distinct labels."""
    codes = RelationCodes()
    ends: list[pa.Array] = []
    relations: list[npt.NDArray[np.int32]] = []
    for batch in mining_batches(address):
        relations.append(codes.encode(batch.column(1)))
        ends += [batch.column(0), batch.column(2)]
    relation = np.concatenate(relations)
    ids, span = _numbered(ends)  # [2T] head, tail of each batch after the other's
    sizes = [len(part) for part in relations]
    cuts = np.cumsum(np.repeat(sizes, 2))[:-1]
    parts = np.split(ids, cuts)
    head, tail = np.concatenate(parts[0::2]), np.concatenate(parts[1::2])
    del ids, parts, ends, relations
    both = count_from_columns(head, relation, tail, span, len(codes.labels))
    num_entities = _distinct(head, tail, span)
    return by_sorted_label(_interleaved(both), codes.labels, num_entities), len(relation)


def _numbered(ends: list[pa.Array]) -> tuple[npt.NDArray[np.int32], int]:
    """[2T] a number for the entity of each end, and their span; ids stay as they are where they are dense."""
    total = sum(map(len, ends))
    if total >= 2**31:
        raise DataError("the in-memory engine takes fewer than 2^30 triples; use --engine disk.")
    if pa.types.is_integer(ends[0].type):
        span = max(int(part.to_numpy().max(initial=0)) for part in ends) + 1
        if span <= MAX_SPREAD * total:
            return np.concatenate([part.to_numpy().astype(np.int32) for part in ends]), span
    encoded = pa.chunked_array(ends).dictionary_encode().unify_dictionaries()
    numbers = np.concatenate([chunk.indices.to_numpy() for chunk in encoded.chunks])
    return numbers, len(encoded.chunk(0).dictionary)


def _distinct(head: npt.NDArray[np.int32], tail: npt.NDArray[np.int32], span: int) -> int:
    """How many entities occur."""
    met = np.zeros(span, dtype=bool)
    met[head] = True
    met[tail] = True
    return int(np.count_nonzero(met))


def _interleaved(both: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """From r, then r^-1 (`r + R`) to `2 r`, `2 r + 1`."""
    size = len(both)
    place = np.arange(size).reshape(2, -1).T.reshape(-1)
    return both[np.ix_(place, place)]
