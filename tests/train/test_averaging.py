"""The average of the last epochs: what it is, when it is kept, and that a resumed run comes to the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from contextpool.errors import ConfigError
from contextpool.train.config import TrainConfig
from contextpool.train.optimizer import LastWeights
from contextpool.train.run_folder import RunFolder
from learning_worlds import one_thread as one_thread
from train.test_loop import Weights, config_of, new_trainer, same, scripted, weights_of


def mean_of(shown: list[Weights]) -> Weights:
    return {
        name: torch.stack([one[name].double() for one in shown]).mean(dim=0).float()
        if value.is_floating_point()
        else value
        for name, value in shown[-1].items()
    }


def test_the_average_of_the_last_few_is_the_mean_of_each_weight() -> None:
    recent, layer, shown = LastWeights(3), nn.Linear(2, 2), []
    layer.register_buffer("count", torch.tensor(0))
    for epoch in range(5):
        layer.weight.data = torch.randn(2, 2)
        layer.count.fill_(epoch)
        recent.keep(layer)
        shown.append({name: value.clone() for name, value in layer.state_dict().items()})
    assert len(recent) == 3
    assert same(recent.average(), mean_of(shown[-3:]))
    assert recent.average()["count"] == 4
    again = LastWeights(3)
    again.load({key.removeprefix("recent."): value for key, value in recent.tensors().items()}, layer)
    assert same(again.average(), recent.average())
    nothing = LastWeights(0)
    nothing.keep(layer)
    assert len(nothing) == 0
    assert not nothing.tensors()


@pytest.mark.parametrize(
    ("figures", "kept"),
    [([0.1, 0.5, 0.4, 0.5], True), ([0.1, 0.5, 0.4, 0.49], False), ([0.1, 0.5, 0.4, 0.7], True)],
)
def test_it_is_kept_where_validation_finds_it_no_worse(figures: list[float], kept: bool) -> None:
    shown: list[Weights] = []
    told: list[dict[str, Any]] = []
    trainer = new_trainer(
        validate=scripted(figures, shown),
        config=config_of(epochs=3, patience=0, average_last=2),
        on_event=told.append,
    )
    outcome = trainer.fit()
    average = mean_of(shown[1:3])
    assert same(shown[3], average)
    assert same(weights_of(trainer.model), average if kept else shown[1])
    assert (outcome.best_mrr, outcome.best_epoch) == ((figures[3], 3) if kept else (0.5, 2))
    assert outcome.epochs == len(outcome.history) == 3
    assert told[-1] | {"time": 0} == {
        "event": "average", "epochs": 2, "valid_mrr": figures[3], "kept": kept, "time": 0
    }  # fmt: skip


def test_one_epoch_alone_is_no_average_and_none_is_the_default() -> None:
    for config in (config_of(epochs=1, average_last=5), config_of(epochs=2)):
        calls: list[Weights] = []
        new_trainer(validate=scripted([0.1, 0.2], calls), config=config).fit()
        assert len(calls) == config.epochs


def test_early_stopping_averages_the_epochs_that_there_were() -> None:
    shown: list[Weights] = []
    config = config_of(epochs=9, patience=1, average_last=5)
    trainer = new_trainer(validate=scripted([0.5, 0.6, 0.3, 0.9], shown), config=config)
    trainer.fit()
    assert same(weights_of(trainer.model), mean_of(shown[:3]))


def test_the_best_checkpoint_of_a_run_is_the_average_that_was_kept(tmp_path: Path) -> None:
    with RunFolder.create(tmp_path / "run", {}) as run:
        config = config_of(epochs=2, average_last=2)
        trainer = new_trainer(validate=scripted([0.1, 0.2, 0.3]), config=config, run=run)
        trainer.fit()
        tensors, meta = run.load_checkpoint("best")
        stored = {
            key.removeprefix("model."): value for key, value in tensors.items() if key.startswith("model.")
        }
        assert same(stored, weights_of(trainer.model))
        assert meta["position"]["best_mrr"] == 0.3


def test_fewer_than_none_are_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=r"train\.average_last is -1"):
        TrainConfig(average_last=-1)
