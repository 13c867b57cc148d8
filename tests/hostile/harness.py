"""Commands of contextpool on hostile input, each in a forked child of a process that has imported everything.

`fork_server().run(["mine", file], target=folder)` gives an `Outcome`: exit code or signal, output, processor time,
memory at most, and whatever it did to files outside the target or to the network. `problem_of(outcome)` is empty
for what is allowed: exit code 0 with the same answer, or one clear error; below 1 GB and 10 s; no file outside.
`Tally` counts the outcomes of many mutants and names those that fail by their seed.
"""

from __future__ import annotations

import atexit
import functools
import gc
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

MOST_MEMORY = 10**9
MOST_SECONDS = 10.0
"""Of processor time; a child that waits is given six times as much by the clock, since tests share a machine."""
WAITING = 6
ADDRESS_SPACE = 4 * 10**9
"""Beyond what the imports take: keeps the machine safe from what `MOST_MEMORY` finds too late."""
MOST_OUTPUT = 1 << 20
ACTIONS = (
    "os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.link", "os.symlink", "os.truncate", "os.chmod", "shutil.",
)  # fmt: skip
NEVER = (
    "os.exec", "os.posix_spawn", "os.system", "subprocess.", "socket.connect", "socket.bind", "socket.getaddrinfo",
    "pickle.find_class",
)  # fmt: skip

OUR_COMMANDS = ("uname", "git", "fc-list")
"""What machine, what commit, what fonts."""


@dataclass(frozen=True)
class Outcome:
    """How a command ended."""

    code: int
    """Its exit code; minus the signal's number where one ended it."""
    out: str
    err: str
    seconds: float
    """Of processor time."""
    memory: int
    """Bytes resident at the most, those of the imports included."""
    killed: str = ""
    """Why the harness ended it; empty where it ended by itself."""
    outside: tuple[str, ...] = ()
    """What it wrote, removed, ran or asked for outside its target."""


def problem_of(outcome: Outcome, expected: str | None = None) -> str:
    """What is not allowed about an outcome, in a line; empty where all is well.

    With `expected`, a command that succeeds has to print exactly that; without, anything.
    """
    if outcome.killed:
        return outcome.killed
    if outcome.code < 0:
        return f"crash: {signal.Signals(-outcome.code).name}"
    if outcome.outside:
        return f"outside: {outcome.outside[0]}"
    if "Traceback" in outcome.err or outcome.code not in (0, 1, 2):
        return f"traceback: {last_line(outcome.err)}"
    if outcome.code == 0:
        return "silent difference" if expected is not None and outcome.out != expected else ""
    return (
        "" if outcome.err.count("contextpool: error: ") == 1 else f"no clear error: {last_line(outcome.err)}"
    )


def last_line(text: str) -> str:
    return (text.strip().splitlines() or ["nothing"])[-1][:300]


@dataclass
class Tally:
    """Outcomes of many mutants, counted; those that fail are named by what made them."""

    what: str
    outcomes: Counter[str] = field(default_factory=Counter)
    problems: dict[str, str] = field(default_factory=dict)
    most_memory: int = 0
    most_seconds: float = 0.0

    def add(self, mutant: str, outcome: Outcome, expected: str | None = None) -> None:
        """Count it; `mutant` is how to make it again."""
        problem = problem_of(outcome, expected)
        kind = "same answer" if outcome.code == 0 else "refused"
        self.outcomes[problem.partition(":")[0] or kind] += 1
        if problem:
            self.problems[mutant] = problem
        self.most_memory = max(self.most_memory, outcome.memory)
        self.most_seconds = max(self.most_seconds, outcome.seconds)

    def check(self) -> None:
        """Print the numbers (`pytest -s` shows them), and fail where there is a problem."""
        counted = ", ".join(f"{count:,} {kind}" for kind, count in self.outcomes.most_common())
        for mutant, problem in self.problems.items():
            print(f"\n  {mutant}: {problem}", end="")
        print(
            f"\n{self.what}: {self.outcomes.total():,} mutants: {counted}; at most "
            f"{self.most_memory / 1e6:,.0f} MB and {self.most_seconds:.1f} s"
        )
        shown = "\n".join(f"  {mutant}: {problem}" for mutant, problem in list(self.problems.items())[:20])
        assert not self.problems, f"{self.what}: {len(self.problems)} mutants\n{shown}"


class ForkServer:
    """The process that forks. One for all tests of a process: `fork_server()`."""

    def __init__(self) -> None:
        alone = {"OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1", "NUMBA_THREADING_LAYER": "workqueue"}
        environment = {**os.environ, **alone, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        self._process = subprocess.Popen(
            [sys.executable, "-P", __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )

    def run(
        self,
        arguments: Sequence[str | Path],
        *,
        target: str | Path | Sequence[str | Path] = (),
        cwd: str | Path | None = None,
        environment: dict[str, str] | None = None,
    ) -> Outcome:
        """Run `contextpool ARGUMENTS`; only below `target` (one or several) may it leave anything."""
        return self._asked({"arguments": [str(one) for one in arguments]}, target, cwd, environment)

    def run_python(
        self, code: str, *, target: str | Path | Sequence[str | Path] = (), seconds: float = MOST_SECONDS
    ) -> Outcome:
        """Run Python instead, its errors handled as the command line would: for `cp`, and for controls."""
        return self._asked({"python": code, "seconds": seconds}, target, None, None)

    def _asked(
        self,
        what: dict[str, Any],
        target: str | Path | Sequence[str | Path],
        cwd: str | Path | None,
        environment: dict[str, str] | None,
    ) -> Outcome:
        targets = [target] if isinstance(target, str | Path) else list(target)
        case = what | {
            "targets": [str(Path(one).absolute()) for one in targets],
            "cwd": None if cwd is None else str(cwd),
            "environment": environment or {},
        }
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(case) + "\n")
        self._process.stdin.flush()
        found = json.loads(self._process.stdout.readline())
        return Outcome(**{**found, "outside": tuple(found["outside"])})

    def close(self) -> None:
        self._process.communicate()


@functools.cache
def fork_server() -> ForkServer:
    started = ForkServer()
    atexit.register(started.close)
    return started


# the process that forks


def _serve() -> None:
    """Import everything that a command may need, then a child for each line of standard input."""
    _import_all()
    _compile_all()
    gc.collect()
    gc.freeze()  # so that a child's collector does not touch, and copy, what all share
    with tempfile.TemporaryDirectory(prefix="hostile-") as scratch:
        os.environ |= {"TMPDIR": f"{scratch}/tmp", "MPLCONFIGDIR": f"{scratch}/tmp/matplotlib"}
        tempfile.tempdir = f"{scratch}/tmp"
        Path(tempfile.tempdir).mkdir()
        for line in sys.stdin:
            print(json.dumps(_forked(json.loads(line), Path(scratch))), flush=True)
    os._exit(0)  # without the remarks that some extensions make when they are unloaded


def _import_all() -> None:
    import contextlib
    import importlib

    import torch

    torch.set_num_threads(1)
    for name in (
        "duckdb", "pyoxigraph", "pyarrow.parquet", "pyarrow.feather", "rich.progress", "rich.table",
        "contextpool.cli.app", "contextpool.experiment", "contextpool.interop.export", "contextpool.graph.mapped",
        "contextpool.kernels.cpu", "contextpool.models.nbfnet", "contextpool.models.redgnn", "contextpool.serve.server",
        "contextpool.triples.fetch",
    ):  # fmt: skip
        with contextlib.suppress(ImportError):
            importlib.import_module(name)


def _compile_all() -> None:
    """One answer of each kind of model, so that a child finds the compiled loops in memory."""
    import contextpool as cp

    graph = cp.Graph.from_triples(cp.load_dataset("world").inference_graph)
    head, relation, _ = next(iter(graph.triples))
    for run in ("nbfnet_context", "redgnn_context"):
        cp.load(Path(__file__).parents[1] / "golden" / run).predict(graph, head, relation)


def _forked(case: dict[str, Any], scratch: Path) -> dict[str, Any]:
    out, err, told = (scratch / name for name in ("out", "err", "told"))
    told.unlink(missing_ok=True)
    pid = os.fork()
    if pid == 0:
        _be_child(case, out, err, told)
    status, usage, killed = _watched(pid, case.get("seconds", MOST_SECONDS))
    code = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
    outside = json.loads(told.read_text()) if told.exists() else []
    return {
        "code": code,
        "out": _text(out),
        "err": _text(err),
        "seconds": usage.ru_utime + usage.ru_stime,
        "memory": usage.ru_maxrss * 1024,
        "killed": killed or ("memory" if usage.ru_maxrss * 1024 > MOST_MEMORY else ""),
        "outside": outside,
    }


def _text(path: Path) -> str:
    with path.open("rb") as stream:
        return stream.read(MOST_OUTPUT).decode("utf-8", "replace")


def _watched(pid: int, most_seconds: float) -> tuple[int, Any, str]:
    """Wait for the child; end it where it takes too much. Returns status, usage, and why it was ended."""
    began, pause, killed = time.monotonic(), 0.001, ""
    while True:
        found, status, usage = os.wait4(pid, os.WNOHANG)
        if found:
            return status, usage, killed
        if not killed:
            killed = _excess(pid, time.monotonic() - began, most_seconds)
            if killed:
                os.kill(pid, signal.SIGKILL)
        time.sleep(pause)
        pause = min(0.02, 1.5 * pause)


def _excess(pid: int, waited: float, most_seconds: float) -> str:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        resident = int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize()
    except (OSError, IndexError):
        return ""
    used = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    if resident > MOST_MEMORY:
        return f"memory: {resident / 1e6:,.0f} MB"
    if used > most_seconds or waited > WAITING * most_seconds:
        return f"hang: {used:.1f} s of work in {waited:.1f} s"
    return ""


def _be_child(case: dict[str, Any], out: Path, err: Path, told: Path) -> NoReturn:
    code = 70
    try:
        _redirect(out, err)
        os.environ.update(case["environment"])
        os.chdir(case["cwd"] or told.parent)
        _limit()
        seen = _watch_actions(case["targets"])
        code = _command(case.get("arguments", []), case.get("python"))
        sys.stdout.flush()
        sys.stderr.flush()
        if seen:
            found = list(seen)
            told.write_text(json.dumps(found))
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(code)


def _redirect(out: Path, err: Path) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    for path, number in ((out, 1), (err, 2)):
        os.dup2(os.open(path, flags, 0o644), number)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)


def _limit() -> None:
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize() + ADDRESS_SPACE
    resource.setrlimit(resource.RLIMIT_AS, (size, size))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (2 * MOST_MEMORY, 2 * MOST_MEMORY))


def _watch_actions(targets: list[str]) -> list[str]:
    """A list that grows with whatever is done outside the targets. What compiled code does is not seen here."""
    seen: list[str] = []
    cache = os.environ.get("CONTEXTPOOL_HOME", tempfile.gettempdir())
    own = (*targets, cache, tempfile.gettempdir(), os.devnull, "/dev/shm/", "/dev/tty")

    def is_own(path: object) -> bool:
        text = os.fsdecode(path) if isinstance(path, str | bytes | os.PathLike) else ""
        absolute = os.path.abspath(text)  # noqa: PTH100 - resolve() would itself be seen
        return not text or absolute.startswith(own) or "__pycache__" in absolute

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event.startswith(NEVER):
            is_ours = event == "subprocess.Popen" and arguments[0] in OUR_COMMANDS
            if not is_ours and not (event == "pickle.find_class" and _is_numba_cache()):
                seen.append(f"{event} {arguments!r:.200}")
        elif event == "open":
            path, _, flags = arguments
            writes = isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC)
            if writes and not isinstance(path, int) and not is_own(path):
                seen.append(f"open {path!r:.200}")
        elif event.startswith(ACTIONS) and not all(map(is_own, _paths_of(arguments))):
            seen.append(f"{event} {arguments!r:.200}")

    sys.addaudithook(hook)
    return seen


def _paths_of(arguments: tuple[Any, ...]) -> list[Any]:
    """The one or two paths of an action; one that is relative to an open folder (the last argument) as a whole."""
    paths = [one for one in arguments[:2] if isinstance(one, str | bytes | os.PathLike)]
    folder = arguments[-1]
    if isinstance(folder, int) and folder >= 0 and Path(f"/proc/self/fd/{folder}").exists():
        return [f"{os.readlink(f'/proc/self/fd/{folder}')}/{os.fsdecode(one)}" for one in paths]  # noqa: PTH115
    return paths


def _is_numba_cache() -> bool:
    """Whether numba is who unpickles: what it compiled for this package, or what its compiled code holds."""
    frame: Any = sys._getframe()
    while frame is not None:
        if frame.f_globals.get("__name__") in ("numba.core.caching", "numba.core.serialize"):
            return True
        frame = frame.f_back
    return False


def _command(arguments: list[str], python: str | None) -> int:
    from contextpool.__main__ import main, run_app

    sys.argv = ["contextpool", *arguments]
    try:
        if python is None:
            main()
        else:
            run_app(lambda: exec(python, {"__name__": "hostile"}))
    except SystemExit as left:
        return left.code if isinstance(left.code, int) else 0 if left.code is None else 1
    return 0


if __name__ == "__main__":
    _serve()
