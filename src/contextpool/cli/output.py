"""How commands print: tables for people, JSON for machines, errors on stderr."""

from __future__ import annotations

import json
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress
    from rich.table import Table

SECONDS_BETWEEN_LINES = 30
"""Where there is no terminal to draw a bar on."""


_ACTS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""Characters that do something to a terminal, or turn the text around, instead of being shown."""


def shown(text: str) -> str:
    """Text that may hold labels from anywhere, for a terminal: what would act on it is written out, as in Python."""
    return _ACTS.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def say(text: str, *, error: bool = False, end: str = "\n") -> None:
    """Print for people; whatever labels hold, nothing but text reaches the terminal."""
    print(shown(text), file=sys.stderr if error else sys.stdout, end=end)


def on_terminal() -> bool:
    return sys.stdout.isatty()


def console() -> Console:
    """Standard output; as wide as the terminal, and wide enough for a table where there is none."""
    from rich.console import Console

    class Shown(Console):
        def print(self, *objects: Any, **options: Any) -> None:
            super().print(*(shown(one) if isinstance(one, str) else one for one in objects), **options)

    return Shown(width=None if on_terminal() else 120, highlight=False)


def print_error(message: str) -> None:
    """One plain message on stderr, never a traceback."""
    say(f"contextpool: error: {message}", error=True)


@contextmanager
def data_warnings_shown() -> Iterator[None]:
    """Doubts about data as a line each on stderr, once; other warnings as Python shows them."""
    from contextpool.errors import DataWarning

    with warnings.catch_warnings():
        as_before = warnings.showwarning
        told: set[str] = set()

        def show(message: Any, category: Any, *rest: Any, **options: Any) -> None:
            if not issubclass(category, DataWarning):
                as_before(message, category, *rest, **options)
            elif str(message) not in told:
                told.add(str(message))
                say(f"contextpool: warning: {message}", error=True)

        warnings.simplefilter("always", DataWarning)
        warnings.showwarning = show
        yield


def note(message: str) -> None:
    """A remark about what is being done, on stderr so that it never mixes with JSON."""
    say(message, error=True)


def print_json(value: Any) -> None:
    print_data(json.dumps(value, ensure_ascii=False, indent=2, allow_nan=False) + "\n", is_json=True)


def print_data(text: str, *, is_json: bool = False) -> None:
    """Print for machines: JSON in its own escapes, which mean the same; other text as it is, but on a terminal."""
    if is_json:
        text = _ACTS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
    sys.stdout.write(shown(text) if on_terminal() else text)


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

    result = Table(title=Text(shown(title)), title_justify="left", title_style="bold", header_style="bold")
    for position, column in enumerate(columns):
        right = position >= numbers_from and position not in words
        result.add_column(Text(shown(column)), justify="right" if right else "left", overflow="fold")
    for row in rows:
        result.add_row(*(Text(shown(str(cell))) for cell in row))
    return result


@contextmanager
def count_bar(what: str) -> Iterator[Callable[..., None]]:
    """A transient bar of things done, with their number and the time left, on stderr; call it with (done, all).

    It appears with the first call. Where stderr is no terminal, a line every half a minute says how far it is. A third
    argument is what is being done by now.
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    terminal = Console(stderr=True)
    bar = Progress(*columns, console=terminal, transient=True, disable=not terminal.is_terminal)
    task, told = bar.add_task(what, total=None), _Told(what)

    def update(done: int, total: int, doing: str = what) -> None:
        if not terminal.is_terminal:
            told.heard(done, total, doing)
            return
        bar.start()
        bar.update(task, completed=done, total=total, description=shown(doing))

    try:
        yield update
    finally:
        bar.stop()


class _Told:
    """Says how far something is, every half a minute."""

    def __init__(self, what: str) -> None:
        self._what, self._began, self._before, self._last = what, monotonic(), 0, monotonic()

    def heard(self, done: int, total: int, what: str) -> None:
        now = monotonic()
        if what != self._what:
            self._what, self._began, self._before = what, now, done
        if now - self._last >= SECONDS_BETWEEN_LINES:
            self._last = now
            rate = (done - self._before) / max(now - self._began, 1e-9)
            seconds = (total - done) / rate if rate else 0.0
            left = f", about {seconds / 60:.0f} min left" if seconds > 90 else f", about {seconds:.0f} s left"
            note(f"{what}: {done:,} of {total:,}, {rate:,.1f} a second{left if rate else ''}")


def progress_bar() -> Progress:
    """A transient bar with bytes and time left, on stderr."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    return Progress(*columns, console=Console(stderr=True), transient=True)
