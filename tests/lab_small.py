"""Trainings of a second, and lines as the benchmark writes them without any training."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from contextpool.triples.formats import write_dataset
from lab.results import SETTINGS, datasets_of
from lab.run import Grid
from learning_worlds import family_dataset

QUICK: dict[str, Any] = {
    "model.dim": 4,
    "model.layers": 2,
    "train.epochs": 1,
    "train.batch_size": 256,
    "train.warmup_steps": 2,
}


def family_folder(folder: Path) -> str:
    """The families as a GraIL pair on disk; what a grid names it by."""
    dataset = family_dataset(inductive=True)
    write_dataset(dataset, folder / "data")
    return str(folder / "data" / dataset.name)


def quick_grid(dataset: str, **options: Any) -> Grid:
    return Grid((dataset,), **{"models": ("nbfnet",), "seeds": (0, 1), "changes": QUICK, **options})


def line(
    dataset: str = "grail/fb237_v1",
    model: str = "nbfnet",
    seed: int = 0,
    *,
    mrr: float = 0.4,
    valid: float | None = 0.5,
    recipe: str = "shipped#00000000",
    **more: Any,
) -> dict[str, Any]:
    """A line with what the report reads."""
    kind = next(
        (setting for setting, folder in SETTINGS.items() if dataset.split("/")[0] == folder), "inductive"
    )
    return {
        "setting": kind,
        "dataset": dataset,
        "protocol": "P1",
        "model": model,
        "recipe": recipe,
        "seed": seed,
        "mrr": mrr,
        "hits@1": mrr - 0.1,
        "hits@10": mrr + 0.2,
        "valid_mrr": valid,
        "epochs": 5,
        "train_seconds": 10.0,
        "device": "NVIDIA H200",
        "commit": "0" * 40,
        "date": "2026-11-15T12:00:00Z",
        "settings": {"context": None},
        **more,
    }


def lines_of(
    model: str, gain: float, *, setting: str = "inductive", seeds: int = 3, spread: float = 0.01
) -> list[Any]:
    """A line for each dataset and seed; the figures depend on the dataset, the seed and the gain alone."""
    found = []
    for place, dataset in enumerate(datasets_of(setting)):
        for seed in range(seeds):
            noise = spread * random.Random(f"{model}/{dataset}/{seed}").gauss(0, 1)
            found.append(line(dataset, model, seed, mrr=0.3 + 0.01 * place + gain + noise))
    return found
