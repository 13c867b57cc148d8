"""Counting (entity, relation) pairs: all of them at once in memory, or partitioned by entity on disk.

Co-occurrence is a sum over entities, and all pairs of one entity lie in one partition, so the sum over
partitions is exact. On disk memory holds one batch of the input, one partition and the [2R, 2R] counts.
"""

from __future__ import annotations

import errno
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any

import numba
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from contextpool.context.counts import Cooccurrence, Counts, available_threads, count_rows
from contextpool.context.mining import RelationCodes, by_sorted_label, holds_ids, mining_batches
from contextpool.errors import ContextPoolError, DataError, setting
from contextpool.triples.sources.address import Address, need_file
from contextpool.triples.sources.tables import known_rows

Progress = Callable[[int, int], None]
Keys = npt.NDArray[np.int64]
CODE_BITS = 16
"""A pair is one int64: entity << 16 | relation code; 2R is at most 20,000."""
PAIR_BYTES = 8
LABEL_BYTES = 48
"""The assumed size of a pair of labels in a Parquet file, which tells its rows but not their lengths."""
PRIMES = (1, 7, 13, 31, 61, 127, 251, 509)
"""Numbers of partitions: primes, so that ids in any regular steps spread evenly."""
SHARE_OF_MEMORY = 16
"""A partition takes at most this part of the memory; counting it takes about four times its size."""
COMPRESSION = 10
"""The assumed ratio of a text to its compressed file."""
MIN_MEMORY = 128 << 20
MAX_SPREAD = 8
"""Entities of a partition are renumbered where the highest id exceeds this many times the number of pairs."""


def mine_in_memory(address: Address) -> tuple[Cooccurrence, int]:
    """Counts and rows read. About 40 bytes a triple beside the distinct labels."""
    codes = RelationCodes()
    ends: list[pa.Array] = []
    relations: list[npt.NDArray[np.int32]] = []
    for batch in mining_batches(address):
        relation = codes.encode(batch.column(1))
        ends += [batch.column(0), batch.column(2)]
        relations += [2 * relation, 2 * relation + 1]
    if sum(map(len, ends)) >= 2**31:
        raise DataError(
            f"the in-memory engine takes fewer than 2^30 triples; use {setting('engine', 'disk')}."
        )
    keys = _numbers_of(ends) << CODE_BITS
    keys |= np.concatenate(relations)
    both = np.zeros((codes.num_directed, codes.num_directed), dtype=np.int64)
    num_entities = add_partition(keys, both)
    return by_sorted_label(both, codes.labels, num_entities), len(keys) // 2


def _numbers_of(ends: list[pa.Array]) -> Keys:
    """Every head and tail as a number: ids as they are, labels by the place of their first."""
    if pa.types.is_integer(ends[0].type):
        return np.concatenate([part.to_numpy() for part in ends]).astype(np.int64, copy=False)
    encoded = pa.chunked_array(ends).dictionary_encode().unify_dictionaries()
    return np.concatenate([chunk.indices.to_numpy() for chunk in encoded.chunks]).astype(np.int64)


def mine_on_disk(
    address: Address, memory: int, folder: Path | None = None, progress: Progress = lambda done, of: None
) -> tuple[Cooccurrence, int]:
    """Counts and rows read. O(T) time and disk (16 bytes a triple for ids); the folder's files are gone after."""
    codes = RelationCodes()
    parts = _num_partitions(address, memory)
    with tempfile.TemporaryDirectory(prefix="contextpool-mine-", dir=folder) as temporary:
        _check_space(address, Path(temporary))
        try:
            rows = _split(address, Path(temporary), parts, codes, progress)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            raise ContextPoolError(
                f"{Path(temporary).parent}: the disk is full. Free some, or name another folder with {setting('temp')}."
            ) from error
        both = np.zeros((codes.num_directed, codes.num_directed), dtype=np.int64)
        num_entities = 0
        for part, keys in enumerate(_partitions(Path(temporary), parts, memory // 8)):
            num_entities += add_partition(keys, both)
            progress(rows + rows * (part + 1) // parts, 2 * rows)
    return by_sorted_label(both, codes.labels, num_entities), rows


def _num_partitions(address: Address, memory: int) -> int:
    """The number of partitions: each has to fit its share of the memory."""
    if memory < MIN_MEMORY:
        raise DataError(
            f"{setting('memory')} is {memory:,} bytes; mining on disk needs {MIN_MEMORY >> 20} MiB at least."
        )
    wanted = -(-_pair_bytes(address) * SHARE_OF_MEMORY // memory)
    return next((prime for prime in PRIMES if prime >= wanted), PRIMES[-1])


def _pair_bytes(address: Address) -> int:
    """About what all pairs take: exactly for ids; text tells no rows, and is taken for 4 bytes a byte."""
    known = known_rows(address)
    if known is not None:
        rows, are_ids = known
        return 2 * rows * (PAIR_BYTES if are_ids else LABEL_BYTES)
    compressed = address.path.suffix in (".gz", ".zst")
    return 4 * need_file(address).stat().st_size * (COMPRESSION if compressed else 1)


def _check_space(address: Address, folder: Path) -> None:
    known = known_rows(address)
    needed = _pair_bytes(address) if known and known[1] else address.path.stat().st_size
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise ContextPoolError(
            f"{folder.parent}: mining {address.text} on disk writes {needed / 1e9:.1f} GB there, and "
            f"{free / 1e9:.1f} GB are free. Name another folder with {setting('temp')}."
        )


def _split(address: Address, folder: Path, parts: int, codes: RelationCodes, progress: Progress) -> int:
    """Write every (entity, directed relation) pair of the input to its entity's partition; returns rows read."""
    rows, known = 0, known_rows(address)
    with ExitStack() as stack:
        ids = [stack.enter_context((folder / f"{part}.ids").open("wb")) for part in range(parts)]
        labels = [_LabelFile(folder / f"{part}.arrow", stack) for part in range(parts)]
        for batch in mining_batches(address):
            relation = codes.encode(batch.column(1))
            if holds_ids(batch):
                _write_ids(batch, relation, ids)
            else:
                _write_labels(batch, relation, labels)
            rows += batch.num_rows
            progress(rows, 2 * (known[0] if known else rows))
    return rows


def _write_ids(batch: pa.RecordBatch, relation: npt.NDArray[np.int32], files: Sequence[IO[bytes]]) -> None:
    parts = len(files)
    starts, keys = _scatter_ids(batch.column(0).to_numpy(), relation, batch.column(2).to_numpy(), parts)
    for part in range(parts):
        keys[starts[part] : starts[part + 1]].tofile(files[part])


@numba.njit(cache=True, nogil=True)
def _scatter_ids(head, relation, tail, parts):  # type: ignore[no-untyped-def]
    """Counting sort of the 2n pairs by partition: starts [parts + 1], keys [2n] of entity // parts and code."""
    starts = np.zeros(parts + 1, dtype=np.int64)
    for k in range(len(head)):
        starts[head[k] % parts + 1] += 1
        starts[tail[k] % parts + 1] += 1
    for part in range(parts):
        starts[part + 1] += starts[part]
    cursor = starts[:-1].copy()
    keys = np.empty(2 * len(head), dtype=np.int64)
    for k in range(len(head)):
        local, part = head[k] // parts, head[k] % parts
        keys[cursor[part]] = (local << CODE_BITS) | (2 * relation[k])
        cursor[part] += 1
        local, part = tail[k] // parts, tail[k] % parts
        keys[cursor[part]] = (local << CODE_BITS) | (2 * relation[k] + 1)
        cursor[part] += 1
    return starts, keys


class _LabelFile:
    """A partition of (entity label, relation code) rows as an Arrow stream, made when the first row comes."""

    SCHEMA = pa.schema([("entity", pa.string()), ("code", pa.int32())])

    def __init__(self, path: Path, stack: ExitStack) -> None:
        self._path, self._stack = path, stack
        self._writer: Any = None

    def write(self, batch: pa.RecordBatch) -> None:
        if self._writer is None:
            self._writer = self._stack.enter_context(pa.ipc.new_stream(str(self._path), self.SCHEMA))
        self._writer.write_batch(batch)


def _write_labels(batch: pa.RecordBatch, relation: npt.NDArray[np.int32], files: list[_LabelFile]) -> None:
    """Distinct pairs of the batch, each to the partition of its entity's hash."""
    ends = pa.concat_arrays([batch.column(0), batch.column(2)]).dictionary_encode()
    code = np.concatenate([2 * relation, 2 * relation + 1])
    keys = np.unique((ends.indices.to_numpy().astype(np.int64) << CODE_BITS) | code)
    part_of_label = _label_partitions(ends.dictionary, len(files))  # [labels]
    entity = keys >> CODE_BITS
    order = np.argsort(part_of_label[entity], kind="stable")
    cuts = np.searchsorted(part_of_label[entity[order]], np.arange(len(files) + 1))
    for part, file in enumerate(files):
        own = order[cuts[part] : cuts[part + 1]]
        if len(own):
            labels = ends.dictionary.take(pa.array(entity[own]))
            numbers = pa.array((keys[own] & ((1 << CODE_BITS) - 1)).astype(np.int32))
            file.write(pa.RecordBatch.from_arrays([labels, numbers], schema=_LabelFile.SCHEMA))


def _label_partitions(labels: pa.StringArray, parts: int) -> npt.NDArray[np.int64]:
    """[labels] the partition of each label."""
    _, offsets, data = labels.buffers()
    starts = np.frombuffer(offsets, dtype=np.int32)[labels.offset : labels.offset + len(labels) + 1]
    content = np.frombuffer(data if data is not None else b"", dtype=np.uint8)
    partitions: npt.NDArray[np.int64] = _hash_rows(starts, content, parts)
    return partitions


@numba.njit(cache=True, nogil=True)
def _hash_rows(starts, content, parts):  # type: ignore[no-untyped-def]
    """FNV-1a over the bytes of each label; it only chooses a file, so a collision costs nothing."""
    result = np.empty(len(starts) - 1, dtype=np.int64)
    for row in range(len(result)):
        value = np.uint64(0xCBF29CE484222325)
        for k in range(starts[row], starts[row + 1]):
            value = (value ^ np.uint64(content[k])) * np.uint64(0x100000001B3)
        result[row] = np.int64(value % np.uint64(parts))
    return result


def _partitions(folder: Path, parts: int, most: int) -> Iterator[Keys]:
    """The pairs of each partition, its files removed once they are read."""
    for part in range(parts):
        ids, labels = folder / f"{part}.ids", folder / f"{part}.arrow"
        yield _read_labels(labels) if labels.exists() else _read_ids(ids, most)
        ids.unlink()
        labels.unlink(missing_ok=True)


def _read_ids(path: Path, most: int) -> Keys:
    """The pairs of a partition of ids; one past `most` bytes (a hub's) is made distinct while it is read."""
    if path.stat().st_size <= most:
        return np.fromfile(path, dtype=np.int64)
    keys = np.empty(0, dtype=np.int64)
    with path.open("rb") as stream:
        while len(block := np.fromfile(stream, dtype=np.int64, count=most // PAIR_BYTES)):
            keys = np.union1d(keys, block)
    return keys


def _read_labels(path: Path) -> Keys:
    """The pairs of a partition of labels, its entities numbered exactly."""
    with pa.ipc.open_stream(str(path)) as stream:
        table = stream.read_all().combine_chunks()
    encoded = table.column("entity").combine_chunks().dictionary_encode()
    entity: Keys = encoded.indices.to_numpy().astype(np.int64)
    code: npt.NDArray[np.int32] = table.column("code").to_numpy()
    return (entity << CODE_BITS) | code


def add_partition(keys: Keys, both: Counts) -> int:
    """Add a partition's co-occurrences to `both`; returns its number of entities."""
    if len(keys) == 0:
        return 0
    span = int(keys.max() >> CODE_BITS) + 1
    if span > MAX_SPREAD * len(keys) + 1024:
        keys, span = _renumbered(keys)
    starts, relations = _group_pairs(keys, span, available_threads())
    both += count_rows(starts, relations, len(both))
    return int(np.count_nonzero(np.diff(starts)))


def _renumbered(keys: Keys) -> tuple[Keys, int]:
    """The same pairs with the entities 0, 1, 2, ...; and how many."""
    entities, local = np.unique(keys >> CODE_BITS, return_inverse=True)
    return (local.reshape(-1).astype(np.int64) << CODE_BITS) | (keys & ((1 << CODE_BITS) - 1)), len(entities)


@numba.njit(cache=True, parallel=True, nogil=True)
def _group_pairs(keys, span, shares):  # type: ignore[no-untyped-def]
    """Counting sort of pairs by entity: starts [span + 1], relations [pairs]; threads own residue classes."""
    starts = np.zeros(span + 1, dtype=np.int64)
    for share in numba.prange(shares):
        for k in range(len(keys)):
            entity = keys[k] >> CODE_BITS
            if entity % shares == share:
                starts[entity + 1] += 1
    for entity in range(span):
        starts[entity + 1] += starts[entity]
    cursor = starts[:-1].copy()
    relations = np.empty(len(keys), dtype=np.int32)
    for share in numba.prange(shares):
        for k in range(len(keys)):
            entity = keys[k] >> CODE_BITS
            if entity % shares == share:
                relations[cursor[entity]] = keys[k] & ((1 << CODE_BITS) - 1)
                cursor[entity] += 1
    return starts, relations
