"""Accuracy and cost of every model side by side, for docs/lab/models.md."""

from __future__ import annotations

import re
from statistics import fmean

from lab.cells import SHIPPED, find_recipe, recipe_name
from lab.markdown import MISSING, figure, mean_and_deviation, table
from lab.models import shipped_variants
from lab.published import columns, systems
from lab.results import Group, Results

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
