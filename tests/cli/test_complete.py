"""`contextpool complete`, as a person types it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import contextpool as cp
from command_line import Ran
from learning_worlds import one_thread as one_thread
from predict.test_bulk import Stopped, stopping_after
from world_model import world_run as world_run

Cli = Callable[..., Ran]


def test_without_a_run_the_model_of_the_package_completes_any_graph(cli: Cli, tmp_path: Path) -> None:
    output = tmp_path / "links.parquet"
    ran = cli("complete", "world", "-o", str(output), "--relation", "currency", "--paths", "--processes", "1")
    assert ran.code == 0, ran.err
    assert "answering: " in ran.err
    assert " paths a second" in ran.err
    assert f"links in {output}" in ran.err
    table = pq.read_table(output)
    assert set(table["relation"].to_pylist()) == {"currency"}
    assert min(table["probability"].to_pylist()) >= 0.5
    known = {(head, tail) for head, relation, tail in cp.load_dataset("world").inference_graph}
    found = list(zip(table["head"].to_pylist(), table["tail"].to_pylist(), strict=True))
    assert ("Belarus", "Belarusian Ruble") in found
    assert not known & set(found)
    row = table.to_pylist()[found.index(("Belarus", "Belarusian Ruble"))]
    (best, *_) = cp.load().predict("world", "Belarus", "currency")
    assert (best.entity, best.probability) == (row["tail"], pytest.approx(row["probability"], abs=0.05))
    assert row["path"].startswith("Belarus ")
    assert row["path"].endswith("Belarusian Ruble")
    likeliest = max(table.to_pylist(), key=lambda one: one["probability"])
    assert f"{likeliest['head']}  currency  {likeliest['tail']}" in ran.out


def test_a_call_that_was_cut_off_goes_on(
    cli: Cli, world_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "some.txt").write_text("Minsk\nBelarus\nFrance\nParis\n")
    options = ("--run", str(world_run), "--entities", str(tmp_path / "some.txt"), "--min-probability", "0.05")
    output = tmp_path / "links.csv"
    with monkeypatch.context() as patched:
        stopping_after(patched, 2)
        with pytest.raises(Stopped):
            cli("complete", "world", "-o", str(output), *options)
    ran = cli("complete", "world", "-o", str(output), *options, "--json")
    told = json.loads(ran.out)
    assert (ran.code, told["asked_now"], told["output"]) == (0, 0, str(output))
    assert told["questions"] > 0
    lines = output.read_text().splitlines()
    assert len(lines) == told["links"] + 1
    assert {line.split(",")[0] for line in lines[1:]} <= {"Minsk", "Belarus", "France", "Paris"}
    again = cli("complete", "world", "-o", str(output), *options)
    assert (again.code, "there already, and complete" in again.err) == (2, True)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["-o", "links.doc"], "links are written as .parquet, .csv, .tsv or .nt"),
        (["-o", "no/way/links.csv", "--relation", "curency"], "closest 'currency'"),
        (["-o", "links.csv", "--min-probability", "50"], "above 0 and at most 1"),
        (["-o", "links.csv", "--processes", "0"], "at least one has to work"),
        (["-o", "links.csv", "--ray-address", "host:6379"], "goes with --engine ray"),
        (["-o", "links.csv", "--entities", "nobody.txt"], "nobody.txt"),
    ],
)
def test_mistakes_are_told(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    ran = cli("complete", "world", *options)
    assert ran.code == 2
    assert message in ran.err
    assert "Traceback" not in ran.err
    assert not list(tmp_path.rglob("*.csv*"))
