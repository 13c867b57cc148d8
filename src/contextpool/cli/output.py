"""How commands print: tables for people, JSON for machines, errors on stderr."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress
    from rich.table import Table


def console() -> Console:
    """Standard output; as wide as the terminal, and wide enough for a table where there is none."""
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else 120, highlight=False)


def print_error(message: str) -> None:
    """One plain message on stderr, never a traceback."""
    print(f"contextpool: error: {message}", file=sys.stderr)


def note(message: str) -> None:
    """A remark about what is being done, on stderr so that it never mixes with JSON."""
    print(message, file=sys.stderr)


def print_json(value: Any) -> None:
    print(json.dumps(value, ensure_ascii=False, indent=2, allow_nan=False))


def table(
    title: str,
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    numbers_from: int = 1,
    words: Sequence[int] = (),
) -> Table:
    """A table whose columns from `numbers_from` on are right aligned, but for `words`; labels are no markup."""
    from rich.table import Table
    from rich.text import Text

    result = Table(title=Text(title), title_justify="left", title_style="bold", header_style="bold")
    for position, column in enumerate(columns):
        right = position >= numbers_from and position not in words
        result.add_column(Text(column), justify="right" if right else "left", overflow="fold")
    for row in rows:
        result.add_row(*(Text(str(cell)) for cell in row))
    return result


@contextmanager
def count_bar(what: str) -> Iterator[Callable[[int, int], None]]:
    """A transient bar of things done, with their number and the time left, on stderr; call it with (done, all).

    It appears with the first call, and only on a terminal.
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    terminal = Console(stderr=True)
    bar = Progress(*columns, console=terminal, transient=True, disable=not terminal.is_terminal)
    task = bar.add_task(what, total=None)

    def update(done: int, total: int) -> None:
        bar.start()
        bar.update(task, completed=done, total=total)

    try:
        yield update
    finally:
        bar.stop()


def progress_bar() -> Progress:
    """A transient bar with bytes and time left, on stderr."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    return Progress(*columns, console=Console(stderr=True), transient=True)
