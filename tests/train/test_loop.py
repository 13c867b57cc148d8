"""The loop: what a step does, when it stops, what it keeps, and that it never goes on with NaN."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from contextpool.context.config import ContextConfig
from contextpool.errors import CheckpointError, ConfigError, NonFiniteError
from contextpool.graph.graph import Graph
from contextpool.models.base import LinkPredictor
from contextpool.pool.batch import BatchBuilder
from contextpool.train.config import TrainConfig
from contextpool.train.course import EveryQuery
from contextpool.train.loop import Trainer, Validate, learning_rate
from contextpool.train.progress import Outcome, Progress
from contextpool.train.queries import TrainingQueries
from contextpool.train.run_folder import RunFolder
from learning_worlds import CONTEXTS, family_dataset, new_model
from learning_worlds import one_thread as one_thread

Weights = dict[str, Tensor]


def config_of(**values: Any) -> TrainConfig:
    return TrainConfig(**{"epochs": 2, "batch_size": 64, "warmup_steps": 2, **values})


def new_trainer(
    name: str = "nbfnet",
    context: ContextConfig | None = None,
    *,
    validate: Validate = lambda model: 0.5,
    seed: int = 0,
    run: RunFolder | None = None,
    config: TrainConfig | None = None,
    settings: dict[str, Any] | None = None,
    **options: Any,
) -> Trainer:
    data = family_dataset()
    graph = Graph.from_triples(data.training_graph)
    model = new_model(name, graph, context, seed, **(settings or {}))
    queries = TrainingQueries.of(data.training_queries, graph, data.training_filter)
    builder = BatchBuilder(graph, model.num_layers, context)
    config = config or config_of()
    course = EveryQuery(queries, builder, config)
    return Trainer(model, course, config, validate, seed=seed, run=run, **options)


def weights_of(model: LinkPredictor) -> Weights:
    return {name: value.detach().clone() for name, value in model.state_dict().items()}


def same(one: Weights, other: Weights) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def scripted(values: list[float], seen: list[Weights] | None = None) -> Validate:
    """A validation that gives these figures, one an epoch, and remembers the weights it was shown."""
    left = iter(values)

    def validate(model: LinkPredictor) -> float:
        assert not model.training
        if seen is not None:
            seen.append(weights_of(model))
        return next(left)

    return validate


# the same seed, the same bytes


@pytest.mark.parametrize("name", ["nbfnet", "redgnn"])
@pytest.mark.parametrize("loss", ["softmax", "bce"])
def test_the_same_seed_gives_the_same_bytes_and_another_one_others(name: str, loss: str) -> None:
    results = []
    for seed, global_seed in ((0, 1), (0, 2), (1, 1)):
        torch.manual_seed(global_seed)
        state = torch.get_rng_state()
        config = config_of(epochs=1, loss=loss)
        trainer = new_trainer(name, CONTEXTS["all"], seed=seed, config=config, settings={"dropout": 0.2})
        trainer.model.load_state_dict(new_trainer(name, CONTEXTS["all"]).model.state_dict())
        trainer.fit()
        results.append(weights_of(trainer.model))
        assert torch.equal(torch.get_rng_state(), state)  # nothing is taken from the global generator
    first, again, other = results
    assert same(first, again)
    assert not same(first, other)  # started alike: only batches, dropout and negatives differ
    assert all(value.isfinite().all() for value in first.values())


def test_training_learns() -> None:
    outcome = new_trainer(config=config_of(epochs=6, batch_size=32, lr=0.01)).fit()
    losses = [entry["loss"] for entry in outcome.history]
    assert losses[-1] < 0.6 * losses[0]


# when it stops


@pytest.mark.parametrize(
    ("patience", "figures", "epochs", "best"),
    [
        (2, [0.5, 0.4, 0.4, 0.9], 3, 1),
        (2, [0.5, 0.4, 0.6, 0.5, 0.5, 0.9], 5, 3),
        (1, [0.5, 0.5, 0.9], 2, 1),  # equal is not better
        (0, [0.5, 0.1, 0.1, 0.1, 0.6, 0.1], 6, 5),
        (3, [0.1, 0.2, 0.3, 0.4, 0.5, 0.6], 6, 6),
        (2, [0.0, 0.0, 0.0], 3, 1),  # a figure of zero is one
    ],
)
def test_patience_counts_epochs_without_a_better_figure(
    patience: int, figures: list[float], epochs: int, best: int
) -> None:
    validate = scripted(figures)
    trainer = new_trainer(validate=validate, config=config_of(epochs=6, batch_size=300, patience=patience))
    outcome = trainer.fit()
    assert (outcome.epochs, outcome.best_epoch, outcome.best_mrr) == (epochs, best, figures[best - 1])
    assert [entry["epoch"] for entry in outcome.history] == list(range(1, epochs + 1))
    assert [entry["valid_mrr"] for entry in outcome.history] == figures[:epochs]


@pytest.mark.parametrize("stored", [False, True])
def test_the_model_is_left_with_the_weights_of_the_best_epoch(stored: bool, tmp_path: Path) -> None:
    seen: list[Weights] = []
    run = RunFolder.create(tmp_path / "run", {}) if stored else None
    trainer = new_trainer(validate=scripted([0.1, 0.9, 0.2, 0.3], seen), config=config_of(epochs=4), run=run)
    outcome = trainer.fit()
    assert outcome.best_epoch == 2
    assert same(weights_of(trainer.model), seen[1])
    assert not same(seen[1], seen[3])
    assert not trainer.model.training
    if run is not None:
        best, _ = run.load_checkpoint("best")
        assert same({key.removeprefix("model."): value for key, value in best.items()}, seen[1])


def test_a_figure_that_is_not_a_number_is_never_the_best() -> None:
    validate = scripted([math.nan, 0.2, math.nan])
    outcome = new_trainer(validate=validate, config=config_of(epochs=3, batch_size=300)).fit()
    assert (outcome.best_epoch, outcome.best_mrr) == (2, 0.2)


# steps


def test_learning_rates_by_hand() -> None:
    steps = range(8)
    constant = config_of(lr=0.8, schedule="exponential", decay=1.0, warmup_steps=4)
    assert [learning_rate(constant, step, 4, 8) for step in steps] == pytest.approx(
        [0.2, 0.4, 0.6, 0.8, 0.8, 0.8, 0.8, 0.8]
    )
    exponential = config_of(lr=1.0, schedule="exponential", decay=0.5, warmup_steps=0)
    assert [learning_rate(exponential, step, 3, 8) for step in steps] == pytest.approx(
        [1, 1, 1, 0.5, 0.5, 0.5, 0.25, 0.25]
    )
    cosine = config_of(lr=2.0, schedule="cosine", warmup_steps=0, epochs=2)
    assert [learning_rate(cosine, step, 4, 8) for step in steps] == pytest.approx(
        [1 + math.cos(math.pi * step / 8) for step in steps]
    )
    assert learning_rate(cosine, 0, 4, 8) == 2
    assert learning_rate(cosine, 4, 4, 8) == pytest.approx(1)
    warm = config_of(lr=2.0, schedule="cosine", warmup_steps=2, epochs=2)
    assert learning_rate(warm, 0, 4, 8) == pytest.approx(1)
    assert learning_rate(warm, 1, 4, 8) == pytest.approx(1 + math.cos(math.pi / 8))


def test_every_step_uses_the_rate_of_its_schedule() -> None:
    config = config_of(epochs=2, batch_size=100, schedule="cosine", warmup_steps=3, lr=0.01)
    rates: list[float] = []
    trainer = new_trainer(config=config)
    step = trainer.optimizer.step

    def watched(*arguments: Any) -> Any:
        rates.extend(group["lr"] for group in trainer.optimizer.param_groups)
        return step(*arguments)

    trainer.optimizer.step = watched  # type: ignore[method-assign]
    trainer.fit()
    assert trainer.steps_per_epoch == math.ceil(2 * len(family_dataset().training_queries) / 100) == 3
    assert rates == [learning_rate(config, number, 3, 6) for number in range(6)]


@pytest.mark.parametrize("optimizer", ["adam", "adamw"])
def test_the_first_step_is_that_of_adam(optimizer: str) -> None:
    """Adam's first update is the rate times the gradient's sign; AdamW's decay shrinks the weight beside it."""
    decay = 0.1 if optimizer == "adamw" else 0.0
    config = config_of(
        lr=0.01, weight_decay=decay, optimizer=optimizer, warmup_steps=0, schedule="exponential", clip_norm=0.0,
        batch_size=300, epochs=1,
    )  # fmt: skip
    trainer = new_trainer(config=config)
    before = weights_of(trainer.model)["score.0.bias"]
    trainer.fit()
    gradient = dict(trainer.model.named_parameters())["score.0.bias"].grad
    assert gradient is not None
    clear = gradient.abs() > 1e-4  # far above Adam's epsilon
    assert clear.any()
    expected = (1 - 0.01 * decay) * before - 0.01 * gradient.sign()
    torch.testing.assert_close(trainer.model.state_dict()["score.0.bias"][clear], expected[clear])


def test_clipping_bounds_the_gradient() -> None:
    for limit in (1e-3, 0.0):
        trainer = new_trainer(config=config_of(clip_norm=limit, epochs=1))
        norms: list[float] = []
        step = trainer.optimizer.step

        def watched(*arguments: Any, trainer: Trainer = trainer, step: Any = step, norms: Any = norms) -> Any:
            grads = [weight.grad for weight in trainer.model.parameters() if weight.grad is not None]
            norms.append(float(torch.cat([grad.flatten() for grad in grads]).norm()))
            return step(*arguments)

        trainer.optimizer.step = watched  # type: ignore[method-assign]
        trainer.fit()
        assert norms
        assert all(norm <= 1.001e-3 for norm in norms) == (limit > 0)


def test_progress_tells_where_the_run_is(tmp_path: Path) -> None:
    told: list[Progress] = []
    events: list[dict[str, Any]] = []
    with RunFolder.create(tmp_path / "run", {}) as run:
        trainer = new_trainer(
            validate=scripted([0.25, 0.5]), run=run, progress=told.append, on_event=events.append
        )
        trainer.fit()
        logged = list(run.events())
    steps = trainer.steps_per_epoch
    assert [(entry.epoch, entry.step) for entry in told] == [
        (epoch, step) for epoch in (1, 2) for step in range(1, steps + 1)
    ]
    assert {entry.steps for entry in told} == {steps}
    assert {entry.epochs for entry in told} == {2}
    assert [entry.mrr for entry in told] == [None] * steps + [0.25] * steps
    assert told[-1].seconds_left == 0
    assert all(entry.seconds_left >= 0 and math.isfinite(entry.loss) for entry in told)
    assert logged == events
    assert [(event["event"], event["epoch"], event["valid_mrr"]) for event in events] == [
        ("epoch", 1, 0.25),
        ("epoch", 2, 0.5),
    ]


# nothing goes on with NaN or infinity (C7)


def on_call(number: int, act: Callable[[Tensor], Tensor]) -> Callable[..., Tensor | None]:
    """A forward hook that changes the result of one call in training."""
    calls: Iterator[int] = iter(range(1, 10**6))

    def hook(module: torch.nn.Module, _: Any, result: Tensor) -> Tensor | None:
        return act(result) if module.training and next(calls) == number else None

    return hook


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("loss", ["softmax", "bce"])
@pytest.mark.parametrize("step", [1, 3, 8])
def test_a_loss_that_is_not_finite_stops_and_names_its_step(
    value: float, loss: str, step: int, tmp_path: Path
) -> None:
    with RunFolder.create(tmp_path / "run", {}) as run:
        trainer = new_trainer(run=run, config=config_of(epochs=3, loss=loss, checkpoint_steps=1))
        trainer.model.register_forward_hook(on_call(step, lambda scores: scores * 0 + value))
        epoch, place = divmod(step - 1, trainer.steps_per_epoch)
        with pytest.raises(NonFiniteError, match=f"the loss is .* at epoch {epoch + 1}, step {place + 1}\\b"):
            trainer.fit()
        assert_last_good(run, steps_done=step - 1)


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("step", [1, 4])
def test_a_gradient_that_is_not_finite_stops_and_names_its_step(
    value: float, step: int, tmp_path: Path
) -> None:
    with RunFolder.create(tmp_path / "run", {}) as run:
        trainer = new_trainer(run=run, config=config_of(checkpoint_steps=1))
        calls = iter(range(1, 1_000))
        weight = next(trainer.model.parameters())
        weight.register_hook(lambda grad: grad * value if next(calls) == step else grad)
        with pytest.raises(NonFiniteError, match=f"the gradient's norm is .* at epoch 1, step {step}\\b"):
            trainer.fit()
        assert_last_good(run, steps_done=step - 1)


@pytest.mark.parametrize("step", [1, 3, 5, 10])
@pytest.mark.parametrize("checkpoint_steps", [1, 100])
def test_weights_that_are_not_finite_are_never_saved(
    step: int, checkpoint_steps: int, tmp_path: Path
) -> None:
    """Step 5 ends an epoch: neither is it validated nor does it become the best."""
    with RunFolder.create(tmp_path / "run", {}) as run:
        config = config_of(epochs=3, checkpoint_steps=checkpoint_steps)
        trainer = new_trainer(run=run, config=config, validate=finite_weights_only)
        ruin = ruin_after(trainer, step)
        trainer.progress = ruin
        with pytest.raises(NonFiniteError, match=r"at epoch [123], step"):
            trainer.fit()
        whole_epochs = (step - 1) // trainer.steps_per_epoch * trainer.steps_per_epoch
        assert_last_good(run, steps_done=step - 1 if checkpoint_steps == 1 else whole_epochs)


def ruin_after(trainer: Trainer, step: int) -> Callable[[Progress], None]:
    def ruin(_: Progress) -> None:
        if trainer.position.total_steps == step:
            list(trainer.model.parameters())[-1].data.fill_(math.nan)

    return ruin


def finite_weights_only(model: LinkPredictor) -> float:
    assert all(weight.isfinite().all() for weight in model.parameters())
    return 0.5


def test_an_absurd_learning_rate_leaves_only_finite_checkpoints(tmp_path: Path) -> None:
    with RunFolder.create(tmp_path / "run", {}) as run:
        config = config_of(lr=3e37, weight_decay=10.0, warmup_steps=0, clip_norm=0.0, checkpoint_steps=1)
        with pytest.raises(NonFiniteError, match=r"at epoch 1, step [12]\. The last good checkpoint is kept"):
            new_trainer(run=run, config=config).fit()
        assert all(value.isfinite().all() for value in run.load_checkpoint("last")[0].values())


def assert_last_good(run: RunFolder, steps_done: int) -> None:
    """What is stored is the newest state before it went wrong, all of it finite, and can be gone on with."""
    if steps_done == 0:
        assert not run.has_checkpoint("last")
        return
    tensors, meta = run.load_checkpoint("last")
    assert meta["position"]["total_steps"] == steps_done
    assert all(value.isfinite().all() for value in tensors.values())
    resumed = new_trainer(run=run, config=config_of(epochs=3))
    resumed.resume()
    assert resumed.position.total_steps == steps_done
    assert isinstance(resumed.fit(), Outcome)


# going on


def test_another_seed_cannot_go_on_with_a_run(tmp_path: Path) -> None:
    with RunFolder.create(tmp_path / "run", {}) as run:
        new_trainer(run=run, seed=3).fit()
        with pytest.raises(CheckpointError, match="seed 3, not 4"):
            new_trainer(run=run, seed=4).resume()


def test_a_finished_run_goes_on_by_giving_its_result(tmp_path: Path) -> None:
    seen: list[Weights] = []
    with RunFolder.create(tmp_path / "run", {}) as run:
        config = config_of(epochs=3)
        outcome = new_trainer(run=run, config=config, validate=scripted([0.1, 0.7, 0.3], seen)).fit()
        again = new_trainer(run=run, config=config, validate=scripted([]))
        again.resume()
        assert again.fit() == outcome
        assert same(weights_of(again.model), seen[1])


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"epochs": 0}, r"train\.epochs is 0; it is at least 1"),
        ({"batch_size": 0}, r"train\.batch_size is 0"),
        ({"lr": 0.0}, r"train\.lr is 0\.0; it has to be positive"),
        ({"lr": math.nan}, r"train\.lr is nan"),
        ({"patience": -1}, r"train\.patience is -1; it cannot be negative"),
        ({"optimizer": "sgd"}, r"train\.optimizer is 'sgd'; it is one of adamw, adam"),
        ({"loss": "hinge"}, r"train\.loss is 'hinge'"),
        ({"queries": "test"}, r"train\.queries is 'test'"),
        ({"schedule": "linear"}, r"train\.schedule is 'linear'"),
    ],
)
def test_settings_out_of_range_are_refused_by_name(values: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        TrainConfig(**values)
