"""Mining engines on synthetic power-law triples: seconds, peak memory and one checksum, each in a fresh process.

    python benchmarks/mining.py [--triples 10000000 --entities 1000000 --relations 500 --engines memory disk]

The input is a .npy file of ids, written piece by piece. Seconds are of `mine_counts`, file read included, after
a warm-up on 1,000 triples that compiles or loads the kernels (Spark has none: its JVM start counts). Memory is
the largest sum of resident sets over the process and its children, interpreter and libraries included,
sampled every 50 ms. CPU seconds, over all threads, tell what a busy machine hides (Spark's are its JVM's).
An engine that is not installed is named and left out.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

ENGINES = ("memory", "disk", "duckdb", "spark")
PIECE = 1 << 20
SAMPLE_SECONDS = 0.05


def write_power_law(
    path: Path, num_triples: int, num_entities: int, num_relations: int, seed: int = 0
) -> None:
    """[T, 3] int32: few hubs and frequent relations, many rare ones. Memory of one piece."""
    rng = np.random.default_rng(seed)
    sizes = np.array([num_entities, num_relations, num_entities], dtype=np.float64)
    with path.open("wb") as stream:
        header = {"descr": "<i4", "fortran_order": False, "shape": (num_triples, 3)}
        np.lib.format.write_array_header_1_0(stream, header)
        for first in range(0, num_triples, PIECE):
            draws = sizes ** rng.random((min(PIECE, num_triples - first), 3)) - 1
            stream.write(np.minimum(draws, sizes - 1).astype("<i4").tobytes())


def why_not(engine: str) -> str | None:
    """Why an engine cannot run here."""
    needed = {"duckdb": ("duckdb",), "spark": ("ibis", "pyspark")}.get(engine, ())
    missing = [package for package in needed if importlib.util.find_spec(package) is None]
    if missing:
        return f"{' and '.join(missing)} not installed; pip install 'contextpool[scale]'"
    if engine == "spark" and shutil.which("java") is None:
        return "no Java on this machine"
    return None


def resident_bytes(process: int) -> int:
    """The resident sets of a process and its descendants."""
    try:
        pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
        children = [
            int(child)
            for task in Path(f"/proc/{process}/task").iterdir()
            for child in (task / "children").read_text().split()
        ]
    except OSError:  # it ended meanwhile
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE") + sum(map(resident_bytes, children))


class PeakMemory:
    """The largest resident sum of this process and its children while the block runs."""

    def __enter__(self) -> PeakMemory:
        self.peak = 0
        self._over = threading.Event()
        self._watch = threading.Thread(target=self._sample)
        self._watch.start()
        return self

    def _sample(self) -> None:
        while not self._over.wait(SAMPLE_SECONDS):
            self.peak = max(self.peak, resident_bytes(os.getpid()))

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._watch.join()


def run_engine(engine: str, path: Path, memory: int) -> None:
    """One engine in this process; prints one JSON line."""
    from contextpool.context.mining import checksum, mine_counts

    if engine != "spark":
        write_power_law(path.parent / "warm-up.npy", 1_000, 100, 10)
        mine_counts(path.parent / "warm-up.npy", engine)
    with PeakMemory() as memory_used:
        started, used = time.perf_counter(), time.process_time()
        mined = mine_counts(path, engine, memory=memory, temp=path.parent)
        seconds, processor = time.perf_counter() - started, time.process_time() - used
    result = {
        "seconds": seconds,
        "processor": processor,
        "peak_gb": memory_used.peak / 1e9,
        "checksum": checksum(mined.counts),
    }
    print(json.dumps(result))


def measured(engine: str, path: Path, memory: int) -> dict[str, float]:
    """One engine in a fresh process."""
    command = [sys.executable, __file__, "--engine", engine, "--file", str(path), "--memory", str(memory)]
    ran = subprocess.run(command, capture_output=True, text=True)
    if ran.returncode:
        raise SystemExit(f"{engine} failed:\n{ran.stderr}")
    result: dict[str, float] = json.loads(ran.stdout.splitlines()[-1])
    return result


def compare(engines: Sequence[str], options: argparse.Namespace) -> None:
    """The table; engines that disagree end it."""
    with tempfile.TemporaryDirectory(dir=options.temp) as folder:
        path = Path(folder) / "triples.npy"
        write_power_law(path, options.triples, options.entities, options.relations)
        print(f"{'engine':10}{'limit GB':>10}{'seconds':>10}{'CPU s':>10}{'peak GB':>10}  sha256", flush=True)
        checksums = set()
        for engine in engines:
            memory = options.spark_memory if engine == "spark" else options.memory
            result = measured(engine, path, memory)
            limit = "-" if engine == "memory" else f"{memory / 1e9:.2f}"
            processor = "-" if engine == "spark" else f"{result['processor']:.1f}"
            line = f"{engine:10}{limit:>10}{result['seconds']:10.1f}{processor:>10}{result['peak_gb']:10.2f}"
            print(f"{line}  {str(result['checksum'])[:16]}", flush=True)
            checksums.add(result["checksum"])
    if len(checksums) > 1:
        raise SystemExit("the engines disagree")


def main() -> None:
    """Parse and run."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--triples", type=int, default=10_000_000)
    parser.add_argument("--entities", type=int, default=1_000_000)
    parser.add_argument("--relations", type=int, default=500)
    parser.add_argument("--engines", nargs="+", choices=ENGINES, default=list(ENGINES))
    parser.add_argument("--memory", type=int, default=1 << 30, help="bytes for disk and duckdb")
    parser.add_argument("--spark-memory", type=int, default=4 << 30, help="bytes for Spark's driver")
    parser.add_argument("--temp", type=Path, help="folder for the input and what is spilled")
    parser.add_argument("--engine", choices=ENGINES, help=argparse.SUPPRESS)
    parser.add_argument("--file", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.engine:
        run_engine(options.engine, options.file, options.memory)
        return
    print(f"{options.triples:,} triples, {options.entities:,} entities, {options.relations:,} relations")
    reasons = {engine: why_not(engine) for engine in options.engines}
    for engine, reason in reasons.items():
        if reason:
            print(f"{engine}: left out, {reason}")
    compare([engine for engine in options.engines if reasons[engine] is None], options)


if __name__ == "__main__":
    main()
