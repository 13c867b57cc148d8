"""Curves that go elsewhere: TensorBoard for real, MLflow and W&B as fakes and, where installed, for real."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import contextpool as cp
from command_line import run as run_command
from contextpool import experiment
from contextpool.errors import ConfigError, MissingExtraError
from contextpool.recipe import Recipe
from contextpool.train.config import TrainConfig
from contextpool.train.progress import Progress
from contextpool.train.run_folder import RunFolder
from contextpool.train.tracking import TRACKERS, Tracker, flattened
from learning_worlds import family_dataset, run_contents
from learning_worlds import one_thread as one_thread

RECIPE = Recipe(
    "split", "nbfnet", {"dim": 4, "layers": 2}, None, TrainConfig(epochs=3, batch_size=64, warmup_steps=2)
)


def train(output: Path | None, track: str | Tracker | None, **options: Any) -> None:
    experiment.run_recipe(RECIPE, family_dataset(), output=output, track=track, **options)


def history(folder: Path) -> list[dict[str, Any]]:
    epochs: list[dict[str, Any]] = RunFolder.open(folder).read_json("metrics.json")["history"]
    return epochs


class Notebook:
    """A tracker of one's own: what it was told, and a failure where one is asked for."""

    def __init__(self, fails_at: str = "") -> None:
        self.told: list[tuple[Any, ...]] = []
        self.fails_at = fails_at

    def _note(self, *what: Any) -> None:
        self.told.append(what)
        if what[0] == self.fails_at:
            raise OSError("the notebook is full")

    def start(self, config: Mapping[str, Any]) -> None:
        self._note("start", dict(config))

    def log(self, step: int, values: Mapping[str, float]) -> None:
        self._note("log", step, dict(values))

    def finish(self, failed: bool = False) -> None:
        self._note("finish", failed)


# ---- what a tracker is told ---------------------------------------------------------------------------------------


def test_a_tracker_is_told_the_config_every_epoch_and_the_end(tmp_path: Path) -> None:
    book = Notebook()
    cp.train(
        family_dataset(),
        settings={"dim": 4, "layers": 2},
        train={"epochs": 2},
        seed=5,
        output=tmp_path / "run",
        track=book,
    )
    config = RunFolder.open(tmp_path / "run").config
    assert book.told[0] == ("start", {key: config[key] for key in book.told[0][1]})
    assert book.told[0][1]["seed"] == 5
    assert book.told[0][1]["recipe"]["train"]["epochs"] == 2
    logged = [(step, values["loss"], values["valid_mrr"]) for _, step, values in book.told[1:-1]]
    assert logged == [(each["epoch"], each["loss"], each["valid_mrr"]) for each in history(tmp_path / "run")]
    assert all(values.keys() == {"loss", "valid_mrr", "seconds"} for _, _, values in book.told[1:-1])
    assert book.told[-1] == ("finish", False)


def test_a_tracker_is_told_of_learned_rules() -> None:
    book = Notebook()
    settings = {"paths": 2_000, "seconds": 0.0}
    cp.train(family_dataset(), "anyburl", settings=settings, track=book)
    logged = [(step, values) for what, step, values in book.told[1:-1] if what == "log"]
    assert [step for step, _ in logged] == [1]
    assert {"valid_mrr", "seconds", "rules"} <= logged[0][1].keys()


def test_a_tracker_needs_no_run_folder() -> None:
    book = Notebook()
    train(None, book)
    assert [what[0] for what in book.told] == ["start", "log", "log", "log", "finish"]


def test_a_tracked_run_is_the_run(tmp_path: Path) -> None:
    train(tmp_path / "plain", None)
    train(tmp_path / "tracked", Notebook())
    assert run_contents(tmp_path / "plain") == run_contents(tmp_path / "tracked")


def test_a_run_that_is_cut_off_is_finished_as_failed() -> None:
    def cut(_: Progress) -> None:
        raise KeyboardInterrupt

    book = Notebook()
    with pytest.raises(KeyboardInterrupt):
        train(None, book, progress=cut)
    assert book.told[-1] == ("finish", True)


def test_a_tracker_that_fails_on_the_way_costs_nothing_but_itself(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train(tmp_path / "plain", None)
    for moment, calls in (("log", ["start", "log"]), ("finish", ["start", "log", "log", "log", "finish"])):
        book = Notebook(fails_at=moment)
        train(tmp_path / moment, book)
        assert [what[0] for what in book.told] == calls
        assert run_contents(tmp_path / moment) == run_contents(tmp_path / "plain")
        told = capsys.readouterr().err
        assert told.count("Notebook failed (OSError: 'the notebook is full'); the run goes on") == 1


def test_a_tracker_that_cannot_start_is_refused_before_training() -> None:
    book = Notebook(fails_at="start")
    with pytest.raises(
        ConfigError, match=r"Notebook can't be started \('the notebook is full'\)\. .* leave track"
    ):
        train(None, book)
    assert len(book.told) == 1


def test_nested_settings_are_flattened() -> None:
    assert flattened({"a": 1, "b": {"c": {"d": 2.5}, "e": [1, "x"]}, "f": None}) == {
        "a": 1,
        "b.c.d": 2.5,
        "b.e": '[1, "x"]',
        "f": None,
    }


# ---- what is refused ----------------------------------------------------------------------------------------------


def test_an_unknown_tracker_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="track is 'tensorbored'; it is one of tensorboard, mlflow, wandb"):
        train(tmp_path / "run", "tensorbored")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", TRACKERS)
def test_a_package_that_is_missing_is_named_before_a_folder_is_made(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingExtraError, match=rf"'{name}'.*pip install 'contextpool\[track\]'"):
        train(tmp_path / "run", name)
    assert not (tmp_path / "run").exists()


def test_tensorboard_needs_a_run_folder() -> None:
    with pytest.raises(ConfigError, match=r"writes into the run folder, and there is none\. Give one"):
        train(None, "tensorboard")


def test_the_command_line_names_the_missing_package(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "mlflow", None)
    ran = run_command(
        ["train", "world", "-o", str(tmp_path / "run"), "--track", "mlflow"], capsys, monkeypatch
    )
    assert ran.code == 2
    assert "contextpool[track]" in ran.err
    assert not (tmp_path / "run").exists()


# ---- TensorBoard ----------------------------------------------------------------------------------------------------


def curves(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """What TensorBoard itself reads from the run."""
    event_accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    reader = event_accumulator.EventAccumulator(str(folder / "tensorboard"))
    reader.Reload()
    return {
        tag: [(event.step, event.value) for event in reader.Scalars(tag)] for tag in reader.Tags()["scalars"]
    }


def assert_curves_are_the_history(folder: Path) -> None:
    drawn, epochs = curves(folder), history(folder)
    assert drawn.keys() == {"loss", "valid_mrr", "seconds"}
    for tag in ("loss", "valid_mrr"):
        assert [step for step, _ in drawn[tag]] == [each["epoch"] for each in epochs] == [1, 2, 3]
        assert [value for _, value in drawn[tag]] == pytest.approx([each[tag] for each in epochs], rel=1e-6)


def test_tensorboard_draws_the_curves_of_the_run(tmp_path: Path) -> None:
    event_accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    train(tmp_path / "run", "tensorboard")
    assert_curves_are_the_history(tmp_path / "run")
    reader = event_accumulator.EventAccumulator(str(tmp_path / "run" / "tensorboard")).Reload()
    (text,) = reader.Tensors("config/text_summary")[0].tensor_proto.string_val
    assert json.loads(text)["recipe"]["model"]["name"] == "nbfnet"
    assert experiment.load(tmp_path / "run") is not None


def test_tensorboard_goes_on_where_a_run_goes_on(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")

    def cut(progress: Progress) -> None:
        if (progress.epoch, progress.step) == (3, 1):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(tmp_path / "run", "tensorboard", progress=cut)
    assert [step for step, _ in curves(tmp_path / "run")["loss"]] == [1, 2]
    experiment.resume(tmp_path / "run", family_dataset(), track="tensorboard")
    assert_curves_are_the_history(tmp_path / "run")


def test_overwriting_a_run_removes_its_curves_and_nothing_else(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    train(tmp_path / "run", "tensorboard")
    (tmp_path / "run" / "tensorboard" / "notes.txt").write_text("mine")
    train(tmp_path / "run", "tensorboard", overwrite=True)
    assert_curves_are_the_history(tmp_path / "run")
    assert len(list((tmp_path / "run" / "tensorboard").glob("events*"))) == 1
    train(tmp_path / "run", None, overwrite=True)
    assert [file.name for file in (tmp_path / "run" / "tensorboard").iterdir()] == ["notes.txt"]


# ---- MLflow and W&B, in place of which anything may answer ----------------------------------------------------------


class Recorder(ModuleType):
    """A module whose functions and objects write down how they are called."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []

    def noted(self, name: str, result: Any = None) -> Any:
        def call(*arguments: Any, **options: Any) -> Any:
            self.calls.append((name, arguments, options))
            return result

        return call


@pytest.fixture
def mlflow(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    fake = Recorder("mlflow")
    fake.client = SimpleNamespace(
        get_experiment_by_name=fake.noted("get_experiment_by_name"),
        create_experiment=fake.noted("create_experiment", "7"),
        create_run=fake.noted("create_run", SimpleNamespace(info=SimpleNamespace(run_id="r1"))),
        log_param=fake.noted("log_param"),
        log_metric=fake.noted("log_metric"),
        set_terminated=fake.noted("set_terminated"),
    )
    fake.MlflowClient = lambda: fake.client
    monkeypatch.setitem(sys.modules, "mlflow", fake)
    monkeypatch.delenv("MLFLOW_EXPERIMENT_NAME", raising=False)
    return fake


def test_mlflow_gets_parameters_metrics_and_an_end(tmp_path: Path, mlflow: Recorder) -> None:
    train(tmp_path / "first", "mlflow")
    calls = mlflow.calls
    assert [name for name, _, _ in calls[:3]] == ["get_experiment_by_name", "create_experiment", "create_run"]
    assert calls[1][1] == ("contextpool",)
    assert calls[2][1:] == (("7",), {"run_name": "first"})
    parameters = {arguments[1]: arguments[2] for name, arguments, _ in calls if name == "log_param"}
    assert parameters["recipe.train.epochs"] == 3
    metrics = [(*arguments, options["step"]) for name, arguments, options in calls if name == "log_metric"]
    epochs = history(tmp_path / "first")
    expected = [("r1", "valid_mrr", each["valid_mrr"], each["epoch"]) for each in epochs]
    assert [metric for metric in metrics if metric[1] == "valid_mrr"] == expected
    assert calls[-1] == ("set_terminated", ("r1", "FINISHED"), {})


def test_mlflow_takes_the_experiment_that_is_there(mlflow: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "mine")
    mlflow.client.get_experiment_by_name = mlflow.noted("found", SimpleNamespace(experiment_id="3"))
    train(None, "mlflow")
    assert mlflow.calls[0] == ("found", ("mine",), {})
    assert mlflow.calls[1] == ("create_run", ("3",), {"run_name": None})


def test_mlflow_is_told_of_a_failure(mlflow: Recorder) -> None:
    def cut(_: Progress) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(None, "mlflow", progress=cut)
    assert mlflow.calls[-1][1] == ("r1", "FAILED")


def test_wandb_is_offline_unless_told_otherwise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = Recorder("wandb")
    started = SimpleNamespace(log=fake.noted("log"), finish=fake.noted("finish"))
    fake.init = fake.noted("init", started)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "wandb", fake)
    monkeypatch.delenv("WANDB_MODE", raising=False)
    monkeypatch.delenv("WANDB_PROJECT", raising=False)
    train(tmp_path / "first", "wandb")
    name, _, options = fake.calls[0]
    assert (name, options["mode"], options["project"], options["name"]) == (
        "init",
        "offline",
        "contextpool",
        "first",
    )
    assert options["config"]["recipe"]["model"]["name"] == "nbfnet"
    logged = [
        (options["step"], arguments[0]["loss"]) for name, arguments, options in fake.calls if name == "log"
    ]
    assert logged == [(each["epoch"], each["loss"]) for each in history(tmp_path / "first")]
    assert fake.calls[-1] == ("finish", (), {"exit_code": 0})
    monkeypatch.setenv("WANDB_MODE", "online")
    monkeypatch.setenv("WANDB_PROJECT", "mine")
    train(None, "wandb")
    (again,) = (options for name, _, options in fake.calls[1:] if name == "init")
    assert (again["mode"], again["project"], again["name"]) == ("online", "mine", None)


# ---- and for real, where they are installed ----------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore")
def test_a_store_of_mlflow_holds_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "store").as_uri())
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # newer releases ask for a database otherwise
    train(tmp_path / "run", "mlflow")
    client = mlflow.MlflowClient()
    experiment_id = client.get_experiment_by_name("contextpool").experiment_id
    (found,) = client.search_runs([experiment_id])
    assert found.info.status == "FINISHED"
    assert found.data.params["recipe.model.name"] == "nbfnet"
    stored = [
        (metric.step, metric.value) for metric in client.get_metric_history(found.info.run_id, "valid_mrr")
    ]
    assert stored == [(each["epoch"], pytest.approx(each["valid_mrr"])) for each in history(tmp_path / "run")]


@pytest.mark.filterwarnings("ignore")
def test_wandb_leaves_an_offline_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    monkeypatch.setenv("WANDB_SILENT", "true")
    monkeypatch.delenv("WANDB_MODE", raising=False)
    train(tmp_path / "run", "wandb")
    assert len(list((tmp_path / "wandb").glob("offline-run-*/run-*.wandb"))) == 1
