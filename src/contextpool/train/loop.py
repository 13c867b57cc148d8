"""The training loop: steps, epochs, validation, early stopping, checkpoints. A resumed run gives the same bytes."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor

from contextpool.errors import CheckpointError, NonFiniteError
from contextpool.kernels.backend import has_triton
from contextpool.models.base import LinkPredictor
from contextpool.pool.batch import BatchBuilder, QueryBatch
from contextpool.processes import Processes
from contextpool.train.config import TrainConfig
from contextpool.train.graphed import GraphedStep
from contextpool.train.loss import Sampled, sample_candidates, sampled_loss, softmax_loss
from contextpool.train.micro_batches import MicroBatch, Preparation, Split, check_same_weights, mean_loss
from contextpool.train.optimizer import (
    LastWeights,
    learning_rate,
    load_optimizer,
    new_optimizer,
    optimizer_tensors,
    set_rate,
)
from contextpool.train.progress import OnEvent, Outcome, Position, Progress, tell
from contextpool.train.queries import TrainingQueries, epoch_batches, mixed_seed
from contextpool.train.run_folder import RunFolder

STEPS_IN_FLIGHT = 2
"""How many steps the host may launch on a device before it reads the loss of the first of them."""

Validate = Callable[[LinkPredictor], float]
"""Validation MRR of a model; made by whoever knows how to evaluate."""


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
        on_event: OnEvent | None = None,
        processes: Processes | None = None,
    ) -> None:
        """Each of several `processes` takes its share of every batch; only the first has a `run` and tells progress."""
        if builder.context is not None:
            builder.context.check_training(int((queries.hidden_edge >= 0).sum()), "training")
        self.model, self.builder, self.config = model, builder, config
        self.processes = processes or Processes()
        self.split = Split.at_least(config.micro_batches, self.processes)
        self.queries = queries.to(builder.graph.device)
        self.validate, self.seed, self.run = validate, seed, run
        self.progress, self.on_event = progress, on_event
        self.position = Position()
        self.optimizer = new_optimizer(model, config)
        self.steps_per_epoch = math.ceil(len(queries) / config.batch_size)
        self._best: dict[str, Tensor] | None = None
        self._recent = LastWeights(config.average_last)
        model.allow_reflexive(self.queries.relation[self.queries.head == self.queries.answer])
        self._started = time.perf_counter()
        self._steps_here = 0
        self._unsettled: deque[Launched] = deque()
        self._preparation = Preparation(self.queries, builder, self.split, config, seed)
        self._on_cuda = builder.graph.device.type == "cuda"
        fixed_order = torch.are_deterministic_algorithms_enabled()
        simple = config.loss == "softmax" and not fixed_order and has_triton()
        self._graphed = (
            GraphedStep(self._updated, self._rehearsed)
            if self._on_cuda and simple and model.takes_padding and not self.split.has_several
            else None
        )

    def fit(self) -> Outcome:
        """Train from wherever the run stands to the end; the model then holds the best weights."""
        with arithmetic(self.builder.graph.device):
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
        for step in self._preparation.ahead(batches[place.step :], place.epoch, place.step + 1):
            self._step(*step)
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
        """Take this many steps of training and nothing else: what a benchmark times."""
        device = self.builder.graph.device
        self.model.train()
        with arithmetic(device):
            while count > 0:
                batches = epoch_batches(
                    len(self.queries), self.config.batch_size, self.seed, self.position.epoch, device
                )
                for step in self._preparation.ahead(
                    batches[:count], self.position.epoch, self.position.step + 1
                ):
                    self._step(*step)
                    count -= 1
                self.position.epoch += 1
            self._settle()

    def _step(self, rows: Tensor, own: tuple[MicroBatch, ...]) -> None:
        """One update. All its randomness comes from (seed, epoch, step) and the number of the micro-batch."""
        device = self.builder.graph.device
        devices = [device] if device.type == "cuda" else []
        seed = mixed_seed(self.seed, self.position.epoch, self.position.step + 1)
        rate = learning_rate(self.config, self.position.total_steps, self.steps_per_epoch)
        set_rate(self.optimizer, rate)
        sampled = None if self.config.loss == "softmax" else self._sampled(rows, seed)
        with torch.random.fork_rng(devices=devices):
            torch.manual_seed(seed)
            if self.split.has_several:
                launched = self._updated_in_parts(len(rows), own, sampled, seed)
            else:
                launched = self._updated_at_once(own[0], sampled)
        self._unsettled.append(Launched(self.position.step + 1, *launched))
        self._settle(STEPS_IN_FLIGHT if self._on_cuda else 0)

    def _updated_at_once(self, whole: MicroBatch, sampled: Sampled | None) -> tuple[Tensor, Tensor]:
        recorded = None if self._graphed is None else self._graphed.step(whole.queries, whole.prepared)
        return recorded or self._updated(whole.queries, whole.prepared, sampled)

    def _updated(
        self, batch: TrainingQueries, prepared: QueryBatch, sampled: Sampled | None = None
    ) -> tuple[Tensor, Tensor]:
        """Update the weights by one batch; returns the loss [] and the norm [] of its gradient."""
        loss = self._loss(batch, prepared, sampled)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        return self._stepped(loss.detach())

    def _updated_in_parts(
        self, length: int, own: tuple[MicroBatch, ...], sampled: Sampled | None, seed: int
    ) -> tuple[Tensor, Tensor]:
        """The same from micro-batches of a batch of `length` queries, some of them in other processes."""

        def loss_of(part: MicroBatch) -> Tensor:
            torch.manual_seed(mixed_seed(seed, part.number, 0) if part.number else seed)
            share = None if sampled is None else sampled.select(self.split.bounds(part.number, length))
            return self._loss(part.queries, part.prepared, share)

        return self._stepped(mean_loss(self.split, own, loss_of, list(self.model.parameters())))

    def _stepped(self, loss: Tensor) -> tuple[Tensor, Tensor]:
        """Move the weights by their gradient. On the CPU a number that is not finite stops the run before that."""
        if not self._on_cuda:
            self._check_finite("the loss", float(loss), self.position.step + 1)
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.config.clip_norm or math.inf)
        if not self._on_cuda:
            self._check_finite("the gradient's norm", float(norm), self.position.step + 1)
        self.optimizer.step()
        return loss, norm

    def _rehearsed(self, batch: TrainingQueries, prepared: QueryBatch) -> None:
        """The same work without an update, so that its kernels are compiled."""
        self._loss(batch, prepared, None).backward()
        self.optimizer.zero_grad(set_to_none=True)

    def _loss(self, batch: TrainingQueries, prepared: QueryBatch, sampled: Sampled | None) -> Tensor:
        if sampled is None:
            return softmax_loss(self.model(prepared).float(), batch, mask_known=self.config.mask_known)
        return sampled_loss(self.model.scores_of(prepared, sampled.candidates).float(), sampled)

    def _sampled(self, rows: Tensor, seed: int) -> Sampled:
        """Candidates for the whole batch, so that they do not depend on how it is split."""
        return sample_candidates(
            self.queries.batch(rows),
            self.builder.graph.num_entities,
            negatives=self.config.negatives,
            generator=torch.Generator().manual_seed(seed),
        )

    def _settle(self, in_flight: int = 0) -> None:
        """Read loss and gradient norm of all but the last `in_flight` steps; one that is not finite ends the run.

        All steps are read before anything is validated or saved.
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
        """Weights that are not finite are neither validated nor saved."""
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
        check_same_weights(self.processes, self.model)
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
        seconds = round(time.perf_counter() - self._started, 3)
        self._tell(event="epoch", epoch=place.epoch, loss=loss, valid_mrr=mrr, seconds=seconds)

    def _try_average(self) -> None:
        """Keep the average of the last epochs' weights instead of the best epoch's, if it validates no worse."""
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
        self._tell(event="average", epochs=len(self._recent), valid_mrr=mrr, kept=kept)

    def _tell(self, **event: Any) -> None:
        tell(event, self.run, self.on_event)

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

    def _save(self, kind: Any) -> None:
        if self.run is None:
            return
        tensors = {f"model.{name}": value for name, value in self.model.state_dict().items()}
        if kind == "last":
            tensors |= optimizer_tensors(self.optimizer) | self._recent.tensors()
        meta = {"position": asdict(self.position), "seed": self.seed}
        self.run.save_checkpoint(kind, tensors, meta, require_finite=kind == "best")

    def resume(self) -> None:
        """Go on where the run folder's last checkpoint stands; a run without one starts from the beginning."""
        stored = self._stored("last")
        if stored is None:
            return
        tensors, meta = stored
        if meta.get("seed") != self.seed:
            where = "the run" if self.run is None else self.run.path
            raise CheckpointError(
                f"{where}: the checkpoint was made with seed {meta.get('seed')}, not {self.seed}."
            )
        self.model.load_state_dict(_part(tensors, "model."))
        load_optimizer(self.optimizer, _part(tensors, "optimizer."))
        self._recent.load(_part(tensors, "recent."))
        self.position = Position(**meta["position"])

    def _stored(self, kind: Any) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """A checkpoint, read by the first process for all; None where there is none."""
        device = self.builder.graph.device

        def read() -> tuple[dict[str, Tensor], dict[str, Any]] | None:
            if self.run is None or not self.run.has_checkpoint(kind):
                return None
            return self.run.load_checkpoint(kind, device="cpu" if self.processes.are_several else device)

        stored = self.processes.from_first(read)
        if stored is None or not self.processes.are_several:
            return stored
        return {name: value.to(device) for name, value in stored[0].items()}, stored[1]

    def _restore_best(self) -> None:
        stored = self._stored("best") if self._best is None else None
        if stored is not None:
            self._best = _part(stored[0], "model.")
        if self._best is not None:
            self.model.load_state_dict(self._best)
        self.model.eval()


def _part(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


class Launched:
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
def arithmetic(device: torch.device) -> Iterator[None]:
    """TF32 products on CUDA; afterwards as it was before."""
    precision = torch.get_float32_matmul_precision()
    try:
        if device.type == "cuda":
            torch.set_float32_matmul_precision("high")
        yield
    finally:
        torch.set_float32_matmul_precision(precision)
