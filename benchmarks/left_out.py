"""Algorithm 1 without each query's own fact: what a batch of training queries costs beside its walk.

    python benchmarks/left_out.py [--dataset grail/fb237_v1 --threshold 0.1 --batches 40 --device cpu]

Batches of 64 random training edges, each never mined for its own query. The first batch answers every pair of a
relation set and a query with nothing left out; the next ones hold new facts; then the same ones come again.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import torch

from contextpool.context.families import Measure, mine_families
from contextpool.graph.graph import Graph
from contextpool.pool.families_left_out import family_answers_left_out
from contextpool.pool.hidden import HiddenEdges
from contextpool.triples.catalog import load_dataset

BATCH = 64
MEASURES: tuple[Measure, ...] = ("precision", "recall")


def batch_seconds(graph: Graph, measure: Measure, threshold: float, edges: torch.Tensor) -> list[float]:
    """Seconds of each batch [K, 64] of edges."""
    families = mine_families(graph, measure, threshold)
    seconds = []
    for edge in edges:
        head, relation = graph.edge_head[edge].long(), graph.edge_relation[edge].long()
        hidden = HiddenEdges.one_per_query(graph, edge)
        started = time.perf_counter()
        family_answers_left_out(graph, families, head, relation, hidden, edge)
        if graph.device.type == "cuda":
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - started)
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dataset", default="grail/fb237_v1")
    parser.add_argument("--threshold", type=float, default=0.1)
    parser.add_argument("--batches", type=int, default=40)
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    graph = Graph.from_triples(load_dataset(options.dataset).training_graph).to(options.device)
    order = torch.randperm(graph.num_edges, generator=torch.Generator().manual_seed(0)).to(options.device)
    batches = min(options.batches, graph.num_edges // BATCH - 1)
    edges = order[: (1 + batches) * BATCH].view(-1, BATCH)
    print(f"{graph}; {batches} batches of {BATCH} facts, threshold {options.threshold:g}, sizes 1-5")
    print(f"{'milliseconds a batch':24}{'first':>10}{'new facts':>12}{'worst':>10}{'seen before':>14}")
    for measure in MEASURES:
        batch_seconds(graph, measure, options.threshold, edges[:1])  # kernels are compiled
        seconds = 1e3 * np.array(
            batch_seconds(graph, measure, options.threshold, torch.cat([edges, edges[1:]]))
        )
        new, again = seconds[1 : 1 + batches], seconds[1 + batches :]
        print(
            f"{measure:24}{seconds[0]:10.1f}{np.median(new):12.1f}{new.max():10.1f}{np.median(again):14.1f}"
        )


if __name__ == "__main__":
    main()
