"""`aggregate` on the CPU, compiled: no tensor of messages, both directions, the same bits on any number of threads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from contextpool.context.counts import available_threads
from contextpool.errors import ConfigError, DataError
from contextpool.kernels.cpu_messages import (
    ANY_VIEW,
    MESSAGE_NUMBER,
    REDUCTION_NUMBER,
    Gradients,
    Walk,
    push_blocks,
    reduce_blocks,
)
from contextpool.kernels.cpu_vectors import VECTOR_BYTES
from contextpool.kernels.hop import Hop
from contextpool.kernels.reference import FULL, Message, Reduction, Stream, check
from contextpool.kernels.threads import in_threads

Int64s = npt.NDArray[np.int64]
TARGET_BLOCKS = 32
LEAST_WORK = 2**19
"""Numbers to gather, a fraction of a millisecond: below this, a second thread takes longer than it saves."""


def aggregate(
    hop: Hop,
    state: Tensor,
    streams: list[Stream],
    *,
    message: Message,
    reductions: tuple[Reduction, ...],
    boundary: Tensor | None = None,
    edge_weight: Tensor | None = None,
) -> tuple[list[Tensor], list[Tensor]]:
    """See `reference.aggregate`, the definition. O(edges D) time, O(targets D) memory, forward and backward.

    Computes in float64 where any input is, else in float32. No second derivatives.
    """
    check(message, reductions)
    weights = [stream.relation_weight for stream in streams]
    given = (state, *weights, *(one for one in (boundary, edge_weight) if one is not None))
    double = any(one.dtype == torch.float64 for one in given)
    layout = _Layout(torch.float64 if double else torch.float32, state.size(1))
    _check_sizes(hop, state, weights, boundary, edge_weight)
    call = _Call(hop, tuple(stream.view for stream in streams), message, reductions, layout)
    results = _Aggregate.apply(
        call,
        layout.laid_out(state),
        None if boundary is None else layout.laid_out(boundary[: hop.num_targets]),
        None if edge_weight is None else edge_weight.to(layout.dtype).contiguous(),
        *(layout.laid_out(weight) for weight in weights),
    )
    return [layout.restored(result) for result in results], list(call.degree)


def _check_sizes(
    hop: Hop, state: Tensor, weights: Sequence[Tensor], boundary: Tensor | None, edge_weight: Tensor | None
) -> None:
    """Refuse inputs of wrong devices or shapes: compiled code does not check bounds."""
    if state.device.type != "cpu":
        raise ConfigError(f"backend 'cpu' reads states in main memory; these are on {state.device}.")
    if len(state) < hop.num_sources:
        raise DataError(f"state has {len(state):,} rows; the hop has {hop.num_sources:,} sources.")
    if edge_weight is not None and edge_weight.shape != (hop.num_edges,):
        raise DataError(f"edge_weight is {tuple(edge_weight.shape)}; the hop has {hop.num_edges:,} edges.")
    for weight in (*weights, *(() if boundary is None else (boundary,))):
        if weight.size(-1) != state.size(1) or weight.dim() not in (2, 3):
            raise DataError(
                f"states are {state.size(1)} wide, but a relation weight or the boundary is {tuple(weight.shape)}."
            )


@dataclass(frozen=True)
class _Layout:
    """How rows of D numbers lie in memory: in whole vectors."""

    dtype: torch.dtype
    dim: int

    @property
    def lanes(self) -> int:
        return VECTOR_BYTES // self.dtype.itemsize

    @property
    def vectors(self) -> int:
        """Vectors in a row."""
        return -(-self.dim // self.lanes)

    @property
    def row(self) -> int:
        """Columns in memory."""
        return self.vectors * self.lanes

    def laid_out(self, values: Tensor) -> Tensor:
        """[..., D] -> [..., row]"""
        values = values.to(self.dtype)
        missing = self.row - self.dim
        return functional.pad(values, (0, missing)) if missing else values.contiguous()

    def restored(self, values: Tensor) -> Tensor:
        """[..., row] -> [..., D]"""
        return values[..., : self.dim]


class _Call:
    """What is asked of a hop, apart from the tensors that gradients flow to."""

    def __init__(
        self,
        hop: Hop,
        views: tuple[int, ...],
        message: Message,
        reductions: tuple[Reduction, ...],
        layout: _Layout,
    ) -> None:
        self.hop, self.message, self.reductions, self.layout = hop, message, reductions, layout
        self.row_start, self.node_query = (
            hop.row_start.long().contiguous(),
            hop.node_query.long().contiguous(),
        )
        self.edge_source = hop.edge_source.int().contiguous()
        self.edge_relation = hop.edge_relation.int().contiguous()
        self.edge_views = hop.edge_views.to(torch.uint8).contiguous()
        self.view_bit = _numbers([ANY_VIEW if view == FULL else view for view in views])
        self.reduction_numbers = _numbers([REDUCTION_NUMBER[name] for name in reductions])
        self.degree = torch.empty(len(views), hop.num_targets, dtype=torch.int64)
        enough = hop.num_edges * layout.row * len(views) > LEAST_WORK
        self.num_threads = min(available_threads(), torch.get_num_threads()) if enough else 1

    @property
    def result_shape(self) -> tuple[int, int, int]:
        return self.hop.num_targets, len(self.reductions), self.layout.row

    def reduce(self, inputs: _Inputs, results: Sequence[Tensor]) -> None:
        """Fill the results and the degrees; a block of targets has about as many edges as any other."""
        addresses = _numbers([result.data_ptr() for result in results])
        arguments = inputs.walk(self), addresses, self.degree.numpy()
        wrong = max(_run(reduce_blocks, self._target_blocks(), arguments, self.num_threads))
        if wrong >= 0:
            raise DataError(
                f"relation weights have rows for {inputs.num_directed.tolist()} relations and "
                f"{inputs.num_queries.tolist()} queries (0: shared), stream by stream; an edge into target "
                f"{wrong} needs another row. Make them [2R, D], or [B, 2R, D] where they depend on the query."
            )

    def _target_blocks(self) -> Int64s:
        """[blocks + 1] where blocks of targets start."""
        blocks = TARGET_BLOCKS if self.num_threads > 1 else 1
        edges = [self.hop.num_edges * block // blocks for block in range(1, blocks)]
        cuts = np.searchsorted(self.row_start.numpy(), edges)
        return np.array([0, *cuts.tolist(), self.hop.num_targets], dtype=np.int64)

    def push(self, inputs: _Inputs, gradients: Gradients) -> None:
        """Add to the gradients, a block of columns to each thread."""
        blocks = min(self.num_threads, self.layout.vectors)
        cuts = [self.layout.vectors * block // blocks * self.layout.lanes for block in range(blocks + 1)]
        arguments = inputs.walk(self), gradients, self.degree.numpy()
        _run(push_blocks, np.array(cuts, dtype=np.int64), arguments, blocks)


class _Inputs:
    """The tensors that gradients flow to, laid out; alive for as long as compiled code reads them."""

    def __init__(
        self, state: Tensor, boundary: Tensor | None, edge_weight: Tensor | None, weights: Sequence[Tensor]
    ) -> None:
        self.state, self.boundary, self.edge_weight, self.weights = state, boundary, edge_weight, weights
        self.weight_addresses = _numbers([weight.data_ptr() for weight in weights])
        self.num_directed = _numbers([weight.size(-2) for weight in weights])
        self.num_queries = _numbers([weight.size(0) if weight.dim() == 3 else 0 for weight in weights])

    def walk(self, call: _Call) -> Walk:
        return Walk(
            row_start=call.row_start.data_ptr(),
            edge_source=call.edge_source.data_ptr(),
            edge_relation=call.edge_relation.data_ptr(),
            edge_views=call.edge_views.data_ptr(),
            node_query=call.node_query.data_ptr(),
            num_sources=call.hop.num_sources,
            num_targets=call.hop.num_targets,
            num_streams=len(self.weights),
            view_bit=call.view_bit.ctypes.data,
            weight=self.weight_addresses.ctypes.data,
            num_directed=self.num_directed.ctypes.data,
            num_queries=self.num_queries.ctypes.data,
            zero=np.float64(0) if self.state.dtype == torch.float64 else np.float32(0),
            state=self.state.data_ptr(),
            dim=call.layout.row,
            boundary=0 if self.boundary is None else self.boundary.data_ptr(),
            boundary_rows=0 if self.boundary is None else len(self.boundary),
            has_boundary=self.boundary is not None,
            edge_weight=0 if self.edge_weight is None else self.edge_weight.data_ptr(),
            weighted=self.edge_weight is not None,
            message=MESSAGE_NUMBER[call.message],
            reductions=call.reduction_numbers.ctypes.data,
            num_reductions=len(call.reductions),
            wants_max="max" in call.reductions,
            wants_min="min" in call.reductions,
            wants_std="std" in call.reductions,
        )


class _Aggregate(torch.autograd.Function):
    """(call, state, boundary or None, edge weight or None, a relation weight per stream) -> a result per stream."""

    @staticmethod
    def forward(
        ctx: Any,
        call: _Call,
        state: Tensor,
        boundary: Tensor | None,
        edge_weight: Tensor | None,
        *weights: Tensor,
    ) -> tuple[Tensor, ...]:
        results = [state.new_empty(call.result_shape) for _ in weights]
        call.reduce(_Inputs(state, boundary, edge_weight, weights), results)
        ctx.call = call
        needed = results if {"max", "min", "std"} & set(call.reductions) else []
        ctx.save_for_backward(state, boundary, edge_weight, *weights, *needed)
        return tuple(results)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *due: Tensor) -> tuple[Tensor | None, ...]:
        call: _Call = ctx.call
        state, boundary, edge_weight, *rest = ctx.saved_tensors
        weights, results = rest[: len(due)], rest[len(due) :]
        due = tuple(gradient.contiguous() for gradient in due)
        to_state, to_weights = torch.zeros_like(state), [torch.zeros_like(weight) for weight in weights]
        to_boundary = None if boundary is None else torch.zeros_like(boundary)
        num_edges = call.hop.num_edges if ctx.needs_input_grad[3] else 0
        to_edge_weight = state.new_zeros(call.layout.vectors, num_edges)
        addresses = [
            _numbers([tensor.data_ptr() for tensor in tensors]) for tensors in (results, due, to_weights)
        ]
        gradients = Gradients(
            result=addresses[0].ctypes.data,
            due=addresses[1].ctypes.data,
            weight=addresses[2].ctypes.data,
            state=to_state.data_ptr(),
            boundary=0 if to_boundary is None else to_boundary.data_ptr(),
            edge_weight=to_edge_weight.data_ptr(),
            num_edges=num_edges,
        )
        call.push(_Inputs(state, boundary, edge_weight, weights), gradients)
        of_edges = to_edge_weight.sum(0) if ctx.needs_input_grad[3] else None
        return None, to_state, to_boundary, of_edges, *to_weights


def _run(
    task: Callable[..., Any], block_start: Int64s, arguments: tuple[Any, ...], num_threads: int
) -> list[Any]:
    """Threads take block after block; what they return."""
    next_block = np.zeros(1, dtype=np.int64)
    return in_threads(
        lambda: task(block_start, next_block, *arguments), min(num_threads, len(block_start) - 1)
    )


def _numbers(values: list[int]) -> Int64s:
    return np.array(values, dtype=np.int64)
