"""How large the house is: lines, files, settings, words, and what the three ways that matter touch.

    python scripts/house.py [REPOSITORY]        a table, in Markdown

The three ways are traced while they run: a line of a TSV file to a gradient, `predict` to a table, an HTTP request to
JSON. A module counts as touched where one of its functions is called on the way; what is imported only does not.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import io
import json
import os
import signal
import socket
import sys
import tempfile
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

HERE = Path(__file__).resolve().parents[1]
TRAIN = {"epochs": 1, "batch_size": 64, "lr": 0.01}
SETTINGS = {"dim": 8, "layers": 3}
HEAD, RELATION = "Austria", "currency"


def sources(root: Path) -> list[Path]:
    """The Python files of the product."""
    return sorted((root / "src").rglob("*.py"))


def lines_of(files: list[Path]) -> int:
    return sum(len(file.read_text("utf-8").splitlines()) for file in files)


def module_name(root: Path, file: Path) -> str:
    parts = file.relative_to(root / "src").with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported_names(tree: ast.AST) -> Iterator[str]:
    """Every dotted name that is imported, `from a import b` as a.b too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def modules_with_one_importer(root: Path) -> int:
    """Modules that exactly one other module of the product imports; the root package's lazy table counts as none."""
    modules = {module_name(root, file): file for file in sources(root)}
    importers: Counter[str] = Counter()
    for name, file in modules.items():
        if name != "contextpool":
            found = set(imported_names(ast.parse(file.read_text("utf-8")))) & set(modules)
            importers.update(found - {name})
    return sum(1 for name, file in modules.items() if file.name != "__init__.py" and importers[name] == 1)


def config_fields(root: Path) -> int:
    """Annotated fields of the classes named ...Config, ...Settings or ...Limits."""
    return sum(
        isinstance(statement, ast.AnnAssign) and "ClassVar" not in ast.unparse(statement.annotation)
        for file in sources(root)
        for node in ast.walk(ast.parse(file.read_text("utf-8")))
        if isinstance(node, ast.ClassDef) and node.name.endswith(("Config", "Settings", "Limits", "Recipe"))
        for statement in node.body
    )


def words_of(pages: Iterable[Path]) -> int:
    return sum(len(page.read_text("utf-8").split()) for page in pages)


class Trace:
    """Which functions of the product are called while it is on, in any thread."""

    def __init__(self, root: Path) -> None:
        self.prefix = str(root / "src")
        self.called: set[CodeType] = set()
        self.on = False

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        """A profile function, see sys.setprofile."""
        if self.on and event == "call" and frame.f_code.co_filename.startswith(self.prefix):
            self.called.add(frame.f_code)

    @contextlib.contextmanager
    def during(self) -> Iterator[None]:
        self.on = True
        try:
            yield
        finally:
            self.on = False

    @property
    def modules(self) -> set[str]:
        return {code.co_filename for code in self.called}

    @property
    def functions(self) -> set[tuple[str, int]]:
        return {(code.co_filename, code.co_firstlineno) for code in self.called}


def command(*words: str) -> None:
    """`contextpool ...`, in this process."""
    from contextpool.__main__ import main

    sys.argv = ["contextpool", *words]
    with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
        main()


def tsv_to_gradient(trace: Trace, folder: Path) -> None:
    """Read a file of triples, split it, train for an epoch with context."""
    import contextpool as cp

    with trace.during():
        dataset = cp.split(cp.read_graph(folder / "facts.tsv"), inductive=True, seed=0)
        cp.train(dataset, "nbfnet", context=True, settings=SETTINGS, train=TRAIN)


def predict_to_table(trace: Trace, folder: Path) -> None:
    with trace.during():
        command(
            "ask",
            str(folder / "new.tsv"),
            "--run",
            str(folder / "run"),
            "--head",
            HEAD,
            "--relation",
            RELATION,
        )


def request_to_json(trace: Trace, folder: Path) -> None:
    """One POST /predict of a server in this process; starting and stopping it is not traced."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    asking = threading.Thread(target=_ask_over_http, args=(trace, port))
    asking.start()
    command("serve", str(folder / "new.tsv"), "--run", str(folder / "run"), "--port", str(port))
    asking.join()


def _ask_over_http(trace: Trace, port: int) -> None:
    address = f"http://127.0.0.1:{port}"
    for _ in range(600):
        with contextlib.suppress(OSError), urllib.request.urlopen(f"{address}/health", timeout=1):
            break
        time.sleep(0.1)
    body = json.dumps({"head": HEAD, "relation": RELATION, "k": 3}).encode()
    request = urllib.request.Request(f"{address}/predict", body, {"content-type": "application/json"})
    try:
        with trace.during(), urllib.request.urlopen(request, timeout=60) as reply:
            assert json.load(reply)["answers"]
    finally:
        os.kill(os.getpid(), signal.SIGINT)


WAYS: dict[str, Callable[[Trace, Path], None]] = {
    "a TSV line to a gradient": tsv_to_gradient,
    "`predict` to a table": predict_to_table,
    "an HTTP request to JSON": request_to_json,
}


def prepare(folder: Path) -> None:
    """Two files of triples and a trained run."""
    import contextpool as cp

    dataset = cp.load_dataset("world")
    for name, facts in (("facts.tsv", dataset.training_graph), ("new.tsv", dataset.inference_graph)):
        (folder / name).write_text("".join("\t".join(fact) + "\n" for fact in facts), encoding="utf-8")
    cp.train(dataset, "nbfnet", context=True, settings=SETTINGS, train=TRAIN, output=folder / "run")


def traced(root: Path, way: Callable[[Trace, Path], None], folder: Path) -> Trace:
    trace = Trace(root)
    threading.setprofile(trace)
    sys.setprofile(trace)
    try:
        way(trace, folder)
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return trace


def counts(root: Path) -> Iterator[tuple[str, str]]:
    """What is counted in files alone."""
    files = sources(root)
    lab = sorted((root / "lab").rglob("*.py"))
    recipes = len(list((root / "src").rglob("*.toml")))
    yield "lines of Python under `src`", f"{lines_of(files):,}"
    yield "files of Python under `src`", f"{len(files):,}"
    yield "lines (files) of Python under `lab`", f"{lines_of(lab):,} ({len(lab)})"
    yield "modules with exactly one importer", f"{modules_with_one_importer(root):,}"
    yield "config fields", f"{config_fields(root):,}"
    yield "recipe files in the product", f"{recipes:,}"
    docs = root / "docs"
    yield (
        "words of README and the guide (`docs/*.md`)",
        f"{words_of([root / 'README.md', *docs.glob('*.md')]):,}",
    )
    yield "words of lab notes and decisions", f"{words_of(docs.glob('*/*.md')):,}"


def ways(root: Path) -> Iterator[tuple[str, str]]:
    """What the three ways touch, one by one and together."""
    sys.path.insert(0, str(root / "src"))
    together = Trace(root)
    with tempfile.TemporaryDirectory() as name:
        prepare(Path(name))
        for told, way in WAYS.items():
            trace = traced(root, way, Path(name))
            together.called |= trace.called
            yield told, _touched(trace)
    yield "all three", _touched(together)


def _touched(trace: Trace) -> str:
    lines = lines_of([Path(file) for file in sorted(trace.modules)])
    return f"{len(trace.modules)} modules of {lines:,} lines, {len(trace.functions)} functions"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("repository", type=Path, nargs="?", default=HERE)
    root = parser.parse_args().repository.resolve()
    print(f"| what | {root.name} |\n|---|---|")
    for what, figure in [*counts(root), *ways(root)]:
        print(f"| {what} | {figure} |", flush=True)


if __name__ == "__main__":
    main()
