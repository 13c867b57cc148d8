"""Trainings that are killed: a process that forks a child for each attempt and ends it with SIGKILL.

Run as a script, so that pytest itself is never forked: folder, seed and number of kills as arguments. Prints how
many children died by the signal. The last attempt is left to finish.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import torch

from contextpool.experiment import resume, run_recipe
from contextpool.recipe import Recipe
from contextpool.train.config import TrainConfig
from contextpool.train.loop import Progress
from learning_worlds import CONTEXTS, family_dataset

RECIPE = Recipe(
    "split",
    "redgnn",
    {"dim": 4, "layers": 2, "attention_dim": 3, "dropout": 0.1},
    CONTEXTS["all"],
    TrainConfig(epochs=3, batch_size=48, warmup_steps=2, checkpoint_steps=2),
)


def attempt(folder: Path, telling: int) -> None:
    """Begin or go on, and tell after every step."""

    def tell(_: Progress) -> None:
        os.write(telling, b".")

    if (folder / "config.json").exists():
        resume(folder, family_dataset(), progress=tell)
    else:
        run_recipe(RECIPE, family_dataset(), output=folder, progress=tell)


def start(folder: Path) -> tuple[int, int]:
    reader, writer = os.pipe()
    child = os.fork()
    if child:
        os.close(writer)
        return child, reader
    code = 1
    try:
        attempt(folder, writer)
        code = 0
    finally:
        os._exit(code)


def kill_after(child: int, reader: int, steps: int, delay: float) -> int:
    """Wait for so many steps and a little longer, kill, and give the signal that ended the child, 0 if none."""
    told = 0
    while told < steps and (news := os.read(reader, 64)):
        told += len(news)
    time.sleep(delay)
    os.kill(child, signal.SIGKILL)  # not yet waited for, so the number is still its own
    os.close(reader)
    _, status = os.waitpid(child, 0)
    return os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0


def main(folder: Path, seed: int, kills: int) -> int:
    torch.set_num_threads(1)
    rng = random.Random(seed)
    ended = [
        kill_after(*start(folder), steps=rng.randint(0, 6), delay=rng.uniform(0, 0.05)) for _ in range(kills)
    ]
    child, reader = start(folder)
    while os.read(reader, 64):
        pass
    _, status = os.waitpid(child, 0)
    print(sum(number == signal.SIGKILL for number in ended))
    return os.waitstatus_to_exitcode(status)


def killed_training(folder: Path, seed: int, kills: int) -> int:
    """Run this script; gives how many kills met a living training."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "NUMBA_NUM_THREADS": "1",
    }
    command = [sys.executable, "-P", __file__, str(folder), str(seed), str(kills)]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    return int(ended.stdout)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])))
