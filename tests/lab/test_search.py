"""A search: the same again, resumable, blind to the inference side, and it ends with a recipe that says how."""

from __future__ import annotations

import json
import pickle
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from contextpool import experiment
from contextpool.errors import ConfigError, DataError
from contextpool.recipe import Recipe, read_recipe
from contextpool.train.config import TrainConfig
from contextpool.triples.formats import write_dataset
from lab.lines import read_lines
from lab.recipe_file import tuning_of
from lab.samplers import make_sampler
from lab.search import SearchConfig, Watcher, tune
from lab.selection import selection_dataset
from lab.space import space_of
from lab.trial import Task, run_trial
from learning_worlds import family_dataset
from learning_worlds import one_thread as one_thread

SPACE = space_of(
    {
        "train.lr": {"low": 0.001, "high": 0.05, "log": True},
        "model.dim": [4, 8],
        "model.aggregate": ["pna", "mean"],
    }
)
SMALL = TrainConfig(epochs=2, batch_size=256, warmup_steps=2)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The families as a GraIL pair; each test its own, because what is read is remembered by its name."""
    write_dataset(family_dataset(inductive=True, count=20), tmp_path / "data")
    return tmp_path / "data" / "split"


def config(folder: Path, **options: Any) -> SearchConfig:
    base = Recipe(str(folder), "nbfnet", {"layers": 2}, None, SMALL)
    return SearchConfig(
        base, "nbfnet", SPACE, **{"trials": 4, "factor": 2, "rungs": 2, "seeds": 2, **options}
    )


def settled(path: Path) -> list[dict[str, Any]]:
    """Lines without what no two searches share."""
    return [{k: v for k, v in line.items() if k not in ("seconds", "date")} for line in read_lines(path)]


def test_a_search_ends_with_the_best_trial_trained_with_other_seeds(folder: Path, tmp_path: Path) -> None:
    progress = tune(config(folder), tmp_path / "t.jsonl")
    header, *lines = read_lines(tmp_path / "t.jsonl")
    assert header["kind"] == "search"
    trials = [line for line in lines if line["kind"] == "trial"]
    assert sorted(line["trial"] for line in trials if line["rung"] == 0) == [0, 1, 2, 3]
    assert [line["epochs"] for line in trials if line["rung"] == 1] == [2] * sum(
        line["rung"] == 1 for line in trials
    )
    best = max(trials, key=lambda line: (line["valid_mrr"], -line["epochs"], -line["trial"]))
    winner = progress.winner
    assert progress.complete
    assert winner is not None
    assert winner.tuning["trial"] == best["trial"]
    assert winner.recipe.train.epochs == best["epochs"]
    (again,) = [line for line in lines if line["kind"] == "confirm"]
    assert (again["trial"], again["seed"]) == (best["trial"], 1)
    assert winner.valid_mrr == pytest.approx((best["valid_mrr"] + again["valid_mrr"]) / 2)
    assert winner.tuning["trials"] == 4
    assert winner.tuning["trainings"] == len(lines)
    assert winner.tuning["seconds"] == pytest.approx(sum(line["seconds"] for line in lines), abs=0.1)


def test_the_winning_recipe_is_a_file_that_trains_to_the_validation_mrr_it_claims(
    folder: Path, tmp_path: Path
) -> None:
    winner = tune(config(folder, trials=2, rungs=1, seeds=1), tmp_path / "t.jsonl").winner
    assert winner is not None
    path = tmp_path / "won.toml"
    path.write_text(winner.text())
    recipe = read_recipe(path)
    assert recipe.model_config() == winner.recipe.model_config()
    assert tuning_of(path) == winner.tuning
    assert f"MRR {winner.valid_mrr:.4f}" in path.read_text().splitlines()[1]
    training = experiment.Experiment(recipe, selection_dataset(str(folder)), 0, "cpu")
    training.fit(None)
    assert training.outcome is not None
    assert training.outcome.best_mrr == winner.valid_mrr


@pytest.mark.parametrize("select", ["validation", "pseudo-inductive"])
def test_the_inference_side_may_be_poisoned_or_gone(select: Any, folder: Path, tmp_path: Path) -> None:
    """Not one byte of it is needed: the search comes to the same lines without it."""
    options = {"select": select, "trials": 2, "rungs": 1, "seeds": 1}
    first = tune(config(folder, **options), tmp_path / "a.jsonl")
    inference = folder.with_name("split_ind")
    for name in ("train.txt", "valid.txt", "test.txt"):
        (inference / name).write_bytes(b"no triple \xff")
    selection_dataset.cache_clear()
    second = tune(config(folder, **options), tmp_path / "b.jsonl")
    (inference / "test.txt").unlink()
    selection_dataset.cache_clear()
    third = tune(config(folder, **options), tmp_path / "c.jsonl")
    assert settled(tmp_path / "a.jsonl") == settled(tmp_path / "b.jsonl") == settled(tmp_path / "c.jsonl")
    assert first.winner.recipe == second.winner.recipe == third.winner.recipe  # type: ignore[union-attr]


def test_a_pseudo_inductive_search_scores_the_other_half(folder: Path, tmp_path: Path) -> None:
    progress = tune(
        config(folder, select="pseudo-inductive", trials=1, rungs=1, seeds=1), tmp_path / "t.jsonl"
    )
    winner = progress.winner
    assert winner is not None
    data = selection_dataset(str(folder), "pseudo-inductive", 0)
    predictor = experiment.run_recipe(winner.recipe, data, seed=0)
    report = experiment.evaluate(predictor, data)
    assert report.mrr == pytest.approx(winner.valid_mrr)


def test_a_search_that_was_cut_off_goes_on_to_the_same_end(folder: Path, tmp_path: Path) -> None:
    whole, parts = tmp_path / "whole.jsonl", tmp_path / "parts.jsonl"
    tune(config(folder), whole)
    begun = 0

    def stop(task: Any) -> None:
        nonlocal begun
        begun += 1
        if begun == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tune(config(folder), parts, watcher=Watcher(begun=stop))
    assert len(read_lines(parts)) == 3
    with parts.open("ab") as file:
        file.write(b'{"kind": "tri')
    notes: list[str] = []
    progress = tune(config(folder), parts, watcher=Watcher(note=notes.append))
    assert "half-written" in notes[0]
    assert settled(parts) == settled(whole)
    assert progress.winner is not None
    again = tune(config(folder), parts)
    assert settled(parts) == settled(whole)
    assert again.winner == progress.winner


def test_the_time_limit_ends_it_early_and_finishing_takes_the_best_so_far(
    folder: Path, tmp_path: Path
) -> None:
    path = tmp_path / "t.jsonl"
    stopped = tune(config(folder), path, time_limit=0.0)
    assert (stopped.trials, stopped.complete, stopped.winner) == (0, False, None)
    tune(config(folder, trials=1, rungs=1, seeds=1, epochs=1), tmp_path / "one.jsonl")
    first = read_lines(tmp_path / "one.jsonl")[1]
    with path.open("a") as file:
        file.write(json.dumps(first) + "\n")
    finished = tune(config(folder), path, finish=True)
    assert not finished.complete
    assert finished.winner is not None
    assert finished.winner.tuning["trial"] == 0


def test_a_file_of_another_search_is_refused_by_what_differs(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    tune(config(folder), path, time_limit=0.0)
    before = path.read_bytes()
    with pytest.raises(DataError, match="a search with another seed is in this file"):
        tune(config(folder, seed=1), path)
    changed = replace(config(folder), space=space_of({"model.dim": [4]}))
    with pytest.raises(DataError, match="another space"):
        tune(changed, path)
    assert path.read_bytes() == before
    tune(config(folder, trials=9), path, time_limit=0.0)  # more of the same search is the same search


def test_failing_trials_are_counted_and_a_search_of_nothing_else_is_an_error(
    folder: Path, tmp_path: Path
) -> None:
    space = space_of({"model.dim": [4, 5], "model.message": ["rotate"]})  # rotate needs an even width
    base = replace(config(folder).base, settings={"layers": 2, "dim": 4})
    notes: list[str] = []
    search = replace(config(folder, trials=4, rungs=1, seeds=1), base=base, space=space)
    progress = tune(search, tmp_path / "t.jsonl", watcher=Watcher(note=notes.append))
    odd = sum(space.draw(0, trial)["model.dim"] == 5 for trial in range(4))
    assert 0 < odd < 4
    assert len(progress.failed) == len(notes) == odd
    assert progress.winner is not None
    assert progress.winner.recipe.settings["dim"] == 4
    impossible = replace(search, space=space_of({"train.queries": ["train"]}))
    with pytest.raises(DataError, match="every trial failed, the first with: ConfigError: queries='train'"):
        tune(impossible, tmp_path / "none.jsonl")


def test_a_training_can_be_handed_to_another_process(folder: Path, tmp_path: Path) -> None:
    """What travels comes to the same: processes themselves are tested where they are made."""
    tasks: list[Task] = []
    tune(
        config(folder, trials=1, rungs=1, seeds=1), tmp_path / "t.jsonl", watcher=Watcher(begun=tasks.append)
    )
    travelled = pickle.loads(pickle.dumps(tasks[0]))  # noqa: S301
    assert travelled == tasks[0]
    assert (
        run_trial(travelled, lambda told: None)["valid_mrr"]
        == read_lines(tmp_path / "t.jsonl")[1]["valid_mrr"]
    )


def test_a_grid_goes_through_every_combination_once(folder: Path, tmp_path: Path) -> None:
    space = space_of({"model.dim": [4, 8], "train.lr": [0.01, 0.02, 0.01]})
    search = replace(config(folder, sampler="grid", trials=1, rungs=1, seeds=1), space=space)
    progress = tune(search, tmp_path / "grid.jsonl")
    assert progress.complete
    tried = [tuple(line["values"].values()) for line in read_lines(tmp_path / "grid.jsonl")[1:]]
    assert tried == [(4, 0.01), (4, 0.02), (8, 0.01), (8, 0.02)]


def test_a_grid_has_no_ranges(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"train\.lr can take any value of a range, which a grid cannot go"):
        tune(config(folder, sampler="grid"), tmp_path / "grid.jsonl")


def test_optuna_draws_from_the_same_space_and_says_the_same_again(folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("optuna")
    tune(config(folder, sampler="optuna", trials=3, rungs=1, seeds=1), tmp_path / "a.jsonl")
    tune(config(folder, sampler="optuna", trials=3, rungs=1, seeds=1), tmp_path / "b.jsonl")
    assert settled(tmp_path / "a.jsonl") == settled(tmp_path / "b.jsonl")
    for line in read_lines(tmp_path / "a.jsonl")[1:]:
        assert line["values"]["model.dim"] in (4, 8)
        assert 0.001 <= line["values"]["train.lr"] <= 0.05


def test_optuna_learns_from_the_scores() -> None:
    """With the score in the learning rate alone, later draws come from its better end."""
    pytest.importorskip("optuna")
    space = space_of(
        {"train.lr": {"low": 0.0001, "high": 1.0, "log": True}, "together.x": [{"train.clip_norm": 1.0}]}
    )
    sampler, scores = make_sampler("optuna", space, 0), []
    for trial in range(30):
        values = sampler(trial, scores)
        scores.append((values, values["train.lr"]))
    early, late = ([values["train.lr"] for values, _ in part] for part in (scores[:10], scores[-10:]))
    assert sum(late) > sum(early)
    assert sampler(30, scores) == sampler(30, scores)


def test_the_header_holds_the_search_and_no_plan_of_how_long(folder: Path) -> None:
    header = config(folder).header()
    assert not {"trials", "finalists", "seeds"} & set(header)
    assert Recipe.from_dict(tomllib.loads(winner_free_text(header))).model == "nbfnet"


def winner_free_text(header: dict[str, Any]) -> str:
    from lab.recipe_file import to_toml

    return to_toml(header["base"])
