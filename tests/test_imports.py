"""No package of the product imports what another keeps to itself: modules and names that begin with an underscore."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import contextpool

ROOT = Path(contextpool.__file__).parent


def imported(tree: ast.AST) -> Iterator[str]:
    """Every absolute name that a module imports, wherever in it: `contextpool.x.y` and `contextpool.x.y.name`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def is_private(part: str) -> bool:
    return part.startswith("_") and not part.endswith("__")


def private_imports() -> set[tuple[str, str]]:
    """Imports of something private from another top-level package than the file's own."""
    found = set()
    for path in sorted(ROOT.rglob("*.py")):
        inside = path.relative_to(ROOT).parts
        home = inside[0].removesuffix(".py") if len(inside) == 1 else inside[0]
        for name in imported(ast.parse(path.read_text("utf-8"))):
            parts = name.split(".")
            if parts[0] != "contextpool" or len(parts) < 3 or parts[1] == home:
                continue
            if any(is_private(part) for part in parts[2:]):
                found.add(("/".join(inside), ".".join(parts[:3])))
    return found


def test_nothing_private_is_imported_from_another_package() -> None:
    assert private_imports() == set()


def test_the_check_sees_private_modules_and_names() -> None:
    text = "from contextpool.pool._rows import rows\nimport contextpool.pool._x\nfrom contextpool.pool.a import _b, c"
    names = list(imported(ast.parse(text)))
    assert names == [
        "contextpool.pool._rows.rows", "contextpool.pool._x", "contextpool.pool.a._b", "contextpool.pool.a.c",
    ]  # fmt: skip
    assert [any(map(is_private, name.split("."))) for name in names] == [True, True, True, False]


def test_the_way_to_an_answer_imports_nothing_slow_that_it_does_not_need(tmp_path: Path) -> None:
    """Each of these takes a tenth of a second or more, of an answer that takes two and a half."""
    (tmp_path / "graph.tsv").write_text("a\tr\tb\nb\tr\tc\nc\ts\ta\n")
    code = """
import sys
from contextpool.__main__ import main
try:
    main()
except SystemExit as end:
    assert not end.code
print([name for name in ("pandas", "scipy.optimize", "scipy.sparse", "networkx", "fastapi") if name in sys.modules])
"""
    command = [sys.executable, "-c", code, "ask", str(tmp_path / "graph.tsv"), "--head", "a", "-r", "s"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "[]"
