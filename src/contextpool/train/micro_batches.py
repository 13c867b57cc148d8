"""A batch split into micro-batches: built ahead of their step, computed by one process or several, added up in order.

The micro-batches are consecutive parts of a batch, shared out among the processes; some may be empty, and nothing is
padded. The loss of a batch is a mean over its queries: each micro-batch contributes the sum over its own queries with
the gradient of that sum. All of them are added in the order of their numbers, whoever computed them, and divided by the
number of queries. So any number of processes trains the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import reduce
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from contextpool.errors import LostProcessError
from contextpool.graph.graph import Graph
from contextpool.pool.batch import QueryBatch
from contextpool.pool.hide import EdgeDropout
from contextpool.processes import Processes
from contextpool.train.course import Lesson, TrainingGraph
from contextpool.train.queries import TrainingQueries


class MicroBatch(NamedTuple):
    """Some queries of a batch, and what the model reads of them."""

    number: int
    queries: TrainingQueries
    prepared: QueryBatch


@dataclass(frozen=True)
class Split:
    """`count` micro-batches of every batch over some processes: at least one for each process."""

    count: int
    processes: Processes

    @classmethod
    def at_least(cls, count: int, processes: Processes) -> Split:
        return cls(max(count, processes.size), processes)

    @property
    def has_several(self) -> bool:
        return self.count > 1

    @property
    def own(self) -> range:
        """The numbers of this process's micro-batches."""
        return range(*self.processes.bounds(self.count))

    def bounds(self, number: int, length: int) -> slice:
        """Where micro-batch `number` of a batch of `length` queries begins and ends."""
        return slice(length * number // self.count, length * (number + 1) // self.count)


class Preparation:
    """Builds this process's micro-batches, without the facts that edge dropout takes.

    On CUDA the next batch is built on a stream of its own, before others, while the device computes the current step.
    """

    def __init__(self, graphs: Sequence[TrainingGraph], split: Split) -> None:
        self.graphs, self.split = graphs, split
        device = graphs[0].builder.graph.device
        self.stream = torch.cuda.Stream(device, priority=-1) if device.type == "cuda" else None

    def ahead(self, lessons: Sequence[Lesson]) -> Iterator[tuple[Lesson, tuple[MicroBatch, ...]]]:
        """Each lesson with its micro-batches."""
        coming = None
        for number, lesson in enumerate(lessons):
            current = coming if coming is not None else self._prepare(lesson)
            coming = None
            yield lesson, current
            if self.stream is not None and number + 1 < len(lessons):
                coming = self._prepare(lessons[number + 1])

    def _prepare(self, lesson: Lesson) -> tuple[MicroBatch, ...]:
        if self.stream is None:
            return self._built(lesson)
        main = torch.cuda.current_stream(lesson.rows.device)
        with torch.cuda.stream(self.stream):
            built = self._built(lesson)
        main.wait_stream(self.stream)
        for tensor in _tensors_of(built):
            tensor.record_stream(main)
        return built

    def _built(self, lesson: Lesson) -> tuple[MicroBatch, ...]:
        return tuple(self._micro_batch(lesson, number) for number in self.split.own)

    def _micro_batch(self, lesson: Lesson, number: int) -> MicroBatch:
        graph, place = self.graphs[lesson.graph], self.split.bounds(number, len(lesson.rows))
        batch, dropout = graph.queries.batch(lesson.rows[place]), None
        if lesson.edge_dropout:
            dropout = EdgeDropout(lesson.edge_dropout, lesson.seed, place.start)
        built = graph.builder.build(batch.head, batch.relation, batch.hidden_edge, dropout=dropout)
        return MicroBatch(number, batch, built)


def _tensors_of(*values: Any) -> Iterator[Tensor]:
    """The tensors that dataclasses and tuples hold, except those of the graph."""
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, tuple):
            yield from _tensors_of(*value)
        elif is_dataclass(value) and not isinstance(value, Graph):
            yield from _tensors_of(*(getattr(value, field.name) for field in fields(value)))


def mean_loss(
    split: Split,
    own: Sequence[MicroBatch],
    loss_of: Callable[[MicroBatch], Tensor],
    parameters: Sequence[nn.Parameter],
) -> Tensor:
    """The mean loss [] over all queries of a batch, with its gradient in every parameter; the same bits everywhere.

    `loss_of` gives the mean loss [] of one of this process's micro-batches. Takes O(count x weights) memory and sends
    as many numbers, which is little beside the states of a walk, since the weights know no entities.
    """
    sizes = [parameter.numel() for parameter in parameters]
    rows = torch.zeros(split.count, 2 + len(sizes) + sum(sizes), device=parameters[0].device)
    for part in own:
        if len(part.queries):
            rows[part.number] = _sum_with_gradient(part, loss_of, parameters)
    total = reduce(torch.add, split.processes.sum(rows).unbind())  # in the order of their numbers
    loss, count, holders, gradient = total.split([1, 1, len(sizes), sum(sizes)])
    mean = gradient / count.clamp(min=1)
    for parameter, held, part_of_it in zip(parameters, holders.tolist(), mean.split(sizes), strict=True):
        parameter.grad = part_of_it.view_as(parameter) if held else None  # those without are left alone
    whole: Tensor = loss[0] / count[0].clamp(min=1)
    return whole


def _sum_with_gradient(
    part: MicroBatch, loss_of: Callable[[MicroBatch], Tensor], parameters: Sequence[nn.Parameter]
) -> Tensor:
    """A row of: the loss, the number of queries, which parameters have a gradient, and the gradients."""
    for parameter in parameters:
        parameter.grad = None
    total = loss_of(part) * len(part.queries)
    total.backward()
    held = torch.tensor([len(part.queries), *(parameter.grad is not None for parameter in parameters)])
    gradients = (
        torch.zeros_like(parameter) if parameter.grad is None else parameter.grad for parameter in parameters
    )
    return torch.cat(
        [total.detach().reshape(1), held.to(total), *(gradient.reshape(-1) for gradient in gradients)]
    )


def check_same_weights(processes: Processes, model: nn.Module) -> None:
    """Stop where the weights of the processes differ in a bit: they would train different models."""
    if not processes.are_several:
        return
    mine = torch.stack([_digest(value) for value in model.state_dict().values()])  # [V] int64
    first = mine.clone() if processes.is_first else torch.zeros_like(mine)
    others = (mine != processes.sum(first)).sum().reshape(1)
    if int(processes.sum(others)):
        raise LostProcessError(
            f"process {processes.rank} of {processes.size}: the weights of the processes differ. They were started "
            "with other versions or settings, or one computes wrongly. Start all alike, and resume from the last "
            "checkpoint."
        )


def _digest(value: Tensor) -> Tensor:
    """[] int64 checksum of the bits, which depends on their places."""
    bits = value.detach().contiguous().reshape(-1).view(torch.uint8).long()
    place = torch.arange(len(bits), device=bits.device) % 8191 + 1
    return (bits * place).sum()
