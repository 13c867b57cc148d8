"""The loop: steps, epochs, validation, early stopping, checkpoints; resumes to the byte."""

from __future__ import annotations

import math
import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from typing import Any

import torch
from torch import Tensor

from contextpool.errors import CheckpointError, NonFiniteError
from contextpool.graph.graph import Graph
from contextpool.models.base import LinkPredictor
from contextpool.pool._backend import has_triton
from contextpool.pool.batch import BatchBuilder, QueryBatch
from contextpool.pool.dropout import EdgeDropout
from contextpool.train.averaging import LastWeights
from contextpool.train.config import TrainConfig
from contextpool.train.graphed import GraphedStep
from contextpool.train.loss import Sampled, sample_candidates, sampled_loss, softmax_loss
from contextpool.train.queries import TrainingQueries, epoch_batches, mixed_seed
from contextpool.train.run_folder import RunFolder

STEPS_IN_FLIGHT = 2
"""How many steps the host may be ahead of the numbers it has read from a device."""

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
        self.model, self.builder, self.config = model, builder, config
        self.queries = queries.to(builder.graph.device)
        self.validate, self.seed, self.run = validate, seed, run
        self.progress, self.on_event = progress, on_event
        self.position = Position()
        self.optimizer = _optimizer(model, config)
        self.steps_per_epoch = math.ceil(len(queries) / config.batch_size)
        self._best: dict[str, Tensor] | None = None
        self._recent = LastWeights(config.average_last)
        model.allow_reflexive(self.queries.relation[self.queries.head == self.queries.answer])
        self._started = time.perf_counter()
        self._steps_here = 0
        self._unsettled: deque[_Launched] = deque()
        device = builder.graph.device
        self._side = torch.cuda.Stream(device) if device.type == "cuda" else None
        simple = config.loss == "softmax" and not config.deterministic and has_triton()
        self._graphed = (
            GraphedStep(self._updated, self._rehearsed)
            if self._side is not None and simple and model.takes_padding
            else None
        )

    def fit(self) -> Outcome:
        """Train to the end, from wherever the run is; leaves the best weights in the model."""
        with _arithmetic(self.builder.graph.device, self.config.deterministic):
            while not self._finished():
                self._epoch()
            self._try_average()
        self._restore_best()
        return Outcome(
            self.position.best_mrr, self.position.best_epoch, self.position.epoch, self.position.history
        )

    def _finished(self) -> bool:
        out_of_patience = 0 < self.config.patience <= self.position.stale_epochs
        return self.position.epoch >= self.config.epochs or out_of_patience

    def _epoch(self) -> None:
        place = self.position
        device = self.builder.graph.device
        batches = epoch_batches(len(self.queries), self.config.batch_size, self.seed, place.epoch, device)
        self.model.train()
        for batch, prepared in self._prepared_ahead(batches[place.step :]):
            self._step(batch, prepared)
            place.step += 1
            place.total_steps += 1
            self._steps_here += 1
            self._report_step()
            if place.step % self.config.checkpoint_steps == 0 and place.step < self.steps_per_epoch:
                self._settle()
                self._check_weights()
                self._save("last")
        self._settle()
        self._end_epoch()

    def take_steps(self, count: int) -> None:
        """So many steps of training and nothing else, epoch after epoch: what a benchmark times."""
        device = self.builder.graph.device
        self.model.train()
        with _arithmetic(device, self.config.deterministic):
            while count > 0:
                batches = epoch_batches(
                    len(self.queries), self.config.batch_size, self.seed, self.position.epoch, device
                )
                for batch, prepared in self._prepared_ahead(batches[:count]):
                    self._step(batch, prepared)
                    count -= 1
                self.position.epoch += 1
            self._settle()

    def _prepared_ahead(self, batches: Sequence[Tensor]) -> Iterator[tuple[TrainingQueries, QueryBatch]]:
        """Each batch with what the model reads; on CUDA the next one is built while the device is at this one."""
        coming, first = None, self.position.step + 1
        for number, rows in enumerate(batches):
            current = coming if coming is not None else self._prepare(rows, first + number)
            coming = None
            yield current
            if self._side is not None and number + 1 < len(batches):
                coming = self._prepare(batches[number + 1], first + number + 1)

    def _prepare(self, rows: Tensor, step: int) -> tuple[TrainingQueries, QueryBatch]:
        """The batch of step 1, 2, ... of the current epoch."""
        if self._side is None:
            return self._built(rows, step)
        main = torch.cuda.current_stream(rows.device)
        with torch.cuda.stream(self._side):
            batch, prepared = self._built(rows, step)
        main.wait_stream(self._side)
        for tensor in _tensors_of(batch, prepared):
            tensor.record_stream(main)
        return batch, prepared

    def _built(self, rows: Tensor, step: int) -> tuple[TrainingQueries, QueryBatch]:
        batch, dropout = self.queries.batch(rows), None
        if self.config.edge_dropout:
            seed = mixed_seed(self.seed, self.position.epoch, step)
            dropout = EdgeDropout(self.config.edge_dropout, seed, self.config.edge_dropout_by)
        return batch, self.builder.build(batch.head, batch.relation, batch.hidden_edge, dropout=dropout)

    def _step(self, batch: TrainingQueries, prepared: QueryBatch) -> None:
        """One update; all its randomness comes from (seed, epoch, step)."""
        device = self.builder.graph.device
        devices = [device] if device.type == "cuda" else []
        seed = mixed_seed(self.seed, self.position.epoch, self.position.step + 1)
        self._set_rate(learning_rate(self.config, self.position.total_steps, self.steps_per_epoch))
        with torch.random.fork_rng(devices=devices):
            torch.manual_seed(seed)
            recorded = None if self._graphed is None else self._graphed.step(batch, prepared)
            if recorded is None:
                recorded = self._updated(batch, prepared, seed)
        self._unsettled.append(_Launched(self.position.step + 1, *recorded))
        self._settle(0 if self._side is None else STEPS_IN_FLIGHT)

    def _updated(
        self, batch: TrainingQueries, prepared: QueryBatch, seed: int | None = None
    ) -> tuple[Tensor, Tensor]:
        """Loss and gradient norm of a batch, the weights updated. On the CPU a bad number stops before they are."""
        loss = self._loss(batch, prepared, seed)
        if self._side is None:
            self._check_finite("the loss", float(loss.detach()), self.position.step + 1)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.config.clip_norm or math.inf)
        if self._side is None:
            self._check_finite("the gradient's norm", float(norm), self.position.step + 1)
        self.optimizer.step()
        return loss.detach(), norm

    def _rehearsed(self, batch: TrainingQueries, prepared: QueryBatch) -> None:
        """The same without an update."""
        self._loss(batch, prepared, None).backward()
        self.optimizer.zero_grad(set_to_none=True)

    def _set_rate(self, rate: float) -> None:
        for group in self.optimizer.param_groups:
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(rate)
            else:
                group["lr"] = rate

    def _loss(self, batch: TrainingQueries, prepared: QueryBatch, seed: int | None) -> Tensor:
        sampled = None if self.config.loss == "softmax" else self._sampled(batch, seed)
        with torch.autocast(
            self.builder.graph.device.type,
            dtype=torch.bfloat16,
            enabled=self.config.precision == "bf16",
            cache_enabled=self._graphed is None,
        ):
            scores = (
                self.model(prepared)
                if sampled is None
                else self.model.scores_of(prepared, sampled.candidates)
            )
        if sampled is None:
            return softmax_loss(scores.float(), batch)
        return sampled_loss(scores.float(), sampled, temperature=self.config.temperature)

    def _sampled(self, batch: TrainingQueries, seed: int | None) -> Sampled:
        generator = torch.Generator().manual_seed(seed or 0)
        num_entities = self.builder.graph.num_entities
        return sample_candidates(batch, num_entities, negatives=self.config.negatives, generator=generator)

    def _settle(self, in_flight: int = 0) -> None:
        """Read loss and gradient norm of all but the last steps; a number that is not finite ends the run.

        Nothing is validated or saved before all its steps were read.
        """
        while len(self._unsettled) > in_flight:
            launched = self._unsettled.popleft()
            loss, norm = launched.values()
            self._check_finite("the loss", loss, launched.step)
            self._check_finite("the gradient's norm", norm, launched.step)
            self.position.loss_sum += loss

    def _check_finite(self, what: str, value: float, step: int) -> None:
        if not math.isfinite(value):
            raise self._non_finite(what, value, step)

    def _check_weights(self) -> None:
        """Before a finished step's weights are validated or saved."""
        for name, weight in self.model.state_dict().items():
            if weight.is_floating_point() and not weight.isfinite().all():
                value = float(weight[~weight.isfinite()][0])
                raise self._non_finite(f"a value of {name}", value, self.position.step)

    def _non_finite(self, what: str, value: float, step: int) -> NonFiniteError:
        place = self.position
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
        self._recent.keep(self.model)
        self._save("last")
        self._report_epoch(loss, mrr)

    def _try_average(self) -> None:
        """Put the average of the last epochs in the place of the best one, where validation finds it no worse."""
        if len(self._recent) < 2:
            return
        place, average = self.position, self._recent.average()
        self.model.load_state_dict(average)
        self.model.eval()
        mrr = self.validate(self.model)
        kept = mrr >= place.best_mrr
        if kept:
            place.best_mrr, place.best_epoch, self._best = mrr, place.epoch, average
            self._save("best")
        self._tell({"event": "average", "epochs": len(self._recent), "valid_mrr": mrr, "kept": kept})

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
        }
        self._tell(event)

    def _tell(self, event: dict[str, Any]) -> None:
        event["time"] = time.time()
        if self.run is not None:
            self.run.append_event(event)
        if self.on_event is not None:
            self.on_event(event)

    def _save(self, kind: Any) -> None:
        if self.run is None:
            return
        tensors = {f"model.{name}": value for name, value in self.model.state_dict().items()}
        if kind == "last":
            tensors |= _optimizer_tensors(self.optimizer) | self._recent.tensors()
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
        self._recent.load(_part(tensors, "recent."))
        self.position = Position(**meta["position"])

    def _restore_best(self) -> None:
        if self._best is None and self.run is not None and self.run.has_checkpoint("best"):
            tensors, _ = self.run.load_checkpoint("best", device=self.builder.graph.device)
            self._best = _part(tensors, "model.")
        if self._best is not None:
            self.model.load_state_dict(self._best)
        self.model.eval()


class _Launched:
    """A step whose loss and gradient norm may still be on their way from the device."""

    def __init__(self, step: int, loss: Tensor, norm: Tensor) -> None:
        self.step = step
        self._event: torch.cuda.Event | None = None
        self._numbers = torch.stack([loss, norm.to(loss.dtype)])
        if self._numbers.is_cuda:  # sent to the host without waiting
            there = torch.empty(2, dtype=self._numbers.dtype, pin_memory=True)
            self._numbers = there.copy_(self._numbers, non_blocking=True)
            self._event = torch.cuda.Event()
            self._event.record()

    def values(self) -> tuple[float, float]:
        """Loss and norm of the gradient."""
        if self._event is not None:
            self._event.synchronize()
        loss, norm = self._numbers.tolist()
        return loss, norm


@contextmanager
def _arithmetic(device: torch.device, deterministic: bool) -> Iterator[None]:
    """TF32 products on CUDA, or sums in a fixed order; as it was before afterwards."""
    precision = torch.get_float32_matmul_precision()
    fixed, warns = (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
    )
    try:
        if device.type == "cuda":
            torch.set_float32_matmul_precision("high")
        if deterministic:
            os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS asks for it
            torch.use_deterministic_algorithms(True)
        yield
    finally:
        torch.set_float32_matmul_precision(precision)
        torch.use_deterministic_algorithms(fixed, warn_only=warns)


def _tensors_of(*values: Any) -> Iterator[Tensor]:
    """The tensors that dataclasses hold, the graph's own excepted."""
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, tuple):
            yield from _tensors_of(*value)
        elif is_dataclass(value) and not isinstance(value, Graph):
            yield from _tensors_of(*(getattr(value, field.name) for field in fields(value)))


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
    parameters = list(model.parameters())
    if not parameters or not parameters[0].is_cuda:
        return kind(parameters, lr=config.lr, weight_decay=config.weight_decay)
    rate = torch.tensor(config.lr, device=parameters[0].device)  # a tensor: a recorded step reads it
    return kind(parameters, lr=rate, weight_decay=config.weight_decay, fused=True, capturable=True)


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
