"""Figures and tables as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lab.results import Group

MISSING = "missing"
FEW = "†"
"""Behind a figure with fewer seeds than it should have."""


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table whose first column is text and whose others are figures."""
    lines = [_row(columns), _row(["---", *("--:" for _ in columns[1:])])]
    return "\n".join([*lines, *(_row(row) for row in rows)])


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def figure(value: float | None, digits: int = 3) -> str:
    """.512; a dash where there is none."""
    if value is None:
        return "–"
    text = f"{value:.{digits}f}"
    return text.replace("0.", ".", 1) if text.startswith(("0.", "-0.")) else text


def signed(value: float, digits: int = 3) -> str:
    """+.012 or −.012"""
    text = figure(abs(value), digits)
    return f"{'−' if value < 0 else '+'}{text}"


def p_value(value: float | None) -> str:
    """Three decimals, or that it is smaller."""
    if value is None:
        return "–"
    return "< .001" if value < 0.001 else figure(value)


def mean_and_deviation(group: Group | None, metric: str, *, bold: bool = False) -> str:
    """.512 ± .003, flagged where seeds are few; or that it is missing."""
    if group is None:
        return MISSING
    mean = figure(group.mean(metric))
    text = f"**{mean}**" if bold else mean
    deviation = group.deviation(metric)
    if deviation is not None:
        text += f" ± {figure(deviation)}"
    return text if group.is_enough else f"{text} {FEW}{group.seeds}"


def seconds(value: float | None) -> str:
    """1,234 s; a dash where there is none."""
    return "–" if value is None else f"{value:,.0f} s"
