"""An explanation as a picture: the paths from left to right, the rival, and the context. Needs matplotlib."""

from __future__ import annotations

import io
import textwrap
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any

from contextpool.errors import ConfigError, MissingExtraError
from contextpool.explain.evidence import Explanation, notes, percent
from contextpool.triples.files import atomic_file
from contextpool.triples.labels import INVERSE_SUFFIX

SUFFIXES = (".png", ".svg")
_GIVEN, _ANSWER, _OTHER, _LINE = "#2b6cb0", "#2f855a", "#4a5568", "#718096"
_LABEL = {"boxstyle": "round,pad=0.35", "facecolor": "white", "linewidth": 1.4}
_PLAIN = {"boxstyle": "round,pad=0.15", "facecolor": "white", "edgecolor": "none", "alpha": 0.9}
_RC = {"font.size": 10, "svg.hashsalt": "contextpool"}
Place = tuple[float, float]


def save(explanation: Explanation, path: FilePath) -> None:
    """Draw it and write it whole or not at all; the same explanation gives the same bytes."""
    kind = path.suffix.lower()
    if kind not in SUFFIXES:
        raise ConfigError(
            f"{path}: a picture is written as .svg or .png, not {path.suffix!r}. Rename the file."
        )
    image = rendered(explanation, kind[1:])
    try:
        with atomic_file(path) as stream:
            stream.write(image)
    except OSError as error:
        raise ConfigError(f"{path}: the picture cannot be written ({error.strerror or error}).") from error


def rendered(explanation: Explanation, kind: str) -> bytes:
    """The picture as "svg" or "png"."""
    image = io.BytesIO()
    figure = draw(explanation)
    from matplotlib import rc_context

    with rc_context(_RC), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")  # a script the font lacks
        figure.savefig(image, format=kind, dpi=150, metadata={"Date": None} if kind == "svg" else None)
    return image.getvalue()


def draw(explanation: Explanation) -> Any:
    """A matplotlib Figure."""
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtraError("matplotlib", "plot", "Drawing an explanation") from None
    places = layout([[edge[0] for edge in path.edges] + [path.edges[-1][2]] for path in explanation.paths])
    rows = max([2, *(1 + round(2 * abs(y)) for _, y in places.values())])
    with rc_context(_RC):
        figure = Figure(figsize=(11, 1.9 + 0.75 * rows), layout="constrained")
        axes, notes = figure.subplots(2, 1, height_ratios=(0.75 * rows, 1.1))
        _draw_title(axes, explanation)
        _draw_edges(axes, explanation, places)
        _draw_nodes(axes, explanation, places)
        _draw_notes(notes, explanation)
    return figure


def layout(walks: Sequence[Sequence[str]]) -> dict[str, Place]:
    """Where each entity stands: columns by the fewest steps it takes to get there, the last entity at the right.

    Rows of a column are in the order of the walks, so the strongest is at the top.
    """
    if not walks:
        return {}
    step: dict[str, int] = {}
    for walk in walks:
        for number, entity in enumerate(walk):
            step[entity] = min(number, step.get(entity, number))
    end = walks[0][-1]
    step[end] = 1 + max((number for entity, number in step.items() if entity != end), default=0)
    members: dict[int, list[str]] = {}
    for entity, number in step.items():
        members.setdefault(number, []).append(entity)
    return {
        entity: (float(number), (len(entities) - 1) / 2 - row)
        for number, entities in members.items()
        for row, entity in enumerate(entities)
    }


def _draw_title(axes: Any, explanation: Explanation) -> None:
    chance = "" if explanation.probability is None else f", probability {percent(explanation.probability)}"
    answer = _cut(explanation.shown(explanation.answer))
    title = f"{_cut(explanation.question, 70)}  {answer}: rank {explanation.rank:g}{chance}"
    axes.set_title(title, loc="left", fontweight="bold", parse_math=False)
    axes.set_axis_off()


@dataclass(frozen=True)
class _Line:
    """All facts between two entities that the paths walk, drawn as one line."""

    left: str
    right: str
    facts: tuple[str, ...]
    """Such as "capital \u2192", by which way the fact points."""
    weight: float


def _lines(explanation: Explanation, places: dict[str, Place]) -> list[_Line]:
    facts: dict[tuple[str, str], dict[str, float]] = {}
    for path in explanation.paths:
        for first, relation, last in path.edges:
            left, right = sorted((first, last), key=lambda entity: (places[entity][0], -places[entity][1]))
            bare = relation.removesuffix(INVERSE_SUFFIX)
            onwards = (first == left) == (bare == relation)
            told = _told(_cut(explanation.shown(bare), 28), onwards, places[left][0] == places[right][0])
            between = facts.setdefault((left, right), {})
            between[told] = between.get(told, 0.0) + path.weight
    return [_Line(*pair, tuple(told), min(1.0, sum(told.values()))) for pair, told in facts.items()]


def _told(name: str, onwards: bool, upright: bool) -> str:
    """A relation with an arrow that points as the fact does: to the right, or down within a column."""
    if upright:
        return f"{name} \u2193" if onwards else f"{name} \u2191"
    return f"{name} \u2192" if onwards else f"\u2190 {name}"


def _draw_edges(axes: Any, explanation: Explanation, places: dict[str, Place]) -> None:
    for line in _lines(explanation, places):
        start, end = places[line.left], places[line.right]
        bend = 0.35 if start[0] == end[0] else 0.0  # beside what stands between them in their column
        style = {
            "arrowstyle": "-",
            "connectionstyle": f"arc3,rad={bend}",
            "linewidth": 1 + 5 * line.weight,
            "color": _LINE,
            "alpha": 0.35 + 0.65 * line.weight,
        }
        axes.annotate("", xy=end, xytext=start, arrowprops=style, zorder=1)
        x = (start[0] + end[0]) / 2 - bend * abs(end[1] - start[1]) / 6
        _write(axes, x, (start[1] + end[1]) / 2, "\n".join(line.facts), _OTHER, 8, _PLAIN, 2)


def _write(axes: Any, x: float, y: float, text: str, color: str, size: float, box: Any, above: int) -> None:
    """Text around a point, on a white ground; a dollar sign is a dollar sign."""
    axes.text(
        x, y, text, ha="center", va="center", fontsize=size, color=color, bbox=box, parse_math=False, zorder=above
    )  # fmt: skip


def _draw_nodes(axes: Any, explanation: Explanation, places: dict[str, Place]) -> None:
    colors = {explanation.given: _GIVEN, explanation.answer: _ANSWER}
    for entity, (x, y) in places.items():
        color = colors.get(entity, _OTHER)
        text = "\n".join(textwrap.wrap(_cut(explanation.shown(entity), 44), 22)) or " "
        _write(axes, x, y, text, color, 11 if entity in colors else 10, {**_LABEL, "edgecolor": color}, 3)
    if not places:
        told = "no path within the model's reach"
        axes.text(0.5, 0.5, told, ha="center", va="center", color=_LINE, transform=axes.transAxes)
        return
    xs, ys = zip(*places.values(), strict=True)
    axes.set_xlim(min(xs) - 0.35, max(xs) + 0.35)
    axes.set_ylim(min(ys) - 0.7, max(ys) + 0.7)


def _draw_notes(axes: Any, explanation: Explanation) -> None:
    """Context, what pooling drops and the rival, as the text says it."""
    axes.set_axis_off()
    lines = [
        line for note in notes(explanation) for line in textwrap.wrap(note, 165, subsequent_indent=" " * 9)
    ]
    axes.text(
        0, 1, "\n".join(lines), ha="left", va="top", fontsize=8.5, color=_OTHER, transform=axes.transAxes,
        parse_math=False,
    )  # fmt: skip


def _cut(text: str, most: int = 40) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
