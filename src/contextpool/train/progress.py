"""Where a run stands, what it tells on the way, and what it ends with."""

from __future__ import annotations

import math
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from contextpool.errors import CheckpointError
from contextpool.processes import Processes
from contextpool.train.files import check_shape
from contextpool.train.run_folder import RunFolder

if TYPE_CHECKING:
    from rich.console import Console

OnEvent = Callable[[dict[str, Any]], None]
"""Called with each event that goes into the log of a run."""


@dataclass
class Position:
    """Where a run stands: all that resuming needs besides the weights and the optimizer."""

    epoch: int = 0
    """Epochs finished."""
    step: int = 0
    """Steps finished in the current epoch."""
    total_steps: int = 0
    best_mrr: float = -1.0
    best_epoch: int = 0
    stale_epochs: int = 0
    loss_sum: float = 0.0
    """Over the current epoch's steps."""
    history: list[dict[str, Any]] = field(default_factory=list)
    """One entry per finished epoch: loss and validation MRR."""

    @classmethod
    def from_dict(cls, stored: Any, where: str) -> Position:
        """As a checkpoint holds it; refused where it is something else."""
        counts = ("epoch", "step", "total_steps", "best_epoch", "stale_epochs")
        history = [{"epoch": int, "loss?": float, "valid_mrr?": float}]
        shape = {**dict.fromkeys(counts, int), "best_mrr": float, "loss_sum": float, "history": history}
        check_shape(stored, shape, where)
        if set(stored) != set(shape) or min(stored[name] for name in counts) < 0:
            raise CheckpointError(f"{where} is not what is written there. It is damaged; use a copy.")
        return cls(**stored)


@dataclass(frozen=True)
class Progress:
    """What a progress bar shows."""

    epoch: int
    epochs: int
    step: int
    steps: int
    loss: float
    mrr: float | None
    seconds_left: float
    stage: str = ""
    """What is done where it is not the training itself."""

    @property
    def shown_loss(self) -> str:
        """Empty where there is none, as for a model that learns rules."""
        return "" if math.isnan(self.loss) else f"loss {self.loss:.3f}"

    @property
    def place(self) -> str:
        """Which epoch of how many, or what else is done."""
        return self.stage or f"epoch {self.epoch}/{self.epochs}"

    @property
    def state(self) -> str:
        """Loss, validation MRR and time left, those that there are."""
        mrr = "" if self.mrr is None else f"valid MRR {self.mrr:.3f}"
        hours, rest = divmod(int(self.seconds_left), 3600)
        left = f"{hours}:{rest // 60:02}:{rest % 60:02}" if hours else f"{rest // 60}:{rest % 60:02}"
        return "  ".join(filter(None, (self.shown_loss, mrr, f"at most {left} left")))


@dataclass(frozen=True)
class Outcome:
    """The result of training; the model holds the weights of the best epoch."""

    best_mrr: float
    best_epoch: int
    epochs: int
    history: list[dict[str, Any]]


class StopSignals:
    """Holds Ctrl-C and SIGTERM back until a step is whole. Whoever presses Ctrl-C twice does not wait.

    Only the main thread gets signals; in another one, and where there is no folder to save to, nothing is held back.
    """

    def __init__(self, holds: bool) -> None:
        self._holds = holds and threading.current_thread() is threading.main_thread()
        self._before: dict[int, Any] = {}
        self.number = 0
        """The first signal that came; 0 for none."""

    def __enter__(self) -> StopSignals:
        """From now on."""
        if self._holds:
            self._before = {
                number: signal.signal(number, self._note) for number in (signal.SIGINT, signal.SIGTERM)
            }
        return self

    def __exit__(self, *error: object) -> None:
        """As it was before."""
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: object) -> None:
        if self.number and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.number = self.number or number

    def agreed(self, processes: Processes) -> int:
        """The signal that came to any of the processes."""
        if not processes.are_several:
            return self.number
        came = torch.tensor([self.number == number for number in (signal.SIGTERM, signal.SIGINT)]).long()
        terminate, interrupt = processes.sum(came).tolist()
        return int(signal.SIGTERM if terminate else signal.SIGINT if interrupt else 0)


def tell(event: dict[str, Any], run: RunFolder | None, on_event: OnEvent | None) -> None:
    """Add the time to an event, write it to the run's log, and pass it on."""
    event["time"] = time.time()
    if run is not None:
        run.append_event(event)
    if on_event is not None:
        on_event(event)


ProgressCallback = Callable[[Progress], None]


def asking_progress(progress: ProgressCallback, stage: str) -> Callable[[int, int], None]:
    """Tells of questions, so many of so many, as `progress` tells of steps."""
    began, last = time.monotonic(), 0

    def update(done: int, total: int) -> None:
        nonlocal began, last
        if done < last:  # the next scorer
            began = time.monotonic()
        last = done
        left = (time.monotonic() - began) / max(1, done) * (total - done)
        progress(Progress(1, 1, done, total, math.nan, None, left, stage))

    return update


LINE_SECONDS = 30.0
"""Seconds between two lines where there is no terminal."""


@contextmanager
def shown_progress() -> Iterator[ProgressCallback]:
    """A bar on stderr, or in a notebook, that is gone when it is done; a line now and then where neither is there."""
    from rich.console import Console

    console = Console(stderr=True)
    if console.is_terminal or console.is_jupyter:
        with _bar(console) as update:
            yield update
    else:
        yield _lines()


def _lines() -> ProgressCallback:
    told = time.monotonic()

    def update(progress: Progress) -> None:
        nonlocal told
        if time.monotonic() - told >= LINE_SECONDS:
            told = time.monotonic()
            what = "" if progress.stage else "step "
            done = f"{what}{progress.step:,}/{progress.steps:,}"
            print(f"{progress.place}, {done}  {progress.state}", file=sys.stderr, flush=True)

    return update


@contextmanager
def _bar(console: Console) -> Iterator[ProgressCallback]:
    from rich.progress import BarColumn, TextColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[state]}"))
    with Bar(*columns, console=console, transient=True) as bar:
        task = bar.add_task("preparing", total=None, state="")

        def update(progress: Progress) -> None:
            step, steps = progress.step, progress.steps
            bar.update(
                task,
                description=progress.place,
                completed=step,
                total=steps,
                state=progress.state,
            )

        yield update
