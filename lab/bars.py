"""Bars for trainings that run side by side, on stderr: one each, gone when it is done, with notes between."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from contextpool.train.progress import Progress


class TrainingBars:
    """A context manager. With `total` there is a bar over all trainings, too."""

    def __init__(self, title: str, total: int | None = None) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as Bars

        self._console = Console(stderr=True)
        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TextColumn("{task.fields[state]}", markup=False),
            TimeElapsedColumn(),
        )
        self._bars = Bars(*columns, console=self._console, transient=True)
        self._running: dict[Hashable, Any] = {}
        self._done, self._total = 0, total
        self._whole = (
            None if total is None else self._bars.add_task(title, total=total, state=f"0 of {total}")
        )

    def begin(self, key: Hashable, name: str) -> None:
        """A training has begun."""
        self._running[key] = self._bars.add_task(name, total=None, state="")

    def update(self, key: Hashable, progress: Progress) -> None:
        """Show how far a training is."""
        if key in self._running:
            mrr = "" if progress.mrr is None else f"valid MRR {progress.mrr:.3f}"
            shown = (f"epoch {progress.epoch}/{progress.epochs}", progress.shown_loss, mrr)
            state = "  ".join(filter(None, shown))
            self._bars.update(self._running[key], completed=progress.step, total=progress.steps, state=state)

    def end(self, key: Hashable) -> int:
        """It has ended; returns how many have."""
        self._done += 1
        if key in self._running:
            self._bars.remove_task(self._running.pop(key))
        if self._whole is not None:
            self._bars.update(self._whole, completed=self._done, state=f"{self._done} of {self._total}")
        return self._done

    def note(self, message: str) -> None:
        """A line above the bars; never read as markup, never broken."""
        self._console.print(message, markup=False, highlight=False, soft_wrap=True)

    def __enter__(self) -> TrainingBars:
        """Itself, shown."""
        self._bars.start()
        return self

    def __exit__(self, *error: object) -> None:
        """Gone."""
        self._bars.stop()
