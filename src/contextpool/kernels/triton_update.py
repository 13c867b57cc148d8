"""The update on CUDA: one fused pass forward, two backward. Nothing wider than the states is written between."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from triton import cdiv

from contextpool.kernels import _triton_update as kernels
from contextpool.kernels._tensors import stack_of
from contextpool.kernels.update import MIN_SCALE, UpdateWeights


class Tiling(NamedTuple):
    """How a pass is cut: rows a program takes at once, numbers of a matrix at once, warps, loads ahead."""

    rows: int
    numbers: int
    warps: int = 4
    stages: int = 1

    def options(self, dim: int, width: int) -> dict[str, int]:
        """For states of `dim` columns and `width` columns received: more at once than registers hold is slow."""
        columns = min(width, max(16, self.numbers // dim))
        return {"BLOCK": self.rows, "C": columns, "num_warps": self.warps, "num_stages": self.stages}


FORWARD, FORWARD_WIDE = Tiling(64, 4096), Tiling(64, 2048, stages=2)
BACKWARD = Tiling(32, 2048, warps=2, stages=2)
WEIGHTS = Tiling(64, 4096)
"""Products alone gain from more rows, the backward pass holds so much beside that it wants fewer. More than 32 columns
forward gain from loads ahead."""
PROGRAMS = 264
"""Two for each multiprocessor of the largest cards: as many partial sums are added at the end."""
SUMS, SUM_ROWS = 32, 64
"""Columns of partial sums that one program adds up, and rows of them that it waits for at once."""


class Parameters(NamedTuple):
    """What an update learns."""

    received: Tensor  # [S, scalers * D, reductions * D]
    own: Tensor  # [D, D]
    own_bias: Tensor  # [D]
    norm: Tensor | None  # [D]
    norm_bias: Tensor | None  # [D]

    @classmethod
    def of(cls, weights: UpdateWeights) -> Parameters:
        received = stack_of(weights.received_weight)
        return cls(received, weights.own_weight, weights.own_bias, weights.norm_weight, weights.norm_bias)


class RowGradients(NamedTuple):
    """What a backward pass over the rows leaves, all float32."""

    to_state: Tensor  # [num_sources, D]
    to_received: Tensor  # [S, M, reductions, D]
    to_update: Tensor  # [M, D] before the norm
    parts: Tensor  # [programs, 3 D] of the gradients of own_bias, norm and norm_bias


class Update:
    """The passes of one update over received [S, M, reductions, D]; TF32 where torch's own float32 products are."""

    def __init__(
        self,
        weights: UpdateWeights,
        shape: tuple[int, int, int, int],
        sizes: Tensor,
        *,
        short_cut: bool,
    ) -> None:
        num_streams, self.num_rows, num_reductions, self.dim = shape
        self.num_streams, self.width = num_streams, num_reductions * self.dim
        self.sizes, self.log_degree, self.norm_eps = sizes, weights.log_degree, weights.norm_eps
        self.options = {
            "D": self.dim,
            "W": self.width,
            "SCALERS": weights.scalers,
            "PRECISION": "tf32x3" if torch.get_float32_matmul_precision() == "highest" else "tf32",
        }
        self.flags = {"HAS_NORM": weights.norm_weight is not None, "SHORT_CUT": short_cut}

    def forward(
        self,
        parameters: Parameters,
        state: Tensor,
        received: Tensor,
        degree: Tensor,
        dtype: torch.dtype,
        *,
        keep: bool,
    ) -> tuple[Tensor, Tensor]:
        """New states [M, D], and what is normalised, for the backward pass: nothing unless `keep`."""
        matrices, own, own_bias, norm, norm_bias = parameters
        num_rows, dim = self.num_rows, self.dim
        update = torch.empty(num_rows if keep else 0, dim, dtype=torch.float32, device=state.device)
        result = torch.empty(num_rows, dim, dtype=dtype, device=state.device)
        if not num_rows:
            return result, update
        tiling = FORWARD if dim <= 32 else FORWARD_WIDE
        cut = tiling.options(dim, self.width)
        kernels.update_forward[(cdiv(num_rows, tiling.rows),)](
            state, received, degree, own, own_bias, matrices, own_bias if norm is None else norm,
            own_bias if norm_bias is None else norm_bias, self.log_degree, update, result, self.sizes,
            num_rows, self.norm_eps, MIN_SCALE, NUM_STREAMS=self.num_streams, KEEP=keep,
            **self.options, **self.flags, **cut,
        )  # fmt: skip
        return result, update

    def backward(
        self,
        parameters: Parameters,
        grad: Tensor,
        state: Tensor,
        received: Tensor,
        degree: Tensor,
        update: Tensor,
    ) -> RowGradients:
        """Gradients of the state and of what was received, and what those of the parameters are made of."""
        matrices, own, own_bias, norm, norm_bias = parameters
        num_rows, dim, device = self.num_rows, self.dim, state.device
        grad_update = torch.empty_like(update)
        grad_state = torch.empty(state.shape, dtype=torch.float32, device=device)
        grad_received = torch.empty_like(received)
        programs = max(1, min(2 * PROGRAMS, cdiv(num_rows, BACKWARD.rows)))
        vectors = torch.empty(programs, 3 * dim, dtype=torch.float32, device=device)
        cut = BACKWARD.options(dim, self.width)
        kernels.update_backward[(programs,)](
            grad.contiguous(), update, degree, own, matrices, own_bias if norm is None else norm,
            own_bias if norm_bias is None else norm_bias, self.log_degree, grad_update, grad_state, grad_received,
            vectors, self.sizes, num_rows, self.norm_eps, MIN_SCALE,
            NUM_STREAMS=self.num_streams, **self.options, **self.flags, **cut,
        )  # fmt: skip
        return RowGradients(grad_state, grad_received, grad_update, vectors)

    def backward_of_parameters(
        self, parameters: Parameters, rows: RowGradients, state: Tensor, received: Tensor, degree: Tensor
    ) -> Parameters:
        """Gradients of what the update learns; nothing else of a backward pass waits for them."""
        matrices, own, _, norm, _ = parameters
        dim = self.dim
        sums = self._sums_over_rows(matrices, rows.to_update, state, received, degree, rows.parts)
        to_bias, to_norm, to_norm_bias, to_own, to_received = sums.split(
            [dim, dim, dim, dim * dim, matrices.numel()]
        )
        of_norm = (None, None) if norm is None else (to_norm, to_norm_bias)
        return Parameters(to_received.view_as(matrices), to_own.view_as(own), to_bias, *of_norm)

    def _sums_over_rows(
        self,
        matrices: Tensor,
        grad_update: Tensor,
        state: Tensor,
        received: Tensor,
        degree: Tensor,
        vectors: Tensor,
    ) -> Tensor:
        """[3 D + D D + ...] the gradients of the vectors, whose parts are given, of own_weight and of the matrices."""
        programs = max(1, min(PROGRAMS, cdiv(self.num_rows, WEIGHTS.rows)))
        width = self.dim**2 + matrices.numel()
        parts = torch.empty(programs, width, dtype=torch.float32, device=state.device)
        cut = WEIGHTS.options(self.dim, self.width)
        kernels.update_weights[(programs, self.num_streams * (self.width // cut["C"]) + 1)](
            grad_update, state, received, degree, self.log_degree, parts, self.sizes,
            self.num_rows, width, MIN_SCALE, NUM_STREAMS=self.num_streams, **self.options, **cut,
        )  # fmt: skip
        sums = torch.empty(vectors.size(1) + width, dtype=torch.float32, device=state.device)
        kernels.sum_parts[(cdiv(len(sums), SUMS),)](
            vectors,
            parts,
            sums,
            len(vectors),
            len(parts),
            width,
            VECTORS=vectors.size(1),
            ROWS=SUM_ROWS,
            BLOCK=SUMS,
        )
        return sums
