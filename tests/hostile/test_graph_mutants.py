"""Mutants of mapped graphs: the same answer or one clear error, also where a forger has made the checksums right."""

from __future__ import annotations

import hashlib
import json
import random
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

import contextpool as cp
from contextpool.context.map_graph import map_graph
from contextpool.graph.mapped import ARRAYS, DESCRIPTION, checksum, open_graph
from golden.make import HERE as GOLDEN
from hostile.harness import Outcome, Tally, fork_server
from hostile.mutants import mutated_bytes, mutated_json
from support import amount

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="limits and /proc as on Linux")
SHARDS = 8
FOUND = (322, 431, 470, 639)
"""Seeds of mutants that were a traceback: inverses of edges that lie in their range and lead elsewhere."""


@pytest.fixture(scope="module")
def mapped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mapped")
    facts = cp.Graph.from_triples(cp.load_dataset("world").inference_graph).triples
    rows = [row for row in facts if "Aalborg" in row or "Denmark" in row][:150]
    (folder / "facts.tsv").write_text("".join("\t".join(row) + "\n" for row in rows), "utf-8")
    map_graph([folder / "facts.tsv"], folder / "graph")
    return folder / "graph"


def sign(folder: Path) -> None:
    """As a forger would: every checksum is right again."""
    path = folder / DESCRIPTION
    try:
        content = json.loads(path.read_text("utf-8"))
        for name in ARRAYS:
            content["files"][name] = hashlib.sha256((folder / f"{name}.npy").read_bytes()).hexdigest()
        content["checksum"] = checksum(content)
    except (ValueError, TypeError, KeyError, AttributeError):
        return  # what cannot be signed stays as it is
    path.write_text(json.dumps(content), "utf-8")


def change(folder: Path, rng: random.Random) -> str:
    what = rng.choice(("bytes", "bytes", "bytes", "description", "number", "swap"))
    file = folder / f"{rng.choice(ARRAYS)}.npy"
    if what == "bytes":
        file = rng.choice((file, file, file, folder / DESCRIPTION))
        file.write_bytes(mutated_bytes(file.read_bytes(), rng))
    elif what == "description":
        content = json.loads((folder / DESCRIPTION).read_text("utf-8"))
        (folder / DESCRIPTION).write_text(json.dumps(mutated_json(content, rng)), "utf-8")
    elif what == "number":
        array = np.load(file)
        array.flat[rng.randrange(array.size)] = rng.choice(
            (0, 1, 2, 7, np.iinfo(array.dtype).min, np.iinfo(array.dtype).max)
        )
        np.save(file, array)
    else:
        shutil.copyfile(folder / f"{rng.choice(ARRAYS)}.npy", file.with_suffix(".copy"))
        file.with_suffix(".copy").replace(file)
    return f"{what} {file.name}"


@pytest.mark.parametrize("shard", range(SHARDS if amount(0, 1) else 1))
def test_mutants_of_a_mapped_graph_answer_the_same_or_are_refused(
    shard: int, mapped: Path, tmp_path: Path
) -> None:
    tally, many = Tally(f"mapped graphs, shard {shard}"), amount(40, 2000) // (SHARDS if amount(0, 1) else 1)
    folder = tmp_path / "graph"
    ask = [
        "ask",
        folder,
        "--head",
        "Aalborg",
        "--relation",
        "near",
        "--json",
        "--known",
        "--run",
        GOLDEN / "nbfnet",
    ]
    (tmp_path / "home").mkdir()

    def asked() -> Outcome:
        home = {"CONTEXTPOOL_HOME": str(tmp_path / "home")}  # where a check is remembered
        return fork_server().run(ask, target=tmp_path / "home", cwd=tmp_path, environment=home)

    shutil.copytree(mapped, folder)
    expected = asked()
    assert expected.code == 0, expected.err
    for seed in (*FOUND, *range(shard * many, (shard + 1) * many)):
        rng = random.Random(f"graph {seed}")
        shutil.rmtree(folder)
        shutil.copytree(mapped, folder)
        changed, forged = change(folder, rng), rng.random() < 0.4
        if forged:
            sign(folder)
        tally.add(f"{seed} {changed}{' signed' * forged}", asked(), None if forged else expected.out)
    tally.check()


def test_a_folder_is_checked_once_and_again_when_it_changes(
    mapped: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONTEXTPOOL_HOME", str(tmp_path / "home"))
    shutil.copytree(mapped, tmp_path / "graph")
    calls: list[Path] = []
    from contextpool.graph import mapped as module

    real = module._check

    def counted(folder: Path, *given: object) -> None:
        calls.append(folder)
        real(folder, *given)

    monkeypatch.setattr(module, "_check", counted)
    open_graph(tmp_path / "graph")
    open_graph(tmp_path / "graph")
    assert len(calls) == 1
    array = np.load(tmp_path / "graph" / "edge_tail.npy")
    array[0] = 2**31 - 1
    np.save(tmp_path / "graph" / "edge_tail.npy", array)
    with pytest.raises(module.DataError, match=r"edge_tail\.npy: a number is out of its range"):
        open_graph(tmp_path / "graph")
    assert len(calls) == 2
