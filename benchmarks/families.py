"""Algorithm 1 on a benchmark graph: counting every family, reading the largest, and CNFGenerate for every pair.

    python benchmarks/families.py [--dataset grail/fb237_v4 --sizes 1-5 --threshold 0.1]

Runs twice in fresh processes on the training graph: cold (kernels are compiled) and warm (compiled before).
Memory is the peak of the resident set above what the process held once the graph was read; for the cold run
that includes the compiler. Pairs are (distinct relation set, relation in it), both measures.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from contextpool.context.families import ContextFamilies
    from contextpool.graph.graph import Graph

MEASURES = ("precision", "recall")
MOST_LISTED = 200_000


def resident_bytes(field: str) -> int:
    """VmRSS (now) or VmHWM (peak) of this process."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(field))
    return int(line.split()[1]) * 1024


def sizes_of(text: str) -> list[int]:
    """`1-5` or `2,4`"""
    first, dash, last = text.partition("-")
    return list(range(int(first), int(last) + 1)) if dash else [int(size) for size in text.split(",")]


def measure_steps(dataset: str, threshold: float, sizes: list[int]) -> dict[str, Any]:
    """Seconds of each step, totals and peak memory in this process."""
    from contextpool.graph.graph import Graph
    from contextpool.graph.relation_sets import relation_sets
    from contextpool.triples.catalog import load_dataset

    graph = Graph.from_triples(load_dataset(dataset).training_graph)
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
    before = resident_bytes("VmRSS")
    mined, result = count_all(graph, threshold, sizes)
    result["count_peak_gb"] = (resident_bytes("VmHWM") - before) / 1e9
    sets = relation_sets(graph)
    result["graph"] = f"{graph}; {len(sets.words):,} distinct relation sets of at most {sets.sizes.max()}"
    result["subsets"] = {size: sum(math.comb(n, size) for n in sets.sizes.tolist()) for size in sizes}
    result["pairs"] = int(sets.sizes.sum())
    for measure, families in mined.items():
        started = time.perf_counter()
        families.selection_table(sets.words, sets.members())
        result[f"select_{measure}"] = time.perf_counter() - started
    result["listed"], result["list"] = list_largest(mined["precision"])
    result["peak_gb"] = (resident_bytes("VmHWM") - before) / 1e9
    return result


def count_all(
    graph: Graph, threshold: float, sizes: list[int]
) -> tuple[dict[str, ContextFamilies], dict[str, Any]]:
    """Mine both measures and ask every family for its len()."""
    from contextpool.context.families import mine_families

    started = time.perf_counter()
    mined = {measure: mine_families(graph, measure, threshold, sizes) for measure in MEASURES}
    lengths = {measure: [len(families[r]) for r in families] for measure, families in mined.items()}
    result: dict[str, Any] = {"count": time.perf_counter() - started}
    for measure, families in mined.items():
        result[f"members_{measure}"] = dict(enumerate(families.counts.sum(axis=0).tolist()))
        result[f"largest_{measure}"] = max(lengths[measure])
    return mined, result


def list_largest(families: ContextFamilies) -> tuple[int, float]:
    """Read the first members of the largest family as frozensets of labels."""
    largest = max((families[relation] for relation in families), key=len)
    started = time.perf_counter()
    return sum(1 for _ in islice(largest, MOST_LISTED)), time.perf_counter() - started


def run_fresh(arguments: list[str], cache: str) -> dict[str, Any]:
    """The same in a process of its own, whose compiled kernels live in `cache`."""
    command = [sys.executable, __file__, "--measure", *arguments]
    environment = {**os.environ, "NUMBA_CACHE_DIR": cache}
    process = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment)
    result: dict[str, Any] = json.loads(process.stdout)
    return result


def report(runs: dict[str, dict[str, Any]]) -> None:
    warm = runs["warm"]
    print(warm["graph"])
    print(f"subsets of the distinct sets by size, repeats included: {warm['subsets']}")
    for measure in MEASURES:
        members = warm[f"members_{measure}"]
        print(
            f"{measure}: {sum(members.values()):,} members, largest family {warm[f'largest_{measure}']:,}; {members}"
        )
    print(f"{'seconds':42}{'cold':>10}{'warm':>10}")
    rows = {
        "count": "mine and len() of all, both measures",
        "select_precision": f"select {warm['pairs']:,} pairs by precision",
        "select_recall": f"select {warm['pairs']:,} pairs by recall",
        "list": f"read {warm['listed']:,} members of the largest",
    }
    for key, title in rows.items():
        print(f"{title:42}{runs['cold'][key]:10.2f}{warm[key]:10.2f}")
    for key, title in {
        "count_peak_gb": "peak GB above start, counting",
        "peak_gb": "peak GB above start, all",
    }.items():
        print(f"{title:42}{runs['cold'][key]:10.2f}{warm[key]:10.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dataset", default="grail/fb237_v4")
    parser.add_argument("--sizes", default="1-5")
    parser.add_argument("--threshold", type=float, default=0.1)
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure_steps(options.dataset, options.threshold, sizes_of(options.sizes))))
        return
    arguments = [
        "--dataset",
        options.dataset,
        "--sizes",
        options.sizes,
        "--threshold",
        str(options.threshold),
    ]
    with tempfile.TemporaryDirectory() as cache:
        report({name: run_fresh(arguments, cache) for name in ("cold", "warm")})


if __name__ == "__main__":
    main()
