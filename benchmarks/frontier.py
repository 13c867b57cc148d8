"""Questions on a graph of 10^7 triples that stays in its file: seconds, memory, and what each step costs.

    python benchmarks/frontier.py [--triples 10000000 --entities 1000000 --relations 500 --caps 3000 10000]

Synthetic power-law triples are mapped (`context.map_graph`) and asked by an untrained NBFNet with context: three
layers, two pooled views, gate and candidate relevance; what is measured does not depend on the weights. Questions are
drawn from the facts, so heads are hubs as often as hubs have facts. CPU seconds, over all threads, tell what a busy
machine hides. Memory is what the process holds beyond mapped files
(RssAnon), interpreter and libraries included, the largest seen after any question.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from mining import write_power_law

from contextpool.context.config import PRESETS
from contextpool.context.counts import Cooccurrence, Statistics
from contextpool.context.map_graph import map_graph
from contextpool.graph.mapped import MappedGraph, is_mapped, open_graph
from contextpool.graph.relation_sets import RelationSets, num_words
from contextpool.models.nbfnet import NBFNet, NBFNetConfig
from contextpool.predict import Predictor

CONTEXT = replace(PRESETS["paper"], gate=True, arrive=True)


def memory_gib(kind: str = "RssAnon") -> float:
    """What this process holds now."""
    lines = Path("/proc/self/status").read_text().splitlines()
    kilobytes = next(line.split()[1] for line in lines if line.startswith(f"{kind}:"))
    return int(kilobytes) / 2**20


def untrained(graph: MappedGraph) -> Predictor:
    """A model of the graph's relations that has counted nothing yet: the graph brings its own counts."""
    relations = graph.relation_vocabulary
    torch.manual_seed(0)
    model = NBFNet(graph.num_relations, NBFNetConfig(dim=32, layers=3), CONTEXT)
    size = relations.num_directed
    counts = Cooccurrence(relations, np.zeros((size, size), dtype=np.int64), 0)
    sets = RelationSets(
        size,
        np.empty((0, num_words(size)), dtype=np.uint64),
        np.empty(0, dtype=np.int64),
        np.empty(0, dtype=np.int32),
    )
    return Predictor(model, relations, CONTEXT, Statistics(counts, sets))


def mapped(options: argparse.Namespace, folder: Path) -> MappedGraph:
    """The synthetic graph, made unless it is there."""
    name = folder / f"power-law-{options.triples}-{options.entities}-{options.relations}"
    if is_mapped(name):
        return open_graph(name)
    source = folder / "triples.npy"
    write_power_law(source, options.triples, options.entities, options.relations)
    began, worked = time.perf_counter(), time.process_time()
    graph = map_graph([source], name, temp=folder)
    seconds, busy = time.perf_counter() - began, time.process_time() - worked
    on_disk = sum(path.stat().st_size for path in name.iterdir()) / 1e9
    source.unlink()
    print(
        f"mapped in {seconds:.0f} s, {busy:.0f} s of CPU, {on_disk:.2f} GB on disk, "
        f"peak {memory_gib('VmHWM'):.2f} GiB with what is mapped",
        flush=True,
    )
    return graph


def ask(predictor: Predictor, graph: MappedGraph, cap: int, questions: list[tuple[str, str]]) -> None:
    predictor.predict(graph, *questions[0], cap=cap)  # counts, kernels
    seconds, busy, most, reached, kept = [], [], 0.0, [], []
    for head, relation in questions:
        began, worked = time.perf_counter(), time.process_time()
        predictor.predict(graph, head, relation, cap=cap)
        seconds.append(time.perf_counter() - began)
        busy.append(time.process_time() - worked)
        most = max(most, memory_gib())
        frontier = predictor.frontier(graph, cap)
        found = frontier.nearby(graph.entity_id(head), predictor.relations.id_of(relation)).found
        reached.append(len(found.entities))
        kept.append(sum(found.edges_kept) / max(1, sum(found.edges_seen)))
    ordered = sorted(seconds)
    print(
        f"{cap:9,} {statistics.median(seconds):9.3f} {ordered[int(0.95 * (len(ordered) - 1))]:9.3f} "
        f"{statistics.median(busy):9.3f} "
        f"{most:13.2f} {statistics.median(reached):9,.0f} {statistics.median(kept):9.1%}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--triples", type=int, default=10_000_000)
    parser.add_argument("--entities", type=int, default=1_000_000)
    parser.add_argument("--relations", type=int, default=500)
    parser.add_argument("--caps", type=int, nargs="+", default=[3_000, 10_000, 30_000])
    parser.add_argument("--questions", type=int, default=30)
    parser.add_argument("--temp", type=Path, help="folder for the graph; kept there if named")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="contextpool-frontier-") as temporary:
        graph = mapped(options, options.temp or Path(temporary))
        rng = np.random.default_rng(1)
        edges = rng.integers(0, graph.num_edges, options.questions).tolist()
        questions = [graph.edge_label(edge)[:2] for edge in edges]
        print(
            f"{graph}, {os.cpu_count()} cores, {torch.get_num_threads()} threads, {len(questions)} questions"
        )
        print("      cap     p50 s     p95 s     CPU s    beyond GiB   reached      kept")
        for cap in options.caps:
            ask(untrained(graph), graph, cap, questions)


if __name__ == "__main__":
    main()
