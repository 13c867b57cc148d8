"""Pages made from lines beside that of results: models side by side, and what each change of a search did."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from pathlib import Path
from statistics import fmean
from typing import Any

from lab.jobs import Line
from lab.recipes import SHIPPED, changed, find_recipe, recipe_name, shipped_variants, written_out
from lab.results import (
    MISSING,
    Group,
    Results,
    columns,
    family_of_splits,
    figure,
    mean_and_deviation,
    read_search,
    signed,
    systems,
    table,
)

SPLITS = ("WN18RR_v1", "fb237_v1", "fb237_v2", "nell_v1", "nell_v2")
MODELS = {
    "nbfnet": "NBFNet",
    "nbfnet+cp": "NBFNet+CP",
    "redgnn": "RED-GNN",
    "redgnn+cp": "RED-GNN+CP",
    "neural_lp": "Neural LP",
    "drum": "DRUM",
    "anyburl": "AnyBURL",
    "compgcn": "CompGCN",
    "grail": "GRAIL",
}
"""Ours -> the row of the paper's Table 2."""


def as_shipped(results: Results, dataset: str, model: str) -> Group | None:
    """What `--model` gives today: the lines of the shipped recipe, or of the one that validation prefers."""
    name = recipe_name(SHIPPED, find_recipe(dataset, model, SHIPPED, shipped_variants()).values)
    found = [group for group in results.of(dataset, model) if group.recipe == name]
    return found[0] if found else results.chosen(dataset, model)


def accuracy(results: Results) -> str:
    """MRR of each model on five splits, the published figure in brackets."""
    rows = []
    for model, published in MODELS.items():
        theirs = dict(zip(columns(), systems("inductive", "mrr")[published], strict=True))
        groups = {split: as_shipped(results, f"grail/{split}", model) for split in SPLITS}
        shown = [f"{mean_and_deviation(groups[split], 'mrr')} ({figure(theirs[split])})" for split in SPLITS]
        rows.append([f"`{model}`", *shown])
    return table(["MRR (published)", *SPLITS], rows)


def cost(results: Results) -> str:
    """What training and asking cost on fb237_v1."""
    heading = ["on fb237_v1", "weights", "training, s", "questions a second", "machine"]
    return table(heading, [_cost_of(model, as_shipped(results, "grail/fb237_v1", model)) for model in MODELS])


def _cost_of(model: str, group: Group | None) -> list[str]:
    if group is None:
        return [f"`{model}`", *[MISSING] * 4]
    line = group.lines[0]
    rate = fmean(float(line["queries_per_second"]) for line in group.lines)
    trained = fmean(group.values("train_seconds"))
    return [f"`{model}`", f"{line['parameters']:,}", f"{trained:,.0f}", f"{rate:,.0f}", str(line["device"])]


def between_marks(page: str, name: str, text: str) -> str:
    """The page with `text` between the marks of that name, each of which has to be there once."""
    begin, end = f"<!-- {name}: made by python -m lab report -->", f"<!-- end of {name} -->"
    pattern = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
    if len(pattern.findall(page)) != 1:
        raise ValueError(f"the marks {begin} and {end} have to be there once.")
    return pattern.sub(lambda found: f"{begin}\n\n{text}\n\n{end}", page)


def models_page(text: str, results: Results) -> str:
    """The page with both tables made again."""
    for name, made in (("accuracy", accuracy(results)), ("cost", cost(results))):
        text = between_marks(text, name, made)
    return text


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
