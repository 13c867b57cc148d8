"""How values look in a notebook, and as a table of pandas. Text comes from elsewhere, so all of it is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from contextpool.errors import MissingExtraError

MOST_ROWS = 50
"""Rows that a notebook shows."""


def html_table(
    columns: Sequence[str], rows: Iterable[Sequence[object]], *, above: str = "", below: str = ""
) -> str:
    """A table with a line above and one below; numbers are right aligned."""
    listed = list(rows)
    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in listed[:MOST_ROWS])
    more = f"{len(listed) - MOST_ROWS:,} more rows" if len(listed) > MOST_ROWS else ""
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>" if listed else ""
    return f"<div>{_line(above)}{table}{_line(more)}{_line(below)}</div>"


def html_text(text: str) -> str:
    """Plain text as it is aligned."""
    return f"<pre>{escape(text)}</pre>"


def frame_of(rows: Iterable[Mapping[str, Any]], columns: Sequence[str]) -> Any:
    """A pandas DataFrame, a row each."""
    try:
        import pandas as pd
    except ImportError:
        raise MissingExtraError("pandas", "frame", "to_frame()") from None
    return pd.DataFrame(list(rows), columns=list(columns))


def _line(text: str) -> str:
    return "".join(f"<p>{escape(line)}</p>" for line in text.splitlines())


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f'<td style="text-align:right">{value:.4g}</td>'
    if isinstance(value, int) and not isinstance(value, bool):
        return f'<td style="text-align:right">{value:,}</td>'
    return f"<td>{'' if value is None else escape(str(value))}</td>"
