"""The same triples in every format, and their counts from plain sets."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from contextpool.context.counts import Cooccurrence
from support import Triple, relation_sets_of

COLUMNS = ["head", "relation", "tail"]


def write_tsv(path: Path, triples: list[Triple]) -> Path:
    path.write_bytes("".join("\t".join(triple) + "\n" for triple in triples).encode())
    return path


def write_csv(path: Path, triples: list[Triple]) -> Path:
    with path.open("w", newline="", encoding="utf-8") as stream:
        csv.writer(stream).writerows([COLUMNS, *triples])
    return path


def write_parquet(path: Path, triples: list[Triple]) -> Path:
    columns = {name: [triple[k] for triple in triples] for k, name in enumerate(COLUMNS)}
    pq.write_table(pa.table(columns, schema=pa.schema([(name, pa.string()) for name in COLUMNS])), path)
    return path


def write_npy(path: Path, ids: np.ndarray) -> Path:
    np.save(path, ids)
    return path


def write_id_parquet(path: Path, ids: np.ndarray) -> Path:
    pq.write_table(pa.table({name: ids[:, k] for k, name in enumerate(COLUMNS)}), path)
    return path


def as_labels(ids: np.ndarray) -> list[Triple]:
    return [(str(head), str(relation), str(tail)) for head, relation, tail in ids.tolist()]


def assert_counts_of(counts: Cooccurrence, triples: list[Triple]) -> None:
    """Against NR_e as plain sets, label by label."""
    has = relation_sets_of(triples)
    assert counts.relations.forward == tuple(sorted({relation for _, relation, _ in triples}))
    assert counts.num_entities == len(has)
    directed = counts.relations.directed
    having = {label: {entity for entity, own in has.items() if label in own} for label in directed}
    assert counts.both.tolist() == [[len(having[a] & having[b]) for b in directed] for a in directed]


def power_law_ids(num_triples: int, num_entities: int, num_relations: int, seed: int = 0) -> np.ndarray:
    """[T, 3] with hubs, frequent relations, duplicates and self loops."""
    rng = np.random.default_rng(seed)
    sizes = (num_entities, num_relations, num_entities)
    columns = [np.minimum(size ** rng.random(num_triples) - 1, size - 1) for size in sizes]
    return np.stack(columns, axis=1).astype(np.int32)
