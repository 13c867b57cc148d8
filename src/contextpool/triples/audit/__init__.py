"""What a careful reviewer would ask about a dataset: overlap, leakage, duplicates, inverse twins, reach.

    report = audit_dataset(dataset)       # or audit_triples(triples, "my graph")
    print(report.to_text()); report.worst; report.findings; report.to_dict(); report.save_plot("audit.png")

Everything is counted exactly, except reach, which looks at no more than 2,000 queries and says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from contextpool.errors import DataError
from contextpool.triples.audit.files import RawFile, audit_folder_duplicates, count_raw_lines
from contextpool.triples.audit.findings import Finding, Severity, judge_files, judge_loading, judge_lone_graph
from contextpool.triples.audit.graphs import AuditedGraph, GraphStatistics, RelationTwin, Spread, audit_graph
from contextpool.triples.audit.queries import (
    EVALUATION,
    INFERENCE_TEST,
    INFERENCE_VALID,
    SELECTION,
    TEST,
    TRAINING_VALID,
    OverlapStatistics,
    QueryStatistics,
    TrainingSide,
    audit_overlap,
    audit_queries,
)
from contextpool.triples.audit.query_findings import judge_dataset
from contextpool.triples.audit.report import AuditReport, Section
from contextpool.triples.dataset import Dataset
from contextpool.triples.store import Ids, Triples, distinct_rows

__all__ = [
    "AuditReport",
    "Finding",
    "GraphStatistics",
    "OverlapStatistics",
    "QueryStatistics",
    "RawFile",
    "RelationTwin",
    "Section",
    "Severity",
    "Spread",
    "audit_dataset",
    "audit_folder_duplicates",
    "audit_triples",
    "count_raw_lines",
]


def audit_triples(triples: Triples, name: str) -> AuditReport:
    """Audit one graph alone. O(T log T) time, O(T) memory."""
    graph = audit_graph("graph", triples)
    return AuditReport(
        name=name,
        inductive=None,
        graphs=(graph.statistics,),
        held_out=(),
        overlap=None,
        raw_files=(),
        skipped=0,
        kept_share=1.0,
        findings=tuple(judge_lone_graph(graph.statistics)),
    )


def audit_dataset(dataset: Dataset, folders: Iterable[str | Path] = ()) -> AuditReport:
    """Audit a dataset; with the `folders` that it was read from, their raw files' duplicate lines too.

    O(T log T) time for the counts, and O(pairs * queries / 64) a hop for reach.
    """
    training_side = TrainingSide.of(
        dataset.training_graph, dataset.training_queries, dataset.validation_queries
    )
    training, inference = _audited_graphs(dataset)
    parts = _held_out_parts(dataset, training, inference, training_side)
    overlap = audit_overlap(training_side, inference, dataset.inference_valid, dataset.inference_test)
    graphs = (training.statistics,) if inference is training else (training.statistics, inference.statistics)
    files = tuple(file for folder in folders for file in audit_folder_duplicates(folder))
    findings = judge_dataset(dataset.inductive, graphs, parts, overlap)
    loading = judge_loading(dataset.skipped, dataset.kept_share)
    return AuditReport(
        name=dataset.name,
        inductive=dataset.inductive,
        graphs=graphs,
        held_out=parts,
        overlap=overlap,
        raw_files=files,
        skipped=dataset.skipped,
        kept_share=dataset.kept_share,
        findings=(*findings, *loading, *judge_files(files)),
    )


def _audited_graphs(dataset: Dataset) -> tuple[AuditedGraph, AuditedGraph]:
    """The training and the inference graph; one and the same object where the setting has only one graph."""
    first, second = dataset.training_graph, dataset.inference_graph
    before = _present(first, dataset.training_queries, dataset.validation_queries, dataset.training_valid)
    after = _present(second, dataset.inference_valid, dataset.inference_test)
    if not dataset.inductive:
        _check_one_numbering(dataset)
        before = after = [*before, *after]
        if np.array_equal(first.ids, second.ids):
            graph = audit_graph("graph", first, _all_ids(before))
            return graph, graph
    return (
        audit_graph("training graph", first, _all_ids(before)),
        audit_graph("inference graph", second, _all_ids(after)),
    )


def _check_one_numbering(dataset: Dataset) -> None:
    first, second = dataset.training_graph, dataset.inference_graph
    if first.entities.labels != second.entities.labels or first.relations.labels != second.relations.labels:
        raise DataError(
            f"{dataset.name}: the setting is transductive, so both of its sides have to have the same "
            "vocabularies. Make the dataset with Dataset.from_one_graph."
        )


def _held_out_parts(
    dataset: Dataset, training: AuditedGraph, inference: AuditedGraph, training_side: TrainingSide
) -> tuple[QueryStatistics, ...]:
    """The parts of queries, each against its graph; what is evaluated in the end (P1) comes last."""
    parts = []
    if dataset.training_valid is not None:
        parts.append((TRAINING_VALID, dataset.training_valid.ids, training))
    parts.append((SELECTION, dataset.validation_queries.ids, training if dataset.inductive else inference))
    if dataset.inference_valid is None:
        parts.append((TEST, dataset.inference_test.ids, inference))
    else:
        parts.append((INFERENCE_VALID, dataset.inference_valid.ids, inference))
        parts.append((INFERENCE_TEST, dataset.inference_test.ids, inference))
        parts.append((EVALUATION, dataset.evaluation_queries("P1").ids, inference))
    return tuple(audit_queries(name, ids, graph, training_side) for name, ids, graph in parts)


def _present(*parts: Triples | None) -> list[Triples]:
    return [part for part in parts if part is not None]


def _all_ids(parts: Sequence[Triples]) -> Ids:
    """[A, 3] the triples of parts that share their vocabularies, each once."""
    return distinct_rows(np.concatenate([part.ids for part in parts]))
