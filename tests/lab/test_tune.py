"""A search: the same again, resumable, blind to the inference side, asked and told apart; it ends with a recipe."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from contextpool import experiment
from contextpool.errors import ConfigError, DataError
from contextpool.recipe import Recipe, read_recipe
from contextpool.train.config import TrainConfig
from contextpool.triples.formats import write_dataset
from lab.jobs import Line, read_lines
from lab.selection import selection_dataset
from lab.space import space_of
from lab.tune import Search, SearchConfig, Watcher, run_trials
from learning_worlds import family_dataset
from learning_worlds import one_thread as one_thread

pytest.importorskip("optuna")
SPACE = space_of({"train.lr": {"low": 0.001, "high": 0.05, "log": True}, "model.dim": [4, 8]})
SMALL = TrainConfig(epochs=2, batch_size=256, warmup_steps=2)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The families as a GraIL pair; each test its own, because what is read is remembered by its name."""
    write_dataset(family_dataset(inductive=True, count=20), tmp_path / "data")
    return tmp_path / "data" / "split"


def config(folder: Path, **options: Any) -> SearchConfig:
    return SearchConfig(
        Recipe(str(folder), "nbfnet", {"layers": 2}, None, SMALL), "nbfnet", **{"space": SPACE, **options}
    )


def tune(search: SearchConfig, path: Path, trials: int, watcher: Watcher | None = None) -> Search:
    with Search(search, path, watcher) as opened:
        opened.run(trials)
    return opened


def settled(path: Path) -> list[Line]:
    """Lines without what no two searches share."""
    return [{k: v for k, v in line.items() if k not in ("seconds", "date")} for line in read_lines(path)]


def test_the_best_trial_is_a_recipe_that_trains_to_the_validation_mrr_it_claims(
    folder: Path, tmp_path: Path
) -> None:
    search = tune(config(folder), tmp_path / "t.jsonl", 3)
    header, *lines = read_lines(tmp_path / "t.jsonl")
    assert (header["kind"], [line["trial"] for line in lines]) == ("search", [0, 1, 2])
    best = max(lines, key=lambda line: line["valid_mrr"])
    assert search.best == best
    path = tmp_path / "won.toml"
    path.write_text(search.recipe_text(best))
    assert f": trial {best['trial']} of 3, " in path.read_text()
    training = experiment.Experiment(read_recipe(path), selection_dataset(str(folder)), 0, "cpu")
    training.fit(None)
    assert training.outcome is not None
    assert training.outcome.best_mrr == best["valid_mrr"]


@pytest.mark.parametrize("select", ["validation", "pseudo-inductive"])
def test_the_inference_side_may_be_poisoned_or_gone(select: Any, folder: Path, tmp_path: Path) -> None:
    """Not one byte of it is needed: the search comes to the same lines without it."""
    tune(config(folder, select=select), tmp_path / "a.jsonl", 2)
    inference = folder.with_name("split_ind")
    for name in ("train.txt", "valid.txt", "test.txt"):
        (inference / name).write_bytes(b"no triple \xff")
    selection_dataset.cache_clear()
    tune(config(folder, select=select), tmp_path / "b.jsonl", 2)
    (inference / "test.txt").unlink()
    selection_dataset.cache_clear()
    tune(config(folder, select=select), tmp_path / "c.jsonl", 2)
    assert settled(tmp_path / "a.jsonl") == settled(tmp_path / "b.jsonl") == settled(tmp_path / "c.jsonl")


def test_a_pseudo_inductive_search_scores_the_other_half(folder: Path, tmp_path: Path) -> None:
    best = tune(config(folder, select="pseudo-inductive"), tmp_path / "t.jsonl", 1).best
    assert best is not None
    data = selection_dataset(str(folder), "pseudo-inductive", 0)
    recipe = config(folder).base.with_values(best["values"])
    report = experiment.evaluate(experiment.run_recipe(recipe, data, seed=0), data)
    assert report.mrr == pytest.approx(best["valid_mrr"])


def test_a_grid_that_was_cut_off_goes_through_every_combination_once(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "grid.jsonl"
    grid = config(folder, sampler="grid", space=space_of({"model.dim": [4, 8], "train.lr": [0.01, 0.02]}))

    def stop(trial: int) -> None:
        if trial == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tune(grid, path, 1, Watcher(begun=stop))
    assert len(read_lines(path)) == 3
    with path.open("ab") as file:
        file.write(b'{"kind": "tri')
    notes: list[str] = []
    tune(grid, path, 1, Watcher(note=notes.append))
    assert "half-written" in notes[0]
    tried = [tuple(line["values"].values()) for line in read_lines(path)[1:]]
    assert sorted(tried) == [(4, 0.01), (4, 0.02), (8, 0.01), (8, 0.02)]
    tune(grid, path, 9)
    assert len(read_lines(path)) == 5


def test_trials_are_asked_for_trained_elsewhere_and_told(folder: Path, tmp_path: Path) -> None:
    path, done = tmp_path / "t.jsonl", tmp_path / "done.jsonl"
    with Search(config(folder), path) as search:
        asked = [json.loads(json.dumps(line)) for line in search.listed(2)]
    run_trials(asked[:1], done)
    run_trials(asked, done)
    assert [line["trial"] for line in read_lines(done)] == [0, 1]
    with Search(config(folder), path) as search:
        search.tell(read_lines(done))
        search.tell(read_lines(done))
        assert [trial.state.name for trial in search.study.trials] == ["COMPLETE"] * 2
        search.run(3)
        with pytest.raises(DataError, match="trial 7 was never asked for"):
            search.tell([{**asked[0], "trial": 7, "valid_mrr": 0.1, "error": None}])
    assert [line["trial"] for line in read_lines(path)[1:4]] == [0, 1, 2]


def test_optuna_ends_trials_early(folder: Path, tmp_path: Path) -> None:
    base = replace(config(folder).base, train=replace(SMALL, epochs=6))
    space = space_of({"train.lr": [0.02, 1e-6]})
    pruned = tune(
        replace(config(folder, sampler="grid", pruner="halving", space=space), base=base),
        tmp_path / "t.jsonl",
        2,
    ).trials[1]
    assert pruned["valid_mrr"] is None
    assert pruned["error"].startswith("PrunedError: in epoch")


def test_a_file_of_another_search_is_refused_by_what_differs(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    tune(config(folder), path, 0)
    before = path.read_bytes()
    with pytest.raises(DataError, match="a search with another seed is in this file"):
        tune(config(folder, seed=1), path, 1)
    with pytest.raises(DataError, match="another space"):
        tune(config(folder, space=space_of({"model.dim": [4]})), path, 1)
    assert path.read_bytes() == before


def test_failing_trials_are_lines_and_what_no_grid_can_go_through_is_refused(
    folder: Path, tmp_path: Path
) -> None:
    notes: list[str] = []
    impossible = config(folder, space=space_of({"train.queries": ["train"]}))
    search = tune(impossible, tmp_path / "none.jsonl", 1, Watcher(note=notes.append))
    assert search.best is None
    assert "queries='train'" in search.trials[0]["error"]
    assert len(notes) == 1
    with pytest.raises(ConfigError, match=r"train\.lr can take any value of a range, which a grid cannot go"):
        tune(config(folder, sampler="grid"), tmp_path / "grid.jsonl", 1)
