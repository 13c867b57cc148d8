"""What grids of changes came to, from results/trials/*.jsonl, for docs/lab/tuning.md.

A column is a search that finished every change of its space; a row is a change, with its mean over the columns and
what it gains over the recipe as it is, where that is one of the rows. The highest mean is bold: that is the rule by
which the recipes were chosen.
"""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

from lab.defaults import changed, written_out
from lab.lines import Line
from lab.markdown import figure, signed, table
from lab.searches import family_of_splits, read_search

OPENING = """# What each change did

<!-- Made by `python -m lab report` from results/trials/*.jsonl; `--check` compares. Do not edit. -->

Changes to a recipe, one row each, by the MRR on what selects: a half of the training graph that shares no entity with
the half that trains (pseudo-inductive), or validation queries. One seed a column; the halves differ with the seed.
`as it is` changes nothing, and the gain is over it. [Recipes](recipes.md) says what was taken."""
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


def unchanged(header: dict[str, Any]) -> str | None:
    """The change that says what the recipe has already, None where there is none."""
    base = header["base"]
    same = (change for change in changes_of(header) if changed(base, change) == written_out(base))
    return next(map(told, same), None)


def grid_table(searches: list[Search]) -> str:
    average = means(searches)
    best, same = max(average.values()), unchanged(searches[0][0])
    rows = []
    columns = [{told(line["values"][CHANGE]): line["valid_mrr"] for line in trials} for _, trials in searches]
    for change, mean in average.items():
        shown = f"**{figure(mean)}**" if mean == best else figure(mean)
        gain = "" if same is None else signed(mean - average[same])
        name = "as it is" if change == same else change
        rows.append([name, shown, gain, *(figure(column[change]) for column in columns)])
    return table(["change", "mean", "gain", *(heading(header) for header, _ in searches)], rows)


def tuning_page(folder: Path) -> str:
    parts = [OPENING]
    for (family, model, base, _), searches in sorted(grids(folder).items()):
        parts += [f"## {model} on {family}, by {searches[0][0]['select']}", f"Changes to `{base}`:"]
        parts.append(grid_table(searches))
    return "\n\n".join(parts) + "\n"
