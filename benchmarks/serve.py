"""Serve: questions a second and the time to an answer with 64 connections; every answer is checked for errors.

    PYTHONPATH=src python benchmarks/serve.py [--connections 64 --seconds 20 --threads 2 --json]
    PYTHONPATH=src python benchmarks/serve.py --url http://127.0.0.1:8000 [--token TOKEN]

Without --url a server is started for each graph (the inference graphs of `world`, and of `grail/fb237_v4` where it is
found), with the model of the shipped recipe (NBFNet with context) and the weights it starts from: time does not depend
on what was learned. Each connection asks one question after another, as quickly as it is answered: `wrk` does so where
it is installed, a client of asyncio's otherwise (which takes CPU from the server). Questions are 256 of the dataset's
evaluation queries in turn for the asyncio client and, one address being all it takes without a script, through a Lua
script for wrk. An answer other than 200, a connection that breaks and a time-out are errors.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.parse import quote, urlsplit

NAMES = ("world", "grail/fb237_v4")
QUESTIONS = 256
WARM_SECONDS = 2.0


@dataclass(frozen=True)
class Measured:
    """Of one server."""

    name: str
    client: str
    connections: int
    answers: int
    errors: int
    per_second: float
    p50_ms: float
    p99_ms: float
    mean_batch: float
    """Questions that were scored together, on average."""


# clients


async def _ask(
    address: tuple[str, int], paths: Sequence[str], start: int, until: float, token: str
) -> tuple[list[float], int]:
    """One connection, one question after another; (seconds of each answer, errors)."""
    taken, errors, number = [], 0, start
    bearer = f"Authorization: Bearer {token}\r\n" if token else ""
    while time.perf_counter() < until:
        try:
            reader, writer = await asyncio.open_connection(*address)
            while (began := time.perf_counter()) < until:
                path, number = paths[number % len(paths)], number + 1
                writer.write(f"GET {path} HTTP/1.1\r\nHost: {address[0]}\r\n{bearer}\r\n".encode())
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().partition(b"content-length:")[2].split()[0])
                await reader.readexactly(length)
                errors += not head.startswith(b"HTTP/1.1 200")
                taken.append(time.perf_counter() - began)
            writer.close()
        except (OSError, asyncio.IncompleteReadError, ValueError, IndexError):
            errors += 1
    return taken, errors


def by_asyncio(
    url: str, paths: Sequence[str], connections: int, seconds: float, token: str
) -> tuple[list[float], int]:
    parts = urlsplit(url)
    address = (parts.hostname or "127.0.0.1", parts.port or 80)

    async def everyone() -> tuple[list[float], int]:
        until = time.perf_counter() + seconds
        step = max(1, len(paths) // connections)
        asked = [_ask(address, paths, number * step, until, token) for number in range(connections)]
        found = await asyncio.gather(*asked)
        return [one for taken, _ in found for one in taken], sum(errors for _, errors in found)

    return asyncio.run(everyone())


LUA = """
local paths = {%s}
local n = 0
request = function()
  n = n + 1
  return wrk.format("GET", paths[n %% #paths + 1])
end
done = function(summary, latency, requests)
  local e = summary.errors
  io.write(string.format("RESULT %%d %%d %%d %%d %%d\\n", summary.requests, summary.duration,
    e.connect + e.read + e.write + e.timeout + e.status, latency:percentile(50), latency:percentile(99)))
end
"""


def by_wrk(
    url: str, paths: Sequence[str], connections: int, seconds: float, token: str
) -> tuple[int, int, float, float, float]:
    """(answers, errors, a second, p50 ms, p99 ms)"""
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as script:
        script.write(LUA % ", ".join(json.dumps(path) for path in paths))
        script.flush()
        bearer = ["-H", f"Authorization: Bearer {token}"] if token else []
        call = [
            "wrk",
            "-t1",
            f"-c{connections}",
            f"-d{seconds:.0f}s",
            "--timeout",
            "30s",
            "-s",
            script.name,
            *bearer,
            url,
        ]
        told = subprocess.run(call, capture_output=True, text=True, check=True).stdout
    found = re.search(r"RESULT (\d+) (\d+) (\d+) (\d+) (\d+)", told)
    assert found is not None, told
    answers, micros, errors, p50, p99 = (int(one) for one in found.groups())
    return answers, errors, answers / micros * 1e6, p50 / 1000, p99 / 1000


# servers


def fetched(url: str, token: str) -> str:
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"} if token else {})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return str(answer.read().decode())


def batches(url: str, token: str) -> tuple[float, float]:
    """(questions, batches) so far."""
    text = fetched(f"{url}/metrics", token)
    found = (re.search(rf"contextpool_batch_questions_{key} (\S+)", text) for key in ("sum", "count"))
    total, count = (0.0 if one is None else float(one.group(1)) for one in found)
    return total, count


def measure(
    name: str,
    url: str,
    paths: Sequence[str],
    connections: int,
    seconds: float,
    token: str = "",
    client: str = "",
) -> Measured:
    client = client or ("wrk" if shutil.which("wrk") else "asyncio")
    by_asyncio(url, paths, connections, WARM_SECONDS, token)
    before = batches(url, token)
    if client == "wrk":
        answers, errors, rate, p50, p99 = by_wrk(url, paths, connections, seconds, token)
    else:
        taken, errors = by_asyncio(url, paths, connections, seconds, token)
        ordered = sorted(taken)
        answers, rate = len(taken), len(taken) / seconds
        p50, p99 = (1000 * ordered[int(share * (len(ordered) - 1))] for share in (0.5, 0.99))
    after = batches(url, token)
    mean = (after[0] - before[0]) / max(1.0, after[1] - before[1])
    return Measured(name, client, connections, answers, errors, rate, p50, p99, mean)


def addresses(queries: Sequence[tuple[str, str]]) -> list[str]:
    return [
        f"/predict?head={quote(head, safe='')}&relation={quote(relation, safe='')}"
        for head, relation in queries
    ]


def questions_of(url: str, token: str) -> list[str]:
    """Of a server that runs already: its first entities with its relations in turn."""
    entities = json.loads(fetched(f"{url}/entities?limit=100", token))["entities"]
    relations = json.loads(fetched(f"{url}/relations", token))["relations"]
    pairs = [(one["entity"], other["relation"]) for one in entities for other in relations]
    return addresses(pairs[:: max(1, len(pairs) // QUESTIONS)][:QUESTIONS])


@contextmanager
def started(name: str, threads: int) -> Iterator[tuple[str, list[str]]]:
    """A server on a dataset's inference graph, in a process of its own: (address, questions)."""
    from contextpool.triples.catalog import load_dataset

    facts = list(load_dataset(name).evaluation_queries("P1"))[:QUESTIONS]
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "OMP_WAIT_POLICY": "PASSIVE"}
    call = [sys.executable, __file__, "--serve", name]
    with subprocess.Popen(call, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().strip()
            if not url:
                raise SystemExit(f"the server for {name} did not start")
            yield url, addresses([(fact[0], fact[1]) for fact in facts])
        finally:
            process.terminate()


def serve_untrained(name: str) -> None:
    """What the child process does."""
    from contextpool.evaluate.calibration import Calibration
    from contextpool.experiment import Experiment
    from contextpool.graph.graph import Graph
    from contextpool.predict import Predictor
    from contextpool.recipe import shipped_recipe
    from contextpool.serve import GraphSource, ModelSource, ServeSettings
    from contextpool.serve.registry import Registry
    from contextpool.serve.server import serve
    from contextpool.triples.catalog import load_dataset

    data, recipe = load_dataset(name), shipped_recipe(name, "nbfnet", context=True)
    assert recipe is not None, f"there is no recipe for {name}"

    class Untrained(ModelSource):
        def load(self) -> Predictor:
            predictor = Experiment(recipe, data, seed=0, device="cpu").predictor
            predictor.calibration = Calibration(1.0, (0.0, 1.0), (0.0, 1.0))
            return predictor

    graph = GraphSource(name, lambda: Graph.from_triples(data.inference_graph))
    registry = Registry([Untrained("untrained", Path())], [graph])
    serve(registry, ServeSettings(port=0), lambda address: print(address, flush=True))


def as_table(rows: list[Measured]) -> str:
    lines = [
        f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}",
        f"{'':16}{'client':>9}{'answers':>10}{'errors':>8}{'per s':>10}{'p50 ms':>9}{'p99 ms':>9}{'batch':>7}",
    ]
    for row in rows:
        figures = f"{row.per_second:10,.0f}{row.p50_ms:9,.1f}{row.p99_ms:9,.1f}{row.mean_batch:7.1f}"
        lines.append(f"{row.name:16}{row.client:>9}{row.answers:10,}{row.errors:8,}{figures}")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--client", choices=("wrk", "asyncio"), default="")
    parser.add_argument("--url", default="")
    parser.add_argument("--token", default=os.environ.get("CONTEXTPOOL_TOKEN", ""))
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--serve", default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve_untrained(options.serve)
        return
    load = (options.connections, options.seconds, options.token, options.client)
    if options.url:
        url = options.url.rstrip("/")
        rows = [measure("given", url, questions_of(url, options.token), *load)]
    else:
        rows = measure_all(load, options.threads)
    print(json.dumps([asdict(row) for row in rows], indent=2) if options.json else as_table(rows))
    if any(row.errors for row in rows):
        raise SystemExit("some answers were errors")


def measure_all(load: tuple[int, float, str, str], threads: int) -> list[Measured]:
    from contextpool.errors import ContextPoolError

    rows = []
    for name in NAMES:
        try:
            with started(name, threads) as (url, paths):
                rows.append(measure(name, url, paths, *load))
        except ContextPoolError as error:
            print(f"{name} is left out: {error}")
    return rows


if __name__ == "__main__":
    main()
