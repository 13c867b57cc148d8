"""The page's pictures as SVG, the same bytes for the same lines. Needs matplotlib, imported only here."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

from contextpool.errors import MissingExtraError
from contextpool.triples.files import atomic_file
from lab.breakdown import context_bases, gains
from lab.comparisons import Pair, compare
from lab.recipes import CONTEXT, joined_name
from lab.results import METRICS, SETTINGS, Results, best_published, columns
from lab.tables import TITLES, selected

PLOTS = {
    "wins": "Ours and the best figure in the paper, all settings",
    "gain": "What context adds in each setting",
    "distance": "What context adds by the distance of the answer",
}
"""File name without suffix -> what it shows."""


COLOURS = ("#2b6cb0", "#dd6b20", "#2f855a", "#6b46c1")
MARKERS = ("o", "s", "D", "^")
"""Told apart without colour, too."""
STYLE = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e2e8f0",
    "axes.axisbelow": True,
    "legend.frameon": False,
    "svg.hashsalt": "contextpool",
    "svg.fonttype": "none",
}


def write_plots(results: Results, folder: Path) -> list[Path]:
    """Every picture that the lines have something for; returns the files."""
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtraError("matplotlib", "plot", "Drawing the results") from None
    written = []
    for name, draw in DRAWN.items():
        with rc_context(STYLE):
            figure = Figure(figsize=(10, 6), layout="constrained")
            if not draw(figure, results):
                continue
            figure.suptitle(PLOTS[name])
            image = io.BytesIO()
            figure.savefig(image, format="svg", metadata={"Date": None, "Creator": None})
        with atomic_file(folder / f"{name}.svg") as stream:
            stream.write(image.getvalue())
        written.append(folder / f"{name}.svg")
    return written


def _draw_wins(figure: Any, results: Results) -> bool:
    """Four panels, setting by metric: the figure to beat and ours with its deviation."""
    panels = figure.subplots(2, 2, sharex=True)
    places = range(len(columns()))
    for row, setting in enumerate(SETTINGS):
        groups = selected(results, setting)
        for column, metric in enumerate(METRICS):
            axes = panels[row][column]
            axes.scatter(
                places, best_published(setting, metric), marker="_", s=120, color="#718096", label="paper"
            )
            known = [(place, group) for place, group in zip(places, groups, strict=True) if group is not None]
            axes.errorbar(
                [place for place, _ in known],
                [group.mean(metric) for _, group in known],
                yerr=[group.deviation(metric) or 0.0 for _, group in known],
                fmt="o",
                color=COLOURS[0],
                label="ours, chosen by validation",
            )
            axes.set_title(f"{setting}, {TITLES[metric]}")
            axes.set_xticks(list(places), columns(), rotation=60)
    panels[0][0].legend()
    return True


def _draw_gain(figure: Any, results: Results) -> bool:
    """Two panels: what each setting gains, for each model that was run both ways."""
    bases = context_bases(results)
    panels = figure.subplots(2, 1, sharex=True)
    drawn = False
    for axes, setting in zip(panels, SETTINGS, strict=True):
        axes.axhline(0.0, color="#718096", linewidth=1)
        axes.set_title(f"{setting}: MRR with context minus without")
        axes.set_xticks(range(len(columns())), columns(), rotation=60)
        for number, base in enumerate(bases):
            compared = compare(results, Pair(joined_name(base, CONTEXT), base), setting, "mrr")
            if compared is not None:
                drawn = True
                values = {name.rsplit("/", 1)[-1]: value for name, value in compared.differences.items()}
                places = [columns().index(name) + 0.12 * number for name in values]
                style = {"marker": MARKERS[number % 4], "color": COLOURS[number % 4], "label": base}
                axes.scatter(places, list(values.values()), **style)
    _legends(panels)
    return drawn


def _draw_distance(figure: Any, results: Results) -> bool:
    """Two panels: gain by distance of the answer."""
    panels = figure.subplots(1, 2, sharey=True)
    drawn = False
    for axes, setting in zip(panels, SETTINGS, strict=True):
        axes.axhline(0.0, color="#718096", linewidth=1)
        axes.set_title(setting)
        axes.set_xlabel("hops from the head to the answer")
        for number, base in enumerate(context_bases(results)):
            rows = gains(results, base, setting, "by_distance")
            if rows:
                drawn = True
                style = {"marker": MARKERS[number % 4], "color": COLOURS[number % 4], "label": base}
                axes.plot([row[0] for row in rows], [row[3] - row[2] for row in rows], **style)
    if drawn:
        panels[0].set_ylabel("MRR with context minus without")
    _legends(panels)
    return drawn


def _legends(panels: Any) -> None:
    """Where there is something to name."""
    for axes in panels:
        if axes.get_legend_handles_labels()[0]:
            axes.legend()


DRAWN: dict[str, Callable[[Any, Results], bool]] = {
    "wins": _draw_wins,
    "gain": _draw_gain,
    "distance": _draw_distance,
}
"""The pictures by file name; each draws itself, or says that there is nothing to draw."""
