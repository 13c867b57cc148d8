"""How the cost of a step grows, drawn from what `step.py --scaling --output FILE` wrote.

python benchmarks/plot_scaling.py FILE docs/images/scaling.svg
"""

from __future__ import annotations

import argparse
import json
import sys
from math import isfinite
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.figure import Figure

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from lab import plots

PANELS = {
    "edges": "directed edges (batch 16, 3 layers)",
    "batch": "queries a batch (fb237_v1, 6 layers)",
    "layers": "layers (fb237_v1, batch 64)",
}
STYLE = plots.STYLE | {"axes.spines.right": True}
"""The right axis has a scale, too."""


def rows_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def draw(rows: list[dict[str, Any]]) -> Figure:
    """A panel for each thing that grows: milliseconds at the left, peak memory at the right where it was measured."""
    figure = Figure(figsize=(10, 3.4), layout="constrained")
    for panel, (kind, title) in zip(figure.subplots(1, len(PANELS)), PANELS.items(), strict=True):
        points = [row for row in rows if row.get("scaling") == kind]
        at = [row["value"] for row in points]
        panel.plot(at, [row["ms"] for row in points], "o-", color=plots.COLOURS[0], label="ms a step")
        panel.set(xlabel=title, ylabel="ms a step" if kind == "edges" else "", yscale="log")
        panel.set_xscale("linear" if kind == "layers" else "log")
        if not all(isfinite(row["peak_gib"]) for row in points):
            continue
        memory = panel.twinx()
        memory.plot(
            at, [row["peak_gib"] for row in points], "s--", color=plots.COLOURS[1], label="GiB at the peak"
        )
        memory.set(ylabel="GiB at the peak" if kind == "layers" else "", yscale="log")
        memory.grid(visible=False)
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("lines", type=Path)
    parser.add_argument("image", type=Path)
    options = parser.parse_args()
    with rc_context(STYLE):
        draw(rows_of(options.lines)).savefig(options.image, metadata={"Date": None, "Creator": None})


if __name__ == "__main__":
    main()
