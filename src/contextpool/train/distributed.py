"""One update from pieces of a batch, wherever they were computed: the same bits for any number of processes.

A batch is cut into pieces in a row, and the pieces are shared out among the processes; both may come out empty, and
nothing is padded. The loss of a batch is a mean over its queries: each piece brings the sum over its own with its
gradient, all pieces are added up in their order, whoever has computed them, and then divided by the number of queries.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import NamedTuple

import torch
from torch import Tensor, nn

from contextpool.errors import LostProcessError
from contextpool.pool.query_batch import QueryBatch
from contextpool.processes import Processes
from contextpool.train.queries import TrainingQueries


class Piece(NamedTuple):
    """Some queries of a batch, and what the model reads of them."""

    number: int
    queries: TrainingQueries
    prepared: QueryBatch


@dataclass(frozen=True)
class Pieces:
    """`count` pieces of every batch over some processes: at least one for each."""

    count: int
    processes: Processes

    @classmethod
    def at_least(cls, count: int, processes: Processes) -> Pieces:
        return cls(max(count, processes.size), processes)

    @property
    def are_several(self) -> bool:
        return self.count > 1

    @property
    def own(self) -> range:
        """The numbers of this process's pieces."""
        return range(*self.processes.bounds(self.count))

    def bounds(self, number: int, length: int) -> slice:
        """Where piece `number` of a batch of `length` queries begins and ends."""
        return slice(length * number // self.count, length * (number + 1) // self.count)


def mean_over_pieces(
    pieces: Pieces,
    own: Sequence[Piece],
    loss_of: Callable[[Piece], Tensor],
    parameters: Sequence[nn.Parameter],
) -> Tensor:
    """The mean loss [] over the queries of all pieces, its gradient in every parameter; the same bits everywhere.

    `loss_of` gives the mean loss [] of one of this process's own pieces. O(pieces x weights) memory, and as many
    numbers over the wire: small beside the states of a walk, since weights know no entities.
    """
    sizes = [parameter.numel() for parameter in parameters]
    rows = torch.zeros(pieces.count, 2 + len(sizes) + sum(sizes), device=parameters[0].device)
    for piece in own:
        if len(piece.queries):
            rows[piece.number] = _sum_with_gradient(piece, loss_of, parameters)
    total = reduce(torch.add, pieces.processes.sum(rows).unbind())  # in the order of the pieces
    loss, count, holders, gradient = total.split([1, 1, len(sizes), sum(sizes)])
    mean = gradient / count.clamp(min=1)
    for parameter, held, part in zip(parameters, holders.tolist(), mean.split(sizes), strict=True):
        parameter.grad = part.view_as(parameter) if held else None  # the optimizer leaves those without alone
    whole: Tensor = loss[0] / count[0].clamp(min=1)
    return whole


def _sum_with_gradient(
    piece: Piece, loss_of: Callable[[Piece], Tensor], parameters: Sequence[nn.Parameter]
) -> Tensor:
    """Loss, number of queries, which parameters have a gradient, and the gradients, in a row."""
    for parameter in parameters:
        parameter.grad = None
    total = loss_of(piece) * len(piece.queries)
    total.backward()
    held = torch.tensor([len(piece.queries), *(parameter.grad is not None for parameter in parameters)])
    gradients = (
        torch.zeros_like(parameter) if parameter.grad is None else parameter.grad for parameter in parameters
    )
    return torch.cat(
        [total.detach().reshape(1), held.to(total), *(gradient.reshape(-1) for gradient in gradients)]
    )


def check_same_weights(processes: Processes, model: nn.Module) -> None:
    """Refuse to go on where the weights of the processes differ in a bit: they would train different models."""
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
    """[] int64: another one for other bits in all but few cases; places count."""
    bits = value.detach().contiguous().reshape(-1).view(torch.uint8).long()
    place = torch.arange(len(bits), device=bits.device) % 8191 + 1
    return (bits * place).sum()
