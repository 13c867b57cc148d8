"""`aggregate` on CUDA: one Triton kernel forward, one backward, no tensor of the size [edges, D].

Backward adds with atomics, in changing order; where `torch.use_deterministic_algorithms(True)` is set it sums
groups of edges in a fixed order instead, which costs about twice the time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from triton import cdiv, next_power_of_2

from contextpool.errors import ConfigError
from contextpool.kernels import _triton_aggregate as kernels
from contextpool.kernels import _triton_in_order as in_order
from contextpool.kernels import _triton_tiles as tiles
from contextpool.kernels.reference import FULL, STD_EPSILON, Message, Reduction, Stream, check
from contextpool.pool.propagation import HUB_EDGES, Hop

MESSAGES = {"distmult": 0, "transe": 1, "rotate": 2}
TILE = 128
"""Elements of an [E, D] or [T, D] tile, for one warp: fewer leave room for more warps, more put more in flight."""
TILE_REGISTERS = 80
"""A thread of such a warp may hold: with fewer more warps fit, and what does not is kept nearby."""
MAX_DIM = 512
NO_LIMIT = 2**31 - 1
Gradients = tuple[Tensor, Tensor, Tensor | None, Tensor | None]
"""Of state, weight, boundary and edge weight."""


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
    """See `reference.aggregate`. Accumulates in float32 whatever the inputs are stored in."""
    check(message, reductions)
    if state.size(1) > MAX_DIM:
        raise ConfigError(f"backend 'triton' takes states of up to {MAX_DIM} columns, not {state.size(1)}.")
    weight = torch.stack([stream.relation_weight for stream in streams])
    if weight.dim() == 3:
        weight = weight[:, None]  # [S, 1, 2R, D]
    views = tuple(stream.view for stream in streams)
    *results, degree = _Aggregate.apply(state, weight, boundary, edge_weight, hop, views, message, reductions)
    return list(results), list(degree.unbind(0))


class _Aggregate(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        state: Tensor,
        weight: Tensor,
        boundary: Tensor | None,
        edge_weight: Tensor | None,
        hop: Hop,
        views: tuple[int, ...],
        message: Message,
        reductions: tuple[Reduction, ...],
    ) -> tuple[Tensor, ...]:
        launch = _Launch(hop, views, message, reductions, state.size(1))
        state, weight = state.contiguous(), weight.contiguous()
        boundary = None if boundary is None else boundary.contiguous()
        edge_weight = None if edge_weight is None else edge_weight.contiguous()
        needs_grad = any(ctx.needs_input_grad[:4])
        out, degree, ties = launch.forward(state, weight, boundary, edge_weight, keep_ties=needs_grad)
        ctx.launch = launch
        ctx.save_for_backward(state, weight, boundary, edge_weight, out, degree, ties)
        ctx.mark_non_differentiable(degree)
        return *launch.requested(out), degree

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        launch: _Launch = ctx.launch
        state, weight, boundary, edge_weight, out, degree, ties = ctx.saved_tensors
        grad = launch.with_unrequested(stacked(grads[:-1]))
        backward = (
            launch.backward_in_order if torch.are_deterministic_algorithms_enabled() else launch.backward
        )
        results = backward(grad, state, weight, boundary, edge_weight, out, degree, ties)
        inputs = (state, weight, boundary, edge_weight)
        cast = (
            None if result is None or given is None else result.to(given.dtype)
            for result, given in zip(results, inputs, strict=True)
        )
        return *cast, None, None, None, None


class _Launch:
    """What the kernels of one call share."""

    def __init__(
        self, hop: Hop, views: tuple[int, ...], message: Message, reductions: tuple[Reduction, ...], dim: int
    ) -> None:
        self.hop, self.dim, self.num_streams, self.reductions = hop, dim, len(views), reductions
        held = reductions if "std" not in reductions or "mean" in reductions else (*reductions, "mean")
        self.num_out = len(held)
        self.sizes = hop.device_sizes  # here: launches may be on another stream
        d_pad, s_pad = next_power_of_2(dim), next_power_of_2(len(views))
        self.has_view = any(view != FULL for view in views)
        self.stream_view = _stream_views(views, s_pad, hop.edge_source.device)
        self.shape: dict[str, Any] = {
            **{f"AT_{name.upper()}": held.index(name) if name in held else -1 for name in _NAMES},
            "NUM_OUT": self.num_out,
            "MESSAGE": MESSAGES[message],
            "D_PAD": d_pad,
        }
        warps, edges = 1 if d_pad <= TILE else 4, max(1, TILE // d_pad)
        self.every_row = {"BLOCK_E": edges, "longest": NO_LIMIT, "FROM_LIST": False, "num_warps": warps}
        self.long_rows = self.every_row | {"BLOCK_E": 8 * edges, "FROM_LIST": True, "num_warps": 4 * warps}
        self.short_rows = {
            "BLOCK_T": edges, "longest": HUB_EDGES, "num_warps": warps, "maxnreg": TILE_REGISTERS
        }  # fmt: skip
        self.in_order = {"S_PAD": s_pad, "BLOCK_E": max(1, 512 // (s_pad * d_pad)), "num_warps": warps}
        if (
            message == "rotate"
        ):  # a multiply-add fused in one kernel alone would miss the maximum of the other
            self.shape["enable_fp_fusion"] = False

    def _launches(self, by_row: Any, by_tile: Any) -> Iterator[tuple[Any, Tensor, dict[str, Any]]]:
        """(kernel with its grid, list of targets, how); to be launched at once, on the stream that is current then.

        A warp a target; where the rows' lengths are known, tiles of targets for short rows, more warps for a long one.
        """
        hop = self.hop
        if hop.num_targets == 0:
            return
        if hop.order is None or hop.hubs is None:
            yield by_row[(hop.num_targets,)], self.stream_view, self.every_row
            return
        short = by_tile[(cdiv(hop.num_targets, self.short_rows["BLOCK_T"]),)], hop.order, self.short_rows
        if not len(hop.hubs):
            yield short
            return
        with _aside(hop.edge_source.device) as second_stream:
            with second_stream:
                yield by_row[(len(hop.hubs), self.num_streams)], hop.hubs, self.long_rows
            yield short

    def requested(self, out: Tensor) -> tuple[Tensor, ...]:
        """Per stream [M, reductions, D], without what only the backward pass needs."""
        wanted = len(self.reductions)
        return out.unbind(0) if wanted == self.num_out else out[:, :, :wanted].contiguous().unbind(0)

    def with_unrequested(self, grad: Tensor) -> Tensor:
        """[S, M, NUM_OUT, D] from the gradients of what was requested."""
        missing = self.num_out - len(self.reductions)
        return torch.nn.functional.pad(grad, (0, 0, 0, missing)) if missing else grad

    def forward(
        self,
        state: Tensor,
        weight: Tensor,
        boundary: Tensor | None,
        edge_weight: Tensor | None,
        keep_ties: bool,
    ) -> tuple[Tensor, Tensor, Tensor]:
        hop, size = self.hop, (self.num_streams, self.hop.num_targets)
        out = torch.empty(*size, self.num_out, self.dim, dtype=torch.float32, device=state.device)
        degree = torch.empty(*size, dtype=torch.int64, device=state.device)
        extremes = keep_ties and bool({"max", "min"} & set(self.reductions))
        ties = torch.empty(*size, 2, self.dim, dtype=torch.int16, device=state.device) if extremes else degree
        for kernel, targets, how in self._launches(kernels.aggregate_forward, tiles.forward_tiles):
            kernel(
                state, weight, hop.row_start, hop.edge_source, hop.edge_relation, hop.edge_views,
                state if edge_weight is None else edge_weight, hop.node_query,
                state if boundary is None else boundary, targets, self.stream_view, out, degree, ties,
                self.sizes, hop.num_targets, 0 if boundary is None else len(boundary),
                self.dim, weight.stride(0), weight.stride(1) if weight.size(1) > 1 else 0, STD_EPSILON,
                HAS_EDGE_WEIGHT=edge_weight is not None, HAS_BOUNDARY=boundary is not None, KEEP_TIES=extremes,
                NUM_STREAMS=self.num_streams, HAS_VIEW=self.has_view, **self.shape, **how,
            )  # fmt: skip
        return out, degree, ties

    def backward(
        self,
        grad: Tensor,
        state: Tensor,
        weight: Tensor,
        boundary: Tensor | None,
        edge_weight: Tensor | None,
        out: Tensor,
        degree: Tensor,
        ties: Tensor,
    ) -> Gradients:
        """Gradients of state, weight, boundary and edge weight."""
        grads = self._no_gradients(state, weight, boundary, edge_weight)
        values = (grad, state, weight, boundary, edge_weight, out, degree, ties)
        for kernel, targets, how in self._launches(kernels.aggregate_backward, tiles.backward_tiles):
            self._add_gradients(kernel, targets, how, values, grads)
        return grads

    def _no_gradients(
        self, state: Tensor, weight: Tensor, boundary: Tensor | None, edge_weight: Tensor | None
    ) -> Gradients:
        grad_state = torch.zeros(state.shape, dtype=torch.float32, device=state.device)
        grad_weight = torch.zeros(weight.shape, dtype=torch.float32, device=state.device)
        grad_boundary = None if boundary is None else torch.zeros_like(boundary, dtype=torch.float32)
        grad_edge = None if edge_weight is None else torch.zeros_like(edge_weight, dtype=torch.float32)
        return grad_state, grad_weight, grad_boundary, grad_edge

    def _add_gradients(
        self, kernel: Any, targets: Tensor, how: dict[str, Any], values: tuple[Any, ...], grads: Gradients
    ) -> None:
        grad, state, weight, boundary, edge_weight, out, degree, ties = values
        grad_state, grad_weight, grad_boundary, grad_edge = grads
        hop = self.hop
        kernel(
            grad, state, weight, hop.row_start, hop.edge_source, hop.edge_relation, hop.edge_views,
            state if edge_weight is None else edge_weight, hop.node_query,
            state if boundary is None else boundary, targets, self.stream_view, out, degree, ties,
            grad_state, grad_weight, grad_state if grad_edge is None else grad_edge,
            grad_state if grad_boundary is None else grad_boundary,
            self.sizes, hop.num_targets, 0 if boundary is None else len(boundary),
            self.dim, weight.stride(0), weight.stride(1) if weight.size(1) > 1 else 0, STD_EPSILON,
            HAS_EDGE_WEIGHT=edge_weight is not None, HAS_BOUNDARY=boundary is not None,
            NUM_STREAMS=self.num_streams, HAS_VIEW=self.has_view, **self.shape, **how,
        )  # fmt: skip

    def backward_in_order(
        self,
        grad: Tensor,
        state: Tensor,
        weight: Tensor,
        boundary: Tensor | None,
        edge_weight: Tensor | None,
        out: Tensor,
        degree: Tensor,
        ties: Tensor,
    ) -> Gradients:
        """The same, every sum in a fixed order."""
        hop = self.hop
        grads = self._no_gradients(state, weight, boundary, edge_weight)
        heads = 0 if boundary is None else min(hop.num_targets, len(boundary))
        if heads:
            given = (grad, state, weight, boundary, edge_weight, out, degree, ties)
            how = self.every_row | {"TO_EDGES": False}
            self._add_gradients(kernels.aggregate_backward[(heads,)], self.stream_view, how, given, grads)
        grad_state, grad_weight, grad_boundary, grad_edge = grads
        values = (grad, state, weight, edge_weight, out, degree, ties, grad_edge)
        self._sum_groups(values, hop.edge_source.long(), hop.num_sources, grad_state, by_source=True)
        per_query = weight.size(2) if weight.size(1) > 1 else 0
        row = hop.edge_query * per_query + hop.edge_relation.long()
        self._sum_groups(values, row, weight.size(1) * weight.size(2), grad_weight, by_source=False)
        return grad_state, grad_weight, grad_boundary, grad_edge

    def _sum_groups(
        self, values: tuple[Any, ...], group: Tensor, num_groups: int, result: Tensor, by_source: bool
    ) -> None:
        """Adds to `result` what belongs to each group [K] of edges."""
        grad, state, weight, edge_weight, out, degree, ties, grad_edge = values
        hop = self.hop
        if num_groups == 0 or hop.num_edges == 0:
            return
        ordered, order = torch.sort(group, stable=True)
        numbers = torch.arange(num_groups + 1, device=group.device)
        start = torch.searchsorted(ordered, numbers)
        other = torch.zeros_like(result) if self.shape["MESSAGE"] == MESSAGES["rotate"] else result
        in_order.aggregate_backward_in_order[(num_groups,)](
            grad, state, weight, start, order, hop.edge_source, hop.edge_target, hop.edge_relation, hop.edge_views,
            state if edge_weight is None else edge_weight, hop.node_query, self.stream_view, out, degree, ties,
            result, other, result if grad_edge is None else grad_edge,
            hop.num_sources, hop.num_targets, num_groups, self.num_streams, self.dim,
            weight.stride(0), weight.stride(1) if weight.size(1) > 1 else 0, STD_EPSILON,
            HAS_EDGE_WEIGHT=edge_weight is not None, BY_SOURCE=by_source, **(self.shape | self.in_order),
        )  # fmt: skip
        if other is not result:
            result += other.roll(self.dim // 2, dims=-1)


_NAMES = ("sum", "mean", "max", "min", "std")


@contextmanager
def _aside(device: torch.device) -> Iterator[AbstractContextManager[Any]]:
    """A block with a second stream for some of its launches: they start with the block, and all are done after it."""
    if device.type != "cuda":
        yield nullcontext()
        return
    main = torch.cuda.current_stream(device)
    side = _side_stream(device, main.cuda_stream)
    side.wait_stream(main)
    try:
        yield torch.cuda.stream(side)
    finally:
        main.wait_stream(side)


@lru_cache(maxsize=16)
def _side_stream(device: torch.device, of: int) -> torch.cuda.Stream:
    """One for each stream that it helps: another's may be recording. It goes first, its programs take longest."""
    return torch.cuda.Stream(device, priority=-1)


def stacked(tensors: Sequence[Tensor]) -> Tensor:
    """`torch.stack`; no copy where the tensors lie one after the other already, as those of the kernels here do."""
    first = tensors[0]
    if _follow_one_another(tensors):
        return first.as_strided((len(tensors), *first.shape), (first.numel(), *first.stride()))
    return torch.stack(list(tensors))


def _follow_one_another(tensors: Sequence[Tensor]) -> bool:
    first = tensors[0]
    size, storage = first.numel() * first.element_size(), first.untyped_storage().data_ptr()
    return all(
        one.is_contiguous()
        and one.dtype == first.dtype
        and one.shape == first.shape
        and one.data_ptr() == first.data_ptr() + number * size
        and one.untyped_storage().data_ptr() == storage
        for number, one in enumerate(tensors)
    )


@lru_cache(maxsize=256)
def _stream_views(views: tuple[int, ...], padded: int, device: torch.device) -> Tensor:
    """[padded] int32; -2 takes no edge."""
    return torch.tensor([*views, *[-2] * (padded - len(views))], dtype=torch.int32, device=device)
