"""The audit finds what is known about the public benchmark graphs."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from audit_worlds import finding
from contextpool.triples.audit import audit_dataset
from contextpool.triples.dataset import Dataset
from contextpool.triples.reader import read_triples
from contextpool.triples.store import Triples
from support import benchmark_folder

pytestmark = pytest.mark.benchmark_data


def grail(name: str) -> Dataset:
    folder = benchmark_folder() / "grail"
    first, second = (_read(folder / part, ("train", "valid", "test")) for part in (name, f"{name}_ind"))
    return Dataset.from_two_graphs(
        name,
        train=first["train"],
        training_valid=first["valid"],
        validation=first["test"],
        inference_graph=second["train"],
        inference_valid=second["valid"],
        inference_test=second["test"],
    )


def _read(folder: Path, parts: Iterable[str]) -> dict[str, Triples]:
    return {part: read_triples(folder / f"{part}.txt") for part in parts}


SHARED_ENTITIES = {"WN18RR_v3": 8, "nell_v3": 3, "nell_v4": 1}
SPLITS = [f"{family}_v{version}" for family in ("WN18RR", "fb237", "nell") for version in (1, 2, 3, 4)]


@pytest.mark.parametrize("name", SPLITS)
def test_grail_splits_have_no_leak_and_the_known_overlap(name: str) -> None:
    folder = benchmark_folder() / "grail"
    report = audit_dataset(grail(name), [folder / name, folder / f"{name}_ind"])
    for key in (
        "leakage",
        "trained_on",
        "selected_on",
        "fact_overlap",
        "duplicate_lines",
        "lines_in_two_files",
    ):
        assert finding(report, key).severity == "ok", key
    assert report.overlap is not None
    assert report.overlap.shared_entities == SHARED_ENTITIES.get(name, 0)
    assert len(report.raw_files) == 6


def test_reverse_pairs_of_wordnet() -> None:
    """118 of the 188 pairs of the inference side's test.txt; no pair occurs there twice."""
    part = next(part for part in audit_dataset(grail("WN18RR_v1")).held_out if part.name == "inference test")
    assert (part.reverse, part.queries) == (118, 188)


@pytest.mark.parametrize(
    ("name", "within_3", "within_6"), [("fb237_v1", 0.725, 0.934), ("WN18RR_v3", 0.588, 0.770)]
)
def test_known_reach(name: str, within_3: float, within_6: float) -> None:
    evaluation = audit_dataset(grail(name)).held_out[-1]
    assert evaluation.sample == evaluation.queries
    assert (round(evaluation.within[2], 3), round(evaluation.within[5], 3)) == (within_3, within_6)
