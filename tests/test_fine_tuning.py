"""Training that starts from a trained model: its own weights count as epoch 0, and what validates worse is not kept."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import contextpool as cp
from command_line import Ran, run
from contextpool import experiment, training
from contextpool.errors import CheckpointError, ConfigError
from contextpool.models.base import LinkPredictor
from contextpool.pretraining import seen_by_start, started_recipe
from contextpool.recipe import Recipe, shipped_recipe
from contextpool.train.budget import Pace, Work, on_trial
from contextpool.train.config import TrainConfig
from contextpool.train.progress import Progress
from contextpool.train.run_folder import RunFolder
from learning_worlds import families, family_dataset, run_contents
from learning_worlds import one_thread as one_thread
from train.test_loop import new_trainer, same, scripted, weights_of

SMALL = {"dim": 4, "layers": 2, "relation_layers": 1}
QUICK = {"epochs": 2, "batch_size": 64, "warmup_steps": 2, "checkpoint_steps": 3}
Cli = Callable[..., Ran]


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Cli:
    return lambda *arguments: run(list(arguments), capsys, monkeypatch)


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of a small model for any graph, on a graph of its own."""
    folder = tmp_path_factory.mktemp("start") / "first"
    data = cp.split(cp.Graph.from_triples([(f"a{n}", f"r{n % 3}", f"a{(n * 7) % 30}") for n in range(120)]))
    options: dict[str, Any] = {"settings": SMALL, "train": QUICK, "context": {"views": []}}
    cp.train(data, "anygraph", output=folder, **options)
    return folder


def weights_in(folder: Path) -> dict[str, Tensor]:
    return RunFolder.open(folder).load_tensors("model.safetensors")[0]


# epoch 0


@pytest.mark.parametrize(
    ("figures", "best", "epochs"),
    [([0.5, 0.4, 0.3], 0, 2), ([0.5, 0.6, 0.55], 1, 2), ([0.5, 0.5, 0.5], 0, 2), ([0.0, 0.0, 0.1], 2, 2)],
)
def test_the_given_weights_are_kept_where_no_epoch_is_better(
    figures: list[float], best: int, epochs: int
) -> None:
    seen: list[dict[str, Tensor]] = []
    trainer = new_trainer(validate=scripted(figures, seen), pretrained=True)
    given = weights_of(trainer.model)
    outcome = trainer.fit()
    assert same(seen[0], given)
    assert (outcome.best_epoch, outcome.best_mrr, outcome.epochs) == (best, max(figures), epochs)
    assert same(weights_of(trainer.model), seen[best])
    assert [entry["epoch"] for entry in outcome.history] == [0, 1, 2]


@pytest.fixture(scope="module")
def trained(start: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The start, trained on with families."""
    folder = tmp_path_factory.mktemp("trained") / "second"
    cp.train(family_dataset(), start=start, train={**QUICK, "epochs": 4, "lr": 0.01}, output=folder)
    return folder


def test_training_that_helps_is_kept(trained: Path) -> None:
    """The run is an ordinary one, and answers about any relation still."""
    metrics = json.loads((trained / "metrics.json").read_text("utf-8"))
    assert metrics["best_epoch"] > 0
    assert metrics["valid_mrr"] > metrics["history"][0]["valid_mrr"]
    assert ", from first" in (trained / "README.md").read_text("utf-8")
    answers = cp.load(trained).predict(cp.Graph.from_triples([("x", "new", "y")]), "x", "new")
    assert {answer.entity for answer in answers} <= {"x", "y"}


def test_training_that_hurts_leaves_the_model_as_it_was(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every epoch validates worse, by a script: the run is that of epoch 0."""
    figures = iter([0.5, 0.4, 0.3])
    monkeypatch.setattr(training.Experiment, "_validate", lambda _: lambda _: next(figures))
    cp.train(family_dataset(), start=trained, train=QUICK, output=tmp_path / "run")
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text("utf-8"))
    assert metrics["best_epoch"] == 0
    assert metrics["valid_mrr"] == metrics["history"][0]["valid_mrr"]
    assert same(weights_in(tmp_path / "run"), weights_in(trained))


# resuming


class Cut(BaseException):
    """Not an Exception, so that nothing on the way mistakes it for a failure it knows."""


def begun(start: Path, folder: Path, cut: int | None = None) -> None:
    left = iter(range(10**6 if cut is None else cut))

    def progress(_: Progress) -> None:
        if next(left, None) is None:
            raise Cut

    recipe = started_recipe(Recipe("split", "anygraph", train=TrainConfig(**QUICK)), start)
    experiment.run_recipe(recipe, family_dataset(), output=folder, progress=progress)


@pytest.mark.parametrize("cut", [0, 4, 8])
def test_a_run_that_was_cut_off_needs_its_start_no_more(cut: int, start: Path, tmp_path: Path) -> None:
    copy = tmp_path / "first"
    copy.mkdir()
    for file in start.iterdir():
        if file.is_file():
            (copy / file.name).write_bytes(file.read_bytes())
    begun(copy, tmp_path / "whole")
    with pytest.raises(Cut):
        begun(copy, tmp_path / "cut", cut)
    (copy / "model.safetensors").write_bytes(b"gone")
    experiment.resume(tmp_path / "cut", family_dataset())
    assert run_contents(tmp_path / "cut") == run_contents(tmp_path / "whole")


def test_a_run_names_no_start_that_is_opened(
    start: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cut(*_: Any, **__: Any) -> None:
        raise Cut

    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "save_checkpoint", cut)
        with pytest.raises(Cut):
            begun(start, tmp_path / "cut")
    assert (
        json.loads((tmp_path / "cut" / "config.json").read_text("utf-8"))["config"]["recipe"]["start"]
        == "first"
    )
    with pytest.raises(CheckpointError, match="before its first checkpoint"):
        experiment.resume(tmp_path / "cut", family_dataset())


# what fits


def test_a_start_of_another_model_is_refused(start: Path) -> None:
    with pytest.raises(ConfigError, match="a run of anygraph, and the model is nbfnet"):
        cp.train(family_dataset(), "nbfnet", start=start)
    with pytest.raises(ConfigError, match="do not fit the model's settings"):
        cp.train(family_dataset(), "anygraph", start=start, settings={"dim": 8})


def test_a_start_with_weights_of_relations_has_to_have_the_same(tmp_path: Path) -> None:
    options: dict[str, Any] = {"settings": {"dim": 4, "layers": 2}, "train": {**QUICK, "epochs": 1}}
    cp.train(family_dataset(), "nbfnet", output=tmp_path / "first", **options)
    again = cp.train(family_dataset(), start=tmp_path / "first", train={**QUICK, "epochs": 1})
    assert again.model.name == "nbfnet"
    other = cp.split(cp.Graph.from_triples([(f"a{n}", f"r{n % 3}", f"a{n + 1}") for n in range(60)]))
    with pytest.raises(ConfigError, match="belong to other relations"):
        cp.train(other, start=tmp_path / "first", train=QUICK)


# the command line


@pytest.fixture
def graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    lines = ("\t".join(triple) + "\n" for triple in families())
    (tmp_path / "mine.tsv").write_text("".join(lines), "utf-8")
    return "mine.tsv"


QUICKLY = (
    "--epochs",
    "1",
    "--set",
    "train.valid_facts=10",
    "--set",
    "train.test_facts=10",
    "--device",
    "cpu",
    "--json",
)


def recipe_in(folder: str) -> dict[str, Any]:
    config: dict[str, Any] = json.loads((Path(folder) / "config.json").read_text("utf-8"))["config"]
    return dict(config["recipe"])


def test_from_names_a_run_or_the_model_in_the_package(cli: Cli, graph: str, start: Path) -> None:
    result = cli("train", graph, "--from", str(start), "-o", "run", *QUICKLY)
    assert result.code == 0, result.err
    assert recipe_in("run")["start"] == "first"
    assert recipe_in("run")["model"] == {"name": "anygraph", **SMALL}
    assert "whose own weights are kept where no epoch validates better" in " ".join(result.err.split())
    refused = cli("train", graph, "--from", "nowhere", *QUICKLY)
    assert refused.code == 2
    assert "there is no run folder of this name" in " ".join(refused.err.split())
    refused = cli("ask", graph, "--run", graph, "--head", "a", "--relation", "r")
    assert refused.code == 2
    assert "this is a file, and a run is the folder" in " ".join(refused.err.split())


def test_from_scratch_starts_from_nothing(cli: Cli, graph: str) -> None:
    small = ("--set", "model.dim=4", "--set", "model.layers=2")
    result = cli("train", graph, "--from", "scratch", "-o", "run", *small, *QUICKLY)
    assert result.code == 0, result.err
    assert "start" not in recipe_in("run")
    assert recipe_in("run")["model"]["name"] == "nbfnet"


@pytest.mark.parametrize("better", ["scratch", cp.SHIPPED])
def test_what_validates_better_on_trial_is_trained(
    better: str, cli: Cli, graph: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both are tried, by the same facts and about as long; scripted, who is the better one."""
    tried: list[tuple[str, TrainConfig]] = []
    train = experiment.Experiment._train

    def scripted_train(made: experiment.Experiment, told: Any) -> Any:
        outcome = train(made, told)
        if told["run"] is not None:
            return outcome
        start = made.recipe.start or "scratch"
        tried.append((start, made.recipe.train))
        return replace(outcome, best_mrr=0.9 if start == better else 0.1)

    monkeypatch.setattr(experiment.Experiment, "_train", scripted_train)
    monkeypatch.setattr(training, "TRIAL_QUESTIONS", 64)
    result = cli("train", graph, "-o", "run", *QUICKLY)
    assert result.code == 0, result.err
    (first, scratch), (second, started) = tried
    assert (first, second) == ("scratch", cp.SHIPPED)
    assert scratch.valid_facts == started.valid_facts == 10
    for config, questions in ((started, 64), (scratch, 160)):
        asked = config.epochs * config.epoch_steps * config.batch_size
        assert questions <= asked < questions + config.epochs * config.batch_size
    told = " ".join(result.err.split())
    assert f"{better} validates better (MRR 0.900)" in told
    assert recipe_in("run").get("start") == (None if better == "scratch" else cp.SHIPPED)
    assert recipe_in("run")["train"]["epochs"] == 1
    assert json.loads(result.out)["model"]["mrr"] > 0
    assert (cp.load("run").relations is None) == (better == cp.SHIPPED)


def test_the_same_seed_chooses_the_same_without_a_clock() -> None:
    """Facts of a graph and a seed decide, and nothing is left of the trials."""
    scratch = Recipe("split", "nbfnet", {"dim": 4, "layers": 2}, None, TrainConfig(**QUICK))
    shipped = shipped_recipe("split", "anygraph", True, "own")
    assert shipped is not None
    started = started_recipe(shipped, cp.SHIPPED)
    first, second = (training.judged(scratch, started, family_dataset(), 0, "cpu") for _ in range(2))
    assert first == second
    assert set(first.mrr) == {"scratch", cp.SHIPPED}
    best = max(first.mrr, key=lambda name: first.mrr[name])
    assert (first.recipe.start or "scratch") == best


def test_too_little_time_to_try_both_starts_from_the_model_in_the_package() -> None:
    config, work, slow = TrainConfig(batch_size=16), Work(10_000, 500, 0), Pace(4.0, 0.1)
    assert on_trial([config, config], [64, 64], work, [slow, slow], 30.0) is None
    ample = on_trial([config, config], [1600, 4000], work, [Pace(0.01, 0.001), Pace(0.3, 0.005)], 30.0)
    assert ample is not None
    fast, limited = ample
    assert fast.valid_facts == limited.valid_facts
    assert limited.epoch_steps * 0.3 + 4 * limited.valid_facts * 0.005 <= 30
    assert fast.epochs * fast.epoch_steps == 100


def test_a_start_that_knows_the_family_says_so(start: Path) -> None:
    assert seen_by_start(start, "grail/fb237_v1") == []
    assert "grail/fb237_v3" in seen_by_start(cp.SHIPPED, "grail/fb237_v1")
    assert seen_by_start(cp.SHIPPED, "mine.tsv") == []


def test_the_shipped_recipe_starts_from_the_model_in_the_package() -> None:
    recipe = shipped_recipe("mine.tsv", "anygraph", True, "own")
    assert recipe is not None
    assert recipe.start == cp.SHIPPED
    loaded = cp.load(cp.SHIPPED).model
    model = experiment.model_class("anygraph")(
        0, started_recipe(recipe, cp.SHIPPED).model_config(), recipe.context
    )
    assert isinstance(model, LinkPredictor)
    torch.testing.assert_close(
        {name: value.shape for name, value in model.state_dict().items()},
        {name: value.shape for name, value in loaded.state_dict().items()},
    )
