"""`aggregate` and `next_states` on CUDA: messages are made once forward and once backward, and never stored.

Backward adds with atomics, in changing order; where `torch.use_deterministic_algorithms(True)` is set it sums
groups of edges in a fixed order instead, which costs about twice the time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from triton import cdiv, next_power_of_2

from contextpool.errors import ConfigError
from contextpool.kernels.hop import HUB_EDGES, Hop
from contextpool.kernels.reference import (
    FULL,
    STD_EPSILON,
    Message,
    Reduction,
    Stream,
    UpdateWeights,
    check,
)
from contextpool.kernels.triton_messages import aggregate_backward_in_order
from contextpool.kernels.triton_rows import aggregate_backward, aggregate_forward
from contextpool.kernels.triton_tensors import (
    aside,
    contiguous,
    like_inputs,
    needs_gradients,
    stack_of,
    stacked,
)
from contextpool.kernels.triton_tiles import backward_tiles, forward_tiles
from contextpool.kernels.triton_update import Parameters, Update

MESSAGES = {"distmult": 0, "transe": 1}
TILE = 128
"""Elements of an [E, D] or [T, D] tile of one warp: smaller tiles let more warps run, larger ones load more."""
TILE_REGISTERS = 80
"""Registers a thread of such a warp may use: fewer let more warps run, and the rest is spilled."""
TILE_PROGRAMS = 128 * 132
"""Programs at most, 128 for each of 132 multiprocessors; program p takes the tiles p, p + TILE_PROGRAMS, ... More
programs than run at once even out the work; too many would take long to start only to find no tile."""
MAX_DIM = 512
NO_LIMIT = 2**31 - 1
Gradients = tuple[Tensor, Tensor, Tensor | None, Tensor | None]
"""Gradients of state, weight, boundary and edge weight."""


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
    launch = Launch(hop, state, streams, message, reductions, boundary, edge_weight)
    sent = (state, weight_of(streams), boundary, edge_weight)
    *results, degree = _Aggregate.apply(*sent, launch, needs_gradients(sent))
    return list(results), list(degree.unbind(0))


def weight_of(streams: Sequence[Stream]) -> Tensor:
    """[S, B or 1, 2R, D]"""
    weight = stack_of([stream.relation_weight for stream in streams])
    return weight if weight.dim() == 4 else weight[:, None]


class _Aggregate(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        state: Tensor,
        weight: Tensor,
        boundary: Tensor | None,
        edge_weight: Tensor | None,
        launch: Launch,
        keep: bool,
    ) -> tuple[Tensor, ...]:
        sent = state.contiguous(), weight.contiguous(), contiguous(boundary), contiguous(edge_weight)
        out, degree, ties = launch.forward(*sent, keep_ties=keep)
        ctx.launch = launch
        ctx.save_for_backward(*sent, out, degree, ties)
        ctx.mark_non_differentiable(degree)
        return *launch.requested(out), degree

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        launch: Launch = ctx.launch
        grad = launch.with_unrequested(stacked(grads[:-1]))
        results = launch.backward(Values(grad, *ctx.saved_tensors))
        return *like_inputs(results, ctx.saved_tensors), None, None


class Values(NamedTuple):
    """What a backward pass reads."""

    grad: Tensor  # [S, M, NUM_OUT, D]
    state: Tensor
    weight: Tensor
    boundary: Tensor | None
    edge_weight: Tensor | None
    out: Tensor
    degree: Tensor
    ties: Tensor


class Launch:
    """What the kernels of one call share."""

    def __init__(
        self,
        hop: Hop,
        state: Tensor,
        streams: Sequence[Stream],
        message: Message,
        reductions: tuple[Reduction, ...],
        boundary: Tensor | None,
        edge_weight: Tensor | None,
    ) -> None:
        check(message, reductions)
        dim = state.size(1)
        if dim > MAX_DIM:
            raise ConfigError(f"backend 'triton' takes states of up to {MAX_DIM} columns, not {dim}.")
        views = tuple(stream.view for stream in streams)
        self.hop, self.dim, self.num_streams, self.reductions = hop, dim, len(views), reductions
        has_view = any(view != FULL for view in views)
        held = reductions if "std" not in reductions or "mean" in reductions else (*reductions, "mean")
        self.num_out = len(held)
        self.sizes = hop.sizes  # here: launches may be on another stream
        d_pad, s_pad = next_power_of_2(dim), next_power_of_2(len(views))
        self.stream_view = _stream_views(views, s_pad, hop.edge_source.device)
        self.shape: dict[str, Any] = {
            **{f"AT_{name.upper()}": held.index(name) if name in held else -1 for name in _NAMES},
            "NUM_OUT": self.num_out,
            "MESSAGE": MESSAGES[message],
            "D_PAD": d_pad,
        }
        warps, edges = 1 if d_pad <= TILE else 4, max(1, TILE // d_pad)
        self.every_row = {
            "BLOCK_E": edges, "longest": NO_LIMIT, "shortest": -1, "FROM_LIST": False, "HAS_VIEW": has_view,
            "NUM_STREAMS": self.num_streams, "num_warps": warps,
        }  # fmt: skip
        self.long_rows = self.every_row | {
            "BLOCK_E": 4 * edges, "shortest": HUB_EDGES, "FROM_LIST": True, "num_warps": 2 * warps
        }  # fmt: skip
        self.short_rows = {
            "BLOCK_T": edges, "longest": HUB_EDGES, "HAS_VIEW": has_view, "num_warps": warps, "maxnreg": TILE_REGISTERS
        }  # fmt: skip
        self.in_order = {"S_PAD": s_pad, "BLOCK_E": max(1, 512 // (s_pad * d_pad)), "num_warps": warps}

    def _launches(self, by_row: Any, by_tile: Any) -> Iterator[tuple[Any, Tensor, dict[str, Any]]]:
        """(kernel with its grid, list of targets, options). Launch each before taking the next: the stream changes.

        A warp a target; where the rows' lengths are known, tiles of targets for short rows, more warps for a long one.
        """
        hop = self.hop
        if hop.num_targets == 0:
            return
        order = None if hop.plan is None else hop.plan.order
        hubs = None if hop.plan is None else hop.plan.hubs
        if order is None or hubs is None:
            yield by_row[(hop.num_targets,)], self.stream_view, self.every_row
            return
        # programs of long rows take longest
        with aside(hop.edge_source.device, len(hubs) > 0, first=True) as second_stream:
            if len(hubs):
                with second_stream:
                    yield by_row[(len(hubs), self.num_streams)], hubs, self.long_rows
            tiles = cdiv(hop.num_targets, self.short_rows["BLOCK_T"])
            yield by_tile[(min(tiles, TILE_PROGRAMS), self.num_streams)], order, self.short_rows

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
        *,
        keep_ties: bool,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Results, degrees, and how often extremes are attained."""
        hop, size = self.hop, (self.num_streams, self.hop.num_targets)
        out = torch.empty(*size, self.num_out, self.dim, dtype=torch.float32, device=state.device)
        degree = torch.empty(*size, dtype=torch.int64, device=state.device)
        extremes = keep_ties and bool({"max", "min"} & set(self.reductions))
        ties = torch.empty(*size, 2, self.dim, dtype=torch.int16, device=state.device) if extremes else degree
        for kernel, targets, how in self._launches(aggregate_forward, forward_tiles):
            kernel(
                state, weight, hop.row_start, hop.edge_source, hop.edge_relation, hop.edge_views,
                state if edge_weight is None else edge_weight, hop.node_query,
                state if boundary is None else boundary, targets, self.stream_view, out, degree, ties,
                self.sizes, hop.num_targets, 0 if boundary is None else len(boundary),
                self.dim, weight.stride(0), weight.stride(1) if weight.size(1) > 1 else 0, STD_EPSILON,
                HAS_EDGE_WEIGHT=edge_weight is not None, HAS_BOUNDARY=boundary is not None, KEEP_TIES=extremes,
                **self.shape, **how,
            )  # fmt: skip
        return out, degree, ties

    def backward(self, values: Values, onto: Tensor | None = None) -> Gradients:
        """Gradients of state, weight, boundary and edge weight; that of the state is added to `onto` if given."""
        grads = self._no_gradients(values, onto)
        if torch.are_deterministic_algorithms_enabled():
            return self._backward_in_order(values, grads)
        for kernel, targets, how in self._launches(aggregate_backward, backward_tiles):
            self._add_gradients(kernel, targets, how, values, grads)
        return grads

    def _no_gradients(self, values: Values, onto: Tensor | None) -> Gradients:
        def zeros(like: Tensor) -> Tensor:
            return torch.zeros(like.shape, dtype=torch.float32, device=like.device)

        boundary, edge_weight = values.boundary, values.edge_weight
        return (
            zeros(values.state) if onto is None else onto,
            zeros(values.weight),
            None if boundary is None else zeros(boundary),
            None if edge_weight is None else zeros(edge_weight),
        )

    def _add_gradients(
        self,
        kernel: Any,
        targets: Tensor,
        how: dict[str, Any],
        values: Values,
        grads: Gradients,
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
            HAS_EDGE_WEIGHT=edge_weight is not None, HAS_BOUNDARY=boundary is not None, **self.shape, **how,
        )  # fmt: skip

    def _backward_in_order(self, values: Values, grads: Gradients) -> Gradients:
        """The same, every sum in a fixed order."""
        hop = self.hop
        grad_state, grad_weight, grad_boundary, grad_edge = grads
        boundary, weight = values.boundary, values.weight
        heads = 0 if boundary is None else min(hop.num_targets, len(boundary))
        if heads:
            how = self.every_row | {"TO_EDGES": False}
            self._add_gradients(aggregate_backward[(heads,)], self.stream_view, how, values, grads)
        to_state = torch.zeros_like(grad_state)
        self._sum_groups(values, hop.edge_source.long(), hop.num_sources, to_state, grad_edge, by_source=True)
        grad_state += to_state
        per_query = weight.size(2) if weight.size(1) > 1 else 0
        row = hop.node_query[hop.edge_target] * per_query + hop.edge_relation.long()
        self._sum_groups(
            values, row, weight.size(1) * weight.size(2), grad_weight, grad_edge, by_source=False
        )
        return grad_state, grad_weight, grad_boundary, grad_edge

    def _sum_groups(
        self,
        values: Values,
        group: Tensor,
        num_groups: int,
        result: Tensor,
        grad_edge: Tensor | None,
        *,
        by_source: bool,
    ) -> None:
        """Puts what belongs to each group [K] of edges into `result`."""
        grad, state, weight, _, edge_weight, out, degree, ties = values
        hop = self.hop
        if num_groups == 0 or hop.num_edges == 0:
            return
        ordered, order = torch.sort(group, stable=True)
        numbers = torch.arange(num_groups + 1, device=group.device)
        start = torch.searchsorted(ordered, numbers)
        aggregate_backward_in_order[(num_groups,)](
            grad, state, weight, start, order, hop.edge_source, hop.edge_target, hop.edge_relation, hop.edge_views,
            state if edge_weight is None else edge_weight, hop.node_query, self.stream_view, out, degree, ties,
            result, result if grad_edge is None else grad_edge,
            hop.num_sources, hop.num_targets, num_groups, self.num_streams, self.dim,
            weight.stride(0), weight.stride(1) if weight.size(1) > 1 else 0, STD_EPSILON,
            HAS_EDGE_WEIGHT=edge_weight is not None, BY_SOURCE=by_source, **(self.shape | self.in_order),
        )  # fmt: skip


def next_states(
    hop: Hop,
    state: Tensor,
    streams: list[Stream],
    weights: UpdateWeights,
    *,
    message: Message,
    reductions: tuple[Reduction, ...],
    boundary: Tensor | None,
    edge_weight: Tensor | None,
    short_cut: bool,
) -> Tensor:
    """See `interface.next_states`. The state has one gradient, so nobody adds up two that are as long as the states."""
    launch = Launch(hop, state, streams, message, reductions, boundary, edge_weight)
    shape = (len(streams), hop.num_targets, launch.num_out, state.size(1))
    update = Update(weights, shape, launch.sizes, short_cut=short_cut)
    learned = (state, weight_of(streams), boundary, edge_weight, *Parameters.of(weights))
    result: Tensor = _Layer.apply(*learned, launch, update, needs_gradients(learned))
    return result


class _Layer(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        state: Tensor,
        weight: Tensor,
        boundary: Tensor | None,
        edge_weight: Tensor | None,
        received_weight: Tensor,
        own_weight: Tensor,
        own_bias: Tensor,
        norm_weight: Tensor | None,
        norm_bias: Tensor | None,
        launch: Launch,
        update: Update,
        keep: bool,
    ) -> Tensor:
        sent = state.contiguous(), weight.contiguous(), contiguous(boundary), contiguous(edge_weight)
        out, degree, ties = launch.forward(*sent, keep_ties=keep)
        parameters = Parameters(received_weight.contiguous(), own_weight, own_bias, norm_weight, norm_bias)
        result, before_norm = update.forward(parameters, sent[0], out, degree, keep=keep)
        ctx.launch, ctx.update = launch, update
        ctx.save_for_backward(*sent, out, degree, ties, before_norm, *parameters)
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        launch: Launch = ctx.launch
        update: Update = ctx.update
        *aggregated, before_norm = ctx.saved_tensors[:8]
        state, out, degree = aggregated[0], aggregated[4], aggregated[5]
        parameters = Parameters(*ctx.saved_tensors[8:])
        rows = update.backward(parameters, grad, state, out, degree, before_norm)
        with aside(grad.device) as second_stream:
            with second_stream:  # it reads long tables, while aggregation gathers
                to_parameters = update.backward_of_parameters(parameters, rows, state, out, degree)
            gradients = launch.backward(Values(rows.to_received, *aggregated), onto=rows.to_state)
        return *like_inputs(gradients, aggregated), *to_parameters, None, None, None


_NAMES = ("sum", "mean", "max", "min", "std")


@lru_cache(maxsize=256)
def _stream_views(views: tuple[int, ...], padded: int, device: torch.device) -> Tensor:
    """[padded] int32; -2 takes no edge."""
    return torch.tensor([*views, *[-2] * (padded - len(views))], dtype=torch.int32, device=device)
