"""The audit as a picture: four panels, both graphs side by side. Needs matplotlib, imported only here."""

from __future__ import annotations

import io
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from contextpool.errors import ConfigError, MissingExtraError
from contextpool.triples.audit.queries import EVALUATION, MOST_HOPS, SELECTION, TEST
from contextpool.triples.reader import atomic_file

if TYPE_CHECKING:
    from contextpool.triples.audit.report import AuditReport

_SUFFIXES = (".png", ".svg")
_STYLES = (("#2b6cb0", "o", "-"), ("#dd6b20", "s", "--"))
"""Colour, marker and line of the first and the second graph; told apart without colour, too."""
_RC = {
    "font.size": 10,
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e2e8f0",
    "grid.linewidth": 0.8,
    "axes.axisbelow": True,
    "legend.frameon": False,
    "legend.fontsize": 9,
    "svg.hashsalt": "contextpool",
}


def save_plot(report: AuditReport, path: Path) -> None:
    """Draw the report and write it whole or not at all; .png or .svg by suffix."""
    if path.suffix.lower() not in _SUFFIXES:
        raise ConfigError(f"{path}: a plot is written as .png or .svg, not {path.suffix!r}. Rename the file.")
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtraError("matplotlib", "plot", "Plotting an audit") from None
    image = io.BytesIO()
    kind = path.suffix.lower().removeprefix(".")
    with rc_context(_RC), warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", message="Glyph .* missing from font"
        )  # a name in a script the font lacks
        figure = Figure(figsize=(11, 7.6), layout="constrained")
        _draw(figure, report)
        figure.savefig(image, format=kind, dpi=150, metadata={"Date": None} if kind == "svg" else None)
    with atomic_file(path) as stream:
        stream.write(image.getvalue())


def _draw(figure: Any, report: AuditReport) -> None:
    name = report.name if len(report.name) <= 80 else f"{report.name[:79]}…"
    title = f"Audit of {name} ({report.setting})"
    figure.suptitle(title, fontsize=13, fontweight="bold", parse_math=False)
    (degrees, frequency), (sets, reach) = figure.subplots(2, 2)
    _draw_degrees(degrees, report)
    _draw_frequency(frequency, report)
    _draw_relation_sets(sets, report)
    _draw_reach(reach, report)


def _draw_degrees(axes: Any, report: AuditReport) -> None:
    """Share of entities with at least so many edge ends, on log axes, where binning would make noise."""
    for graph, (color, marker, line) in zip(report.graphs, _STYLES, strict=False):
        degree, entities = _columns(graph.degree_histogram)
        at_least = entities[::-1].cumsum()[::-1] / max(entities.sum(), 1)
        shown = degree > 0
        isolated = f", {graph.isolated:,} without an edge" if graph.isolated else ""
        label = f"{graph.name}: median {graph.degree.median:g}, max {graph.degree.max:,.0f}{isolated}"
        axes.plot(degree[shown], at_least[shown], line, color=color, marker=marker, markersize=3, label=label)
    _log_scale(axes, "x", "{:,.6g}")
    _log_scale(axes, "y", "{:.6g}")
    _name(
        axes,
        "Degree",
        "degree (edges in + out)",
        "share of entities of at least this degree",
        legend="lower left",
    )


def _draw_frequency(axes: Any, report: AuditReport) -> None:
    for graph, (color, marker, line) in zip(report.graphs, _STYLES, strict=False):
        facts = np.array([count for _, count in graph.relation_frequency])
        label = f"{graph.name}: {graph.relations:,} relations, {len(graph.rare_relations):,} rare"
        axes.plot(
            np.arange(1, len(facts) + 1), facts, line, color=color, marker=marker, markersize=3, label=label
        )
    _log_scale(axes, "y", "{:,.6g}")
    _whole_numbers(axes.xaxis)
    _name(axes, "Relation frequency", "relation, most frequent first", "facts")


def _draw_relation_sets(axes: Any, report: AuditReport) -> None:
    width = 0.8 / max(len(report.graphs), 1)
    for number, graph in enumerate(report.graphs):
        size, entities = _columns(graph.relation_set_histogram)
        position = size + (number - (len(report.graphs) - 1) / 2) * width
        label = (
            f"{graph.name}: {graph.relation_sets:,} distinct sets, largest {graph.relation_set_size.max:g}"
        )
        axes.bar(position, entities / max(entities.sum(), 1), width, color=_STYLES[number][0], label=label)
    axes.set_ylim(0, 1.25 * max(axes.get_ylim()[1], 1e-9))  # room for the legend
    _whole_numbers(axes.xaxis)
    _name(axes, "Relation sets", "relations of an entity, inverses included", "share of entities")
    axes.yaxis.set_major_formatter(_percent())
    axes.grid(visible=False, axis="x")


def _draw_reach(axes: Any, report: AuditReport) -> None:
    """Bars by hops with their values; the last pair is any number of hops."""
    shown = [part for part in report.held_out if part.queries and part.name in (SELECTION, TEST, EVALUATION)]
    place = np.arange(1, MOST_HOPS + 2)
    width = 0.84 / max(len(shown), 1)
    for number, part in enumerate(shown):
        heights = np.array([*part.within, part.connected])
        position = place + (number - (len(shown) - 1) / 2) * width
        label = f"{part.name}, over the {part.graph} ({part.sample:,} of {part.queries:,} triples)"
        bars = axes.bar(position, heights, width, color=_STYLES[number][0], label=label)
        axes.bar_label(bars, [_short_percent(height) for height in heights], fontsize=8, padding=1)
    axes.set_ylim(0, 1.32)  # room for the legend above the bars
    axes.set_yticks(np.linspace(0, 1, 6))
    axes.set_xlim(0.4, MOST_HOPS + 1.6)
    axes.set_xticks(place, [*(str(hop) for hop in place[:-1]), "any"])
    _name(
        axes, "Reach", "at most so many hops from the head", "share of held-out answers", legend="upper left"
    )
    axes.yaxis.set_major_formatter(_percent())
    axes.grid(visible=False, axis="x")
    if not shown:
        axes.text(0.5, 0.5, "no held-out triples", transform=axes.transAxes, ha="center", color="#718096")


def _columns(histogram: Sequence[tuple[int, int]]) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    table = np.array(histogram, dtype=np.int64).reshape(-1, 2)
    return table[:, 0], table[:, 1]


def _log_scale(axes: Any, which: str, form: str) -> None:
    """A logarithmic axis with its numbers written out, where there is anything to take the logarithm of."""
    from matplotlib.ticker import FuncFormatter, NullFormatter

    if not any(len(line.get_xdata()) for line in axes.lines):
        return
    axes.set(**{f"{which}scale": "log"})
    axis = getattr(axes, f"{which}axis")
    axis.set_major_formatter(FuncFormatter(lambda value, _: form.format(value)))
    axis.set_minor_formatter(NullFormatter())


def _whole_numbers(axis: Any) -> None:
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator(nbins=10, integer=True, min_n_ticks=1))


def _short_percent(part: float) -> str:
    """Whole percents, but never 100 for what is not all nor 0 for what is not nothing."""
    if 0.995 <= part < 1:
        return ">99"
    return "<1" if 0 < part < 0.005 else f"{100 * part:.0f}"


def _percent() -> Any:
    from matplotlib.ticker import PercentFormatter

    return PercentFormatter(1.0, decimals=0)


def _name(axes: Any, title: str, x: str, y: str, legend: str = "upper right") -> None:
    axes.set_title(title, loc="left")
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    if axes.get_legend_handles_labels()[1]:
        axes.legend(loc=legend)
