"""`python -m lab` from the command line: what they print, what they leave, and their exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from command_line import Ran, run, run_lab
from contextpool.recipe import read_recipe
from lab.jobs import read_lines
from lab.results import datasets_of
from lab_small import family_folder, line
from learning_worlds import one_thread as one_thread

QUICK = ("--set", "model.dim=4", "--set", "model.layers=2", "--set", "train.epochs=1", "--device", "cpu")


@pytest.fixture
def cli(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str) -> Ran:
        return run_lab(list(arguments), capsys, monkeypatch)

    return call


@pytest.fixture
def family(tmp_path: Path) -> str:
    return family_folder(tmp_path)


def test_a_grid_from_flags_is_trained_skipped_and_done_again(cli, family):
    arguments = (
        "run",
        "-d",
        family,
        "-m",
        "nbfnet",
        "-c",
        "plain",
        "-c",
        "cp",
        "--seeds",
        "1",
        *QUICK,
    )
    listed = cli(*arguments, "--dry-run", "--json")
    assert [(cell["model"], cell["done"]) for cell in json.loads(listed.out)] == [
        ("nbfnet", False),
        ("nbfnet+cp", False),
    ]
    first = cli(*arguments)
    assert first.code == 0
    assert "2 trained, 0 had a line already, 0 failed, 0 left" in first.err
    assert len(read_lines("results/bench.jsonl")) == 2
    second = json.loads(cli(*arguments, "--json").out)
    assert (second["done"], second["skipped"]) == (0, 2)
    again = json.loads(cli("run", "--only", "2", "--device", "cpu", "--json").out)
    assert again["new"]["mrr"] == again["old"]["mrr"]
    table = cli("run", "--only", "results/bench.jsonl:1", "--device", "cpu")
    assert "new - old" in table.out
    assert "+0.0000" in table.out
    assert "done" in cli(*arguments, "--dry-run").out


def test_a_failing_training_is_a_line_of_its_own(cli, family):
    ran = cli(
        "run", "-d", family, "--seed", "4", *QUICK, "--set", "train.queries=train", "--results", "r.jsonl"
    )
    assert ran.code == 1
    assert "0 trained, 0 had a line already, 1 failed" in ran.err
    assert "queries='train'" in read_lines("r.failed.jsonl")[0]["error"]


def test_nothing_to_train_and_nonsense_are_bad_input(cli):
    assert cli("run").code == 2
    assert "name a dataset" in cli("run").err
    for bad, said in (
        (("-d", "wurld"), "closest 'world'"),
        (("-d", "world", "-m", "anyburl+cp"), "anyburl takes none"),
        (("-d", "world", "--seed", "1", "--seeds", "4"), "give one of the two"),
        (("--results", ".", "--only", "3"), "is a folder"),
    ):
        refused = cli("run", *bad, "--dry-run")
        assert (refused.code, said in refused.err) == (2, True), refused.err
    assert cli("run", "--only", "1", "--device", "cpu").code == 2
    assert "not a setting" in cli("run", "-d", "world", "--set", "train.nosuch=1", "--device", "cpu").err


def test_a_searched_setting_cannot_be_given(cli):
    refused = cli("tune", "world", "-m", "nbfnet", "--set", "model.dim=8", "--device", "cpu")
    assert refused.code == 2
    assert "--set gives model.dim, which the space 'nbfnet' searches" in refused.err


def test_the_page_is_written_checked_and_found_stale(cli, tmp_path):
    (tmp_path / "results").mkdir()
    lines = [
        line(dataset, model) for dataset in datasets_of("inductive") for model in ("nbfnet", "nbfnet+cp")
    ]
    (tmp_path / "results" / "a.jsonl").write_text("".join(json.dumps(found) + "\n" for found in lines))
    assert cli("report", "--check").code == 1
    written = cli("report", "--no-plots")
    assert written.code == 0
    assert "from 24 lines" in written.err
    page = (tmp_path / "docs" / "lab" / "results.md").read_bytes()
    assert cli("report", "--check").code == 0
    with (tmp_path / "results" / "a.jsonl").open("a") as file:
        file.write(json.dumps(line("grail/fb237_v1", "nbfnet", 1, mrr=0.6)) + "\n")
    stale = cli("report", "--check")
    assert stale.code == 1
    assert "not what the results say" in stale.err
    assert (tmp_path / "docs" / "lab" / "results.md").read_bytes() == page
    figures = json.loads(cli("report", "--no-plots", "--json").out)
    assert (figures["lines"], figures["cells"]) == (25, 48)


def test_pictures_are_written_beside_the_page(cli, tmp_path):
    pytest.importorskip("matplotlib")
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "a.jsonl").write_text(json.dumps(line()) + "\n")
    assert cli("report").code == 0
    assert (tmp_path / "docs" / "images" / "wins.svg").is_file()


def test_without_lines_the_page_stays_as_it_is(cli, tmp_path):
    page = tmp_path / "docs" / "lab" / "results.md"
    page.parent.mkdir(parents=True)
    page.write_text("what was measured")
    nowhere = cli("report", "--results", "elsewhere")
    assert (nowhere.code, "no such folder or file of results" in nowhere.err) == (2, True)
    (tmp_path / "results").mkdir()
    empty = cli("report")
    assert (empty.code, "results: there is no line of results" in empty.err) == (2, True)
    assert page.read_text() == "what was measured"
    assert not (tmp_path / "docs" / "images").exists()


def test_a_search_is_asked_trained_told_and_its_recipe_trained(cli, family, tmp_path):
    pytest.importorskip("optuna")
    (tmp_path / "space.toml").write_text('"train.lr" = [0.01, 0.02]\n')
    fixed = [*QUICK[:4], "--epochs", "1", "--sampler", "grid", "--file", "t.jsonl"]
    arguments = ("tune", family, "-m", "nbfnet", "--space", "space.toml", *fixed)
    assert cli(*arguments, "--trials", "1", "--ask", "list.jsonl").code == 0
    ran = cli("run", "--trials", "list.jsonl", "--results", "done.jsonl", "--device", "cpu")
    assert "1 trials trained" in ran.err
    told = cli(*arguments, "--tell", "done.jsonl")
    assert "1 trials (0 failed or pruned)" in told.err
    assert cli(*arguments, "--device", "cpu", "--write-recipe", "won.toml").code == 0
    found = json.loads(cli(*arguments, "--device", "cpu", "--json").out)
    assert (found["trials"], found["failed"]) == (2, 0)
    assert read_recipe("won.toml").settings["dim"] == 4
    bench = ("run", "-d", family, "-m", "nbfnet", "--recipe", "won.toml", "--seeds", "1")
    assert cli(*bench, "--device", "cpu").code == 0
    (made,) = read_lines("results/bench.jsonl")
    assert made["recipe"].startswith("won#")
    assert made["valid_mrr"] == found["winner"]["valid_mrr"]


def test_a_search_of_what_does_not_exist_is_refused_before_a_file_is_made(cli, tmp_path):
    (tmp_path / "space.toml").write_text('"model.wings" = [2]\n')
    refused = cli(
        "tune", "world", "-m", "nbfnet", "--space", "space.toml", "--device", "cpu", "--file", "t.jsonl"
    )
    assert refused.code == 2
    assert "model.wings is not a setting" in refused.err
    assert not (tmp_path / "t.jsonl").exists()


@pytest.mark.parametrize("verb", ["", "run", "report", "tune"])
def test_the_new_verbs_explain_themselves(cli, verb):
    ran = cli(*verb.split(), "--help")
    assert ran.code == 0
    assert "Usage" in ran.out


@pytest.mark.parametrize("typed", [["bench", "run", "-d", "world"], ["tune", "world", "--help"], ["bench"]])
def test_the_product_says_where_its_old_verbs_are(capsys, monkeypatch, typed):
    refused = run(typed, capsys, monkeypatch)
    assert refused.code == 2
    assert "python -m lab run" in refused.err
