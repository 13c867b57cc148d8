"""Runs that are cut off and gone on with: the same bytes as the unbroken run (C1), drift told (C6)."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from contextpool import experiment, training
from contextpool.errors import CheckpointWriteError, ContextPoolError
from contextpool.graph.graph import Graph, split
from contextpool.recipe import Recipe
from contextpool.train.config import TrainConfig
from contextpool.train.progress import Progress
from contextpool.train.run_folder import RunFolder
from learning_worlds import CONTEXTS, families, family_dataset, run_contents
from learning_worlds import one_thread as one_thread
from support import amount
from train.killed_training import RECIPE, KilledTrainings, killed_trainings

RECIPES = {
    "nbfnet": Recipe("split", "nbfnet", {"dim": 4, "layers": 2, "dropout": 0.1}, None, RECIPE.train),
    "redgnn": RECIPE,
    "bce": Recipe(
        "split", "nbfnet", {"dim": 4, "layers": 2}, CONTEXTS["views"],
        TrainConfig(epochs=4, batch_size=64, warmup_steps=2, checkpoint_steps=3, loss="bce", patience=1),
    ),
}  # fmt: skip
INTERRUPTS = 3


class Cut(BaseException):
    """Not an Exception, so that nothing on the way mistakes it for a failure it knows."""


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], dict[str, bytes]]:
    """The run that nobody interrupts, by the name of its recipe; made once."""
    made: dict[str, dict[str, bytes]] = {}

    def run(name: str) -> dict[str, bytes]:
        if name not in made:
            folder = tmp_path_factory.mktemp("unbroken") / name
            experiment.run_recipe(RECIPES[name], family_dataset(), output=folder)
            made[name] = run_contents(folder)
        return made[name]

    return run


def begin_or_go_on(name: str, folder: Path, progress: Callable[[Progress], None] | None = None) -> None:
    if (folder / "config.json").exists():
        experiment.resume(folder, family_dataset(), progress=progress)
    else:
        experiment.run_recipe(RECIPES[name], family_dataset(), output=folder, progress=progress)


def cut_after(steps: int) -> Callable[[Progress], None]:
    left = iter(range(steps))

    def cut(_: Progress) -> None:
        if next(left, None) is None:
            raise Cut

    return cut


def attempt(*arguments: Any) -> bool:
    """Whether it was cut off."""
    try:
        begin_or_go_on(*arguments)
    except Cut:
        return True
    return False


# C1


@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.parametrize("seed", range(amount(2, 70)))
def test_a_run_cut_off_three_times_writes_the_bytes_of_the_unbroken_one(
    name: str, seed: int, tmp_path: Path, unbroken: Callable[[str], dict[str, bytes]]
) -> None:
    rng = random.Random(f"{name} {seed}")
    cuts = [attempt(name, tmp_path / "run", cut_after(rng.randint(0, 7))) for _ in range(INTERRUPTS)]
    assert cuts[0]
    begin_or_go_on(name, tmp_path / "run")
    assert run_contents(tmp_path / "run") == unbroken(name)


@pytest.fixture(scope="module")
def killer() -> Iterator[KilledTrainings]:
    with killed_trainings() as process:
        yield process


@pytest.mark.parametrize("seed", range(amount(3, 200)))
def test_a_training_killed_three_times_writes_the_bytes_of_the_unbroken_one(
    seed: int, tmp_path: Path, killer: KilledTrainings, unbroken: Callable[[str], dict[str, bytes]]
) -> None:
    """By SIGKILL, at random moments; at least one of them has to meet a training that is still going on."""
    assert killer.kill(tmp_path / "run", seed, INTERRUPTS) >= 1
    assert run_contents(tmp_path / "run") == unbroken("redgnn")


WRITES = {"save_checkpoint": 4, "append_event": 1, "write_json": 2, "save_tensors": 2, "write_text": 1}
"""Which of the calls of each writer are tried in CI: as many of the first."""


@pytest.mark.parametrize("method", WRITES)
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_cut_at_any_write_is_made_good(
    method: str,
    after: bool,
    tmp_path: Path,
    unbroken: Callable[[str], dict[str, bytes]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Before and after each call of a writer: between the best and the last checkpoint, among the results."""
    original = getattr(RunFolder, method)
    for at in range(amount(WRITES[method], 20)):
        folder = tmp_path / str(at)
        calls = iter(range(10**6))

        def cut(self: RunFolder, *arguments: Any, calls: Any = calls, at: int = at, **options: Any) -> None:
            here = next(calls) == at
            if here and not after:
                raise Cut
            original(self, *arguments, **options)
            if here:
                raise Cut

        with monkeypatch.context() as patch:
            patch.setattr(RunFolder, method, cut)
            attempt("redgnn", folder)
        begin_or_go_on("redgnn", folder)
        assert run_contents(folder) == unbroken("redgnn")


def test_a_cut_in_validation_is_made_good(
    tmp_path: Path, unbroken: Callable[[str], dict[str, bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def cut(*_: Any, **__: Any) -> None:
        raise Cut

    with monkeypatch.context() as patch:
        patch.setattr(training, "evaluate_scorer", cut)
        assert attempt("nbfnet", tmp_path / "run")
    begin_or_go_on("nbfnet", tmp_path / "run")
    assert run_contents(tmp_path / "run") == unbroken("nbfnet")


def test_a_finished_run_can_be_resumed_and_stays_as_it_is(
    tmp_path: Path, unbroken: Callable[[str], dict[str, bytes]]
) -> None:
    begin_or_go_on("bce", tmp_path / "run")
    steps: list[Progress] = []
    begin_or_go_on("bce", tmp_path / "run", steps.append)
    assert not steps
    assert run_contents(tmp_path / "run") == unbroken("bce")


def test_a_cut_run_gives_its_folder_back_and_one_that_goes_on_holds_it(tmp_path: Path) -> None:
    assert attempt("nbfnet", tmp_path / "run", cut_after(3))
    with (
        RunFolder.open(tmp_path / "run", writing=True),
        pytest.raises(CheckpointWriteError, match="is training"),
    ):
        experiment.resume(tmp_path / "run", family_dataset())


def test_the_log_tells_every_epoch(tmp_path: Path) -> None:
    assert attempt("nbfnet", tmp_path / "run", cut_after(8))
    begin_or_go_on("nbfnet", tmp_path / "run")
    events = list(RunFolder.open(tmp_path / "run").events())
    assert [event["epoch"] for event in events if event["event"] == "epoch"] == [1, 2, 3]


# C6: what a run depended on has changed


def is_told(folder: Path, go_on: Callable[[], Any], word: str) -> bool:
    """Whether going on is refused, warned about, or noted in the log, by a text that names what changed."""
    before = len(list(RunFolder.open(folder).events()))
    try:
        go_on()
    except (ContextPoolError, Warning) as refusal:
        return word in str(refusal)
    news = list(RunFolder.open(folder).events())[before:]
    return any(word in json.dumps(event) for event in news if event["event"] != "epoch")


@pytest.fixture
def cut_run(tmp_path: Path) -> Path:
    assert attempt("nbfnet", tmp_path / "run", cut_after(8))
    return tmp_path / "run"


def test_going_on_with_the_same_things_is_not_remarked_on(cut_run: Path) -> None:
    for word in ("threads", "dataset", "torch", "device"):
        assert not is_told(cut_run, lambda: experiment.resume(cut_run, family_dataset()), word)


def test_another_number_of_threads_is_told(cut_run: Path) -> None:
    torch.set_num_threads(2)
    assert is_told(cut_run, lambda: experiment.resume(cut_run, family_dataset()), "threads")


def test_other_facts_in_the_dataset_are_told(cut_run: Path) -> None:
    """As many entities and relations, one family that is related otherwise."""
    renamed = {"f1.0.0": "f2.0.0", "f2.0.0": "f1.0.0"}
    facts = [(renamed.get(head, head), r, renamed.get(tail, tail)) for head, r, tail in families()]
    other = split(Graph.from_triples(facts[:-1]), inductive=False, seed=1)
    assert other.training_graph != family_dataset().training_graph
    assert is_told(cut_run, lambda: experiment.resume(cut_run, other), "dataset")


@pytest.mark.parametrize(("what", "value"), [("torch", "1.0.0"), ("device", "cuda")])
def test_another_release_of_torch_or_another_device_is_told(cut_run: Path, what: str, value: str) -> None:
    config = cut_run / "config.json"
    content = json.loads(config.read_text())
    content["config"]["machine"][what] = value
    config.write_text(json.dumps(content))
    assert is_told(cut_run, lambda: experiment.resume(cut_run, family_dataset()), what)
