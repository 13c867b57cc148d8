"""README.md of a run: what it was trained on, how well it did, and what did better."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from contextpool.evaluate.references import evaluation_told
from contextpool.models.registry import model_class
from contextpool.pretraining import start_title
from contextpool.recipe import Recipe
from contextpool.triples.catalog import dataset_title
from contextpool.triples.dataset import Dataset
from contextpool.triples.store import Triples


def model_card(
    recipe: Recipe, dataset: Dataset, seed: int, metrics: Mapping[str, Any], seen: Sequence[str] = ()
) -> str:
    """README.md of a run; `seen` are graphs of the dataset's family that its start was trained on."""
    context = "no context" if recipe.context is None else f"context ({recipe.context.described()})"
    valid = (
        "not trained"
        if metrics["valid_mrr"] is None
        else f"{metrics['valid_mrr']:.4f} (epoch {metrics['best_epoch']})"
    )
    knows = "The model knows relations, never entities: it answers on graphs of new entities with these relations."
    if model_class(recipe.model).any_relation:
        knows = "The model knows neither entities nor relations: it answers on any graph."
    started = "" if recipe.start is None else f", from {start_title(recipe.start)}"
    if seen:
        knows += (
            f" Its start was trained on graphs of this family ({', '.join(map(str, seen))}): figures on it are not "
            "those of a model that has never seen it."
        )
    return (
        f"# {recipe.model} on {dataset_title(dataset.name)}\n\n"
        f"A contextpool run: {recipe.model}, {context}, seed {seed}{started}.\n\n"
        f"- training graph: {len(dataset.training_graph):,} facts, {len(dataset.relations):,} relations\n"
        f"- training queries: {len(dataset.training_queries):,}, each hidden from itself\n"
        f"- selection: {len(selection_queries(recipe, dataset)):,} queries, validation MRR {valid}\n"
        f"{evaluation_told(metrics['evaluation'])}{refit_told(dataset, metrics['fitted_on'] is not None)}\n"
        f"{knows}\n\n"
        '```python\nimport contextpool as cp\n\npredictor = cp.load(".")\n'
        'predictor.predict(cp.read_graph("new.tsv"), head="...", relation="...")\n```\n'
    )


def refit_told(dataset: Dataset, fitted: bool) -> str:
    """A line of the card: whether the model has seen every fact of one graph."""
    if dataset.whole is None:
        return ""
    if fitted:
        return f"- fitted on all {len(dataset.whole):,} facts after that; the figures are those from before\n"
    return "- not fitted on what was held out\n"


def selection_queries(recipe: Recipe, dataset: Dataset) -> Triples:
    """What validation and calibration ask."""
    facts, number = dataset.validation_queries, recipe.train.valid_facts
    return facts.sample(number) if number else facts
