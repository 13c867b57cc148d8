"""The table of changes: complete searches alone, gains over the recipe as it is, a mean over what was tried."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from lab.pages import changes_table, gains, grids

WIDE, DEEP, SAME = {"model.dim": 64}, {"model.layers": 8}, {"model.layers": 6}
BOTH = {**WIDE, **DEEP}


def search(path: Path, *trials: tuple[dict[str, Any], float | None], model: str = "nbfnet") -> None:
    header = {
        "kind": "search", "dataset": "grail/nell_v2", "model": model, "select": "pseudo-inductive",
        "sampler": "grid", "seed": 0, "rung_epochs": [3], "base": {"model": {"name": "nbfnet"}},
        "space": {"together.change": {"choices": [WIDE, DEEP, SAME]}},
    }  # fmt: skip
    lines = [
        {"kind": "trial", "valid_mrr": score, "values": {"together.change": change}}
        for change, score in trials
    ]
    path.write_text("\n".join(json.dumps(line) for line in [header, *lines]) + "\n", "utf-8")


def test_gains_are_means_over_complete_searches(tmp_path: Path) -> None:
    search(tmp_path / "a.jsonl", (WIDE, 0.4), (DEEP, 0.5), (SAME, 0.3))
    search(tmp_path / "b.jsonl", (DEEP, 0.3), (SAME, 0.3), (WIDE, 0.5))
    search(tmp_path / "c.jsonl", (WIDE, 0.2), (DEEP, 0.5), (SAME, 0.5), model="nbfnet+cp")
    search(tmp_path / "cut_off.jsonl", (WIDE, 0.9), (SAME, 0.1))
    search(tmp_path / "failed.jsonl", (WIDE, 0.9), (DEEP, None), (SAME, 0.1))
    assert changes_table(grids(tmp_path)).splitlines() == [
        "| change | grail/nell nbfnet | grail/nell nbfnet+cp |",
        "| --- | --: | --: |",
        "| `model.dim = 64` | +.150 | −.300 |",
        "| `model.layers = 8` | +.100 | +.000 |",
    ]


def test_only_single_changes_count_and_only_beside_the_recipe_as_it_is(tmp_path: Path) -> None:
    search(tmp_path / "a.jsonl", (WIDE, 0.4), (BOTH, 0.9), (SAME, 0.3))
    search(tmp_path / "b.jsonl", (WIDE, 0.4), (DEEP, 0.5), (BOTH, 0.5))
    assert [list(gains(one)) for one in grids(tmp_path)] == [["`model.dim = 64`"], []]
