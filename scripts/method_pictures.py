"""The pictures and the numbers of docs/method.md, drawn and counted from the embedded world.

    PYTHONPATH=src python scripts/method_pictures.py [--check]

Writes docs/images/method-*.svg and what stands between the marks in docs/method.md. With --check nothing is written,
and what differs is named; ends with 1 then.
"""

from __future__ import annotations

import argparse
import math
import re
import sys
from pathlib import Path

from method_story import ANSWER, HEAD, HOPS, RELATION, THRESHOLDS, Relevance, Story
from svg_canvas import BLUE, FAINT, GREEN, INK, MUTED, ORANGE, PAPER, Canvas, Point

DOCS = Path(__file__).resolve().parents[1] / "docs"
CITY_WAY = ("located_in^-1", "located_in")
"""How the walk arrives at a city, and what that makes of the question there (its inverse)."""


def by_target(story: Story) -> dict[str, list[str]]:
    """The entities around the head, each with the relations that lead there."""
    found: dict[str, list[str]] = {}
    for _, relation, tail in story.leaving[HEAD]:
        found.setdefault(tail, []).append(relation)
    return found


# 1. the question


def draw_question(story: Story) -> Canvas:
    """The head in the middle, its facts around it, the answer missing."""
    canvas = Canvas(760, 430, f"({HEAD}, {RELATION}, ?) and the facts around {HEAD}")
    middle, around = (380.0, 225.0), by_target(story)
    places = [*sorted(around), ""]
    for number, entity in enumerate(places):
        angle = 2 * math.pi * number / len(places) - math.pi / 2 + 2 * math.pi / len(places)
        spot = (middle[0] + 290 * math.cos(angle), middle[1] + 165 * math.sin(angle))
        relations = around.get(entity, [RELATION])
        color = MUTED if entity else GREEN
        canvas.line(middle, spot, color if not entity else FAINT, 1.6, dashed=not entity)
        between = (middle[0] + 0.56 * (spot[0] - middle[0]), middle[1] + 0.56 * (spot[1] - middle[1]))
        for row, relation in enumerate(relations):
            canvas.label((between[0], between[1] + 15 * (row - (len(relations) - 1) / 2)), relation, color)
        canvas.box(spot, entity or "?", color, dashed=not entity)
    canvas.box(middle, HEAD, BLUE, "#ebf4ff")
    return canvas


# 2. relevance


def draw_relevance(story: Story) -> Canvas:
    """A bar a relation: entities that have it, and the part of them that has the relation asked for."""
    rows = story.neighbors(RELATION)
    canvas = Canvas(760, 90 + 28 * len(rows), f"Which relations go with {RELATION}: counts of entities")
    left, scale = 150.0, 4.2
    asked = rows[0].having_query
    canvas.text((left, 22), f"entities that have the relation, and (filled) {RELATION} too", MUTED, 12)
    for number, row in enumerate(rows):
        _relevance_bar(canvas, row, (left, 40.0 + 28 * number), scale)
    end = 44.0 + 28 * len(rows)
    canvas.line((left + scale * asked, 34), (left + scale * asked, end), ORANGE, 1.6, dashed=True)
    words = f"{asked} entities have {RELATION}"
    canvas.text((left + scale * asked, end + 18), words, ORANGE, 12, "middle")
    return canvas


def _relevance_bar(canvas: Canvas, row: Relevance, corner: Point, scale: float) -> None:
    left, top = corner
    canvas.text((left - 8, top + 14), row.relation, anchor="end")
    canvas.rectangle((left, top), scale * row.having, 20, "#edf2f7", FAINT)
    canvas.rectangle((left, top), scale * row.both, 20, BLUE)
    canvas.text((left + scale * row.both - 6, top + 14.5), str(row.both), PAPER, 12, "end")
    if row.having - row.both > 3:
        canvas.text((left + scale * row.having - 4, top + 14.5), str(row.having), MUTED, 12, "end")
    canvas.text((left + 515, top + 14.5), f"{row.precision:.2f}, {row.recall:.2f}", size=12)


# 3. the pooled graph, hop by hop


def draw_hops(story: Story) -> Canvas:
    """Two hops in columns: kept edges blue, the ways to the answer green, what is dropped grey."""
    first, second = story.pooled(hops=2).hops
    sources, targets = sorted({tail for *_, tail in first}), sorted({tail for *_, tail in second})
    dropped = sorted(story.dropped(2).items())
    height = 70 + 26 * (len(targets) + len(dropped))
    canvas = Canvas(860, height, f"The pooled graph of ({HEAD}, {RELATION}, ?), two hops")
    start = (70.0, height / 2)
    column = _column(sources, 330, 60, height - 40)
    right = _column(
        [*targets, *(f"{head} {relation}" for (head, relation), _ in dropped)], 660, 50, height - 20
    )
    to_answer = {head for head, _, tail in second if tail == ANSWER}
    for head, _, tail in sorted(second, key=lambda edge: (edge[2] == ANSWER, edge)):
        canvas.line(column[head], right[tail], *((GREEN, 2) if tail == ANSWER else ("#90cdf4", 1)))
    for (head, relation), _ in dropped:
        canvas.line(column[head], right[f"{head} {relation}"], FAINT, 1, dashed=True)
    _first_hop(canvas, start, by_target(story), column, to_answer)
    _name_columns(canvas, start, column, right, targets)
    for (head, relation), count in dropped:
        place = right[f"{head} {relation}"]
        canvas.text(
            (place[0] + 4, place[1] + 4),
            f"{relation}, {count} {'edge' if count == 1 else 'edges'}",
            MUTED,
            12,
        )
    kept, offered = len(second), len(story.offered(2))
    heads = ((70, "asked"), (330, f"hop 1: {len(first)} of {len(story.offered(1))} edges"))
    for x, words in (*heads, (700, f"hop 2: {kept} of {offered} edges")):
        canvas.text((x, 24), words, INK, 13, "middle", bold=True)
    return canvas


def _first_hop(
    canvas: Canvas, start: Point, around: dict[str, list[str]], column: dict[str, Point], to_answer: set[str]
) -> None:
    for entity, relations in sorted(around.items()):
        end, color = column[entity], GREEN if entity in to_answer else BLUE
        canvas.line(start, end, color, 2 if entity in to_answer else 1.2)
        middle = (start[0] + 0.55 * (end[0] - start[0]), start[1] + 0.55 * (end[1] - start[1]))
        canvas.label(middle, ", ".join(relations), color, 10)


def _column(names: list[str], x: float, top: float, bottom: float) -> dict[str, Point]:
    """Places in a column, evenly."""
    step = (bottom - top) / max(len(names) - 1, 1)
    return {name: (x, top + number * step) for number, name in enumerate(names)}


def _name_columns(
    canvas: Canvas, start: Point, column: dict[str, Point], right: dict[str, Point], targets: list[str]
) -> None:
    canvas.box(start, HEAD, BLUE, "#ebf4ff")
    for entity, place in column.items():
        canvas.box(place, entity, BLUE, size=12)
    for entity in targets:
        place = right[entity]
        color = GREEN if entity == ANSWER else INK
        canvas.text((place[0] + 4, place[1] + 4), entity, color, 12, bold=entity == ANSWER)


# 4. the two streams


def draw_streams(story: Story) -> Canvas:
    """One layer of the network: messages over both graphs, joined in the update."""
    canvas = Canvas(
        760, 250, "One layer: aggregation over the full and over the pooled graph, then one update"
    )
    full, pooled = len(story.within(HOPS)), len(story.pooled().triples)
    rows = ((70.0, MUTED, "full graph", full, "sum"), (180.0, BLUE, "pooled graph", pooled, "sum of context"))
    for y, color, name, edges, total in rows:
        half = canvas.box((300, y), f"{name}: {edges} edges", color)
        end = canvas.box((500, y), total, color)
        canvas.arrow((172, 125), (300 - half, y), color)
        canvas.arrow((300 + half, y), (500 - end, y), color)
        canvas.arrow((500 + end, y), (600, 125), color)
        canvas.text((300, y - 20), "messages over the", color, 11, "middle")
    canvas.box((90, 125), "state of layer l - 1")
    half = canvas.box((634, 125), "update", GREEN)
    canvas.arrow((634 + half, 125), (700, 125), GREEN)
    canvas.text((704, 129), "state l", GREEN)
    canvas.text(
        (380, 235), f"edges within {HOPS} hops of {HEAD}, counted in both directions", MUTED, 12, "middle"
    )
    return canvas


# 5. gate and arrive


def draw_arrive(story: Story) -> Canvas:
    """Candidates within two hops: how many ways lead there, and whether they look like an answer."""
    reached = {tail for *_, tail in story.within(2)}
    scored = {entity: story.candidate_relevance(entity) for entity in reached}
    likely = sorted(entity for entity, (relevance, _) in scored.items() if relevance > 0)
    others = sorted(
        (entity for entity in reached if entity not in likely), key=lambda one: (-ways(story, one), one)
    )
    shown = [*sorted(likely, key=lambda one: (-ways(story, one), one)), *others[:6]]
    canvas = Canvas(760, 76 + 28 * (len(shown) + 1), f"What {RELATION} can arrive at")
    for x, words, anchor in (
        (190, "candidate", "end"),
        (260, "edges there", "middle"),
        (330, "relevance", "start"),
    ):
        canvas.text((x, 30), words, MUTED, 12, anchor)
    for number, entity in enumerate(shown):
        _candidate_row(canvas, 44.0 + 28 * number, entity, ways(story, entity), scored[entity])
    rest = f"and {len(others) - 6} others within two hops, all at 0"
    canvas.text((330, 62 + 28 * len(shown)), rest, MUTED, 12)
    return canvas


def _candidate_row(canvas: Canvas, top: float, entity: str, count: int, relevance: tuple[float, str]) -> None:
    value, reason = relevance
    color = GREEN if entity == ANSWER else INK
    canvas.text((190, top + 14), entity, color, 13, "end", bold=entity == ANSWER)
    canvas.text((260, top + 14), str(count), color, 13, "middle")
    canvas.rectangle((330, top), 150, 20, "#edf2f7")
    if value:
        canvas.rectangle((330, top), 150 * value, 20, GREEN if entity == ANSWER else BLUE)
    canvas.text((490, top + 14), f"{value:.2f}" + (f"  because of {reason}" if value else ""), size=12)


def ways(story: Story, entity: str) -> int:
    """How many edges of a walk of two hops lead to the entity."""
    return sum(tail == entity for *_, tail in story.within(2))


# the numbers


def relevance_table(story: Story, query: str) -> str:
    lines = [
        f"| neighbor | entities that have it | of these with `{query}` | precision | recall |",
        "|---|---:|---:|---:|---:|",
    ]
    lines += [
        f"| `{row.relation}` | {row.having} | {row.both} | {row.precision:.3f} | {row.recall:.3f} |"
        for row in story.neighbors(query)
    ]
    return "\n".join(lines)


def threshold_table(story: Story) -> str:
    lines = [
        "| `min_precision` | hop 1 | hop 2 | hop 3 | together | reaches the answer |",
        "|---:|---:|---:|---:|---:|---|",
    ]
    for threshold in THRESHOLDS:
        pooled = story.pooled(threshold)
        counts = " | ".join(str(len(hop)) for hop in pooled.hops)
        reached = "yes" if any(tail == ANSWER for *_, tail in pooled.triples) else "no"
        lines.append(f"| {threshold:g} | {counts} | {len(pooled.triples)} | {reached} |")
    lines.append(f"| no pooling | {' | '.join(_new_edges(story))} | {len(story.within(HOPS))} | yes |")
    return "\n".join(lines)


def _new_edges(story: Story) -> list[str]:
    """Edges that a walk without a filter takes in each hop: all that leave what it has reached."""
    return [str(len(story.within(hop))) for hop in range(1, HOPS + 1)]


PICTURES = {
    "question": draw_question, "relevance": draw_relevance, "hops": draw_hops, "streams": draw_streams,
    "arrive": draw_arrive,
}  # fmt: skip


def between_marks(page: str, name: str, text: str) -> str:
    """The page with `text` between the marks of that name, each of which has to be there once."""
    begin, end = rf"<!-- {re.escape(name)}: made by scripts/\w+\.py -->", f"<!-- end of {name} -->"
    pattern = re.compile(f"({begin}).*?{re.escape(end)}", re.DOTALL)
    if len(pattern.findall(page)) != 1:
        raise ValueError(f"the marks <!-- {name}: made by ... --> and {end} have to be there once.")
    return pattern.sub(lambda found: f"{found[1]}\n\n{text}\n\n{end}", page)


def made(story: Story) -> dict[Path, str]:
    """Every file with what belongs into it."""
    files = {DOCS / "images" / f"method-{name}.svg": draw(story).to_svg() for name, draw in PICTURES.items()}
    tables = {
        "relevance": relevance_table(story, RELATION),
        "city": relevance_table(story, CITY_WAY[1]),
        "thresholds": threshold_table(story),
    }
    page = (DOCS / "method.md").read_text("utf-8")
    for name, table in tables.items():
        page = between_marks(page, name, table)
    return {**files, DOCS / "method.md": page}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="write nothing, name what differs")
    options = parser.parse_args(arguments)
    changed = [
        (path, text)
        for path, text in made(Story()).items()
        if not path.is_file() or path.read_text("utf-8") != text
    ]
    for path, text in changed:
        print(f"{path.relative_to(DOCS.parent)} {'differs' if options.check else 'written'}")
        if not options.check:
            path.write_text(text, "utf-8")
    return int(bool(changed) and options.check)


if __name__ == "__main__":
    sys.exit(main())
