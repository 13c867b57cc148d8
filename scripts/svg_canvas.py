"""A small canvas that writes SVG as text: the same bytes on every machine, no font or library of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from xml.sax.saxutils import escape

INK, MUTED, FAINT, PAPER = "#1a202c", "#718096", "#cbd5e0", "#ffffff"
BLUE, GREEN, ORANGE = "#2b6cb0", "#2f855a", "#c05621"
LETTER = 0.56
"""Width of an average letter, in parts of the size of the text."""
Point = tuple[float, float]


def text_width(text: str, size: float) -> float:
    """About how wide a text is; exact enough to put a box around it."""
    return len(text) * size * LETTER


@dataclass
class Canvas:
    """Shapes in the order they were added; later ones lie on top."""

    width: int
    height: int
    title: str
    shapes: list[str] = field(default_factory=list)

    def line(
        self, start: Point, end: Point, color: str = FAINT, width: float = 1.2, dashed: bool = False
    ) -> None:
        dash = ' stroke-dasharray="5 4"' if dashed else ""
        self.shapes.append(
            f'<line x1="{start[0]:.1f}" y1="{start[1]:.1f}" x2="{end[0]:.1f}" y2="{end[1]:.1f}" '
            f'stroke="{color}" stroke-width="{width:g}"{dash}/>'
        )

    def arrow(
        self, start: Point, end: Point, color: str = MUTED, width: float = 1.2, dashed: bool = False
    ) -> None:
        """A line with a head at its end."""
        self.line(start, end, color, width, dashed)
        length = max(((end[0] - start[0]) ** 2 + (end[1] - start[1]) ** 2) ** 0.5, 1e-6)
        along = ((end[0] - start[0]) / length, (end[1] - start[1]) / length)
        back = (end[0] - 8 * along[0], end[1] - 8 * along[1])
        across = (-3.5 * along[1], 3.5 * along[0])
        corners = (
            end,
            (back[0] + across[0], back[1] + across[1]),
            (back[0] - across[0], back[1] - across[1]),
        )
        self.polygon(corners, color)

    def polygon(self, corners: Sequence[Point], color: str) -> None:
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in corners)
        self.shapes.append(f'<polygon points="{points}" fill="{color}"/>')

    def rectangle(
        self,
        corner: Point,
        width: float,
        height: float,
        fill: str = PAPER,
        edge: str = "none",
        dashed: bool = False,
    ) -> None:
        dash = ' stroke-dasharray="5 4"' if dashed else ""
        self.shapes.append(
            f'<rect x="{corner[0]:.1f}" y="{corner[1]:.1f}" width="{width:.1f}" height="{height:.1f}" rx="5" '
            f'fill="{fill}" stroke="{edge}"{dash}/>'
        )

    def text(
        self,
        place: Point,
        words: str,
        color: str = INK,
        size: float = 13,
        anchor: str = "start",
        bold: bool = False,
    ) -> None:
        weight = ' font-weight="bold"' if bold else ""
        self.shapes.append(
            f'<text x="{place[0]:.1f}" y="{place[1]:.1f}" fill="{color}" font-size="{size:g}" '
            f'text-anchor="{anchor}"{weight}>{escape(words)}</text>'
        )

    def box(
        self,
        middle: Point,
        words: str,
        edge: str = MUTED,
        fill: str = PAPER,
        size: float = 13,
        dashed: bool = False,
    ) -> float:
        """Words in a box around `middle`; returns half of its width, so that arrows can end at it."""
        half = text_width(words, size) / 2 + 8
        self.rectangle((middle[0] - half, middle[1] - 13), 2 * half, 26, fill, edge, dashed)
        self.text((middle[0], middle[1] + 4.5), words, size=size, anchor="middle")
        return half

    def label(self, middle: Point, words: str, color: str = MUTED, size: float = 11) -> None:
        """Words on a patch of paper, readable on top of a line."""
        half = text_width(words, size) / 2 + 2
        self.rectangle((middle[0] - half, middle[1] - 8), 2 * half, 15)
        self.text((middle[0], middle[1] + 4), words, color, size, "middle")

    def to_svg(self) -> str:
        lines = [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{self.width}" height="{self.height}" '
            f'viewBox="0 0 {self.width} {self.height}" font-family="sans-serif" role="img">',
            f"<title>{escape(self.title)}</title>",
            f'<rect width="{self.width}" height="{self.height}" fill="{PAPER}"/>',
            *self.shapes,
            "</svg>",
        ]
        return "\n".join(lines) + "\n"
