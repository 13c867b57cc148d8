"""A delta of triples applied to stored counts, with one pass over the graph's file and none over its counts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from contextpool.context.cooccurrence import Cooccurrence
from contextpool.context.delta import entity_changes, touched_entities, updated_counts
from contextpool.context.mining.source import batches, holds_ids
from contextpool.context.mining.stored import Input, Provenance
from contextpool.errors import ConfigError, DataError
from contextpool.triples.store import Triple


@dataclass(frozen=True, eq=False)
class Updated:
    """Counts after a delta."""

    counts: Cooccurrence
    provenance: Provenance
    touched: int
    """Entities of the delta."""
    verified: bool
    """Whether the graph's file is known to be the one that the counts are of."""


def update_counts(
    counts: Cooccurrence, provenance: Provenance, graph: Path, added: Path | None, removed: Path | None
) -> Updated:
    """Exactly the counts of the graph with `added` and without `removed`; `graph` is the file before the delta.

    Time of one read of the file; memory for the triples that touch an entity of the delta.
    """
    if added is None and removed is None:
        raise ConfigError("an update needs triples: name a file with --add, with --remove, or both.")
    before = Input.of("graph", graph) if graph.is_file() else None
    if before is None:
        raise DataError(f"{graph}: there is no such file.")
    verified = _check_graph(provenance, before, graph)
    to_add, to_remove = _triples(added), _triples(removed)
    entities = touched_entities([*to_add, *to_remove])
    touching = (triple for batch in batches(graph) for triple in _touching(batch, entities))
    changes = entity_changes(touching, to_add, to_remove, where_removed=lambda row: _place(removed, row))
    deltas = [Input.of("added", added)] if added else []
    deltas += [Input.of("removed", removed)] if removed else []
    first = before == provenance.inputs[0]
    inputs = (*provenance.inputs, *([] if first else [before]), *deltas)
    fresh = Provenance.now(provenance.engine, provenance.rows, inputs)
    return Updated(updated_counts(counts, changes), fresh, len(entities), verified)


def _check_graph(provenance: Provenance, graph: Input, path: Path) -> bool:
    """Whether the file is the one the counts are of; an error where it surely is not."""
    graphs = {each.sha256 for each in provenance.inputs if each.role == "graph"}
    if all(each.role == "graph" for each in provenance.inputs):  # mined, never updated
        if graph.sha256 not in graphs:
            raise DataError(
                f"{path}: the statistics were mined from another file ({provenance.inputs[0].name}, "
                f"{provenance.inputs[0].size:,} bytes, sha256 {provenance.inputs[0].sha256[:12]}...)."
            )
        return True
    if graph.sha256 in graphs:
        raise DataError(
            f"{path}: the statistics were updated since this file; give the graph with that update in it."
        )
    return False


def _triples(path: Path | None) -> list[Triple]:
    return [] if path is None else [triple for batch in batches(path) for triple in _labels(batch)]


def _place(path: Path | None, row: int) -> str:
    """file:line of a row; a .csv file has its header first."""
    header = 1 if path is not None and ".csv" in path.suffixes else 0
    return f"{path}:{row + 1 + header}"


def _touching(batch: pa.RecordBatch, entities: set[str]) -> Iterator[Triple]:
    """The triples of a batch that have an end among the entities."""
    import pyarrow.compute as pc

    wanted = pa.array(sorted(entities), pa.string())
    if holds_ids(batch):
        numbers = [int(name) for name in entities if name.isascii() and name.isdecimal() and len(name) < 18]
        wanted = pa.array([number for number in sorted(numbers) if str(number) in entities], pa.int64())
    hit = pc.or_(pc.is_in(batch.column(0), wanted), pc.is_in(batch.column(2), wanted))
    if np.any(hit.to_numpy(zero_copy_only=False)):
        yield from _labels(batch.filter(hit))


def _labels(batch: pa.RecordBatch) -> Iterator[Triple]:
    columns = (batch.column(k).cast(pa.string()).to_pylist() for k in range(3))
    yield from zip(*columns, strict=True)
