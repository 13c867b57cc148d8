"""The first session of a new user with a file: each command as typed, with its time.

    PYTHONPATH=src python benchmarks/first_session.py [--threads 2 --cold --json] [FILE]

FILE is by default codex-s (32,888 facts of Wikidata) as the pool of benchmark graphs has it. Commands are processes of
their own, so each starts from nothing but what earlier ones left in the cache of compiled code; --cold empties that
first (a cache of this benchmark's own, never the user's). From nothing to an explained answer is `ask`, then `explain`:
two commands. Seconds are by the clock; those of the processor, children included, stand beside them, which on a machine
with other work say more.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import resource
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from contextpool.triples.catalog import data_folders


@dataclass(frozen=True)
class Measured:
    """One command."""

    command: str
    seconds: float
    processor_seconds: float
    code: int
    shown: str
    """The line of its output that the session is about."""


def main() -> None:
    arguments = _arguments()
    with tempfile.TemporaryDirectory(prefix="first-session-") as folder:
        work, cache = Path(folder), Path(tempfile.gettempdir()) / "contextpool-first-session-cache"
        if arguments.cold:
            shutil.rmtree(cache, ignore_errors=True)
        facts = _facts(arguments.file, work)
        environment = {**os.environ, "OMP_NUM_THREADS": str(arguments.threads), "NUMBA_CACHE_DIR": str(cache)}
        environment["PYTHONPYCACHEPREFIX"] = str(cache / "python")  # pip compiles what it installs
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        rows = [_timed(command, work, environment) for command in _session(facts, arguments)]
    if arguments.json:
        print(json.dumps([asdict(row) for row in rows], indent=2))
        return
    for row in rows:
        print(
            f"{row.seconds:7.1f} s  {row.processor_seconds:6.1f} s of processor  {row.command}\n{'':12}{row.shown}"
        )
    both = rows[0].seconds + rows[1].seconds
    print(
        f"from nothing to an explained answer: {both:.1f} s in two commands, {rows[2].seconds:.1f} s in one"
    )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", nargs="?", type=Path, help="a file of triples; by default codex-s")
    parser.add_argument("--head", default="Q9358", help="whom to ask about (codex-s: Friedrich Nietzsche)")
    parser.add_argument("--relation", default="P106", help="what to ask (codex-s: occupation)")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--minutes", type=float, default=0.0, help="also train for so long, and ask the run")
    parser.add_argument("--cold", action="store_true", help="empty the cache of compiled code first")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


def _facts(given: Path | None, work: Path) -> Path:
    """The file to ask, unpacked: what a user would have at hand."""
    if given is not None:
        return given.absolute()
    for folder in data_folders():
        packed = folder / "pool" / "codex-s" / "train.txt.gz"
        if packed.is_file():
            target = work / "codex-s.tsv"
            target.write_bytes(gzip.decompress(packed.read_bytes()))
            return target
    raise SystemExit("codex-s is not here; name a FILE, with --head and --relation.")


def _session(facts: Path, arguments: argparse.Namespace) -> list[list[str]]:
    question = ["--head", arguments.head, "--relation", arguments.relation]
    asked = ["ask", str(facts), *question, "--all", "-k", "3"]
    answer = json.loads(_output([*asked, "--json"]))["answers"][0]["entity"]
    session = [asked, ["explain", str(facts), *question, "--tail", answer], [*asked, "--explain"]]
    session.append(
        ["check", str(facts), "--head", arguments.head, "--relation", arguments.relation, "--tail", answer]
    )
    session.append(["complete", str(facts), "-o", "links.parquet", "--max-questions", "500"])
    if arguments.minutes:
        session.append(["train", str(facts), "--minutes", str(arguments.minutes), "-o", "run", "--overwrite"])
        session.append([*asked, "--run", "run"])
    return session


def _output(command: list[str]) -> str:
    return subprocess.run(
        [sys.executable, "-m", "contextpool", *command], capture_output=True, text=True, check=True
    ).stdout


def _timed(command: list[str], work: Path, environment: dict[str, str]) -> Measured:
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    ran = subprocess.run(
        [sys.executable, "-m", "contextpool", *command],
        capture_output=True,
        text=True,
        cwd=work,
        env=environment,
        check=False,
    )
    seconds, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    lines = (ran.stdout or ran.stderr).strip().splitlines() or [""]
    shown = next((line for line in lines if "│ 1 │" in line or "%  " in line), lines[-1]).strip()
    return Measured(shlex.join(["contextpool", *command]), seconds, used, ran.returncode, shown)


if __name__ == "__main__":
    main()
