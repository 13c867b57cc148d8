"""The pages that no other test runs as a whole: options of their commands exist, and in `make soak` every block runs.

Commands stand in blocks without a language there, with remarks after two spaces. What they talk about is made
beforehand, small: a run on `world`, graphs of its facts, a recipe.
"""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import contextpool as cp
from command_line import run
from conftest import REPOSITORY
from contextpool.graph.graph import Graph
from contextpool.triples.catalog import load_dataset
from docs.snippets import Block, blocks, run_command
from learning_worlds import one_thread as one_thread
from support import benchmark_folder
from world_model import world_run as world_run

PAGES = ("lab/case-study", "explain", "ask", "scale", "serve")
NOT_RUN = {
    "--engine ray": "starts Ray, or asks a cluster; tests/evaluate/test_workers.py",
    "--engine spark": "needs Java and a cluster; tests/context/mining",
    "check mine.tsv --top 20": "asks every fact of the graph; tests/cli/test_check.py",
}
ARGUMENTS = {"H": "Belarus", "R": "currency", "T": "Euro", "4": "2"}
"""What stands for something of the reader's, and fewer processes."""
CODE = {
    'head="..."': 'head="Belarus"',
    'relation="..."': 'relation="currency"',
    '"grail/nell_v1"': '"world", settings={"dim": 4, "layers": 1}, train={"epochs": 1}, overwrite=True',
    '"out", hub': '"out-again", hub',
}
RECIPE = """dataset = "world"
[model]
name = "nbfnet"
dim = 4
layers = 1
[train]
epochs = 1
"""


def page_of(name: str) -> Path:
    return REPOSITORY / "docs" / f"{name}.md"


def commands(block: Block) -> Iterator[list[str]]:
    """The arguments of each command of a block without a language; what follows two spaces is a remark."""
    for line in block.code.replace("\\\n", " ").splitlines():
        if line.startswith("contextpool ") and block.language == "":
            yield shlex.split(re.split(r" {2,}", line)[0], comments=True)[1:]


@pytest.mark.parametrize("name", PAGES)
def test_commands_and_options_exist(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for arguments in (command for block in blocks(page_of(name)) for command in commands(block)):
        verb = arguments[: 2 if arguments[0] == "data" else 1]
        known = run([*verb, "--help"], capsys, monkeypatch)
        assert known.code == 0, verb
        for option in (word for word in arguments if word.startswith("-")):
            assert re.search(rf"(^|[\s/,]){re.escape(option)}\b", known.out), (verb, option)


def stage(folder: Path, world_run: Path) -> None:
    """Everything that the pages' commands take as given."""
    data = load_dataset("world")
    lines = ["\t".join(fact) + "\n" for fact in Graph.from_triples(data.inference_graph).triples]
    for name in ("mine.tsv", "triples.tsv", "more.tsv"):
        (folder / name).write_text("".join(lines), "utf-8")
    (folder / "gone.tsv").write_text("".join(lines[:10]), "utf-8")
    (folder / "claims.tsv").write_text("".join(lines[:2]), "utf-8")
    (folder / "new.tsv").write_text("".join("new " + line for line in lines[:10]), "utf-8")
    (folder / "questions.tsv").write_text("Belarus\tcurrency\n", "utf-8")
    (folder / "some.txt").write_text("".join(f"{line.partition(chr(9))[0]}\n" for line in lines), "utf-8")
    (folder / "names.tsv").write_text("Belarus\tRepublic of Belarus\n", "utf-8")
    (folder / "recipe.toml").write_text(RECIPE, "utf-8")
    (folder / "token").write_text("a-token-of-some-length\n", "utf-8")
    _tables(folder, [line.strip("\n").split("\t") for line in lines])
    for name in ("demo", "x", "a", "b"):
        shutil.copytree(world_run, folder / "runs" / name)


def _tables(folder: Path, facts: list[list[str]]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    from contextpool.triples.files import write_triples

    columns = {
        name: [fact[place] for fact in facts] for place, name in enumerate(("head", "relation", "tail"))
    }
    pq.write_table(pa.table(columns), folder / "triples.parquet")
    write_triples(folder / "more.tsv.zst", [tuple(fact) for fact in facts])


@pytest.mark.soak
@pytest.mark.parametrize("name", PAGES)
def test_every_block_runs(
    name: str, world_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name == "lab/case-study":
        benchmark_folder()
    stage(tmp_path, world_run)
    monkeypatch.chdir(tmp_path)
    served = _without_serving(monkeypatch)
    names: dict[str, Any] = {"__name__": name, "cp": cp, "predictor": cp.load(world_run)}
    for block in blocks(page_of(name)):
        if block.language == "python":
            exec(compile(_replaced(block.code), f"{name}.md:{block.line}", "exec"), names)
        for arguments in commands(block):
            if not any(word in shlex.join(arguments) for word in NOT_RUN):
                small = [ARGUMENTS.get(word, word) for word in arguments]
                run_command(small, f"{name}.md:{block.line}", monkeypatch)
    assert len(served) == (3 if name == "serve" else 0)


def _replaced(code: str) -> str:
    for word, other in CODE.items():
        code = code.replace(word, other)
    return code


def _without_serving(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """`serve` loads its models and graphs, and then stops."""
    pytest.importorskip("fastapi", reason="the serve extra is not installed")
    from contextpool.serve import server

    served: list[Any] = []
    monkeypatch.setattr(server, "serve", lambda registry, settings, say: served.append(registry))
    return served


def test_pages_that_need_more_say_what() -> None:
    text = "".join(page_of(name).read_text("utf-8") for name in PAGES)
    assert all(word in text for word in NOT_RUN)
