"""The loop: steps, epochs, validation, early stopping, checkpoints; resumes to the byte."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor

from contextpool.errors import CheckpointError, NonFiniteError
from contextpool.models.base import LinkPredictor
from contextpool.pool.batch import BatchBuilder
from contextpool.train.config import TrainConfig
from contextpool.train.loss import adversarial_loss, softmax_loss
from contextpool.train.queries import TrainingQueries, epoch_batches, mixed_seed
from contextpool.train.run_folder import RunFolder

Validate = Callable[[LinkPredictor], float]
"""Validation MRR of a model; made by whoever knows how to evaluate."""


@dataclass
class Position:
    """Where a run is; with the weights and the optimizer all that resuming needs."""

    epoch: int = 0
    """Epochs finished."""
    step: int = 0
    """Steps finished in the current epoch."""
    total_steps: int = 0
    best_mrr: float = -1.0
    best_epoch: int = 0
    stale_epochs: int = 0
    loss_sum: float = 0.0
    """Over the current epoch's steps."""
    history: list[dict[str, Any]] = field(default_factory=list)
    """One entry per finished epoch: loss and validation MRR."""


@dataclass(frozen=True)
class Progress:
    """What a progress bar shows."""

    epoch: int
    epochs: int
    step: int
    steps: int
    loss: float
    mrr: float | None
    seconds_left: float


@dataclass(frozen=True)
class Outcome:
    """What training came to; the model holds the weights of the best epoch."""

    best_mrr: float
    best_epoch: int
    epochs: int
    history: list[dict[str, Any]]


class Trainer:
    """Trains a model on queries over one graph."""

    def __init__(
        self,
        model: LinkPredictor,
        queries: TrainingQueries,
        builder: BatchBuilder,
        config: TrainConfig,
        validate: Validate,
        *,
        seed: int = 0,
        run: RunFolder | None = None,
        progress: Callable[[Progress], None] | None = None,
        on_event: Callable[[dict[str, Any]], None] | None = None,
    ) -> None:
        self.model, self.queries, self.builder, self.config = model, queries, builder, config
        self.validate, self.seed, self.run = validate, seed, run
        self.progress, self.on_event = progress, on_event
        self.position = Position()
        self.optimizer = _optimizer(model, config)
        self.steps_per_epoch = math.ceil(len(queries) / config.batch_size)
        self._best: dict[str, Tensor] | None = None
        self._started = time.perf_counter()
        self._steps_here = 0

    def fit(self) -> Outcome:
        """Train to the end, from wherever the run is; leaves the best weights in the model."""
        while not self._finished():
            self._epoch()
        self._restore_best()
        return Outcome(
            self.position.best_mrr, self.position.best_epoch, self.position.epoch, self.position.history
        )

    def _finished(self) -> bool:
        out_of_patience = 0 < self.config.patience <= self.position.stale_epochs
        return self.position.epoch >= self.config.epochs or out_of_patience

    def _epoch(self) -> None:
        place = self.position
        batches = epoch_batches(len(self.queries), self.config.batch_size, self.seed, place.epoch)
        self.model.train()
        for number, rows in enumerate(batches):
            if number < place.step:
                continue
            place.loss_sum += self._step(self.queries.batch(rows))
            place.step += 1
            place.total_steps += 1
            self._steps_here += 1
            self._report_step()
            if place.step % self.config.checkpoint_steps == 0 and place.step < self.steps_per_epoch:
                self._check_weights()
                self._save("last")
        self._end_epoch()

    def _step(self, batch: TrainingQueries) -> float:
        """One update; all its randomness comes from (seed, epoch, step)."""
        device = self.builder.graph.device
        devices = [device] if device.type == "cuda" else []
        seed = mixed_seed(self.seed, self.position.epoch, self.position.step + 1)
        with torch.random.fork_rng(devices=devices):
            torch.manual_seed(seed)
            loss = self._loss(batch, torch.Generator().manual_seed(seed))
            value = float(loss.detach())
            if not math.isfinite(value):
                raise self._non_finite("the loss", value)
            self.optimizer.zero_grad(set_to_none=True)
            loss.backward()
        self._clip()
        rate = learning_rate(self.config, self.position.total_steps, self.steps_per_epoch)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.step()
        return value

    def _loss(self, batch: TrainingQueries, generator: torch.Generator) -> Tensor:
        prepared = self.builder.build(batch.head, batch.relation, batch.hidden_edge)
        with torch.autocast(
            self.builder.graph.device.type, dtype=torch.bfloat16, enabled=self.config.precision == "bf16"
        ):
            scores = self.model(prepared)
        scores = scores.float()
        if self.config.loss == "softmax":
            return softmax_loss(scores, batch)
        return adversarial_loss(
            scores,
            batch,
            negatives=self.config.negatives,
            temperature=self.config.temperature,
            generator=generator,
        )

    def _clip(self) -> None:
        limit = self.config.clip_norm or math.inf
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), limit)
        if not torch.isfinite(norm):
            raise self._non_finite("the gradient's norm", float(norm))

    def _check_weights(self) -> None:
        """Before a finished step's weights are validated or saved."""
        for name, weight in self.model.state_dict().items():
            if weight.is_floating_point() and not weight.isfinite().all():
                value = float(weight[~weight.isfinite()][0])
                raise self._non_finite(f"a value of {name}", value, self.position.step)

    def _non_finite(self, what: str, value: float, step: int | None = None) -> NonFiniteError:
        place = self.position
        step = place.step + 1 if step is None else step
        kept = "The last good checkpoint is kept" if self.run is not None else "Nothing was saved"
        return NonFiniteError(
            f"{what} is {value} at epoch {place.epoch + 1}, step {step}. {kept}; "
            "lower train.lr, or set train.clip_norm."
        )

    def _end_epoch(self) -> None:
        place = self.position
        self._check_weights()
        self.model.eval()
        mrr = self.validate(self.model)
        loss = place.loss_sum / self.steps_per_epoch
        place.epoch += 1
        place.step, place.loss_sum = 0, 0.0
        place.history.append({"epoch": place.epoch, "loss": loss, "valid_mrr": mrr})
        if mrr > place.best_mrr:
            place.best_mrr, place.best_epoch, place.stale_epochs = mrr, place.epoch, 0
            self._best = {name: value.detach().clone() for name, value in self.model.state_dict().items()}
            self._save("best")
        else:
            place.stale_epochs += 1
        self._save("last")
        self._report_epoch(loss, mrr)

    def _report_step(self) -> None:
        if self.progress is None:
            return
        place = self.position
        done, total = place.total_steps, self.config.epochs * self.steps_per_epoch
        pace = (time.perf_counter() - self._started) / max(1, self._steps_here)
        mrr = place.history[-1]["valid_mrr"] if place.history else None
        self.progress(
            Progress(
                place.epoch + 1,
                self.config.epochs,
                place.step,
                self.steps_per_epoch,
                place.loss_sum / max(1, place.step),
                mrr,
                pace * (total - done),
            )
        )

    def _report_epoch(self, loss: float, mrr: float) -> None:
        event = {
            "event": "epoch",
            "epoch": self.position.epoch,
            "loss": loss,
            "valid_mrr": mrr,
            "seconds": round(time.perf_counter() - self._started, 3),
            "time": time.time(),
        }
        if self.run is not None:
            self.run.append_event(event)
        if self.on_event is not None:
            self.on_event(event)

    def _save(self, kind: Any) -> None:
        if self.run is None:
            return
        tensors = {f"model.{name}": value for name, value in self.model.state_dict().items()}
        if kind == "last":
            tensors |= _optimizer_tensors(self.optimizer)
        meta = {"position": asdict(self.position), "seed": self.seed}
        self.run.save_checkpoint(kind, tensors, meta, require_finite=kind == "best")

    def resume(self) -> None:
        """Go on where the run folder's last checkpoint stands; a run without one starts from the beginning."""
        if self.run is None or not self.run.has_checkpoint("last"):
            return
        tensors, meta = self.run.load_checkpoint("last", device=self.builder.graph.device)
        if meta.get("seed") != self.seed:
            raise CheckpointError(
                f"{self.run.path}: the checkpoint was made with seed {meta.get('seed')}, not {self.seed}."
            )
        self.model.load_state_dict(_part(tensors, "model."))
        _load_optimizer(self.optimizer, _part(tensors, "optimizer."))
        self.position = Position(**meta["position"])

    def _restore_best(self) -> None:
        if self._best is None and self.run is not None and self.run.has_checkpoint("best"):
            tensors, _ = self.run.load_checkpoint("best", device=self.builder.graph.device)
            self._best = _part(tensors, "model.")
        if self._best is not None:
            self.model.load_state_dict(self._best)
        self.model.eval()


def learning_rate(config: TrainConfig, step: int, steps_per_epoch: int) -> float:
    """The rate of step 0, 1, ...: a linear warm-up, then the schedule. A function of the step alone."""
    warm = min(1.0, (step + 1) / max(1, config.warmup_steps))
    if config.schedule == "constant":
        return config.lr * warm
    if config.schedule == "exponential":
        return config.lr * warm * config.decay ** (step // steps_per_epoch)
    share = step / max(1, config.epochs * steps_per_epoch)
    return config.lr * warm * 0.5 * (1 + math.cos(math.pi * share))


def _optimizer(model: LinkPredictor, config: TrainConfig) -> torch.optim.Optimizer:
    kind = torch.optim.AdamW if config.optimizer == "adamw" else torch.optim.Adam
    return kind(model.parameters(), lr=config.lr, weight_decay=config.weight_decay)


def _optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    state = optimizer.state_dict()["state"]
    return {
        f"optimizer.{number}.{name}": value
        for number, entry in state.items()
        for name, value in entry.items()
    }


def _load_optimizer(optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    state: dict[int, dict[str, Tensor]] = {}
    for key, value in tensors.items():
        number, name = key.split(".", 1)
        state.setdefault(int(number), {})[name] = value.cpu() if name == "step" else value
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})


def _part(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
