"""A run folder from a stranger names nothing that is opened: no query, no server, no path, whatever the verb."""

from __future__ import annotations

import json
import shutil
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from command_line import Ran, run
from contextpool.train.run_folder import RunFolder
from golden.make import HERE as GOLDEN
from lab_small import family_folder

SMALL = ("train.epochs=1", "train.batch_size=512", "model.dim=4", "model.layers=2")
TINY = [word for one in SMALL for word in ("--set", one)]


@pytest.fixture
def cli(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: run([str(one) for one in arguments], capsys, monkeypatch)


@pytest.fixture
def listener() -> Iterator[tuple[int, list[bytes]]]:
    """A server that a run might choose: its port, and the first bytes of whoever came."""
    came: list[bytes] = []

    def accept() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            came.append(connection.recv(4096))
            connection.close()

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=accept, daemon=True).start()
        yield server.getsockname()[1], came
        server.shutdown(socket.SHUT_RDWR)


def foreign_run(folder: Path, dataset: str) -> Path:
    """A run that says that it was trained on this."""
    shutil.copytree(GOLDEN / "nbfnet", folder / "foreign")
    content = json.loads((folder / "foreign" / "config.json").read_text())
    content["config"]["recipe"]["dataset"] = dataset
    (folder / "foreign" / "config.json").write_text(json.dumps(content))
    return folder / "foreign"


def every_verb(cli: Any, folder: Path) -> list[Ran]:
    return [
        cli("evaluate", "--run", folder),
        cli("resume", folder),
        cli("export", folder, "exported"),
    ]


def test_a_run_does_not_run_a_query(cli: Any, tmp_path: Path) -> None:
    pytest.importorskip("duckdb", reason="the sql extra is not installed")
    copy = f"COPY (SELECT 'import os' AS a) TO '{tmp_path / 'written.py'}' (HEADER false)"
    folder = foreign_run(tmp_path, f"duckdb:?query=WITH x AS ({copy}) SELECT 'a', 'b', 'c' FROM x")
    evaluated, resumed, exported = every_verb(cli, folder)
    for ran in (evaluated, resumed):
        assert ran.code == 2
        assert 'was trained on "duckdb:?query=WITH' in ran.err
        assert "Give the dataset" in ran.err
    assert exported.code == 0
    assert "was not given (--dataset)" in (tmp_path / "exported" / "README.md").read_text()
    assert not (tmp_path / "written.py").exists()


@pytest.mark.parametrize("scheme", ["bolt", "neo4j", "postgresql", "https", "http"])
def test_no_server_that_a_run_names_is_asked_or_told_a_password(
    scheme: str, cli: Any, tmp_path: Path, listener: tuple[int, list[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NEO4J_PASSWORD", "open sesame")
    monkeypatch.setenv("PGPASSWORD", "open sesame")
    port, came = listener
    query = "MATCH (a)-[r]->(b) RETURN a.name, type(r), b.name"
    folder = foreign_run(tmp_path, f"{scheme}://me@127.0.0.1:{port}/facts?query={query}")
    evaluated, resumed, exported = every_verb(cli, folder)
    assert [evaluated.code, resumed.code, exported.code] == [2, 2, 0]
    assert came == []


def test_no_path_that_a_run_names_is_opened(cli: Any, tmp_path: Path) -> None:
    data = family_folder(tmp_path)
    folder = foreign_run(tmp_path, data)
    evaluated, resumed, exported = every_verb(cli, folder)
    assert [evaluated.code, resumed.code, exported.code] == [2, 2, 0]
    assert f"contextpool resume {folder} DATASET" in resumed.err


def test_the_user_names_the_dataset_and_its_facts_are_compared(cli: Any, tmp_path: Path) -> None:
    data = family_folder(tmp_path)
    assert cli("train", data, *TINY, "-o", "run").code == 0
    stored = RunFolder.open("run").config["recipe"]["dataset"]
    assert stored == Path(data).name  # what it is called, not where it is
    assert str(tmp_path) not in (tmp_path / "run" / "config.json").read_text()
    assert cli("resume", "run").code == 2
    assert cli("resume", "run", data).code == 0
    assert cli("evaluate", data, "--run", "run").code == 0
    assert cli("export", "run", "exported", "--dataset", data).code == 0
    assert json.loads((tmp_path / "exported" / "evaluation.json").read_text())["metrics"]["num_queries"] > 0
    assert cli("train", data, *TINY, "--seed", "1", "-o", "other").code == 0
    for kind in ("last", "best"):
        shutil.copyfile(f"other/checkpoints/{kind}.safetensors", f"run/checkpoints/{kind}.safetensors")
    swapped = cli("resume", "run", data)
    assert (swapped.code, "checkpoint is another run's" in swapped.err) == (2, True)
    other = cli("resume", "run", "world")
    assert other.code == 2
    assert "does not hold the facts that this run was begun on" in other.err


def test_a_run_on_a_query_says_what_the_database_is_called(cli: Any, tmp_path: Path) -> None:
    data = Path(family_folder(tmp_path))
    facts = sorted(set((data / "train.txt").read_text().splitlines()))
    (tmp_path / "facts.csv").write_text("\n".join(line.replace("\t", ",") for line in facts) + "\n")
    source = "facts.csv?header=no&split=transductive"
    assert cli("train", source, *TINY, "-o", "run").code == 0
    assert RunFolder.open("run").config["recipe"]["dataset"] == "facts"
    assert cli("resume", "run", source).code == 0
    assert cli("resume", "run", f"{source}&seed=1").code == 2
