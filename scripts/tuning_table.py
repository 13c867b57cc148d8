"""What grids of changes came to, from results/trials/*.jsonl into docs/tuning.md.

    python scripts/tuning_table.py [--check]

A column is a search that finished every change of its space; a row is a change, with its mean over the columns and
what it gains over the recipe as it is, where that is one of the rows. The highest mean is bold: that is the rule by
which the recipes were chosen.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))

from contextpool.bench.markdown import figure, signed, table  # noqa: E402
from contextpool.bench.searches import family_of_splits, read_search  # noqa: E402
from contextpool.jobs.lines import Line  # noqa: E402
from contextpool.recipe import Recipe  # noqa: E402
from contextpool.recipe_file import canonical  # noqa: E402

TRIALS = ROOT / "results" / "trials"
PAGE = ROOT / "docs" / "tuning.md"
OPENING = """# What each change did

<!-- Made by `python scripts/tuning_table.py` from results/trials/*.jsonl; `--check` compares. Do not edit. -->

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
    base = Recipe.from_dict(header["base"])
    same = (change for change in changes_of(header) if canonical(base.with_values(change)) == canonical(base))
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


def page_text(folder: Path) -> str:
    parts = [OPENING]
    for (family, model, base, _), searches in sorted(grids(folder).items()):
        parts += [f"## {model} on {family}, by {searches[0][0]['select']}", f"Changes to `{base}`:"]
        parts.append(grid_table(searches))
    return "\n\n".join(parts) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail where the page is stale")
    text = page_text(TRIALS)
    if not parser.parse_args().check:
        PAGE.write_text(text, "utf-8")
    elif not PAGE.is_file() or PAGE.read_text("utf-8") != text:
        sys.exit(f"{PAGE}: the page is not what the trials say. Run python scripts/tuning_table.py.")


if __name__ == "__main__":
    main()
