"""Complete: links of codex-s, uninterrupted, killed three times, and on Ray; the rows are compared, the rates told.

    PYTHONPATH=src python benchmarks/complete.py [--graph GRAPH --processes 2 --no-ray --paths 200 --limit N]

GRAPH is train.txt of codex-s where the benchmark data is found. Everything is done through the command line, with the
model that comes with contextpool. `--limit` asks the likeliest so many questions. While Ray works, every socket of its
processes that listens has to be on loopback.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from contextpool.triples.catalog import data_folders

LOOPBACK = {"0100007F", "00000000000000000000000001000000", "0000000000000000FFFF00000100007F"}


def command(graph: str, output: Path, *options: str) -> list[str]:
    return [sys.executable, "-m", "contextpool", "complete", graph, "-o", str(output), "--json", *options]


def completed(graph: str, output: Path, *options: str) -> dict[str, float]:
    began = time.monotonic()
    done = subprocess.run(command(graph, output, *options), stdout=subprocess.PIPE, text=True, check=True)
    return {**json.loads(done.stdout), "seconds": time.monotonic() - began}


def killed(graph: str, output: Path, *options: str) -> int:
    """Killed when a third of the parts that there will be are new; how many parts there are then."""
    parts = output.with_name(f"{output.name}.parts") / "links"
    before = len(list(parts.glob("part-*"))) if parts.is_dir() else 0
    with subprocess.Popen(command(graph, output, *options), stdout=subprocess.DEVNULL) as running:
        while running.poll() is None and len(list(parts.glob("part-*"))) < before + 2:
            time.sleep(0.05)
        running.send_signal(signal.SIGKILL)
    return len(list(parts.glob("part-*")))


def descendants(pid: int) -> set[int]:
    """The process and all that it has started, which are still there."""
    parent = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent[int(entry.name)] = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
            except OSError:
                continue
    found, size = {pid}, 0
    while len(found) > size:
        size = len(found)
        found |= {one for one, of in parent.items() if of in found}
    return found


def listening(pids: set[int]) -> set[str]:
    """The addresses, in hexadecimal, on which these processes listen."""
    sockets = set()
    for pid in pids:
        try:
            entries = list(Path(f"/proc/{pid}/fd").iterdir())
            sockets |= {str(entry.readlink())[8:-1] for entry in entries if entry.is_symlink()}
        except OSError:
            continue
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            columns = line.split()
            if columns[3] == "0A" and columns[9] in sockets:
                found.add(columns[1].split(":")[0])
    return found


def on_ray(graph: str, output: Path, *options: str) -> tuple[dict[str, float], set[str]]:
    """What came of it, and where Ray listened meanwhile."""
    began, heard, over = time.monotonic(), set[str](), threading.Event()
    with subprocess.Popen(
        command(graph, output, "--engine", "ray", *options), stdout=subprocess.PIPE, text=True
    ) as running:

        def watch() -> None:
            while not over.wait(0.5):
                heard.update(listening(descendants(running.pid)))

        watching = threading.Thread(target=watch)
        watching.start()
        text, _ = running.communicate()
        over.set()
        watching.join()
    return {**json.loads(text), "seconds": time.monotonic() - began}, heard


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    known = [folder / "pool/codex-s/train.txt.gz" for folder in data_folders()]
    parser.add_argument("--graph", default=next((str(path) for path in known if path.is_file()), "world"))
    parser.add_argument("--processes", default="2")
    parser.add_argument("--no-ray", action="store_true")
    parser.add_argument("--paths", type=int, default=200, help="Links whose paths are looked for.")
    parser.add_argument("--limit", type=int)
    given = parser.parse_args()
    options = ["--processes", given.processes, "--min-probability", "0.1"]
    options += [] if given.limit is None else ["--max-questions", str(given.limit)]
    with tempfile.TemporaryDirectory() as folder:
        places = {name: Path(folder) / f"{name}.parquet" for name in ("whole", "cut", "ray", "paths")}
        whole = completed(given.graph, places["whole"], *options)
        print(f"uninterrupted: {whole}", flush=True)
        for _ in range(3):
            print(f"killed with {killed(given.graph, places['cut'], *options)} parts", flush=True)
        print(f"resumed: {completed(given.graph, places['cut'], *options)}", flush=True)
        assert places["cut"].read_bytes() == places["whole"].read_bytes()
        print("killed three times and resumed: the same bytes", flush=True)
        if not given.no_ray:
            found, heard = on_ray(given.graph, places["ray"], *options)
            assert places["ray"].read_bytes() == places["whole"].read_bytes()
            assert heard
            assert heard <= LOOPBACK, heard
            print(f"on Ray: {found}; the same bytes; listened on loopback alone", flush=True)
        if given.paths:
            found = completed(given.graph, places["paths"], *options, "--paths", "--top", str(given.paths))
            print(f"with paths: {found}", flush=True)


if __name__ == "__main__":
    main()
