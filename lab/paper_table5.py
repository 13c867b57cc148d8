"""Hold the paper's Table 5 (dataset statistics) against the released files, figure by figure.

    python -m lab.paper_table5              the comparison as the table of docs/lab/datasets.md

Each row of the table gives relations, entities and triples, "training (testing)". These definitions reproduce
all 72 figures of its Trans rows and 45 of the 72 of its Ind rows:

    Trans, training    grail/X/train.txt, that is facts.txt + train.txt of grail_transductive/X
    Trans, testing     grail/X/test.txt alone, its relations and entities included
    Ind, training      train + valid + test of grail/X
    Ind, testing       train + valid + test of grail/X_ind

The other 27 stand in DIFFERENCES with what is known about them; none of the seven unions of train, valid and
test of the graph in question gives any of them.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Literal, NamedTuple

from contextpool.triples.catalog import GRAIL_NAMES, SPLITS, data_folders
from contextpool.triples.reader import read_triples
from contextpool.triples.store import Triple

Kind = Literal["Trans", "Ind"]
Side = Literal["training", "testing"]
COLUMNS = ("relations", "entities", "triples")
SIDES: tuple[Side, Side] = ("training", "testing")


class Figures(NamedTuple):
    """What the table says, or the files say, of one side of a row."""

    relations: int
    entities: int
    triples: int


class Cell(NamedTuple):
    """One figure of the table."""

    kind: Kind
    name: str
    column: str
    side: Side


PRINTED: dict[tuple[Kind, str], tuple[Figures, Figures]] = {
    ("Trans", "WN18RR_v1"): (Figures(9, 2_746, 5_410), Figures(7, 962, 638)),
    ("Trans", "WN18RR_v2"): (Figures(10, 6_954, 15_262), Figures(9, 2_788, 1_868)),
    ("Trans", "WN18RR_v3"): (Figures(11, 12_078, 25_901), Figures(10, 4_605, 3_152)),
    ("Trans", "WN18RR_v4"): (Figures(9, 3_861, 7_940), Figures(8, 1_433, 968)),
    ("Ind", "WN18RR_v1"): (Figures(9, 2_746, 6_678), Figures(9, 922, 1_911)),
    ("Ind", "WN18RR_v2"): (Figures(10, 6_954, 18_968), Figures(10, 2_923, 4_863)),
    ("Ind", "WN18RR_v3"): (Figures(11, 12_078, 32_150), Figures(11, 5_084, 7_470)),
    ("Ind", "WN18RR_v4"): (Figures(9, 3_861, 9_842), Figures(9, 7_208, 15_157)),
    ("Trans", "fb237_v1"): (Figures(180, 1_594, 4_245), Figures(102, 550, 492)),
    ("Trans", "fb237_v2"): (Figures(200, 2_608, 9_739), Figures(140, 1_142, 1_180)),
    ("Trans", "fb237_v3"): (Figures(215, 3_668, 17_986), Figures(179, 1_871, 2_214)),
    ("Trans", "fb237_v4"): (Figures(219, 4_707, 27_203), Figures(192, 2_627, 3_361)),
    ("Ind", "fb237_v1"): (Figures(183, 2_000, 5_226), Figures(146, 1_500, 2_404)),
    ("Ind", "fb237_v2"): (Figures(203, 3_000, 12_085), Figures(176, 2_000, 5_092)),
    ("Ind", "fb237_v3"): (Figures(218, 4_000, 22_394), Figures(187, 3_000, 9_137)),
    ("Ind", "fb237_v4"): (Figures(222, 5_000, 33_916), Figures(204, 3_500, 14_554)),
    ("Trans", "nell_v1"): (Figures(14, 3_103, 4_687), Figures(14, 553, 439)),
    ("Trans", "nell_v2"): (Figures(88, 2_564, 8_219), Figures(60, 841, 968)),
    ("Trans", "nell_v3"): (Figures(142, 4_647, 16_393), Figures(94, 1_473, 1_873)),
    ("Trans", "nell_v4"): (Figures(76, 2_092, 7_546), Figures(46, 699, 867)),
    ("Ind", "nell_v1"): (Figures(14, 10_915, 5_540), Figures(14, 225, 1_034)),
    ("Ind", "nell_v2"): (Figures(88, 2_564, 10_109), Figures(79, 4_937, 5_521)),
    ("Ind", "nell_v3"): (Figures(142, 4_047, 20_117), Figures(122, 4_921, 9_668)),
    ("Ind", "nell_v4"): (Figures(77, 2_092, 9_089), Figures(61, 3_294, 8_520)),
}
"""The paper's Table 5, appendix "Datasets", as printed."""

Reason = Literal["one digit", "round", "constant", "unexplained"]
REASONS: dict[Reason, str] = {
    "one digit": "one digit of four differs from the files, probably a misprint",
    "constant": "3 more than the training files hold, 4 more than the inference files, in all versions",
    "round": "a multiple of 500 and more than the files hold, probably a size aimed at and not one counted",
    "unexplained": "not explained",
}


def _differences() -> dict[Cell, Reason]:
    known: dict[Cell, Reason] = {
        Cell("Ind", "WN18RR_v1", "triples", "testing"): "one digit",
        Cell("Ind", "nell_v3", "entities", "training"): "one digit",
        Cell("Ind", "nell_v4", "triples", "training"): "one digit",
        Cell("Ind", "WN18RR_v1", "relations", "testing"): "unexplained",
        Cell("Ind", "WN18RR_v2", "entities", "testing"): "unexplained",
        Cell("Ind", "WN18RR_v4", "entities", "testing"): "unexplained",
        Cell("Ind", "nell_v1", "entities", "training"): "unexplained",
        Cell("Ind", "nell_v2", "entities", "testing"): "unexplained",
        Cell("Ind", "nell_v3", "entities", "testing"): "unexplained",
        Cell("Ind", "nell_v4", "relations", "training"): "unexplained",
        Cell("Ind", "nell_v4", "entities", "testing"): "unexplained",
    }
    for name in ("fb237_v1", "fb237_v2", "fb237_v3", "fb237_v4"):
        for side in SIDES:
            known[Cell("Ind", name, "relations", side)] = "constant"
            known[Cell("Ind", name, "entities", side)] = "round"
    return known


DIFFERENCES = _differences()
"""The figures that the definitions above do not reproduce."""


def printed(cell: Cell) -> int:
    """The figure as the paper has it."""
    figures = PRINTED[cell.kind, cell.name][SIDES.index(cell.side)]
    return int(getattr(figures, cell.column))


def cells() -> list[Cell]:
    """All 144 figures of the table."""
    return [Cell(*row, column, side) for row in PRINTED for column in COLUMNS for side in SIDES]


def figures_of(triples: set[Triple]) -> Figures:
    """Relations, entities and triples of a set of triples."""
    entities = {label for head, _, tail in triples for label in (head, tail)}
    return Figures(len({relation for _, relation, _ in triples}), len(entities), len(triples))


def read_splits(data: Path, name: str) -> dict[str, set[Triple]]:
    """{"train": ..., "valid": ..., "test": ...} of one graph of GraIL's."""
    return {split: set(read_triples(data / "grail" / name / f"{split}.txt")) for split in SPLITS}


def counted(data: Path) -> dict[Cell, int]:
    """All 144 figures from the files, under the definitions above."""
    found: dict[Cell, int] = {}
    for name in GRAIL_NAMES:
        first, second = read_splits(data, name), read_splits(data, f"{name}_ind")
        sides: dict[tuple[Kind, Side], set[Triple]] = {
            ("Trans", "training"): first["train"],
            ("Trans", "testing"): first["test"],
            ("Ind", "training"): set().union(*first.values()),
            ("Ind", "testing"): set().union(*second.values()),
        }
        for (kind, side), triples in sides.items():
            for column, figure in zip(COLUMNS, figures_of(triples), strict=True):
                found[Cell(kind, name, column, side)] = figure
    return found


def table(found: dict[Cell, int]) -> str:
    """The comparison in Markdown: a figure the files agree with as it is, another as "printed ≠ counted"."""
    lines = ["| row | relations | entities | triples |", "|---|---|---|---|"]
    for kind, name in PRINTED:
        columns = []
        for column in COLUMNS:
            training, testing = (_shown(Cell(kind, name, column, side), found) for side in SIDES)
            columns.append(f"{training} ({testing})")
        lines.append(f"| {kind} {name} | " + " | ".join(columns) + " |")
    return "\n".join(lines)


def _shown(cell: Cell, found: dict[Cell, int]) -> str:
    agrees = printed(cell) == found[cell]
    return f"{printed(cell):,}" if agrees else f"**{printed(cell):,} ≠ {found[cell]:,}**"


def reasons(found: dict[Cell, int]) -> str:
    """The figures that differ, sorted by what is known about them, as a Markdown list."""
    lines = []
    for reason, explanation in REASONS.items():
        of_this = [cell for cell in cells() if DIFFERENCES.get(cell) == reason]
        listed = "; ".join(f"{cell.name} {cell.side} {cell.column} {_plain(cell, found)}" for cell in of_this)
        lines.append(f"- {len(of_this)} figures: {explanation}. {listed}.")
    return "\n".join(lines)


def _plain(cell: Cell, found: dict[Cell, int]) -> str:
    return f"{printed(cell):,} for {found[cell]:,}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, help="the folder that holds grail/")
    found = counted(parser.parse_args().data or data_folders()[0])
    agreeing = sum(printed(cell) == found[cell] for cell in cells())
    print(f"{table(found)}\n\n{agreeing} of {len(found)} figures agree.\n\n{reasons(found)}")


if __name__ == "__main__":
    main()
