"""Dropping edges in training: seeded by (seed, epoch, step), resumed to the byte, never in validation."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

from contextpool import experiment
from contextpool.errors import ConfigError
from contextpool.pool.batch import BatchBuilder, QueryBatch
from contextpool.pool.hide import EdgeDropout
from contextpool.recipe import Recipe
from contextpool.train.config import TrainConfig
from contextpool.train.progress import Progress
from contextpool.train.queries import mixed_seed
from learning_worlds import CONTEXTS, family_dataset, run_contents
from learning_worlds import one_thread as one_thread
from support import context_with
from train.test_loop import config_of, new_trainer, same, weights_of

OPTIONS = context_with(gate=True, arrive=True, arrive_features=True, arrive_walk=True, hops=2)


class Cut(BaseException):
    pass


def drops_of(monkeypatch: pytest.MonkeyPatch, run: Any) -> list[EdgeDropout | None]:
    """What is dropped in every batch that `run` builds."""
    seen: list[EdgeDropout | None] = []
    build = BatchBuilder.build

    def watched(self: BatchBuilder, *given: Tensor, **named: Any) -> QueryBatch:
        seen.append(named.get("dropout"))
        return build(self, *given, **named)

    monkeypatch.setattr(BatchBuilder, "build", watched)
    run()
    return seen


def test_every_step_has_a_seed_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = new_trainer(config=config_of(epochs=2, edge_dropout=0.25), seed=3)
    steps = trainer.steps_per_epoch
    seen = drops_of(monkeypatch, trainer.fit)
    expected = [
        EdgeDropout(0.25, mixed_seed(3, epoch, step)) for epoch in range(2) for step in range(1, steps + 1)
    ]
    assert seen == expected
    assert len({one.seed for one in expected}) == 2 * steps


def test_nothing_is_dropped_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = new_trainer(config=config_of(epochs=1))
    assert set(drops_of(monkeypatch, trainer.fit)) == {None}


@pytest.mark.parametrize("context", [None, CONTEXTS["all"]], ids=["plain", "context"])
def test_dropping_changes_what_is_learned_and_the_seed_decides_how(context: Any) -> None:
    results = []
    for share in (0.3, 0.3, 0.0):
        trainer = new_trainer(context=context, config=config_of(epochs=1, edge_dropout=share))
        trainer.fit()
        results.append(weights_of(trainer.model))
    assert same(results[0], results[1])
    assert not same(results[0], results[2])


def test_validation_sees_the_whole_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    data = family_dataset()
    config = config_of(epochs=1, batch_size=512, edge_dropout=0.5)
    recipe = Recipe("split", "nbfnet", {"dim": 4, "layers": 2}, None, config)
    seen = drops_of(monkeypatch, lambda: experiment.run_recipe(recipe, data))
    trained = [one for one in seen if one is not None]
    assert len(trained) == 1  # one step; validation and calibration drop nothing
    assert len(seen) > 1


def begin_or_go_on(recipe: Recipe, folder: Path, progress: Callable[[Progress], None]) -> None:
    if folder.exists():
        experiment.resume(folder, family_dataset(), progress=progress)
    else:
        experiment.run_recipe(recipe, family_dataset(), output=folder, progress=progress)


def test_a_run_with_every_option_that_is_cut_off_writes_the_bytes_of_the_unbroken_one(tmp_path: Path) -> None:
    train = TrainConfig(
        epochs=3, batch_size=64, warmup_steps=2, checkpoint_steps=2, average_last=2, edge_dropout=0.3
    )  # fmt: skip
    settings = {"dim": 4, "layers": 2, "relation_encoder": True, "exclude_head": True}
    recipe, data = Recipe("split", "nbfnet", settings, OPTIONS, train), family_dataset()
    experiment.run_recipe(recipe, data, output=tmp_path / "unbroken")
    for steps in (3, 6):
        left = iter(range(steps))

        def cut(_: Progress, left: Any = left) -> None:
            if next(left, None) is None:
                raise Cut

        with pytest.raises(Cut):
            begin_or_go_on(recipe, tmp_path / "run", cut)
    experiment.resume(tmp_path / "run", data)
    assert run_contents(tmp_path / "run") == run_contents(tmp_path / "unbroken")
    loaded = experiment.load(tmp_path / "run")
    assert loaded.context == OPTIONS
    assert loaded.model.reads_relations


def test_a_relation_encoder_without_context_keeps_its_counts(tmp_path: Path) -> None:
    data = family_dataset(inductive=True)
    recipe = Recipe(
        "split", "nbfnet", {"dim": 4, "layers": 2, "relation_encoder": True}, None, config_of(epochs=1)
    )
    trained = experiment.run_recipe(recipe, data, output=tmp_path / "run")
    loaded = experiment.load(tmp_path / "run")
    reports = [experiment.evaluate(predictor, data) for predictor in (trained, loaded)]
    assert reports[0].ranks.tolist() == reports[1].ranks.tolist()


def test_settings_out_of_range_are_refused_by_name() -> None:
    for share in (-0.1, 1.0):
        with pytest.raises(ConfigError, match=r"train\.edge_dropout is"):
            TrainConfig(edge_dropout=share)
