"""Running a grid: the same figures as train and evaluate, resumable, and one failure is not the end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from contextpool import experiment
from contextpool.errors import ConfigError, DataError, UnknownNameError
from contextpool.recipe import Recipe
from contextpool.triples.catalog import load_dataset
from lab.jobs import read_lines
from lab.measure import FIRST, Task, measure, run_folder, seconds_of
from lab.recipes import Cell, Key
from lab.run import (
    Queue,
    Watcher,
    expected_seconds,
    failures_of,
    find_line,
    run_again,
    run_grid,
)
from lab_small import QUICK, family_folder, line, quick_grid
from learning_worlds import one_thread as one_thread

CHANGING = ("train_seconds", "evaluate_seconds", "queries_per_second", "date")


def settled(found: dict[str, Any]) -> dict[str, Any]:
    """A line without what no two trainings share."""
    return {key: value for key, value in found.items() if key not in CHANGING}


def test_a_line_has_the_figures_of_train_and_evaluate(tmp_path: Path) -> None:
    folder = family_folder(tmp_path)
    (cell,) = quick_grid(folder, models=("nbfnet+cp",), seeds=(3,)).cells()
    found = measure(Task(cell), lambda told: None)
    experiment.run_recipe(cell.recipe, seed=3, output=tmp_path / "run")
    predictor = experiment.load(tmp_path / "run")
    for protocol, figures in (("P1", found), ("P2", found["p2"])):
        report = experiment.compare_with_references(predictor, folder, protocol=protocol)["model"]  # type: ignore[arg-type]
        for name, value in report.realistic.to_dict().items():
            assert figures[name] == value, (protocol, name)
        for rule in ("optimistic", "pessimistic"):
            assert figures[rule]["mrr"] == report.under(rule).mrr  # type: ignore[arg-type]
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert (found["valid_mrr"], found["epochs"], found["best_epoch"]) == (metrics["valid_mrr"], 1, 1)


def test_a_line_holds_the_agreed_keys_first_and_what_the_report_reads(tmp_path: Path) -> None:
    (cell,) = quick_grid(family_folder(tmp_path), seeds=(0,)).cells()
    told: list[Any] = []
    found = measure(Task(cell), told.append)
    assert tuple(found)[: len(FIRST)] == FIRST
    assert (found["setting"], found["protocol"], found["seed"]) == ("inductive", "P1", 0)
    assert Key.of(found) == cell.key
    assert found["device"].startswith("cpu")
    assert found["parameters"] > 100
    assert told[0].epochs == 1
    for slices in ("by_distance", "by_support"):
        assert sum(entry["count"] for entry in found[slices].values()) == found["num_queries"]
        total = sum(entry["sum"] for entry in found[slices].values())
        assert total / found["num_queries"] == pytest.approx(found["mrr"])
    assert Recipe.from_dict(json.loads(json.dumps(found))["settings"]) == cell.recipe
    assert found["dataset_sha256"] == experiment.fingerprint(load_dataset(cell.key.dataset))


def test_a_grid_is_gone_through_once_and_a_second_time_does_nothing(tmp_path: Path) -> None:
    grid, results = (
        quick_grid(family_folder(tmp_path), contexts=("plain", "cp")),
        tmp_path / "results" / "a.jsonl",
    )
    first = run_grid(grid.cells(), results)
    assert (len(first.done), first.skipped, first.left) == (4, 0, 0)
    before = results.read_bytes()
    assert [Key.of(found) for found in read_lines(results)] == [cell.key for cell in grid.cells()]
    again = run_grid(grid.cells(), results)
    assert (len(again.done), again.skipped) == (0, 4)
    assert results.read_bytes() == before
    assert not failures_of(results).exists()


def test_what_a_kill_left_half_written_is_cut_off_told_and_made_again(tmp_path: Path) -> None:
    grid, results = quick_grid(family_folder(tmp_path)), tmp_path / "a.jsonl"
    run_grid(grid.cells(), results)
    whole = read_lines(results)
    results.write_bytes(results.read_bytes()[:-100])
    notes: list[str] = []
    summary = run_grid(grid.cells(), results, watcher=Watcher(note=notes.append))
    assert (len(summary.done), summary.skipped) == (1, 1)
    assert "half-written" in notes[0]
    assert [settled(found) for found in read_lines(results)] == [settled(found) for found in whole]


def test_one_failing_training_is_one_line_of_failure(tmp_path: Path) -> None:
    good = quick_grid(family_folder(tmp_path), seeds=(0,)).cells()
    bad = Cell(Key("grail/no_such", "nbfnet", "shipped#1", 0), Recipe("grail/no_such"))
    notes: list[str] = []
    ends: list[tuple[str, bool]] = []
    watcher = Watcher(
        note=notes.append, finished=lambda cell, found: ends.append((cell.key.dataset, found is None))
    )
    summary = run_grid([bad, *good], tmp_path / "a.jsonl", watcher=watcher)
    assert (len(summary.done), len(summary.failed)) == (1, 1)
    (failure,) = read_lines(tmp_path / "a.failed.jsonl")
    assert Key.of(failure) == bad.key
    assert "no_such" in failure["error"]
    assert notes == [f"failed: {bad.key}: {failure['error']}"]
    assert ends == [("grail/no_such", True), (good[0].key.dataset, False)]
    assert len(read_lines(tmp_path / "a.jsonl")) == 1


def test_two_processes_give_the_lines_that_one_gives(tmp_path: Path) -> None:
    cells = quick_grid(family_folder(tmp_path), seeds=(0, 1)).cells()
    run_grid(cells, tmp_path / "one.jsonl")
    told: list[Any] = []
    run_grid(
        cells, tmp_path / "two.jsonl", jobs=2, watcher=Watcher(progress=lambda cell, state: told.append(cell))
    )
    one, two = (
        {Key.of(found): settled(found) for found in read_lines(tmp_path / name)}
        for name in ("one.jsonl", "two.jsonl")
    )
    for found in (*one.values(), *two.values()):
        found.pop("threads")
    assert one == two
    assert told


def test_a_run_folder_is_left_and_gone_on_with(tmp_path: Path) -> None:
    """Cut off after the first epoch, the training goes on to the line that it would have made."""
    (cell,) = quick_grid(family_folder(tmp_path), seeds=(0,), changes={**QUICK, "train.epochs": 2}).cells()
    expected = measure(Task(cell), lambda told: None)
    runs = str(tmp_path / "runs")
    folder = run_folder(runs, cell)
    epochs = 0

    class CutOffError(Exception):
        pass

    def stop_in_the_second_epoch(progress: Any) -> None:
        nonlocal epochs
        epochs = progress.epoch
        if epochs == 2:
            raise CutOffError

    with pytest.raises(CutOffError):
        experiment.run_recipe(
            cell.recipe,
            load_dataset(cell.key.dataset),
            seed=0,
            output=folder,
            progress=stop_in_the_second_epoch,
        )
    found = measure(Task(cell, runs=runs), lambda told: None)
    assert settled(found) == settled(expected)
    assert found["epochs"] == 2


def test_the_seconds_of_several_goes_add_up() -> None:
    events = [
        {"event": "epoch", "time": 1010.0, "seconds": 10.0},
        {"event": "epoch", "time": 1020.0, "seconds": 20.004},
        {"event": "resumed elsewhere"},
        {"event": "epoch", "time": 2030.0, "seconds": 30.0},
    ]
    assert seconds_of(events) == pytest.approx(50.004)
    assert seconds_of([]) == 0


def test_after_the_time_limit_nothing_is_begun(tmp_path: Path) -> None:
    summary = run_grid(quick_grid(family_folder(tmp_path)).cells(), tmp_path / "a.jsonl", time_limit=0.0)
    assert (summary.done, summary.left) == ([], 2)


def test_a_training_that_cannot_end_in_time_lets_a_shorter_one_pass() -> None:
    lines = [line("grail/a", train_seconds=500.0), line("grail/a", train_seconds=90.0, seed=1)]
    cells = [Cell(Key(name, "nbfnet", "r", 5), Recipe(name)) for name in ("grail/a", "grail/b")]
    assert expected_seconds(cells[0].key, lines) == 500.0
    assert expected_seconds(cells[1].key, lines) == 0.0
    queue = Queue(cells, lines, time_limit=100.0)
    assert queue.take() == cells[1]
    assert queue.take() is None
    assert queue.waiting == [cells[0]]


def test_a_line_is_done_again_by_its_own_recipe_and_stands_beside_the_old(tmp_path: Path) -> None:
    results = tmp_path / "a.jsonl"
    run_grid(quick_grid(family_folder(tmp_path)).cells(), results)
    lines = read_lines(results)
    key = Key.of(lines[1])
    for what in ("2", f"{results}:2", str(key)):
        old, path = find_line(what, results)
        assert (old, path) == (lines[1], results)
    before = results.read_bytes()
    compared = run_again(old, lines)
    assert settled(dict(compared.new)) == settled(lines[1])
    first, second = (found["mrr"] for found in lines)
    assert compared.spread["mrr"] == pytest.approx(abs(first - second) / 2**0.5)
    assert run_again(old, lines[:1]).spread["mrr"] is None
    assert results.read_bytes() == before


def test_a_line_that_is_not_there_is_told(tmp_path: Path) -> None:
    results = tmp_path / "a.jsonl"
    results.write_text(json.dumps(line()) + "\n")
    with pytest.raises(DataError, match=r"a\.jsonl: there is no line 2; it has 1"):
        find_line("2", results)
    with pytest.raises(ConfigError, match="--only is 'nonsense'"):
        find_line("nonsense", results)
    with pytest.raises(UnknownNameError, match="line 'grail/fb237_v1 nbfnet x 0' is unknown"):
        find_line("grail/fb237_v1 nbfnet x 0", results)
    with pytest.raises(ConfigError, match=r"is a folder; name a file of it: FILE\.jsonl:2"):
        find_line("2", tmp_path)


def test_a_line_is_found_by_its_key_in_any_file_of_the_folder(tmp_path: Path) -> None:
    files = {name: tmp_path / f"{name}.jsonl" for name in ("a", "b", "b.failed")}
    for file, seed in zip(files.values(), (0, 1, 2), strict=True):
        file.write_text(json.dumps(line(seed=seed)) + "\n")
    for results in (tmp_path, tmp_path / "bench.jsonl", files["a"]):
        assert find_line(str(Key.of(line(seed=1))), results) == (line(seed=1), files["b"])
        with pytest.raises(UnknownNameError, match=r"2 known.*Looked in the files of"):
            find_line(str(Key.of(line(seed=2))), results)
