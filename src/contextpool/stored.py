"""A run folder becomes a Predictor again. It may come from anybody: nothing in it is believed, run or opened elsewhere.

Sizes are compared with the weights before memory is taken, JSON has the shape that was written, every part is the one
that was written with the weights, and what the run says it was trained on is shown, never opened.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch

from contextpool.context.counts import Statistics
from contextpool.errors import CheckpointError, InputError, shortened
from contextpool.evaluate.calibration import Calibration
from contextpool.graph.relations import RelationVocabulary
from contextpool.interop.hub import check_sums, local_folder
from contextpool.models.base import LinkPredictor
from contextpool.models.registry import model_class
from contextpool.predict import Predictor
from contextpool.recipe import Recipe
from contextpool.train.checkpoint import Shapes
from contextpool.train.files import check_shape
from contextpool.train.run_folder import RunFolder
from contextpool.triples.labels import relation_problem

METRICS = {
    "valid_mrr": (None, float),
    "best_epoch?": (None, int),
    "epochs?": int,
    "history?": [dict],
    "calibration": {
        "calibration": (None, dict),
        "reason?": str,
        "num_queries?": int,
        "error_before?": (None, float),
        "error_after?": (None, float),
    },
    "evaluation?": (None, dict),
    "fitted_on?": (None, str),
}
"""The shape of metrics.json, as far as it is read."""
_FIGURES = dict.fromkeys(("mrr", "mr", "hits@1", "hits@3", "hits@10", "hits@10_50"), float)
FIGURES = {
    **_FIGURES,
    "num_queries": int,
    "intervals": {"mrr": [float]},
    "ties": {"optimistic": _FIGURES, "pessimistic": _FIGURES},
}
"""That of the metrics of one scorer, in its evaluation."""
MACHINE = {
    "device?": str,
    "device_name?": str,
    "threads?": int,
    "processes?": int,
    "torch?": str,
    "commit?": (None, str),
}
CONFIG = {"recipe": dict, "seed": int, "machine": MACHINE, "dataset_sha256": str}
"""That of what config.json says."""


def load(path: str | Path | None = None, *, device: torch.device | str = "cpu") -> Predictor:
    """The Predictor of a finished run; needs no dataset. Without a path the model in the package, for any graph.

    A path is a folder, an address (`hf://user/name[@revision]`), or the name of a model in the package ("anygraph-1").
    """
    folder = local_folder(path)
    run = RunFolder.open(folder)
    run.check_finished()
    check_sums(folder)
    recipe, metrics = stored_recipe(run), run.read_json("metrics.json", METRICS)
    kind = model_class(recipe.model)
    relations = _stored_relations(run) if kind.keeps_relations else None
    model, meta = _stored_model(run, recipe, relations)
    statistics, stored = None, metrics["calibration"]["calibration"]
    with _of_run(run):
        if relations is not None and (recipe.context is not None or model.reads_relations):
            check = partial(Statistics.check_shapes, relations)
            statistics = Statistics.from_tensors(
                relations, *run.load_tensors("context.safetensors", check=check)
            )
        calibration = None if stored is None else Calibration.from_dict(stored)
    run.check_manifest(meta)
    predictor = Predictor(model, relations, recipe.context, statistics, calibration, device=device)
    predictor.evaluation, predictor.fitted_on = _stored_evaluation(run, metrics), metrics.get("fitted_on")
    return predictor


def _stored_evaluation(run: RunFolder, metrics: dict[str, Any]) -> dict[str, Any] | None:
    evaluation: dict[str, Any] | None = metrics.get("evaluation")
    where = f"{run.path / 'metrics.json'}: evaluation"
    if evaluation is not None:
        check_shape(
            evaluation, {"model": {"per_relation": dict}, **dict.fromkeys(evaluation, FIGURES)}, where
        )
        per_relation = evaluation["model"].get("per_relation")
        check_shape(per_relation, dict, where)
        check_shape(per_relation, dict.fromkeys(per_relation, _FIGURES), where)
    return evaluation


@contextmanager
def _of_run(run: RunFolder) -> Iterator[None]:
    """What is wrong with a part of a run is told with where it is."""
    try:
        yield
    except InputError as error:
        raise CheckpointError(f"{run.path}: {error} Use a whole copy of the run.") from error


def stored_recipe(run: RunFolder) -> Recipe:
    """What a run was trained by; a config that says something else than a run's is refused."""
    check_shape(run.config, CONFIG, f"{run.path / 'config.json'}: the config")
    with _of_run(run):
        return Recipe.from_dict(run.config["recipe"])


def _stored_relations(run: RunFolder) -> RelationVocabulary:
    """Distinct labels in sorted order, as they were written: the weights are numbered by them."""
    labels: list[str] = run.read_json("relations.json", [str])
    wrong = next((label for label in labels if relation_problem(label)), None)
    if wrong is not None or not labels or labels != sorted(set(labels)):
        what = "are not sorted, or not distinct" if wrong is None else f"hold {shortened(wrong)}"
        raise CheckpointError(f"{run.path / 'relations.json'}: the labels {what}. It is damaged; use a copy.")
    return RelationVocabulary(tuple(labels))


def _stored_model(
    run: RunFolder, recipe: Recipe, relations: RelationVocabulary | None
) -> tuple[LinkPredictor, dict[str, Any]]:
    """The model with its weights, and their meta. Shapes are compared before memory is taken for either."""
    kind = model_class(recipe.model)
    made_of = (0 if relations is None else relations.num_relations, recipe.model_config(), recipe.context)

    def check(stored: Shapes) -> None:
        with torch.device("meta"):
            expected = {
                name: (one.dtype, tuple(one.shape)) for name, one in kind(*made_of).state_dict().items()
            }
        odd = sorted(
            name for name in expected.keys() | stored.keys() if expected.get(name) != stored.get(name)
        )
        if odd:
            raise CheckpointError(
                f"{run.path}: the weights do not fit the recipe: {shortened(odd[0])} is {stored.get(odd[0])}, and has "
                f"to be {expected.get(odd[0])}. They are another run's; use a whole copy."
            )

    weights, meta = run.load_tensors("model.safetensors", check=None if kind.sized_by_weights else check)
    model = kind(*made_of)
    with _of_run(run):
        try:
            model.load_state_dict(weights)
        except RuntimeError as error:
            raise CheckpointError(f"{run.path}: the weights do not fit the recipe ({error}).") from error
    return model, meta
