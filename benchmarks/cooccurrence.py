"""Co-occurrence of relations on synthetic power-law triples: ours against scipy's XᵀX, in one run.

    python benchmarks/cooccurrence.py [--triples 10000000 --entities 1000000 --relations 500]

Each engine runs in a fresh process over the same columns; memory is the peak of the resident set above
what the process held before it started counting. Both have to give the same checksum.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

Columns = tuple[np.ndarray, np.ndarray, np.ndarray]


def power_law_columns(num_triples: int, num_entities: int, num_relations: int, seed: int = 0) -> Columns:
    """Heads, relations, tails drawn from power laws: few hubs and frequent relations, many rare ones."""
    rng = np.random.default_rng(seed)

    def draw(size: int) -> np.ndarray:
        return np.minimum((size ** rng.random(num_triples) - 1), size - 1).astype(np.int32)

    return draw(num_entities), draw(num_relations), draw(num_entities)


def count_with_scipy(columns: Columns, num_entities: int, num_relations: int) -> np.ndarray:
    """Distinct (entity, relation) pairs by sort + diff, then a sparse product."""
    import scipy.sparse

    head, relation, tail = columns
    width = 2 * num_relations
    keys = np.concatenate(
        [head.astype(np.int64) * width + relation, tail.astype(np.int64) * width + relation + num_relations]
    )
    keys.sort()
    keys = keys[np.concatenate([[True], np.diff(keys) > 0])]
    starts = np.searchsorted(keys, np.arange(num_entities + 1, dtype=np.int64) * width)
    ones = np.ones(len(keys), dtype=np.int64)
    has = scipy.sparse.csr_matrix(
        (ones, (keys % width).astype(np.int32), starts), shape=(num_entities, width)
    )
    return (has.T @ has).toarray()


def count_with_ours(columns: Columns, num_entities: int, num_relations: int) -> np.ndarray:
    from contextpool.context.mining.partitions import CODE_BITS, add_partition

    head, relation, tail = columns
    keys = np.concatenate([head, tail]).astype(np.int64) << CODE_BITS
    keys |= np.concatenate([relation, relation + num_relations])
    both = np.zeros((2 * num_relations, 2 * num_relations), dtype=np.int64)
    add_partition(keys, both)
    return both


ENGINES: dict[str, Callable[[Columns, int, int], np.ndarray]] = {
    "contextpool": count_with_ours,
    "scipy": count_with_scipy,
}


def resident_bytes(field: str) -> int:
    """VmRSS (now) or VmHWM (peak) of this process."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(field))
    return int(line.split()[1]) * 1024


def run_engine(name: str, folder: Path, num_entities: int, num_relations: int) -> None:
    """One engine in this process: a tiny warm-up (imports, compilation cache), then the measured count, twice."""
    columns: Columns = tuple(np.load(folder / f"{part}.npy") for part in ("head", "relation", "tail"))
    started = time.perf_counter()
    ENGINES[name](tuple(column[:10] for column in columns), num_entities, num_relations)  # type: ignore[arg-type]
    warm_up = time.perf_counter() - started
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
    before = resident_bytes("VmRSS")
    seconds, cpu_seconds = [], []
    for _ in range(2):
        started, used = time.perf_counter(), time.process_time()
        both = ENGINES[name](columns, num_entities, num_relations)
        seconds.append(time.perf_counter() - started)
        cpu_seconds.append(time.process_time() - used)
    checksum = hashlib.sha256(np.ascontiguousarray(both, dtype="<i8")).hexdigest()[:16]
    peak = (resident_bytes("VmHWM") - before) / 1e9
    found = {"seconds": min(seconds), "cpu": min(cpu_seconds), "warm_up": warm_up, "peak_gb": peak}
    print(json.dumps({**found, "checksum": checksum}))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--triples", type=int, default=10_000_000)
    parser.add_argument("--entities", type=int, default=1_000_000)
    parser.add_argument("--relations", type=int, default=500)
    parser.add_argument("--engine", choices=ENGINES, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.engine:
        run_engine(options.engine, options.folder, options.entities, options.relations)
        return
    print(f"{options.triples:,} triples, {options.entities:,} entities, {options.relations:,} relations")
    with tempfile.TemporaryDirectory() as folder:
        columns = power_law_columns(options.triples, options.entities, options.relations)
        for part, column in zip(("head", "relation", "tail"), columns, strict=True):
            np.save(Path(folder) / f"{part}.npy", column)
        sizes = ["--entities", str(options.entities), "--relations", str(options.relations)]
        results = {}
        for name in ENGINES:
            command = [sys.executable, __file__, "--engine", name, "--folder", folder, *sizes]
            results[name] = json.loads(
                subprocess.run(command, check=True, capture_output=True, text=True).stdout
            )
    report(results)


def report(results: dict[str, dict[str, float]]) -> None:
    if len({result["checksum"] for result in results.values()}) != 1:
        raise SystemExit(f"the engines disagree: {results}")
    print(f"{'engine':14}{'seconds':>10}{'CPU s':>10}{'warm-up':>10}{'peak GB above start':>22}")
    for name, result in results.items():
        times = (result[key] for key in ("seconds", "cpu", "warm_up"))
        print(f"{name:14}{''.join(f'{value:10.2f}' for value in times)}{result['peak_gb']:22.2f}")
    print(
        f"contextpool takes {results['scipy']['cpu'] / results['contextpool']['cpu']:.1f} times less CPU than scipy"
    )


if __name__ == "__main__":
    main()
