"""A file of one's own, trained on and then asked: nothing of it is lost, and time is told and kept to."""

from __future__ import annotations

import json
import random
import re
import shlex
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import contextpool as cp
from command_line import Ran, run
from contextpool import experiment, training
from contextpool.context.counts import Statistics
from contextpool.errors import CheckpointError, ConfigError, DataError
from contextpool.train import loop
from contextpool.train import progress as progress_module
from contextpool.train.budget import (
    Budget,
    Pace,
    Work,
    estimated,
    plan_told,
    refit_steps,
    timed,
    told,
    within,
)
from contextpool.train.config import TrainConfig
from contextpool.train.progress import Progress
from contextpool.train.run_folder import RunFolder
from contextpool.triples.catalog import load_dataset
from contextpool.triples.sources.address import parse_address
from contextpool.triples.split import split_told
from learning_worlds import one_thread as one_thread
from learning_worlds import run_contents

FACTS = [
    fact
    for n in range(30)
    for fact in (
        (f"eve{n}", "married", f"adam{n}"),
        (f"eve{n}", "mother_of", f"cain{n}"),
        (f"eve{n}", "mother_of", f"abel{n}"),
        (f"adam{n}", "father_of", f"cain{n}"),
        (f"adam{n}", "father_of", f"abel{n}"),
        (f"cain{n}", "sibling_of", f"abel{n}"),
    )
]
RARE = [(f"eve{n}", f"calls cain {n}", f"cain{n}") for n in range(30)]
"""A relation for each family: a split by entities loses those of one half."""
SMALL = ["--set", "model.dim=4", "--set", "model.layers=2", "--epochs", "2", "--batch-size", "32"]
QUICK: dict[str, Any] = {"epochs": 2, "batch_size": 32, "warmup_steps": 2}


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    monkeypatch.chdir(tmp_path)
    Path("mine.tsv").write_text("".join("\t".join(fact) + "\n" for fact in [*FACTS, *RARE]))

    def call(*arguments: object) -> Ran:
        return run([str(argument) for argument in arguments], capsys, monkeypatch)

    return call


def trained(dataset: Any = "mine.tsv", **options: Any) -> cp.Predictor:
    settings = {"settings": {"dim": 4, "layers": 2}, "train": QUICK}
    return experiment.train(dataset, "nbfnet", True, **{**settings, **options})


# a run answers on what it was trained on


@pytest.mark.parametrize("split", ["facts", "entities"])
def test_the_file_that_was_trained_on_can_be_asked(split: str, cli: Any) -> None:
    ran = cli("train", "mine.tsv", "--split", split, *SMALL, "-o", "run", "--json")
    assert ran.code == 0, ran.err
    lost = split == "entities"
    assert ("left to learn from: 34 of 34 relations" in ran.err) != lost
    assert "of 210 facts" in ran.err
    assert f"type 'mine.tsv?split={'facts' if lost else 'entities'}'" in ran.err
    assert json.loads(ran.out)["fitted_on_all"] is True
    assert json.loads(Path("run/relations.json").read_text()) == sorted({r for _, r, _ in [*FACTS, *RARE]})
    for relation in ("calls cain 0", "calls cain 29", "married"):
        asked = cli("ask", "mine.tsv", "--run", "run", "--head", "eve3", "--relation", relation, "--json")
        assert asked.code == 0, asked.err
    assert "fitted on all 210 facts after that" in Path("run/README.md").read_text()


def test_what_a_split_suggests_can_be_typed(cli: Any) -> None:
    said = cli("evaluate", "mine.tsv", "--columns", "0,1,2", "--json").err
    other = shlex.split(said.rpartition("new entities, type ")[2].splitlines()[0])[0]
    assert other == "mine.tsv?columns=0,1,2&split=entities"
    again = cli("evaluate", other, "--json")
    assert again.code == 0, again.err
    assert "that share no entity" in again.err
    assert "this graph itself, type 'mine.tsv?columns=0,1,2&split=facts'" in again.err


def test_a_run_without_the_refit_says_so_and_is_evaluated_again(cli: Any) -> None:
    ran = cli("train", "mine.tsv", "--no-refit", "--split", "entities", *SMALL, "-o", "run", "--json")
    assert ran.code == 0, ran.err
    assert "not fitted on what was held out" in ran.err
    told_then = json.loads(ran.out)
    again = cli("evaluate", "mine.tsv", "--run", "run", "--json")  # split as it was for the run
    assert again.code == 0, again.err
    assert json.loads(again.out)["model"]["mrr"] == told_then["model"]["mrr"]
    assert not Path("run/checkpoints/refit.safetensors").exists()


def test_a_model_is_not_evaluated_on_what_it_was_fitted_on(cli: Any) -> None:
    predictor = trained(output="run")
    assert predictor.evaluation is not None
    with pytest.raises(DataError, match="fitted on all of these facts"):
        cp.evaluate(predictor, "mine.tsv?seed=3")
    with pytest.raises(DataError, match="fitted on all of these facts"):
        cp.evaluate(cp.load("run"), "mine.tsv?split=entities")
    for arguments in (["mine.tsv", "--run", "run"], ["--run", "run"]):
        ran = cli("evaluate", *arguments, "--json")
        assert "figures of its training" in ran.err
        assert json.loads(ran.out)["model"]["mrr"] == predictor.evaluation["model"]["mrr"]
    assert trained(cp.load_dataset("mine.tsv")).fitted_on is None  # a dataset is there to be evaluated on


def test_a_refit_has_seen_every_fact(cli: Any) -> None:
    data = cp.load_dataset("mine.tsv")
    plain, refitted = (trained(data, refit=refit) for refit in (False, True))
    graph = cp.Graph.from_triples([*FACTS, *RARE])
    assert plain.relations == refitted.relations
    assert refitted.statistics is not None
    assert plain.statistics is not None
    counts, fewer = (found.to_tensors()[0] for found in (Statistics.of(graph), plain.statistics))
    assert all(
        torch.equal(found, counts[name]) for name, found in refitted.statistics.to_tensors()[0].items()
    )
    assert any(not torch.equal(found, counts[name]) for name, found in fewer.items())
    first, second = (p.predict(graph, "eve3", "mother_of", known=True, k=3) for p in (plain, refitted))
    assert [answer.score for answer in first] != [answer.score for answer in second]
    assert refitted.calibration == plain.calibration


@pytest.mark.parametrize("model", ["walk", "anyburl"])
def test_models_that_are_not_trained_by_steps_are_fitted_too(model: str, cli: Any) -> None:
    settings = ["--set", "model.seconds=0.0", "--set", "model.paths=2000"] if model == "anyburl" else []
    ran = cli("train", "mine.tsv", "--model", model, *settings, "-o", "run", "--json")
    assert ran.code == 0, ran.err
    assert cli("ask", "mine.tsv", "--run", "run", "--head", "eve3", "--relation", "calls cain 3").code == 0


def test_a_dataset_in_parts_cannot_be_fitted_as_one(cli: Any) -> None:
    for option in (["--refit"], ["--split", "facts"]):
        ran = cli("train", "world", *option)
        assert ran.code == 2
        assert "is for one graph" in ran.err
    with pytest.raises(ConfigError, match="comes in parts"):
        trained("world", refit=True)


# cut off and resumed


@pytest.mark.parametrize("when", [0, 1], ids=["training", "refit"])
def test_a_run_that_is_cut_off_says_how_to_go_on_and_ends_the_same(when: int, cli: Any) -> None:
    class StoppedError(Exception):
        pass

    def stop(told_step: Progress) -> None:
        if (bool(told_step.stage), told_step.step) == (bool(when), 2):
            raise StoppedError

    options: dict[str, Any] = {"train": {**QUICK, "checkpoint_steps": 1}, "minutes": None}
    trained(output="whole", **options)
    with pytest.raises(StoppedError):
        trained(output="cut", progress=stop, **options)
    with pytest.raises(
        CheckpointError, match=r"not finished .* contextpool resume cut DATASET   \(it was begun on 'mine'\)"
    ):
        cp.load("cut")
    ran = cli("ask", "mine.tsv", "--run", "cut", "--head", "eve3", "--relation", "calls cain 3")
    assert ran.code == 2
    assert "contextpool resume cut" in ran.err
    ran = cli("resume", "cut", "mine.tsv")
    assert ran.code == 0, ran.err
    assert run_contents(Path("cut")) == run_contents(Path("whole"))


# time


def test_time_is_told_before_it_is_spent(cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress_module, "LINE_SECONDS", 0.0)
    ran = cli("train", "mine.tsv", *SMALL, "-o", "run")
    assert ran.code == 0, ran.err
    lines = ran.err.splitlines()
    estimate = next(n for n, line in enumerate(lines) if line.startswith("will take "))
    first_step = next(n for n, line in enumerate(lines) if line.startswith("epoch 1/2, step 1/11  loss"))
    assert estimate < first_step
    assert "2 epochs of 11 steps at" in lines[estimate]
    assert "then at most 6 steps with all facts" in lines[estimate]
    assert any(line.startswith("evaluating, 42/42  ") for line in lines)
    assert any(line.startswith("fitting all facts, 6/6") for line in lines)


def test_minutes_choose_steps_that_a_resumed_run_keeps(cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(experiment.Experiment, "_timed", lambda self, left: Pace(step=1.0, question=0.01))
    small = [word for word in SMALL if word not in ("--epochs", "2")]
    ran = cli("train", "mine.tsv", *small, "--minutes", "0.5", "-o", "run")
    assert ran.code == 0, ran.err
    train = RunFolder.open("run").config["recipe"]["train"]
    steps = train["epochs"] * train["epoch_steps"]
    assert steps + refit_steps(steps) <= 30
    assert steps >= 15
    assert len(json.loads(Path("run/metrics.json").read_text())["history"]) <= train["epochs"]
    ran = cli("train", "mine.tsv", *small, "--minutes", "0.1", "-o", "other")
    assert ran.code == 2
    assert "--minutes 0.1 is too little time" in ran.err
    assert not Path("other").exists()


@pytest.mark.parametrize("options", [[], ["--fast"]], ids=["as usual, which tries two starts", "fast"])
def test_too_few_minutes_are_told_soon_and_what_is_suggested_will_do(
    options: list[str], cli: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step that is timed takes half a second here; one is timed after that which compiles, and no second model."""
    taken: list[int] = []

    def slow_steps(self: loop.Trainer, count: int) -> None:
        taken.append(count)
        time.sleep(0.5)

    monkeypatch.setattr(loop.Trainer, "take_steps", slow_steps)
    few = ["train", "mine.tsv", *options, "--set", "train.test_facts=5", "-o", "run"]
    refused = cli(*few, "--minutes", "0.08")
    assert refused.code == 2
    assert taken in ([1, 1], [1])  # the latter where the machine is so busy that all time is gone
    said = re.search(
        r"--minutes 0.08 is too little time: what comes before the training took (\d+) s, a step takes "
        r"[\d.]+ s here, .* 10 are the fewest\. Give it more \((--minutes \d+)\), or .* \(--fast, --set model.dim=8\)",
        refused.err,
    )
    assert said, refused.err
    assert int(said[1]) >= 1
    assert not Path("run").exists()

    def planned(self: experiment.Experiment, *_: Any) -> None:
        raise ConfigError(f"asked {self.recipe.train.epochs} times")

    monkeypatch.setattr(experiment.Experiment, "fit", planned)
    monkeypatch.setattr(training, "TRIAL_QUESTIONS", 32)
    enough = cli(*few, *said[2].split())
    assert re.search(
        r"will take \d+ s at most from here on \(\d+ s of \d+ min are gone\).*\n.* asked", enough.err
    )


def test_minutes_are_counted_from_the_beginning(cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    load = load_dataset

    def slowly(*arguments: Any, **options: Any) -> Any:
        time.sleep(2)
        return load(*arguments, **options)

    monkeypatch.setattr("contextpool.triples.catalog.load_dataset", slowly)
    monkeypatch.setattr(experiment.Experiment, "_timed", lambda self, left: Pace(1.0, 0.01))
    small = [word for word in SMALL if word not in ("--epochs", "2")]
    ran = cli("train", "mine.tsv", *small, "--minutes", "0.5", "-o", "run")
    assert ran.code == 0, ran.err
    will, gone = re.findall(r"will take (\d+) s at most from here on \((\d+) s of 30 s are gone\)", ran.err)[
        0
    ]
    assert int(gone) >= 2
    assert int(will) + int(gone) <= 31  # both are rounded
    assert "from reading the graph to the last step" in " ".join(cli("train", "--help").out.split())


def test_timing_ends_where_no_more_of_it_is_wanted() -> None:
    """By a clock that stands still but for the work: 7 s with compiling, then 4 and 2 s."""

    def found(*most: float) -> float:
        clock, takes = [0.0], iter([7.0, 4.0, 2.0])

        def work() -> None:
            clock[0] += next(takes)

        return timed(work, 2, lambda seconds, counted: seconds <= most[counted], lambda: clock[0])

    assert found(9.0, 9.0) == 3.0
    assert found(9.0, 3.0) == 4.0
    assert found(6.0) == 7.0


@pytest.mark.parametrize("pace", [Pace(5.6, 0.15), Pace(0.5, 0.01), Pace(90.0, 1.0)])
@pytest.mark.parametrize("tried", [0.0, 0.2])
def test_the_minutes_suggested_are_enough_with_what_comes_before(pace: Pace, tried: float) -> None:
    config, work = TrainConfig(epochs=3, batch_size=16, refit=True), Work(4_000, 300, 300)
    with pytest.raises(
        ConfigError, match=r"^minutes=0.25 is too little time: .* took 12 s, a step takes"
    ) as caught:
        within(config, pace, work, Budget(15.0, 12.0, tried))
    assert "train a smaller model (settings={'dim': 16})" in str(caught.value)
    minutes = int(re.findall(r"minutes=(\d+)\)", str(caught.value))[0])
    before = 12 + 4 * pace.step + tried * 60 * minutes  # a model more, the steps to time it, and the trials
    chosen = within(config, pace, work, Budget(60.0 * minutes, before))
    assert chosen.epochs * chosen.epoch_length(work.queries) >= 8  # ten, in epochs of equal length
    assert estimated(chosen, pace, work) + before <= 60 * minutes
    with pytest.raises(ConfigError):  # and few more than are needed
        within(config, pace, work, Budget(60.0 * (minutes - 2) * 0.8, before))


@pytest.mark.parametrize("seconds", [60, 600, 6000, 60_000])
@pytest.mark.parametrize("refit", [True, False])
def test_a_budget_is_kept_by_its_own_estimate(seconds: float, refit: bool) -> None:
    pace, work = Pace(0.5, 0.01), Work(60_000, 3_000, 3_000)
    config = TrainConfig(epochs=10, refit=refit, average_last=3)
    chosen = within(config, pace, work, Budget(seconds))
    assert 0.75 * min(seconds, estimated(config, pace, work)) <= estimated(chosen, pace, work) <= seconds
    assert chosen.valid_facts == 0 or chosen.valid_facts >= 50
    if estimated(config, pace, work) <= seconds:
        assert chosen == config


def test_a_long_training_says_what_is_faster() -> None:
    plan = TrainConfig(epochs=5), Pace(1.0, 0.01), Work(6_400, 100, 100)
    assert plan_told(*plan).startswith(
        "will take 9 min at most from here on: 5 epochs of 100 steps at 1 s, 100 facts to select on"
    )
    assert "Faster" not in plan_told(*plan)
    told_long = plan_told(*plan, shorter=True, gpu=True)
    assert (
        "Faster: --minutes 3 (as much as fits), --fast (a smaller model), --device cuda, or no" in told_long
    )
    assert "Faster" not in plan_told(TrainConfig(epochs=1), *plan[1:], shorter=True)


def test_a_budget_is_said_in_words() -> None:
    assert [told(seconds) for seconds in (0.2, 40, 100, 3599, 12_000)] == [
        "1 s",
        "40 s",
        "2 min",
        "1 h 0 min",
        "3 h 20 min",
    ]


def test_a_sparse_graph_holds_out_what_it_can(cli: Any) -> None:
    """Every entity keeps a fact: of a star with a few more facts, a tenth cannot be held out twice."""
    star = [("hub", "has", f"leaf {n}") for n in range(60)]
    extra = [("hub", "likes", f"leaf {n}") for n in range(5)]
    Path("star.tsv").write_text("".join("\t".join(fact) + "\n" for fact in [*star, *extra]))
    whole = json.loads(cli("data", "info", "star.tsv", "--json").out)
    assert (whole["entities"], whole["relations"], whole["facts"]) == (61, 2, 65)
    told_so = cli("data", "info", "star.tsv?split=facts", "--json")
    assert told_so.code == 0, told_so.err
    counted = json.loads(told_so.out)["triples"]
    assert 1 <= counted["validation_queries"] <= counted["inference_test"] <= 3
    Path("star.tsv").write_text("".join("\t".join(fact) + "\n" for fact in star))
    ran = cli("train", "star.tsv")
    assert ran.code == 2
    assert "contextpool ask GRAPH" in ran.err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--minutes", "1", "--model", "anyburl"], "anyburl has a budget of its own"),
        (["--minutes", "1", "--epochs", "2"], "--minutes chooses the epochs"),
        (["--minutes", "0"], "--minutes is 0"),
        (["--fast", "--best"], "--fast and --best"),
        (["--fast", "--model", "anyburl"], "--fast is for nbfnet"),
        (["--epochs", "0"], "train.epochs is 0"),
        (["--lr", "-1"], "train.lr is -1"),
    ],
)
def test_choices_that_cannot_be_are_refused(arguments: list[str], says: str, cli: Any) -> None:
    ran = cli("train", "mine.tsv", *arguments, "-o", "run")
    assert ran.code == 2
    assert says in ran.err
    assert not Path("run").exists()


def test_a_bar_or_lines_for_who_trains_from_python(
    cli: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress_module, "LINE_SECONDS", 0.0)
    trained(progress=True, refit=False)
    assert "epoch 2/2, step 11/11  loss" in capsys.readouterr().err


# worse than trivial


def test_a_model_that_loses_to_what_needs_no_training_is_told(cli: Any) -> None:
    ran = cli("train", "mine.tsv", "--plain", *SMALL, "--lr", "1e-9", "-o", "run")
    assert ran.code == 0, ran.err
    for said in (ran.out, Path("run/README.md").read_text(), cli("evaluate", "--run", "run").out):
        assert "is no better than walk x relevance (MRR 0." in " ".join(said.split())
        assert "Use that (train --model walk), ask without a run" in " ".join(said.split())
    assert cli("export", "run", "out").code == 0
    assert "is no better than walk x relevance (MRR 0." in Path("out/README.md").read_text()


@pytest.mark.parametrize(
    ("seed", "better", "advice"),
    [
        (3, "walk x relevance", "train GRAPH --model walk -o RUN, and from then on ask with --run RUN; or"),
        (0, "most frequent answer", "Train a model on this graph (contextpool train GRAPH), or look"),
    ],
)
def test_where_the_model_in_the_package_loses_what_is_named_can_be_typed(
    seed: int, better: str, advice: str, cli: Any
) -> None:
    """Facts at random; `evaluate` has neither --model nor --from, and asking without a run is what was done."""
    numbers = random.Random(seed)
    ends = [(numbers.randrange(40), numbers.randrange(3), numbers.randrange(40)) for _ in range(120)]
    lines = sorted({f"e{h}\tr{r}\te{t}\n" for h, r, t in ends})
    Path("random.tsv").write_text("".join(lines))
    for arguments in ([], ["--run", cp.SHIPPED]):
        remark = json.loads(cli("evaluate", "random.tsv", *arguments, "--json").out)["remark"]
        assert remark.startswith("The model in the package (MRR 0.")
        assert f"is no better than {better} (MRR 0." in remark
        assert advice in remark
        assert "without a run" not in remark
        assert "--from" not in remark
    assert " ".join(cli("evaluate", "random.tsv").out.split()).endswith(remark)
    if better == "walk x relevance":
        assert cli("train", "random.tsv", "--model", "walk", "-o", "walk").code == 0
        again = json.loads(cli("evaluate", "random.tsv", "--run", "walk", "--json").out)
        assert again["model"]["mrr"] == again["walk x relevance"]["mrr"]
        assert again["remark"] == ""


# the walk of the tables


def test_the_walk_of_the_tables_takes_any_relation(cli: Any) -> None:
    ran = cli(
        "train", "mine.tsv", "--split", "entities", "--model", "walk", "--no-refit", "-o", "run", "--json"
    )
    assert ran.code == 0, ran.err
    told_of = json.loads(ran.out)
    assert told_of["model"]["mrr"] == told_of["walk x relevance"]["mrr"]
    other = [(h, f"{r} too", t) for h, r, t in FACTS] + [("eve0", "married", "adam0")]
    Path("other.tsv").write_text("".join("\t".join(fact) + "\n" for fact in other))
    for relation in ("mother_of too", "married", "father_of"):  # of the graph, of both, of the training alone
        question = ("--head", "eve3", "--relation", relation, "--known", "--json")
        asked = cli("ask", "other.tsv", "--run", "run", *question)
        assert asked.code == 0, asked.err
    answers = cp.load("run").predict(other, "eve3", "mother_of too", known=True, k=2)
    assert {answer.entity for answer in answers} == {"cain3", "abel3"}


def test_counts_numbered_by_other_relations_are_the_same_counts() -> None:
    one, two = cp.Graph.from_triples(FACTS), cp.Graph.from_triples([*FACTS, *RARE])
    wider = Statistics.of(one).over(two.relation_vocabulary)
    again = wider.over(one.relation_vocabulary)
    for name, found in Statistics.of(one).to_tensors()[0].items():
        assert torch.equal(again.to_tensors()[0][name], found)
    same = Statistics.of(one.with_relations(two.relation_vocabulary))
    assert torch.equal(wider.to_tensors()[0]["both"], same.to_tensors()[0]["both"])
    assert (wider + same).counts.both.sum() == 2 * same.counts.both.sum()


# the split in words


def test_a_split_says_what_it_keeps(cli: Any) -> None:
    data = cp.load_dataset("mine.tsv?split=entities&seed=2")
    assert data.whole is not None
    learned = {fact for part in (data.training_graph, data.training_queries) for fact in part}
    relations = {relation for _, relation, _ in learned}
    assert len(relations) < 34
    said = split_told(data, parse_address("mine.tsv?split=entities&seed=2"))
    assert f"{len(relations)} of 34 relations, {len(learned)} of 210 facts" in said
    assert len(data.with_every_relation().relations) == 34
    assert set(data.with_every_relation().inference_test) == set(data.inference_test)
    assert data.with_every_relation().split == {"split": "entities", "seed": 2}
    assert replace(data, whole=None).split is None
