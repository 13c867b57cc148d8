"""Triple files of any size -> the folder that `graph.mapped` opens, in bounded memory.

1. Read everything once: the distinct entity labels of each batch go to disk, sorted. All batches are then merged, a
   range of labels at a time, which numbers the entities by sorted label.
2. Read everything again: labels become ids, and each fact goes, in both directions, to the file of its head's range.
3. Each range is sorted and made distinct by itself; one after the other they are the rows of the graph.

Memory holds one batch, one range, the counts [2R, 2R], and 8 bytes an entity while rows are numbered or pairs
counted. What is mapped comes on top, and the system takes it back when it needs to.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numba
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from contextpool.context.counts import check_relation_count, count_rows
from contextpool.context.parallel import count_joined
from contextpool.errors import ConfigError, DataError, setting
from contextpool.graph.graph import MAX_EDGES
from contextpool.graph.mapped import ARRAYS, DESCRIPTION, FORMAT, MappedGraph, checksum, open_graph, remember
from contextpool.triples.reader import batches
from contextpool.triples.sources.address import Address, parse_address

Progress = Callable[[int, int], None]
Longs = npt.NDArray[np.int64]
RECORD_BYTES = 12
SHARE_OF_MEMORY = 16
"""A range takes at most this part of the memory; sorting it takes several times its size."""
LABELS_AT_ONCE = 1 << 20
MIN_MEMORY = 128 << 20
MAX_PARTS = 500
EDGES_AT_ONCE = 1 << 22


def map_graph(
    sources: Sequence[str | Path],
    folder: str | Path,
    *,
    memory: int = 2**30,
    temp: Path | None = None,
    overwrite: bool = False,
    progress: Progress = lambda done, of: None,
) -> MappedGraph:
    """Make the folder of a graph from one or several triple files, and open it. Duplicate triples collapse.

    O(T log T) time; 24 bytes a triple and the labels on disk meanwhile, 32 bytes a triple and the labels in the end.
    """
    folder, addresses = Path(folder), [parse_address(source) for source in sources]
    if memory < MIN_MEMORY:
        raise ConfigError(
            f"{setting('memory')} is {memory:,} bytes; at least {MIN_MEMORY >> 20} MiB are needed."
        )
    if folder.exists() and not (overwrite and (folder / DESCRIPTION).is_file()):
        raise ConfigError(
            f"{folder} is there already. Choose another name, or replace a mapped graph ({setting('overwrite', True)})."
        )
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory(prefix="contextpool-map-", dir=temp) as scratch,
        tempfile.TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as made,
    ):
        _Mapping(addresses, Path(scratch), Path(made), memory, progress).run()
        if folder.exists():
            shutil.rmtree(folder)
        Path(made).rename(folder)
        Path(made).mkdir()  # the empty one is removed in its place
    remember(folder)
    return open_graph(folder)


class _Mapping:
    """One making of a folder."""

    def __init__(
        self, addresses: Sequence[Address], scratch: Path, made: Path, memory: int, progress: Progress
    ) -> None:
        self.addresses, self.scratch, self.made = addresses, scratch, made
        self.memory, self.progress = memory, progress
        self.rows = 0
        self.relations: list[str] = []

    def run(self) -> None:
        runs = self._sorted_runs()
        if not self.rows:
            raise DataError(f"{', '.join(address.text for address in self.addresses)}: there are no triples.")
        check_relation_count(2 * len(self.relations))
        num_entities = self._merge_labels(runs)
        parts = self._partition(num_entities)
        edges = self._sort_parts(parts, num_entities)
        self._finish(num_entities, edges)

    def _batches(self, done: int) -> Iterator[pa.RecordBatch]:
        """The batches of all files, labels as strings; `done` of the three passes are over."""
        read = 0
        for address in self.addresses:
            for batch in batches(address, allow_empty=True):
                yield pa.RecordBatch.from_arrays(
                    [column.cast(pa.string()) for column in batch.columns], names=batch.schema.names
                )
                read += batch.num_rows
                total = self.rows or read
                self.progress(done * total + read, 3 * total)
        self.rows = read

    def _sorted_runs(self) -> list[pa.StringArray]:
        """The distinct entity labels of each batch, sorted, mapped from disk."""
        relations: set[str] = set()
        runs: list[Path] = []
        for batch in self._batches(0):
            relations.update(pc.unique(batch.column(1)).to_pylist())
            ends = pc.unique(pa.concat_arrays([batch.column(0), batch.column(2)]))
            labels = ends.take(pc.sort_indices(ends))
            runs.append(self.scratch / f"run-{len(runs)}.arrow")
            with pa.ipc.new_file(str(runs[-1]), pa.schema([("label", pa.string())])) as writer:
                writer.write_batch(pa.RecordBatch.from_arrays([labels], names=["label"]))
        self.relations = sorted(relations)
        return [pa.ipc.open_file(pa.memory_map(str(path))).get_batch(0).column(0) for path in runs]

    def _merge_labels(self, runs: list[pa.StringArray]) -> int:
        """All runs into one sorted list of distinct labels, a range of them at a time; returns their number."""
        count, used = 0, 0
        with (self.scratch / "start").open("wb") as starts, (self.scratch / "label").open("wb") as data:
            np.zeros(1, dtype=np.int64).tofile(starts)
            for pieces in _ranges_of(runs, LABELS_AT_ONCE):
                distinct = pc.unique(pa.concat_arrays(pieces))
                labels = distinct.take(pc.sort_indices(distinct))
                start, content = _parts_of(labels)
                (start[1:].astype(np.int64) + used).tofile(starts)
                content.tofile(data)
                count, used = count + len(labels), used + len(content)
        _to_npy(self.scratch / "start", self.made / "entity_start.npy", np.int64)
        _to_npy(self.scratch / "label", self.made / "entity_label.npy", np.uint8)
        return count

    def _partition(self, num_entities: int) -> list[tuple[int, Path]]:
        """Every fact in both directions, into the file of its head's range: (first head, file)."""
        if num_entities >= 2**31:
            raise DataError(f"{num_entities:,} entities are more than a graph holds ({2**31 - 1:,}).")
        wanted = -(-2 * self.rows * RECORD_BYTES * SHARE_OF_MEMORY // self.memory)
        width = -(-num_entities // min(MAX_PARTS, max(1, wanted)))
        count = -(-num_entities // width)
        paths = [self.scratch / f"part-{number}" for number in range(count)]
        files = [path.open("wb") for path in paths]
        try:
            for batch in self._batches(1):
                head, relation, tail = self._ids(batch)
                for columns in ((head, relation, tail), (tail, relation + len(self.relations), head)):
                    _scatter(np.stack(columns, axis=1).astype(np.int32), width, files)
        finally:
            for file in files:
                file.close()
        return [(number * width, path) for number, path in enumerate(paths)]

    def _ids(self, batch: pa.RecordBatch) -> tuple[Longs, Longs, Longs]:
        start = np.load(self.made / "entity_start.npy", mmap_mode="r")
        data = np.load(self.made / "entity_label.npy", mmap_mode="r")
        head, tail = (_places(batch.column(place), start, data) for place in (0, 2))
        known = pa.array(self.relations)
        relation = pc.index_in(batch.column(1), value_set=known).to_numpy().astype(np.int64)
        return head, relation, tail

    def _sort_parts(self, parts: list[tuple[int, Path]], num_entities: int) -> int:
        """Sorted, distinct rows of all ranges, one after the other; returns the number of edges."""
        degree = np.zeros(num_entities + 1, dtype=np.int64)
        names = ("edge_head", "edge_relation", "edge_tail")
        files = [(self.scratch / name).open("wb") for name in names]
        edges = 0
        for number, (first, path) in enumerate(parts):
            head, relation, tail = _sorted_rows(path, first, 2 * len(self.relations), num_entities)
            for column, file in zip((head, relation, tail), files, strict=True):
                column.astype(np.int32).tofile(file)
            counts = np.bincount(head - first) if len(head) else np.zeros(0, dtype=np.int64)
            degree[first + 1 : first + 1 + len(counts)] = counts
            edges += len(head)
            path.unlink()
            self.progress(2 * self.rows + self.rows * (number + 1) // len(parts), 3 * self.rows)
        for name, file in zip(names, files, strict=True):
            file.close()
            _to_npy(self.scratch / name, self.made / f"{name}.npy", np.int32)
        if edges > MAX_EDGES:
            raise DataError(f"{edges:,} directed edges are more than a graph holds ({MAX_EDGES:,}).")
        np.save(self.made / "row_start.npy", np.cumsum(degree))
        return edges

    def _finish(self, num_entities: int, edges: int) -> None:
        names = ("row_start", "edge_head", "edge_relation", "edge_tail")
        row_start, head, relation, tail = (np.load(self.made / f"{n}.npy", mmap_mode="r") for n in names)
        twin = np.lib.format.open_memmap(
            self.made / "edge_inverse.npy", mode="w+", dtype=np.int32, shape=(edges,)
        )
        for low in range(0, edges, EDGES_AT_ONCE):
            some = slice(low, low + EDGES_AT_ONCE)
            _find_twins(row_start, relation, tail, head[some], relation[some], tail[some],
                        len(self.relations), twin[some])  # fmt: skip
        twin.flush()
        np.save(self.made / "both.npy", count_rows(row_start, relation, 2 * len(self.relations)))
        np.save(self.made / "joined.npy", count_joined(row_start, relation, tail, 2 * len(self.relations)))
        triples = np.bincount(relation, minlength=2 * len(self.relations))[: len(self.relations)]
        description: dict[str, Any] = {
            "format": FORMAT,
            "entities": num_entities,
            "triples": edges // 2,
            "rows_read": self.rows,
            "relations": dict(zip(self.relations, triples.tolist(), strict=True)),
            "sources": [address.path.name for address in self.addresses],
            "files": (files := self._digests()),
            "sha256": self._digest(files),
        }
        description["checksum"] = checksum(description)
        (self.made / DESCRIPTION).write_text(json.dumps(description, ensure_ascii=False, indent=2) + "\n")

    def _digests(self) -> dict[str, str]:
        found = {}
        for name in ARRAYS:
            with (self.made / f"{name}.npy").open("rb") as stream:
                found[name] = hashlib.file_digest(stream, "sha256").hexdigest()
        return found

    def _digest(self, files: dict[str, str]) -> str:
        """sha256 over labels and facts, whatever they came from."""
        digest = hashlib.sha256(json.dumps(self.relations).encode())
        for name in ("entity_start", "entity_label", "edge_head", "edge_relation", "edge_tail"):
            digest.update(bytes.fromhex(files[name]))
        return digest.hexdigest()


def _parts_of(labels: pa.StringArray) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.uint8]]:
    """Starts [n + 1] and bytes of labels, from 0."""
    _, offsets, data = labels.buffers()
    starts = np.frombuffer(offsets, dtype=np.int32)[labels.offset : labels.offset + len(labels) + 1]
    content = np.frombuffer(data if data is not None else b"", dtype=np.uint8)[starts[0] : starts[-1]]
    return starts - starts[0], content


def _ranges_of(runs: list[pa.StringArray], size: int) -> Iterator[list[pa.StringArray]]:
    """The same range of each sorted run, about `size` labels of all together, range after range."""
    step = max(1, size // (4 * len(runs)))
    sample = sorted(run[place].as_py() for run in runs for place in range(0, len(run), step))
    cuts = sample[:: max(1, size // step)][1:]
    begins = [0] * len(runs)
    for cut in [*cuts, None]:
        ends = [len(run) if cut is None else _lower(run, cut) for run in runs]
        yield [run.slice(begin, end - begin) for run, begin, end in zip(runs, begins, ends, strict=True)]
        begins = ends


def _lower(run: pa.StringArray, label: str) -> int:
    """How many labels of a sorted run come before this one, as UTF-8."""
    wanted, low, high = label.encode(), 0, len(run)
    while low < high:
        middle = (low + high) // 2
        if run[middle].as_py().encode() < wanted:
            low = middle + 1
        else:
            high = middle
    return low


def _places(column: pa.StringArray, start: Longs, data: npt.NDArray[np.uint8]) -> Longs:
    """[rows] the id of each label; each distinct one is looked up once, in order."""
    encoded = column.dictionary_encode()
    order = pc.sort_indices(encoded.dictionary)
    wanted = _parts_of(encoded.dictionary.take(order))
    ids = np.empty(len(order), dtype=np.int64)
    ids[order.to_numpy()] = _find_labels(start, data, *wanted)
    found: Longs = ids[encoded.indices.to_numpy()]
    return found


@numba.njit(cache=True, nogil=True)
def _find_labels(start, data, wanted_start, wanted):  # type: ignore[no-untyped-def]
    """[n] places of sorted labels that are all there; each search begins where the last one ended."""
    found = np.empty(len(wanted_start) - 1, dtype=np.int64)
    low = 0
    for row in range(len(found)):
        high = len(start) - 1
        while low < high:
            middle = (low + high) // 2
            if _before(
                data, start[middle], start[middle + 1], wanted, wanted_start[row], wanted_start[row + 1]
            ):
                low = middle + 1
            else:
                high = middle
        found[row] = low
    return found


@numba.njit(cache=True, nogil=True)
def _before(one, begin, end, other, other_begin, other_end):  # type: ignore[no-untyped-def]
    """Whether one label comes before the other, byte by byte."""
    for k in range(min(end - begin, other_end - other_begin)):
        if one[begin + k] != other[other_begin + k]:
            return one[begin + k] < other[other_begin + k]
    return end - begin < other_end - other_begin


def _scatter(rows: npt.NDArray[np.int32], width: int, files: Sequence[Any]) -> None:
    """Rows [n, 3] to the files of their heads' ranges."""
    part = rows[:, 0] // width
    order = np.argsort(part, kind="stable")
    cuts = np.searchsorted(part[order], np.arange(len(files) + 1))
    for number, file in enumerate(files):
        if cuts[number] < cuts[number + 1]:
            rows[order[cuts[number] : cuts[number + 1]]].tofile(file)


def _sorted_rows(path: Path, first: int, num_directed: int, num_entities: int) -> tuple[Longs, Longs, Longs]:
    """Head, relation, tail of the distinct rows of a range, sorted; as one number each where that fits."""
    rows = np.fromfile(path, dtype=np.int32).reshape(-1, 3).astype(np.int64)
    if len(rows) == 0:
        return rows[:, 0], rows[:, 1], rows[:, 2]
    span = int(rows[:, 0].max()) - first + 1
    if span * num_directed * num_entities < 2**63:
        keys = ((rows[:, 0] - first) * num_directed + rows[:, 1]) * num_entities + rows[:, 2]
        del rows
        keys = np.unique(keys)
        pair, tail = np.divmod(keys, num_entities)
        head, relation = np.divmod(pair, num_directed)
        return head + first, relation, tail
    rows = np.unique(rows, axis=0)
    return rows[:, 0], rows[:, 1], rows[:, 2]


@numba.njit(cache=True, nogil=True)
def _find_twins(row_start, all_relation, all_tail, head, relation, tail, num_relations, twin):  # type: ignore[no-untyped-def]
    """For each edge the place of the same fact walked the other way, by halving in the row of its tail."""
    for k in range(len(head)):
        back = (relation[k] + num_relations) % (2 * num_relations)
        low, high = row_start[tail[k]], row_start[tail[k] + 1]
        while low < high:
            middle = (low + high) // 2
            if all_relation[middle] < back or (all_relation[middle] == back and all_tail[middle] < head[k]):
                low = middle + 1
            else:
                high = middle
        twin[k] = low


def _to_npy(raw: Path, path: Path, kind: type) -> None:
    """A file of plain numbers with numpy's header before it; the plain one is removed."""
    size = raw.stat().st_size // np.dtype(kind).itemsize
    with path.open("wb") as out, raw.open("rb") as numbers:
        np.lib.format.write_array_header_2_0(
            out,
            {"descr": np.lib.format.dtype_to_descr(np.dtype(kind)), "fortran_order": False, "shape": (size,)},
        )
        shutil.copyfileobj(numbers, out, 1 << 22)
    raw.unlink()
