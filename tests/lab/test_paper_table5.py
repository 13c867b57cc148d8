"""The paper's Table 5 against the released files: which of its figures they give, and which they do not."""

from __future__ import annotations

from collections import Counter
from itertools import combinations
from pathlib import Path

import pytest

from contextpool.triples.catalog import entries
from lab import paper_table5
from support import benchmark_folder, script_module

REPOSITORY = Path(__file__).resolve().parents[2]
DOCS = (REPOSITORY / "docs" / "lab" / "datasets.md").read_text("utf-8")


build_catalog, table5 = script_module("build_catalog"), paper_table5


@pytest.fixture(scope="module")
def data() -> Path:
    return benchmark_folder()


@pytest.fixture(scope="module")
def found(data: Path) -> dict[tuple[str, ...], int]:
    counted: dict[tuple[str, ...], int] = table5.counted(data)
    return counted


def test_every_figure_of_the_table_is_listed_once() -> None:
    assert len(table5.PRINTED) == 24
    assert len(set(table5.cells())) == len(table5.cells()) == 144
    assert set(table5.DIFFERENCES) <= set(table5.cells())


@pytest.mark.benchmark_data
def test_the_definitions_reproduce_all_figures_but_the_listed_ones(found: dict[tuple[str, ...], int]) -> None:
    differing = {cell for cell in table5.cells() if table5.printed(cell) != found[cell]}
    assert differing == set(table5.DIFFERENCES)
    assert Counter(cell.kind for cell in differing) == {"Ind": 27}


def every_union(splits: dict[str, set[table5.Triple]]) -> dict[str, table5.Figures]:
    """What each of the seven unions of a graph's three files holds."""
    return {
        " + ".join(chosen): table5.figures_of(set().union(*(splits[split] for split in chosen)))
        for size in (1, 2, 3)
        for chosen in combinations(splits, size)
    }


@pytest.mark.benchmark_data
def test_no_union_of_the_graphs_files_gives_a_listed_figure(data: Path) -> None:
    for cell in table5.DIFFERENCES:
        graph = cell.name if cell.side == "training" else f"{cell.name}_ind"
        unions = every_union(table5.read_splits(data, graph))
        assert len(unions) == 7
        assert table5.printed(cell) not in {getattr(figures, cell.column) for figures in unions.values()}, (
            cell
        )


@pytest.mark.benchmark_data
def test_what_is_said_about_the_listed_figures_is_true(found: dict[tuple[str, ...], int]) -> None:
    for cell, reason in table5.DIFFERENCES.items():
        printed, counted = table5.printed(cell), found[cell]
        if reason == "one digit":
            assert len(str(printed)) == len(str(counted)) == 4
            assert sum(a != b for a, b in zip(str(printed), str(counted), strict=True)) == 1
        elif reason == "round":
            assert printed % 500 == 0
            assert printed > counted
        elif reason == "constant":
            assert printed - counted == {"training": 3, "testing": 4}[cell.side]
    assert Counter(table5.DIFFERENCES.values()) == {
        "one digit": 3,
        "round": 8,
        "constant": 8,
        "unexplained": 8,
    }


@pytest.mark.benchmark_data
def test_the_docs_show_what_the_script_prints(found: dict[tuple[str, ...], int]) -> None:
    assert table5.table(found) in DOCS
    assert table5.reasons(found) in DOCS


def test_the_docs_show_the_counts_of_the_catalog() -> None:
    assert build_catalog.table(entries()) in DOCS


@pytest.mark.benchmark_data
def test_the_stored_catalog_is_what_the_script_would_write(data: Path) -> None:
    for name in ("grail/nell_v1", "grail_transductive/fb237_v1", "full/WN18RR"):
        entry = next(entry for entry in entries() if entry.name == name)
        counts = build_catalog.counts_of(name, data)
        assert (counts["training"], counts.get("inference")) == (entry.training, entry.inference)
