"""What context is worth to the model for any graph: the trainings that docs/lab/context.md fixed beforehand.

    python -m lab.controls run --out results/anygraph/controls.jsonl     goes on where the file ends
    python -m lab.controls table results/anygraph/controls.jsonl

Each training is one of `lab.anygraph train`, in a process of its own. Seeds come one after the other, each with all
arms and families, so that what is there at any time is balanced.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy.stats

SEEDS, FAMILIES = range(5), ("nell", "wordnet")
STEPS, QUERIES = 600, 300
ARMS: dict[str, tuple[str, ...]] = {
    "context": ("pairs=false",),
    "shuffled": ("pairs=false", "weights=all-shuffled", "control={seed}"),
    "none": ("pairs=false", "weights=binary", "heads=none"),
    "pairs": (),
}
"""Settings of `lab.anygraph` by arm; a seed has a permutation of its own."""
AGAINST = ("shuffled", "none", "pairs")

Line = dict[str, Any]


def trainings() -> Iterator[tuple[str, str, int]]:
    """(arm, family left out, seed) in the order they are run in."""
    return ((arm, family, seed) for seed in SEEDS for family in FAMILIES for arm in ARMS)


def command(arm: str, family: str, seed: int, out: Path) -> list[str]:
    settings = [word for one in ("batch=16", *ARMS[arm]) for word in ("--set", one.format(seed=seed))]
    counts = ["--steps", str(STEPS), "--queries", str(QUERIES), "--seed", str(seed)]
    words = ["train", "--leave-out", family, *counts, *settings, "--name", arm, "--out", str(out)]
    return [sys.executable, "-m", "lab.anygraph", *words]


def results(path: Path) -> list[Line]:
    """The lines of trainings that came to their end."""
    lines = path.read_text("utf-8").splitlines() if path.is_file() else []
    return [line for line in map(json.loads, lines) if line["event"] == "result"]


def run(out: Path, seeds: Sequence[int], arms: Sequence[str]) -> None:
    done = {(line["name"], line["leave_out"][0], line["seed"]) for line in results(out)}
    for training in trainings():
        if training not in done and training[0] in arms and training[2] in seeds:
            subprocess.run(command(*training, out), check=True)


def differences(lines: Sequence[Line], against: str) -> list[float]:
    """For each seed that both arms have on all families: the mean over the families of context minus the other arm."""
    found = {(line["name"], line["leave_out"][0], line["seed"]): line["mean_mrr"] for line in lines}
    whole = [
        seed
        for seed in SEEDS
        if all((arm, one, seed) in found for arm in ("context", against) for one in FAMILIES)
    ]
    return [
        float(np.mean([found["context", one, seed] - found[against, one, seed] for one in FAMILIES])) for seed in whole
    ]  # fmt: skip


def table(lines: Sequence[Line]) -> str:
    """MRR of every arm, then the comparisons."""
    rows = ["| left out | arm | seeds | MRR |", "|---|---|---:|---:|"]
    for family in FAMILIES:
        for arm in ARMS:
            mrr = [line["mean_mrr"] for line in lines if (line["name"], line["leave_out"]) == (arm, [family])]
            spread = f" ± {np.std(mrr, ddof=1):.4f}" if len(mrr) > 1 else ""
            rows += [f"| {family} | {arm} | {len(mrr)} | {np.mean(mrr):.4f}{spread} |"] if mrr else []
    rows += [
        "",
        "| context minus | seeds | difference | 95 % interval | p, two-sided |",
        "|---|---:|---:|---|---:|",
    ]
    return "\n".join(rows + [compared(differences(lines, one), one) for one in AGAINST])


def compared(difference: Sequence[float], name: str) -> str:
    """A paired t-test over seeds, as a row."""
    if len(difference) < 2:
        return f"| {name} | {len(difference)} | | too few seeds | |"
    test = scipy.stats.ttest_1samp(difference, 0.0)
    low, high = test.confidence_interval(0.95)
    interval = f"{low:+.4f} to {high:+.4f}"
    return f"| {name} | {len(difference)} | {np.mean(difference):+.4f} | {interval} | {test.pvalue:.4f} |"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("run", "table"))
    parser.add_argument("lines", nargs="?", type=Path, help="of table: a file that run made")
    parser.add_argument("--out", type=Path, default=Path("results/anygraph/controls.jsonl"))
    parser.add_argument("--seed", type=int, action="append", choices=SEEDS, help="of run: these seeds alone")
    parser.add_argument("--arm", action="append", choices=ARMS, help="of run: these arms alone")
    options = parser.parse_args()
    if options.what == "run":
        run(options.out, options.seed or SEEDS, options.arm or tuple(ARMS))
    else:
        print(table(results(options.lines or options.out)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
