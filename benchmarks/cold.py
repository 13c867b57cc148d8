"""From nothing to an answer: the command line with the packaged model, cold, and questions after that.

    PYTHONPATH=src python benchmarks/cold.py [GRAPH ...] [--tries 5 --questions 40]

By default pool/codex-s and pool/codex-m of the data folder. `first`: nothing is compiled yet, as after installing.
`cold`: a new process, code compiled and nothing else kept. `again`: what was fitted to this graph is kept, too. Seconds
are wall clock and, in brackets, of the processor: on a busy machine only the latter mean anything. `p50`: milliseconds
of one question after another in one process, each another (head, relation), tails and heads in turn.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import contextpool as cp
from contextpool.triples.catalog import data_folders

DEFAULT = ("pool/codex-s/train.txt.gz", "pool/codex-m/train.txt.gz")


def asked(graph: Path, question: tuple[str, str], environment: dict[str, str]) -> tuple[float, float]:
    """Seconds of one `contextpool ask`: wall clock, processor."""
    head, relation = question
    command = [sys.executable, "-m", "contextpool", "ask", str(graph), "--head", head, "-r", relation]
    began, used = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, env={**os.environ, **environment}, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime + after.ru_stime - used.ru_utime - used.ru_stime
    return time.perf_counter() - began, spent


def told(name: str, measured: list[tuple[float, float]]) -> str:
    wall, spent = (statistics.median(column) for column in zip(*measured, strict=True))
    return f"{name} {wall:.2f} s ({spent:.2f})"


def measure(path: Path, tries: int, questions: int) -> str:
    graph, predictor = cp.read_graph(path), cp.load()
    facts = random.Random(0).sample(sorted(graph.triples), questions)
    question = facts[0][:2]
    with tempfile.TemporaryDirectory() as compiled, tempfile.TemporaryDirectory() as kept:
        fresh = {"NUMBA_CACHE_DIR": compiled, "XDG_CACHE_HOME": kept}
        first = asked(path, question, fresh)
        cold = []
        for _ in range(tries):
            with tempfile.TemporaryDirectory() as nothing:
                cold.append(asked(path, question, {**fresh, "XDG_CACHE_HOME": nothing}))
        again = [asked(path, question, fresh) for _ in range(tries)]
    predictor.predict(graph, *question)
    taken = []
    for number, (head, relation, tail) in enumerate(facts):
        began = time.perf_counter()
        if number % 2:
            predictor.predict_heads(graph, relation, tail)
        else:
            predictor.predict(graph, head, relation)
        taken.append(1000 * (time.perf_counter() - began))
    size = f"{graph.num_triples:,} facts, {graph.num_relations:,} relations"
    parts = [
        told("first", [first]),
        told("cold", cold),
        told("again", again),
        f"p50 {statistics.median(taken):.0f} ms",
    ]
    return f"{path.parent.name} ({size}): {', '.join(parts)}"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("graphs", nargs="*", type=Path)
    parser.add_argument("--tries", type=int, default=5)
    parser.add_argument("--questions", type=int, default=40)
    options = parser.parse_args()
    graphs = options.graphs or [
        path for folder in data_folders() for name in DEFAULT if (path := folder / name).is_file()
    ]
    if not graphs:
        parser.error("no graph: name one, or see `contextpool data fetch`.")
    for path in graphs:
        print(measure(path, options.tries, options.questions), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
