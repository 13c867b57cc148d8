"""Questions on a graph of 10^7 triples that stays in its file: seconds, memory, and how much is considered.

    python benchmarks/frontier.py [--triples 10000000 --entities 1000000 --relations 500 --caps 3000 10000]
    python benchmarks/frontier.py --triples 100000000 --entities 10000000 --temp /big --caps 10000

Synthetic power-law triples are mapped (`context.map_graph`) and asked by `anygraph-1`. Questions are drawn from the
facts, so heads are hubs as often as hubs have facts. The first answer is that of `contextpool ask`, a process of its
own, from its start to its end. CPU seconds, over all threads, tell what a busy machine hides. Memory is what the
process holds beyond mapped files (RssAnon), interpreter and libraries included, the largest seen after any question.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from mining import write_power_law

import contextpool as cp
from contextpool.context.map_graph import map_graph
from contextpool.graph.mapped import MappedGraph, is_mapped, open_graph
from contextpool.predict import Predictor


def memory_gib(kind: str = "RssAnon") -> float:
    """What this process holds now."""
    lines = Path("/proc/self/status").read_text().splitlines()
    kilobytes = next(line.split()[1] for line in lines if line.startswith(f"{kind}:"))
    return int(kilobytes) / 2**20


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


def first_answer(graph: MappedGraph, question: tuple[str, str]) -> None:
    """What somebody waits who types one question."""
    head, relation = question
    command = [sys.executable, "-m", "contextpool", "ask", str(graph.folder), "--head", head, "-r", relation]
    began, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([*command, "--json"], capture_output=True, text=True, check=True)
    seconds, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    busy = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    told = json.loads(done.stdout)
    print(
        f"first answer: {seconds:.1f} s, {busy:.1f} s of CPU, "
        f"considered {told['considered']:,} of {told['num_entities']:,} entities",
        flush=True,
    )


def ask(predictor: Predictor, graph: MappedGraph, cap: int, questions: list[tuple[str, str]]) -> None:
    predictor.predict(graph, *questions[0], cap=cap)  # counts, kernels
    seconds, busy, most, considered = [], [], 0.0, []
    for head, relation in questions:
        began, worked = time.perf_counter(), time.process_time()
        answers = predictor.predict(graph, head, relation, cap=cap)
        seconds.append(time.perf_counter() - began)
        busy.append(time.process_time() - worked)
        most = max(most, memory_gib())
        considered.append(answers.considered[0])
    p50, p95 = (float(np.quantile(seconds, share)) for share in (0.5, 0.95))
    cpu50, cpu95 = (float(np.quantile(busy, share)) for share in (0.5, 0.95))
    print(
        f"{cap:9,} {p50:9.3f} {p95:9.3f} {cpu50:9.3f} {cpu95:9.3f} {most:13.2f} "
        f"{statistics.median(considered):11,.0f}",
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
    parser.add_argument("--run", type=Path, help="a run folder to ask instead of anygraph-1")
    parser.add_argument("--temp", type=Path, help="folder for the graph; kept there if named")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="contextpool-frontier-") as temporary:
        graph = mapped(options, options.temp or Path(temporary))
        rng = np.random.default_rng(1)
        edges = rng.integers(0, graph.num_edges, options.questions).tolist()
        questions = [graph.edge_label(edge)[:2] for edge in edges]
        print(
            f"{graph}, {os.cpu_count()} cores, {torch.get_num_threads()} threads, {len(questions)} questions, "
            f"a load of {os.getloadavg()[0]:.1f}"
        )
        first_answer(graph, questions[0])
        predictor = cp.load(options.run)
        print("      cap     p50 s     p95 s   CPU p50   CPU p95    beyond GiB  considered")
        for cap in options.caps:
            ask(predictor, graph, cap, questions)


if __name__ == "__main__":
    main()
