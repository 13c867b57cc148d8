"""Trainings that are killed: a process that forks a child for each attempt and ends it with SIGKILL.

Run as a script, so that pytest itself is never forked. It trains once, so that children start with everything
loaded, and then does what it reads, a line each: folder, seed and number of kills, by tabs. Each answer is how many
children died by the signal, and how the last attempt ended, which is left to finish.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from contextpool.experiment import resume, run_recipe
from contextpool.recipe import Recipe
from contextpool.train.config import TrainConfig
from contextpool.train.progress import Progress
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


def kill_and_finish(folder: Path, seed: int, kills: int) -> tuple[int, int]:
    """How many kills met a living training, and the exit code of the attempt after them."""
    rng = random.Random(seed)
    ended = [
        kill_after(*start(folder), steps=rng.randint(0, 6), delay=rng.uniform(0, 0.05)) for _ in range(kills)
    ]
    child, reader = start(folder)
    while os.read(reader, 64):
        pass
    os.close(reader)
    _, status = os.waitpid(child, 0)
    return sum(number == signal.SIGKILL for number in ended), os.waitstatus_to_exitcode(status)


def main() -> None:
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        run_recipe(RECIPE, family_dataset(), output=Path(folder) / "run")
    for line in sys.stdin:
        folder, seed, kills = line.rstrip("\n").split("\t")
        print(*kill_and_finish(Path(folder), int(seed), int(kills)), flush=True)


class KilledTrainings:
    """The process, from outside."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def kill(self, folder: Path, seed: int, kills: int) -> int:
        """Train in a folder with so many kills and finish; gives how many met a living training."""
        assert self._process.stdin
        assert self._process.stdout
        print(folder, seed, kills, sep="\t", file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline().split()
        assert answer, "the process that kills trainings has ended"
        met, code = map(int, answer)
        assert code == 0
        return met


@contextmanager
def killed_trainings() -> Iterator[KilledTrainings]:
    """Start this script. Its threads have to survive a fork, so numba uses its own kind."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "NUMBA_NUM_THREADS": "1",
        "NUMBA_THREADING_LAYER": "workqueue",
    }
    command = [sys.executable, "-P", __file__]
    process = subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with process:
        yield KilledTrainings(process)


if __name__ == "__main__":
    main()
