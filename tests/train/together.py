"""Everything that several processes are to do together, done by each of them; results go to files."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import torch

from contextpool import experiment
from contextpool.errors import ContextPoolError, DataError
from contextpool.processes import Processes, joined
from contextpool.recipe import Recipe
from contextpool.train.config import TrainConfig
from contextpool.train.micro_batches import check_same_weights
from contextpool.train.progress import Progress
from learning_worlds import CONTEXTS, family_dataset

PIECES = 6


def _train(**values: Any) -> TrainConfig:
    """A last batch of one query: with several processes some have nothing to do."""
    settings = {"epochs": 2, "batch_size": 53, "warmup_steps": 2, "micro_batches": PIECES, **values}
    return TrainConfig(**settings)


RECIPES = {
    "dropped": Recipe(
        "split", "redgnn", {"dim": 4, "layers": 2, "attention_dim": 3, "dropout": 0.2}, CONTEXTS["views"],
        _train(edge_dropout=0.2, average_last=2),
    ),
    "sampled": Recipe("split", "nbfnet", {"dim": 4, "layers": 2}, CONTEXTS["plain"], _train(loss="bce")),
}  # fmt: skip


class Stopped(BaseException):
    """What a power cut would be."""


def stop_in_second_epoch(progress: Progress) -> None:
    if progress.epoch == 2 and progress.step == 2:
        raise Stopped


def do_everything(rank: int, size: int, folder: str) -> None:
    """The task of process `rank`; they meet over a store in `folder`."""
    torch.set_num_threads(1)
    store = torch.distributed.FileStore(f"{folder}/store", size)
    torch.distributed.init_process_group("gloo", store=store, rank=rank, world_size=size)
    for name in ("all_gather_object", "broadcast_object_list", "gather_object", "scatter_object_list"):
        setattr(torch.distributed, name, None)  # each would unpickle what comes over the wire
    work_together(Processes(rank, size), Path(folder))
    torch.distributed.destroy_process_group()


def work_together(processes: Processes, folder: Path) -> None:
    for name, recipe in RECIPES.items():
        predictor = experiment.run_recipe(recipe, family_dataset(), output=folder / name)
        report = experiment.evaluate(predictor, family_dataset(), batch_size=3)
        columns = {key: getattr(report.table, key) for key in ("optimistic", "pessimistic", "candidates")}
        np.savez(folder / f"{name}-{processes.rank}.npz", **columns)
    told = {"refused": refused(processes), "failed": failed(processes), "differs": differs(processes)}
    (folder / f"told-{processes.rank}.json").write_text(json.dumps(told))


def refused(processes: Processes) -> str:
    """A model that learns by looking."""
    try:
        experiment.run_recipe(Recipe("split", "anyburl"), family_dataset())
    except ContextPoolError as error:
        return f"{type(error).__name__} {error.exit_code}: {error}"
    return ""


def failed(processes: Processes) -> str:
    """What the last process alone finds wrong."""

    def look() -> None:
        if processes.rank == processes.size - 1:
            raise DataError("x.tsv:3: it has two columns.")

    try:
        processes.agreed(look)
    except ContextPoolError as error:
        return f"{type(error).__name__} {error.exit_code}: {error}"
    return ""


def differs(processes: Processes) -> str:
    """Weights of which one bit is another in the last process."""
    model = torch.nn.Linear(2, 2)
    with torch.no_grad():
        model.weight.fill_(1.0)
        model.bias.fill_(0.5)
        check_same_weights(processes, model)
        if processes.rank == processes.size - 1:
            model.bias[1] = float(np.nextafter(np.float32(0.5), np.float32(1)))
    try:
        check_same_weights(processes, model)
    except ContextPoolError as error:
        return str(error)
    return ""


def go_on(rank: int, size: int, folder: str, run: str) -> None:
    """Resume a run that another number of processes began, joined as torchrun would."""
    torch.set_num_threads(1)
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(size), LOCAL_RANK=str(rank))
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=(Path(folder) / "port").read_text())
    os.environ["TORCHELASTIC_USE_AGENT_STORE"] = "True"
    with joined("cpu"):
        experiment.resume(run, family_dataset())
