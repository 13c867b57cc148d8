"""Pages made from lines beside that of results: models side by side, and what each change of a search did."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from pathlib import Path
from statistics import fmean
from typing import Any

from lab.breakdown import search_table, unequal_searches
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

MOST_SHOWN = 24
"""Characters of a value; longer ones are left to the file of trials."""
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
    name = recipe_name(SHIPPED, find_recipe(dataset, model, SHIPPED, shipped_variants()))
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

Changes to a recipe, by the MRR on what selects: a half of the training graph that shares no entity with the half that
trains, or (transductive) validation queries. Each figure is the gain over the recipe as it is, the mean over halves,
seeds and the recipes that it was tried on. Single changes; each trial is a line in `results/trials/`.
[Recipes](recipes.md) says what was taken."""
CHANGE = "together.change"
Search = tuple[Line, list[Line]]
"""Header, trials."""


def grids(folder: Path) -> list[Search]:
    """The searches that went through all of their changes and finished every one."""
    searches = (read_search(path) for path in sorted(folder.glob("*.jsonl")))
    found = []
    for header, lines in (search for search in searches if search is not None):
        if header["sampler"] != "grid" or CHANGE not in header["space"]:
            continue
        trials = [line for line in lines if line["valid_mrr"] is not None]
        if len(trials) == len(header["space"][CHANGE]["choices"]):
            found.append((header, trials))
    return found


def told(change: dict[str, Any]) -> str:
    return ", ".join(f"`{key} = {_short(value)}`" for key, value in change.items())


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= MOST_SHOWN else "..."


def gains(search: Search) -> dict[str, float]:
    """What each single change added to the recipe as it is; nothing where that was not among the changes."""
    header, trials = search
    base = header["base"]
    same = [line for line in trials if changed(base, line["values"][CHANGE]) == written_out(base)]
    if not same:
        return {}
    before = fmean(line["valid_mrr"] for line in same)
    return {
        told(line["values"][CHANGE]): line["valid_mrr"] - before
        for line in trials
        if line not in same and len(line["values"][CHANGE]) == 1
    }


def changes_table(searches: list[Search]) -> str:
    """Changes down, in alphabetical order, families and models across."""
    found: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for search in searches:
        column = f"{family_of_splits(search[0]['dataset'])} {search[0]['model']}"
        for change, gain in gains(search).items():
            found[change][column].append(gain)
    heads = sorted({column for columns in found.values() for column in columns})
    rows = [
        [change, *(signed(fmean(columns[head])) if head in columns else "" for head in heads)]
        for change, columns in sorted(found.items())
    ]
    return table(["change", *heads], rows)


def tuning_page(folder: Path, results: Results) -> str:
    parts = [OPENING, changes_table(grids(folder)), "## What the searches cost"]
    parts.append(search_table(results.searches) or MISSING)
    unequal = unequal_searches(results)
    if unequal:
        parts += ["Not the same budget with and without context:", "\n".join(unequal)]
    return "\n\n".join(parts) + "\n"
