"""The training loop: steps, epochs, validation, early stopping, checkpoints. A resumed run gives the same bytes."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from functools import cache
from typing import Any, Literal

import torch
from torch import Tensor

from contextpool.errors import CheckpointError, NonFiniteError, PeerFailedError, StoppedError
from contextpool.kernels.backend import has_triton
from contextpool.models.base import LinkPredictor
from contextpool.pool.batch import QueryBatch
from contextpool.processes import Processes
from contextpool.train.config import TrainConfig
from contextpool.train.course import Course, Lesson
from contextpool.train.graphed import STEPS_BEFORE_OF_MANY, GraphedStep, shared_memory
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
from contextpool.train.progress import OnEvent, Outcome, Position, Progress, StopSignals, tell
from contextpool.train.queries import TrainingQueries, mixed_seed
from contextpool.train.run_folder import Kind, RunFolder

STEPS_IN_FLIGHT = 2
"""How many steps the host may launch on a device before it reads the loss of the first of them."""

Validate = Callable[[LinkPredictor], float]
"""Validation MRR of a model; made by whoever knows how to evaluate."""


class Trainer:
    """Trains a model on queries over one graph or over many."""

    def __init__(
        self,
        model: LinkPredictor,
        course: Course,
        config: TrainConfig,
        validate: Validate | None,
        *,
        seed: int = 0,
        pretrained: bool = False,
        kept_as: Literal["last", "refit"] = "last",
        run: RunFolder | None = None,
        progress: Callable[[Progress], None] | None = None,
        on_event: OnEvent | None = None,
        processes: Processes | None = None,
    ) -> None:
        """Each of several `processes` takes its share of every batch; only the first has a `run` and tells progress.

        Without `validate` the last weights are kept. The weights that a `pretrained` model comes with count as those of
        epoch 0: they are kept where no epoch is better. `kept_as` is the checkpoint to resume from, another one for
        what a run does after its training.
        """
        for graph in course.graphs:
            if graph.builder.context is not None:
                hidden = int((graph.queries.hidden_edge >= 0).sum())
                graph.builder.context.check_training(hidden, "training")
            reflexive = graph.queries.head == graph.queries.answer
            model.allow_reflexive(graph.queries.relation[reflexive])
        self.model, self.course, self.config = model, course, config
        self.device = course.graphs[0].builder.graph.device
        self.processes = processes or Processes()
        self.split = Split.at_least(config.micro_batches, self.processes)
        self.validate, self.seed, self.run = validate, seed, run
        self.pretrained, self.kept_as = pretrained, kept_as
        self.progress, self.on_event = progress, on_event
        self.position = Position()
        self.optimizer = new_optimizer(model, config)
        self.steps_per_epoch = course.steps_of(0)
        self._best: dict[str, Tensor] | None = None
        self._recent = LastWeights(config.average_last)
        self._started = time.perf_counter()
        self._steps_here = 0
        self._signals = StopSignals(holds=run is not None or self.processes.are_several)
        self._unsettled: deque[Launched] = deque()
        self._preparation = Preparation(course.graphs, self.split)
        self._on_cuda = self.device.type == "cuda"
        fixed_order = torch.are_deterministic_algorithms_enabled()
        simple = config.loss == "softmax" and not fixed_order and has_triton()
        can_record = self._on_cuda and simple and model.takes_padding and not self.split.has_several
        self._graphed: list[GraphedStep | None]
        self._graphed = [None] * len(course.graphs) if not can_record else self._recorders()

    def _recorders(self) -> list[GraphedStep | None]:
        """One for each graph; all of them use the same memory, one after the other."""
        count = len(self.course.graphs)
        if count == 1:
            return [GraphedStep(self._updated, self._rehearsed)]
        memory = shared_memory(self.device)
        return [
            GraphedStep(self._updated, self._rehearsed, memory, STEPS_BEFORE_OF_MANY) for _ in range(count)
        ]

    def fit(self) -> Outcome:
        """Train from wherever the run stands to the end; the model then holds the best weights.

        Ctrl-C and SIGTERM end it after the step that is under way, which is saved where there is a run.
        """
        with arithmetic(self.device), self._signals:
            if self.pretrained and not self.position.history:
                self._keep_start()
            while not self._finished():
                self._epoch()
                self._stop_if_asked(saved=True)
            self._try_average()
        self._restore_best()
        return Outcome(
            self.position.best_mrr, self.position.best_epoch, self.position.epoch, self.position.history
        )

    def _finished(self) -> bool:
        out_of_patience = 0 < self.config.patience <= self.position.stale_epochs
        return self.position.epoch >= self.course.epochs or (self.validate is not None and out_of_patience)

    def _keep_start(self) -> None:
        """The weights that were given, as those of epoch 0. They are saved first: nobody has to give them again."""
        place = self.position
        self._save(self.kept_as)
        if self.validate is None:
            return
        self.model.eval()
        place.best_mrr = self.validate(self.model)
        place.history.append({"epoch": 0, "valid_mrr": place.best_mrr})
        self._best = copied(self.model)
        self._save("best")
        self._save(self.kept_as)
        self._tell(event="epoch", **place.history[-1])

    def _epoch(self) -> None:
        place = self.position
        lessons = self.course.lessons(place.epoch, self.seed)
        self.model.train()
        for step in self._preparation.ahead(lessons[place.step :]):
            self._step(*step)
            place.step += 1
            place.total_steps += 1
            self._steps_here += 1
            self._report_step()
            if place.step % self.config.checkpoint_steps == 0 and place.step < len(lessons):
                self._settle()
                self._check_weights()
                self._save(self.kept_as)
            if place.step < len(lessons):
                self._stop_if_asked()
        self._settle()
        self._end_epoch()

    def _stop_if_asked(self, *, saved: bool = False) -> None:
        """End here where a signal came to any process; all of them end after the same step."""
        asked = self._signals.agreed(self.processes)
        if not asked:
            return
        if not saved:
            self._settle()
            self._check_weights()
            self.processes.on_first(lambda: self._save(self.kept_as))
        if self.run is None:  # the first process tells
            raise PeerFailedError(0, self.processes.size, "stopped", 128 + asked)
        place = self.position
        raise StoppedError(asked, f"epoch {place.epoch + 1}, step {place.step}; {self.run.kept}")

    def take_steps(self, count: int) -> None:
        """Take this many steps of training and nothing else: what a benchmark times."""
        self.model.train()
        with arithmetic(self.device):
            while count > 0:
                lessons = self.course.lessons(self.position.epoch, self.seed)
                for step in self._preparation.ahead(lessons[:count]):
                    self._step(*step)
                    count -= 1
                self.position.epoch += 1
            self._settle()

    def _step(self, lesson: Lesson, own: tuple[MicroBatch, ...]) -> None:
        """One update. All its randomness comes from the lesson's seed and the number of the micro-batch."""
        devices = [self.device] if self._on_cuda else []
        done, total = self.position.total_steps, self.course.total_steps
        set_rate(self.optimizer, learning_rate(self.config, done, self.steps_per_epoch, total))
        sampled = None if self.config.loss == "softmax" else self._sampled(lesson)
        with torch.random.fork_rng(devices=devices):
            torch.manual_seed(lesson.seed)
            if self.split.has_several:
                launched = self._updated_in_parts(lesson, own, sampled)
            else:
                launched = self._updated_at_once(lesson.graph, own[0], sampled)
        self._unsettled.append(Launched(self.position.step + 1, *launched))
        self._settle(STEPS_IN_FLIGHT if self._on_cuda else 0)

    def _updated_at_once(
        self, graph: int, whole: MicroBatch, sampled: Sampled | None
    ) -> tuple[Tensor, Tensor]:
        graphed = self._graphed[graph]
        recorded = None if graphed is None else graphed.step(whole.queries, whole.prepared)
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
        self, lesson: Lesson, own: tuple[MicroBatch, ...], sampled: Sampled | None
    ) -> tuple[Tensor, Tensor]:
        """The same from micro-batches of a batch, some of them in other processes."""
        seed = lesson.seed

        def loss_of(part: MicroBatch) -> Tensor:
            torch.manual_seed(mixed_seed(seed, part.number, 0) if part.number else seed)
            place = self.split.bounds(part.number, len(lesson.rows))
            share = None if sampled is None else sampled.select(place)
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

    def _sampled(self, lesson: Lesson) -> Sampled:
        """Candidates for the whole batch, so that they do not depend on how it is split."""
        graph = self.course.graphs[lesson.graph]
        return sample_candidates(
            graph.queries.batch(lesson.rows),
            graph.builder.graph.num_entities,
            negatives=self.config.negatives,
            generator=torch.Generator().manual_seed(lesson.seed),
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
        is_kept = self.run is not None and self.run.has_checkpoint("last")
        kept = "The last good checkpoint is kept" if is_kept else "Nothing was saved"
        return NonFiniteError(
            f"{what} is {value} at epoch {place.epoch + 1}, step {step}. {kept}; "
            "lower train.lr, or set train.clip_norm."
        )

    def _end_epoch(self) -> None:
        place = self.position
        self._check_weights()
        check_same_weights(self.processes, self.model)
        figures: dict[str, Any] = {"loss": place.loss_sum / max(1, place.step)}
        if self.validate is not None:
            self.model.eval()
            figures["valid_mrr"] = self.validate(self.model)
        place.epoch += 1
        place.step, place.loss_sum = 0, 0.0
        place.history.append({"epoch": place.epoch, **figures})
        if self.validate is not None:
            self._keep_if_better(figures["valid_mrr"])
        self._recent.keep(self.model)
        self._save(self.kept_as)
        seconds = round(time.perf_counter() - self._started, 3)
        event = "epoch" if self.kept_as == "last" else self.kept_as
        self._tell(event=event, epoch=place.epoch, **figures, seconds=seconds)

    def _keep_if_better(self, mrr: float) -> None:
        place = self.position
        if mrr > place.best_mrr:
            place.best_mrr, place.best_epoch, place.stale_epochs = mrr, place.epoch, 0
            self._best = copied(self.model)
            self._save("best")
        else:
            place.stale_epochs += 1

    def _try_average(self) -> None:
        """Keep the average of the last epochs' weights instead of the best epoch's, if it validates no worse."""
        if len(self._recent) < 2 or self.validate is None:
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
        pace = (time.perf_counter() - self._started) / max(1, self._steps_here)
        total, loss = self.course.total_steps, place.loss_sum / max(1, place.step)
        left = pace * (total - place.total_steps)
        if self.validate is None:  # epochs mean nothing then
            stage = "" if self.kept_as == "last" else "fitting all facts"
            self.progress(Progress(1, 1, place.total_steps, total, loss, None, left, stage))
            return
        mrr = place.history[-1]["valid_mrr"] if place.history else None
        steps = self.course.steps_of(place.epoch)
        self.progress(Progress(place.epoch + 1, self.course.epochs, place.step, steps, loss, mrr, left))

    def _save(self, kind: Kind) -> None:
        if self.run is None:
            return
        tensors = {f"model.{name}": value for name, value in self.model.state_dict().items()}
        if kind == self.kept_as:
            tensors |= optimizer_tensors(self.optimizer) | self._recent.tensors()
        meta = {"position": asdict(self.position), "seed": self.seed, "run": self.run.identity}
        self.run.save_checkpoint(kind, tensors, meta, require_finite=kind == "best")

    def resume(self) -> bool:
        """Go on where the run folder's last checkpoint stands; False for a run without one, which starts from the
        beginning.
        """
        stored = self._stored(self.kept_as)
        if stored is None:
            return False
        tensors, meta = stored
        where = f"{'the run' if self.run is None else self.run.path}: the last checkpoint"
        if meta.get("seed") != self.seed:
            raise CheckpointError(f"{where} was made with seed {meta.get('seed')}, not {self.seed}.")
        self.position = Position.from_dict(meta.get("position"), f"{where}: its position")
        try:
            self.model.load_state_dict(_part(tensors, "model."))
            load_optimizer(self.optimizer, _part(tensors, "optimizer."))
            self._recent.load(_part(tensors, "recent."), self.model)
        except (RuntimeError, ValueError) as error:
            raise CheckpointError(f"{where} does not fit the run ({error}). It is another run's.") from error
        return True

    def _stored(self, kind: Kind) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """A checkpoint, read by the first process for all; None where there is none."""
        device = self.device

        def read() -> tuple[dict[str, Tensor], dict[str, Any]] | None:
            if self.run is None or not self.run.has_checkpoint(kind):
                return None
            tensors, meta = self.run.load_checkpoint(
                kind, device="cpu" if self.processes.are_several else device
            )
            if meta.get("run", self.run.identity) != self.run.identity:
                raise CheckpointError(
                    f"{self.run.path}: the {kind} checkpoint is another run's: settings or facts differ. Put its own "
                    "back, or remove it to begin again."
                )
            return tensors, meta

        stored = self.processes.tensors_from_first(read)
        if stored is None or not self.processes.are_several:
            return stored
        return {name: value.to(device) for name, value in stored[0].items()}, stored[1]

    def _restore_best(self) -> None:
        """The last weights are the best where nothing is validated."""
        stored = None if self.validate is None or self._best is not None else self._stored("best")
        if stored is not None:
            self._best = _part(stored[0], "model.")
        if self._best is not None:
            self.model.load_state_dict(self._best)
        self.model.eval()


def copied(model: LinkPredictor) -> dict[str, Tensor]:
    """The model's weights as they are now."""
    return {name: value.detach().clone() for name, value in model.state_dict().items()}


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
    """TF32 products on CUDA, oneDNN's on a CPU where they are float32's; afterwards as it was before."""
    precision = torch.get_float32_matmul_precision()
    try:
        if device.type == "cuda":
            torch.set_float32_matmul_precision("high")
        elif device.type == "cpu" and medium_is_exact():
            torch.set_float32_matmul_precision("medium")
        yield
    finally:
        torch.set_float32_matmul_precision(precision)


@cache
def medium_is_exact() -> bool:
    """Whether products of "medium" precision lose nothing here.

    They are then oneDNN's with the widest registers, 2.4 times as fast as MKL's on AMD. A CPU with AMX would round
    their factors to bfloat16, in which 1 + 2**-12 is 1.
    """
    before = torch.get_float32_matmul_precision()
    factor = torch.full((64, 64), 1 + 2.0**-12)
    try:
        torch.set_float32_matmul_precision("medium")
        product = factor @ factor
    finally:
        torch.set_float32_matmul_precision(before)
    return bool((product - 64 * (1 + 2.0**-12) ** 2).abs().max() < 1e-4)
