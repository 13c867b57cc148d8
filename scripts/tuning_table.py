"""What grids of changes came to, from results/trials/*.jsonl, as tables for docs/recipes.md.

    python scripts/tuning_table.py

A column is a search that finished every change of its space; a row is a change, with its mean over the columns. The
highest mean is bold: that is the rule by which the recipes were chosen.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))

from contextpool.bench.markdown import figure, table  # noqa: E402
from contextpool.bench.searches import family_of_splits, read_search  # noqa: E402
from contextpool.jobs.lines import Line  # noqa: E402

TRIALS = ROOT / "results" / "trials"
CHANGE = "together.change"
Search = tuple[Line, list[Line]]
"""Header, trials."""


def base_of(header: dict[str, Any]) -> str:
    """What the changes are made to."""
    return json.dumps(
        {key: header["base"][key] for key in ("model", "train", "context") if key in header["base"]}
    )


def grids(folder: Path) -> dict[tuple[str, str, str, str], list[Search]]:
    """(family, model, base, space) -> the searches that finished all of it."""
    found: dict[tuple[str, str, str, str], list[Search]] = defaultdict(list)
    for path in sorted(folder.glob("*.jsonl")):
        search = read_search(path)
        if search is None or search[0]["sampler"] != "grid":
            continue
        header, trials = search[0], [line for line in search[1] if line["valid_mrr"] is not None]
        if len(trials) == len(changes_of(header)):
            what = (
                family_of_splits(header["dataset"]),
                header["model"],
                base_of(header),
                json.dumps(header["space"]),
            )
            found[what].append((header, trials))
    return found


def changes_of(header: dict[str, Any]) -> list[dict[str, Any]]:
    choices: list[dict[str, Any]] = header["space"][CHANGE]["choices"]
    return choices


def means(searches: list[Search]) -> dict[str, float]:
    """Mean MRR of each change over the searches."""
    scores: dict[str, list[float]] = defaultdict(list)
    for _, trials in searches:
        for line in trials:
            scores[told(line["values"][CHANGE])].append(line["valid_mrr"])
    return {change: sum(values) / len(values) for change, values in scores.items()}


def told(change: dict[str, Any]) -> str:
    return ", ".join(f"`{key} = {json.dumps(value)}`" for key, value in change.items())


def heading(header: dict[str, Any]) -> str:
    return f"{header['dataset'].split('/')[-1]}, {header['rung_epochs'][-1]} epochs, seed {header['seed']}"


def grid_table(searches: list[Search]) -> str:
    average = means(searches)
    best = max(average.values())
    rows = []
    columns = [{told(line["values"][CHANGE]): line["valid_mrr"] for line in trials} for _, trials in searches]
    for change, mean in average.items():
        shown = f"**{figure(mean)}**" if mean == best else figure(mean)
        rows.append([change, shown, *(figure(column[change]) for column in columns)])
    return table(["change", "mean", *(heading(header) for header, _ in searches)], rows)


def main() -> None:
    for (family, model, base, _), searches in sorted(grids(TRIALS).items()):
        print(f"\n### {model} on {family}, by {searches[0][0]['select']}\n\nChanges to `{base}`:\n")
        print(grid_table(searches))


if __name__ == "__main__":
    main()
