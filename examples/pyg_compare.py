"""The plain link predictor beside the one with context, several seeds each, every figure printed.

    python examples/pyg_compare.py --seeds 0 1 2

`--control` adds a third: the same walk without context, along every relation. What it gains over the plain one is the
gain of walking out from the query at all; what context adds is the rest.
"""

import argparse
import statistics
from collections.abc import Callable
from typing import Any

import pyg_rgcn
import pyg_rgcn_context
import torch

import contextpool as cp
from contextpool.context.neighbors import MaskSelector
from contextpool.graph.relations import RelationVocabulary
from contextpool.interop.pyg import ContextPooling, ContextSelection

Run = Callable[..., tuple[float, float]]


class WalkAlongEverything(ContextPooling):
    """The same walk without any context: every relation may follow every other, and no node looks better."""

    def __init__(self, hops: int, num_types: int, **_: object) -> None:
        relations = RelationVocabulary(tuple(f"r{number:06d}" for number in range(num_types // 2)))
        super().__init__(MaskSelector.everything(relations), hops)

    def select(self, *arguments: Any, **options: Any) -> ContextSelection:
        """With a weight of 0 for all."""
        picked = super().select(*arguments, **options)
        picked.weight = torch.zeros(picked.num_clusters)
        return picked


def without_context(dataset: cp.Dataset, **options: int) -> tuple[float, float]:
    """The program with context, whose pooling is replaced by a walk along everything."""
    pyg_rgcn_context.ContextPooling = WalkAlongEverything
    try:
        return pyg_rgcn_context.run(dataset, **options)
    finally:
        pyg_rgcn_context.ContextPooling = ContextPooling


def compare(
    dataset: cp.Dataset, programs: dict[str, Run], seeds: list[int], **options: int
) -> dict[str, float]:
    """The mean MRR on the inference graph of each program, by name."""
    found: dict[str, list[tuple[float, float]]] = {}
    for name, run in programs.items():
        for seed in seeds:
            print(f"{name}, seed {seed}", flush=True)
            found.setdefault(name, []).append(run(dataset, seed=seed, **options))
    print(f"\n{dataset.name}: MRR, filtered, mean over seeds {seeds} (each)")
    for name, pairs in found.items():
        valid, test = (statistics.mean(column) for column in zip(*pairs, strict=True))
        each = " ".join(f"{figure:.4f}" for _, figure in pairs)
        print(f"  {name:<22} validation {valid:.4f}   inference graph {test:.4f} ({each})")
    return {name: statistics.mean(test for _, test in pairs) for name, pairs in found.items()}


def main() -> None:
    """Both programs as they stand."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dataset", default="grail/fb237_v1")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--control", action="store_true")
    chosen = parser.parse_args()
    programs: dict[str, Run] = {"RGCN": pyg_rgcn.run, "RGCN + context": pyg_rgcn_context.run}
    if chosen.control:
        programs["RGCN + walk, no context"] = without_context
    compare(cp.load_dataset(chosen.dataset), programs, chosen.seeds, epochs=chosen.epochs)


if __name__ == "__main__":
    main()
