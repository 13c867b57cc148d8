"""Write src/contextpool/triples/catalog.json from the benchmark files on disk: sha256, sizes, counts.

    python scripts/build_catalog.py             write the catalog
    python scripts/build_catalog.py --check     write nothing; exit 1 where the files say otherwise
    python scripts/build_catalog.py --table     the counts as the table of docs/lab/datasets.md

The data folder is the first of CONTEXTPOOL_DATA or ../shared/data that exists; --data names another. Counting
here reads the files on its own and goes through no layout detection, so the tests can hold the two against
each other.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

from contextpool.triples.catalog import (
    SPLITS,
    CatalogEntry,
    GraphCounts,
    benchmark_names,
    data_folders,
    entries,
    file_paths,
    sha256_of,
)
from contextpool.triples.reader import read_triples

CATALOG = Path(__file__).resolve().parents[1] / "src" / "contextpool" / "triples" / "catalog.json"
Rows = set[tuple[str, str, str]]


def read_rows(path: Path) -> Rows:
    """(head, relation, tail) of a triple file; of a *2id.txt file as ids, the columns put in this order."""
    if not path.name.endswith("2id.txt"):
        return set(read_triples(path))
    announced, *lines = path.read_text("utf-8").splitlines()
    if int(announced) != len(lines):
        raise SystemExit(f"{path}: {len(lines):,} lines follow a first line that says {announced}")
    columns = (line.split() for line in lines)
    return {(head, relation, tail) for head, tail, relation in columns}


def count_graph(files: dict[str, Rows]) -> GraphCounts:
    """Distinct labels over all files of one graph, distinct triples of each."""
    everything = set().union(*files.values())
    if len(everything) != sum(map(len, files.values())):
        raise SystemExit(f"a triple stands in two of the files {', '.join(files)}")
    entities = {label for head, _, tail in everything for label in (head, tail)}
    relations = {relation for _, relation, _ in everything}
    return GraphCounts(len(entities), len(relations), **{split: len(rows) for split, rows in files.items()})


def graphs_of(name: str) -> dict[str, dict[str, str]]:
    """Which file is which split of which graph: {"training": {"train": path, ...}, "inference": ...}."""
    paths = [path for path in file_paths(name) if "/entity2id" not in path and "/relation2id" not in path]
    graphs: dict[str, dict[str, str]] = {}
    for path in paths:
        folder, file = path.split("/")[-2:]
        side = "inference" if folder.endswith("_ind") else "training"
        graphs.setdefault(side, {})[file.removesuffix(".txt").removesuffix("2id")] = path
    return graphs


def counts_of(name: str, data: Path) -> dict[str, GraphCounts]:
    """The counts of a benchmark's graphs as its files have them."""
    return {
        side: count_graph({split: read_rows(data / path) for split, path in files.items()})
        for side, files in graphs_of(name).items()
    }


def build(data: Path) -> dict[str, object]:
    """The whole catalog of the files below `data`."""
    paths = sorted({path for name in benchmark_names() for path in file_paths(name)})
    absent = [path for path in paths if not (data / path).is_file()]
    if absent:
        raise SystemExit(
            f"{data}: lacks {absent[0]} and {len(absent) - 1} more; name the data folder with --data"
        )
    files = {path: {"sha256": sha256_of(data / path), "size": (data / path).stat().st_size} for path in paths}
    counts = {
        name: {side: asdict(graph) for side, graph in counts_of(name, data).items()}
        for name in benchmark_names()
    }
    return {"counts": counts, "files": files}


def table(catalog: Iterable[CatalogEntry]) -> str:
    """The expected counts in Markdown, a line per graph."""
    header = ["dataset", "graph", "entities", "relations", "facts", *SPLITS, "all"]
    lines = ["| " + " | ".join(header) + " |", "|---|---|" + "---:|" * (len(header) - 2)]
    for entry in catalog:
        for side, counts in (("training", entry.training), ("inference", entry.inference)):
            if counts is not None:
                figures = [
                    counts.entities,
                    counts.relations,
                    counts.facts,
                    counts.train,
                    counts.valid,
                    counts.test,
                ]
                cells = [f"{figure:,}" if figure else "-" for figure in (*figures, counts.triples)]
                lines.append(f"| {entry.name} | {side} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--data", type=Path, help="the folder that holds grail/, grail_transductive/ and full/"
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--check", action="store_true", help="compare, write nothing")
    what.add_argument("--table", action="store_true", help="print the stored counts, read no data")
    arguments = parser.parse_args()
    if arguments.table:
        print(table(entries()))
        return 0
    text = json.dumps(build(arguments.data or data_folders()[0]), indent=1, sort_keys=True) + "\n"
    if not arguments.check:
        CATALOG.write_text(text, "utf-8")
        return 0
    agrees = CATALOG.read_text("utf-8") == text
    print("the catalog is what the files say" if agrees else "the catalog differs from the files")
    return 0 if agrees else 1


if __name__ == "__main__":
    raise SystemExit(main())
