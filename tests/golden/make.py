"""Train the four golden runs and store their scores. Run only to add a run; a change of scores is a defect.

python tests/golden/make.py
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numba
import torch
from safetensors.torch import save_file

import contextpool as cp

HERE = Path(__file__).resolve().parent
CONTEXT: dict[str, Any] = {
    "views": [{"min_precision": 0.1}, {"min_precision": 0.0, "min_recall": 0.1}],
    "hops": 3,
    "gate": True,
    "arrive": True,
    "arrive_features": True,
    "arrive_walk": True,
}
SETTINGS = {
    "nbfnet": {"dim": 8, "layers": 3},
    "redgnn": {"dim": 8, "layers": 3, "attention_dim": 3},
}
RUNS = {
    "nbfnet": ("nbfnet", False),
    "nbfnet_context": ("nbfnet", CONTEXT),
    "redgnn": ("redgnn", False),
    "redgnn_context": ("redgnn", CONTEXT),
}
QUESTIONS = 16
KEPT = (
    "config.json",
    "metrics.json",
    "model.safetensors",
    "context.safetensors",
    "relations.json",
    "README.md",
)


def golden_scores(run: Path) -> torch.Tensor:
    """[Q, N] scores of every entity of the inference graph for the first questions of the test facts."""
    dataset = cp.load_dataset("world")
    graph = cp.Graph.from_triples(dataset.inference_graph)
    predictor = cp.load(run)
    prepared, _ = predictor.prepared(graph)
    facts = sorted(dataset.evaluation_queries("P2"))
    asked = facts[:: len(facts) // QUESTIONS][:QUESTIONS]
    heads = torch.tensor([prepared.entity_id(head) for head, _, _ in asked])
    relations = torch.tensor([predictor.relations.id_of(relation) for _, relation, _ in asked])
    flipped = torch.arange(len(asked)) % 2 == 1  # every second question is asked along the inverse
    tails = torch.tensor([prepared.entity_id(tail) for _, _, tail in asked])
    half = len(predictor.relations.directed) // 2
    with torch.no_grad():
        return predictor.scorer(prepared)(
            torch.where(flipped, tails, heads), torch.where(flipped, relations + half, relations)
        )


def main() -> None:
    """Train what is missing, then store the scores of all."""
    torch.set_num_threads(1)
    numba.set_num_threads(1)
    scores = {}
    for name, (model, context) in RUNS.items():
        run = HERE / name
        if not run.is_dir():
            train = {"epochs": 2, "batch_size": 64, "lr": 0.01, "warmup_steps": 10}
            cp.train("world", model, context, output=run, settings=SETTINGS[model], train=train)
            _keep_results(run)
        scores[name] = golden_scores(run)
    save_file(scores, HERE / "scores.safetensors")


def _keep_results(run: Path) -> None:
    """Checkpoints and logs are not needed to load a run."""
    for file in sorted(run.rglob("*"), reverse=True):
        if file.is_dir():
            file.rmdir()
        elif str(file.relative_to(run)) not in KEPT:
            file.unlink()


if __name__ == "__main__":
    main()
