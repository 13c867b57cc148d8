"""The page of results is what the committed lines say."""

from __future__ import annotations

from pathlib import Path

import pytest

from contextpool.bench.report import report_text
from contextpool.bench.results import read_results

REPOSITORY = Path(__file__).resolve().parents[2]


def test_the_results_page_is_what_the_lines_say() -> None:
    if not any((REPOSITORY / "results").glob("*.jsonl")):
        pytest.skip("no results are committed yet")
    page = (REPOSITORY / "docs" / "results.md").read_text("utf-8")
    assert page == report_text(read_results(REPOSITORY / "results")), "run `contextpool bench report`"
