"""The searches beside the results: counted from their trials, a row for each family and model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from lab.breakdown import search_table
from lab.pages import tuning_page
from lab.results import read_results, read_searches
from lab_small import line


def write_search(path: Path, dataset: str, model: str, trials: list[dict[str, Any]]) -> None:
    header = {"kind": "search", "dataset": dataset, "model": model, "sampler": "tpe"}
    lines = [header, *({"kind": "trial", **trial} for trial in trials)]
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(json.dumps(one) + "\n" for one in lines))


def test_searches_are_counted_by_family_and_model(tmp_path: Path) -> None:
    trials = [{"trial": 0, "seconds": 1800.0}, {"trial": 1, "seconds": 1800.0}, {"trial": 1, "seconds": None}]
    write_search(tmp_path / "trials" / "a.jsonl", "grail/nell_v2", "nbfnet", trials)
    write_search(tmp_path / "trials" / "b.jsonl", "grail/nell_v4", "nbfnet", trials[:1])
    write_search(tmp_path / "trials" / "c.jsonl", "grail/nell_v4", "nbfnet+cp", trials[:1])
    write_search(tmp_path / "trials" / "begun.jsonl", "grail/nell_v1", "redgnn", [])
    (tmp_path / "lines.jsonl").write_text(json.dumps(line()) + "\n")
    searches = read_results(tmp_path).searches
    assert search_table(searches).splitlines()[2:] == [  # type: ignore[union-attr]
        "| grail/nell | nbfnet | 2 | 4 | 1.5 |",
        "| grail/nell | nbfnet+cp | 1 | 1 | 0.5 |",
    ]
    assert "| grail/nell | nbfnet | 2 | 4 | 1.5 |" in tuning_page(tmp_path / "trials", read_results(tmp_path))


def test_without_trials_nothing_is_said(tmp_path: Path) -> None:
    assert read_searches(tmp_path / "trials") == ()
    assert search_table(()) is None
