"""Small datasets for the tests of the audit, and how to pick one of its findings."""

from __future__ import annotations

from contextpool.triples.audit_report import AuditReport, Finding
from contextpool.triples.dataset import Dataset
from contextpool.triples.store import Triples
from support import Triple

# A chain a -likes- b -knows- c -likes- d -knows- e, and the same with new names; one query closes each.
TRAIN = [("a", "likes", "b"), ("b", "knows", "c"), ("c", "likes", "d"), ("d", "knows", "e")]
INFERENCE = [("p", "likes", "q"), ("q", "knows", "s"), ("s", "likes", "t"), ("t", "knows", "u")]
CLEAN: dict[str, list[Triple]] = {
    "train": TRAIN,
    "training_valid": [("a", "knows", "c")],
    "validation": [("a", "likes", "c")],
    "inference_graph": INFERENCE,
    "inference_valid": [("p", "knows", "s")],
    "inference_test": [("p", "likes", "t")],
}


def inductive(**changed: list[Triple]) -> Dataset:
    parts = {part: Triples.from_labels(triples) for part, triples in {**CLEAN, **changed}.items()}
    return Dataset.from_two_graphs("toy", **parts)  # type: ignore[arg-type]


def transductive(train: list[Triple], valid: list[Triple], test: list[Triple]) -> Dataset:
    parts = (Triples.from_labels(part) for part in (train, valid, test))
    return Dataset.from_one_graph("toy", **dict(zip(("train", "valid", "test"), parts, strict=True)))


def finding(report: AuditReport, key: str) -> Finding:
    (only,) = [one for one in report.findings if one.key == key]
    return only
