"""The published figures: `published.json`, where each table names its source."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

SETTINGS = {"inductive": "grail", "transductive": "grail_transductive"}
"""setting -> the folder of its datasets"""
METRICS = ("mrr", "hits@1")
"""What the paper reports; with 24 settings that makes 48 cells."""


@cache
def published() -> dict[str, Any]:
    """The whole file."""
    text = Path(__file__).with_name("published.json").read_text("utf-8")
    loaded: dict[str, Any] = json.loads(text)
    return loaded


def columns() -> list[str]:
    """WN18RR_v1, ..., nell_v4"""
    return list(published()["columns"])


def datasets_of(setting: str) -> list[str]:
    """The twelve datasets of a setting, in the order of `columns`."""
    return [f"{SETTINGS[setting]}/{name}" for name in columns()]


def benchmark_datasets() -> list[str]:
    """All 24."""
    return [name for setting in SETTINGS for name in datasets_of(setting)]


def systems(setting: str, metric: str) -> dict[str, list[float]]:
    """The rows of the paper's table."""
    found: dict[str, list[float]] = published()["tables"][setting]["systems"][metric]
    return found


def best_published(setting: str, metric: str) -> list[float]:
    """[12] the best figure of any system in the paper; Table 4's rows count for the inductive setting."""
    best = [max(figures) for figures in zip(*systems(setting, metric).values(), strict=True)]
    if setting == "inductive":
        for name, rows in published()["ablation"]["rows"].items():
            place = columns().index(name)
            best[place] = max(best[place], *(row[metric] for row in rows.values()))
    return best


def reference(name: str, metric: str = "mrr") -> list[float | None]:
    """[12] another system's inductive figures; None where it has none."""
    found: list[float | None] = published()["references"][name][metric]
    return found


def family_of(dataset: str) -> str:
    """FB, NELL or WN for a benchmark; its own name for any other dataset."""
    name = dataset.rsplit("/", 1)[-1]
    for prefix, family in (("fb237", "FB"), ("nell", "NELL"), ("WN18RR", "WN")):
        if dataset in benchmark_datasets() and name.startswith(prefix):
            return family
    return dataset
