"""Batches of a step, built before it: on CUDA the next one while the device is at this one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from contextpool.pool.batch import BatchBuilder
from contextpool.pool.dropout import EdgeDropout
from contextpool.train._device import tensors_of
from contextpool.train.config import TrainConfig
from contextpool.train.distributed import Piece, Pieces
from contextpool.train.queries import TrainingQueries, mixed_seed


class Preparation:
    """Builds this process's pieces of each batch, without the facts that edge dropout takes."""

    def __init__(
        self, queries: TrainingQueries, builder: BatchBuilder, pieces: Pieces, config: TrainConfig, seed: int
    ) -> None:
        self.queries, self.builder, self.pieces = queries, builder, pieces
        self.config, self.seed = config, seed
        device = builder.graph.device
        self.side = torch.cuda.Stream(device) if device.type == "cuda" else None
        """On which batches are built, beside the steps."""

    def ahead(
        self, batches: Sequence[Tensor], epoch: int, first: int
    ) -> Iterator[tuple[Tensor, tuple[Piece, ...]]]:
        """The rows of each batch and its pieces; the batches are those of an epoch from step `first` on."""
        coming = None
        for number, rows in enumerate(batches):
            current = coming if coming is not None else self._prepare(rows, epoch, first + number)
            coming = None
            yield rows, current
            if self.side is not None and number + 1 < len(batches):
                coming = self._prepare(batches[number + 1], epoch, first + number + 1)

    def _prepare(self, rows: Tensor, epoch: int, step: int) -> tuple[Piece, ...]:
        if self.side is None:
            return self._built(rows, epoch, step)
        main = torch.cuda.current_stream(rows.device)
        with torch.cuda.stream(self.side):
            built = self._built(rows, epoch, step)
        main.wait_stream(self.side)
        for tensor in tensors_of(built):
            tensor.record_stream(main)
        return built

    def _built(self, rows: Tensor, epoch: int, step: int) -> tuple[Piece, ...]:
        seed = mixed_seed(self.seed, epoch, step)
        return tuple(self._piece(rows, seed, number) for number in self.pieces.own)

    def _piece(self, rows: Tensor, seed: int, number: int) -> Piece:
        place = self.pieces.bounds(number, len(rows))
        batch, dropout = self.queries.batch(rows[place]), None
        if self.config.edge_dropout:
            dropout = EdgeDropout(self.config.edge_dropout, seed, place.start)
        built = self.builder.build(batch.head, batch.relation, batch.hidden_edge, dropout=dropout)
        return Piece(number, batch, built)
