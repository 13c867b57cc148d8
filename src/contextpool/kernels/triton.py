"""`aggregate` on CUDA: one Triton kernel forward, one backward, no tensor of the size [edges, D].

Backward adds with atomics, in changing order; where `torch.use_deterministic_algorithms(True)` is set it sums
groups of edges in a fixed order instead, which costs about twice the time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
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
MAX_DIM = 512
HUBS_ASIDE = False
"""Whether the programs of long rows run beside those of the short ones, on a stream of their own."""
BY_MASK = False
"""Whether a pass over short rows goes from one edge of its stream to the next, or looks at all edges."""
MASK_TARGETS = 16
APART = False
"""Whether every stream has programs of its own for short rows: fewer registers, and each finds its rows again."""
TILE_REGISTERS: int | None = None
"""The most that a program of short rows may use: fewer let more of them run at once."""
IN_RUNS = False
"""Whether backward adds up the gradient of a relation's weight over edges of a row that follow one another."""
LONG_ROW_SHARES = 0
"""In how many shares backward cuts a long row, each a run of edges; 0: neighbouring edges at once."""
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
    check_dim(state)
    weight = stacked_weights(streams)
    views = tuple(stream.view for stream in streams)
    *results, degree = _Aggregate.apply(state, weight, boundary, edge_weight, hop, views, message, reductions)
    return list(results), list(degree.unbind(0))


def check_dim(state: Tensor) -> None:
    if state.size(1) > MAX_DIM:
        raise ConfigError(f"backend 'triton' takes states of up to {MAX_DIM} columns, not {state.size(1)}.")


def stacked_weights(streams: Sequence[Stream]) -> Tensor:
    """[S, B or 1, 2R, D]; no copy where the weights are the parts of one tensor, in order."""
    weights = [stream.relation_weight for stream in streams]
    whole = weights[0]._base
    if whole is not None and all(one._base is whole for one in weights) and _are_all_of(whole, weights):
        weight = whole.view(len(weights), *weights[0].shape)
    else:
        weight = torch.stack(weights)
    return weight[:, None] if weight.dim() == 3 else weight


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
        launch = AggregateLaunch(hop, views, message, reductions, state.size(1))
        read = launch.contiguous(state, weight, boundary, edge_weight)
        out, degree, ties = launch.forward(*read, keep_ties=any(ctx.needs_input_grad[:4]))
        ctx.launch = launch
        ctx.save_for_backward(*read, out, degree, ties)
        ctx.mark_non_differentiable(degree)
        return *launch.requested(out), degree

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        launch: AggregateLaunch = ctx.launch
        grad = launch.with_unrequested(stacked(grads[:-1]))
        return *launch.gradients(grad, *ctx.saved_tensors), None, None, None, None


class AggregateLaunch:
    """What the kernels of one call share."""

    def __init__(
        self,
        hop: Hop,
        views: tuple[int, ...],
        message: Message,
        reductions: tuple[Reduction, ...],
        dim: int,
        leave_out: bool = False,
    ) -> None:
        """With `leave_out` rows that nothing arrived at are not written, but for the boundary's."""
        self.leave_out = leave_out
        self.hop, self.dim, self.num_streams, self.reductions = hop, dim, len(views), reductions
        held = reductions if "std" not in reductions or "mean" in reductions else (*reductions, "mean")
        self.num_out = len(held)
        self.sizes = hop.device_sizes  # here: the launches may be on another stream
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
        self.short_rows: dict[str, Any] = {"BLOCK_T": edges, "longest": HUB_EDGES, "num_warps": warps}
        self.short_rows |= {"BY_MASK": BY_MASK and HUB_EDGES <= 64, "APART": APART, "maxnreg": TILE_REGISTERS}
        self.in_runs = IN_RUNS and message != "rotate"
        self.shares_of_long_rows = self.short_rows | {
            "BLOCK_T": LONG_ROW_SHARES,
            "FROM_LIST": True,
            "APART": True,
            "BY_MASK": False,
            "maxnreg": None,
            "IN_RUNS": self.in_runs,
            "num_warps": max(1, LONG_ROW_SHARES * d_pad // 128),
        }
        self.in_order = {"S_PAD": s_pad, "BLOCK_E": max(1, 512 // (s_pad * d_pad)), "num_warps": warps}
        if (
            message == "rotate"
        ):  # a multiply-add fused in one kernel alone would miss the maximum of the other
            self.shape["enable_fp_fusion"] = False

    def _launches(self, by_row: Any, by_tile: Any) -> Iterator[tuple[Any, Tensor, dict[str, Any]]]:
        """(kernel with its grid, list of targets, how); between two of them its stream may be another.

        A warp a target; where the rows' lengths are known, tiles of targets for short rows, more warps for a long one.
        """
        hop = self.hop
        if hop.num_targets == 0:
            return
        if hop.order is None or hop.hubs is None:
            yield by_row[(hop.num_targets,)], self.stream_view, self.every_row
            return
        tiles_grid = (cdiv(hop.num_targets, self.short_rows["BLOCK_T"]), self.num_streams if APART else 1)
        if not len(hop.hubs):
            yield by_tile[tiles_grid], hop.order, self.short_rows
            return
        with _Aside(hop.edge_source.device) as aside:
            with aside.stream():
                yield by_row[(len(hop.hubs), self.num_streams)], hop.hubs, self.long_rows
            yield by_tile[tiles_grid], hop.order, self.short_rows

    @staticmethod
    def contiguous(
        state: Tensor, weight: Tensor, boundary: Tensor | None, edge_weight: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
        """What the kernels read, as they read it."""
        given = None if boundary is None else boundary.contiguous()
        by_edge = None if edge_weight is None else edge_weight.contiguous()
        return state.contiguous(), weight.contiguous(), given, by_edge

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
        """Results, degrees, and how often the extremes are attained; fills `masks`, which backward reads."""
        hop, size = self.hop, (self.num_streams, self.hop.num_targets)
        out = torch.empty(*size, self.num_out, self.dim, dtype=torch.float32, device=state.device)
        degree = torch.empty(*size, dtype=torch.int64, device=state.device)
        extremes = keep_ties and bool({"max", "min"} & set(self.reductions))
        ties = torch.empty(*size, 2, self.dim, dtype=torch.int16, device=state.device) if extremes else degree
        masks = self._masks(degree, boundary is not None)
        for kernel, targets, how in self._launches(kernels.aggregate_forward, tiles.forward_tiles):
            kernel(
                state, weight, hop.row_start, hop.edge_source, hop.edge_relation, hop.edge_views,
                state if edge_weight is None else edge_weight, hop.node_query,
                state if boundary is None else boundary, targets, self.stream_view, out, degree, masks, ties,
                self.sizes, hop.num_targets, 0 if boundary is None else len(boundary),
                self.dim, weight.stride(0), weight.stride(1) if weight.size(1) > 1 else 0, STD_EPSILON,
                HAS_EDGE_WEIGHT=edge_weight is not None, HAS_BOUNDARY=boundary is not None, KEEP_TIES=extremes,
                LEAVE_OUT=self.leave_out, NUM_STREAMS=self.num_streams, HAS_VIEW=self.has_view, **self.shape, **how,
            )  # fmt: skip
        self.masks = masks
        return out, degree, ties

    def _masks(self, degree: Tensor, has_boundary: bool) -> Tensor:
        """[S, M] int64 where tiles go by masks; fills the degrees of short rows."""
        hop = self.hop
        if not self.short_rows["BY_MASK"] or hop.order is None or hop.num_targets == 0:
            return degree
        masks = torch.empty_like(degree)
        tiles.member_masks[(cdiv(hop.num_targets, MASK_TARGETS),)](
            hop.row_start, hop.edge_source, hop.edge_views, self.stream_view, masks, degree, self.sizes,
            hop.num_targets, HUB_EDGES, HAS_BOUNDARY=has_boundary, HAS_VIEW=self.has_view,
            NUM_STREAMS=self.num_streams, BLOCK_T=MASK_TARGETS, num_warps=4,
        )  # fmt: skip
        return masks

    def gradients(
        self,
        grad: Tensor,
        state: Tensor,
        weight: Tensor,
        boundary: Tensor | None,
        edge_weight: Tensor | None,
        *results: Tensor,
        grad_state: Tensor | None = None,
    ) -> tuple[Tensor | None, ...]:
        """Gradients of what was read, in its types; that of the state on top of what is given, which may be changed."""
        read = (state, weight, boundary, edge_weight)
        if torch.are_deterministic_algorithms_enabled():
            found = self.backward_in_order(grad, *read, *results)
            if grad_state is not None:
                found[0].add_(grad_state)
        else:
            out, degree, ties = results
            found = self.backward(grad, *read, out, degree, ties, grad_state)
        return tuple(
            None if one is None or given is None else one.to(given.dtype)
            for one, given in zip(found, read, strict=True)
        )

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
        grad_state: Tensor | None = None,
    ) -> Gradients:
        """Gradients of state, weight, boundary and edge weight; that of the state is added to what is given."""
        grads = self._no_gradients(state, weight, boundary, edge_weight, grad_state)
        values = (grad, state, weight, boundary, edge_weight, out, degree, ties)
        by_share = LONG_ROW_SHARES > 0 and self.hop.order is not None
        by_row = tiles.backward_tiles if by_share else kernels.aggregate_backward
        for kernel, targets, how in self._launches(by_row, tiles.backward_tiles):
            if "BLOCK_T" in how:
                how = how | {"IN_RUNS": self.in_runs, "FROM_LIST": False}
            elif by_share:
                how = self.shares_of_long_rows
            self._add_gradients(kernel, targets, how, values, grads)
        return grads

    def _no_gradients(
        self,
        state: Tensor,
        weight: Tensor,
        boundary: Tensor | None,
        edge_weight: Tensor | None,
        grad_state: Tensor | None = None,
    ) -> Gradients:
        if grad_state is None:
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
            state if boundary is None else boundary, targets, self.stream_view, out, degree, self.masks, ties,
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


class _Aside:
    """A block in which some launches go to a second stream: they start with the block, and all are done after it."""

    def __init__(self, device: torch.device) -> None:
        self.main = torch.cuda.current_stream(device) if HUBS_ASIDE and device.type == "cuda" else None
        self.side = None if self.main is None else _side_stream(device, self.main.cuda_stream)

    def __enter__(self) -> _Aside:
        if self.main is not None and self.side is not None:
            self.side.wait_stream(self.main)
        return self

    def stream(self) -> AbstractContextManager[Any]:
        return nullcontext() if self.side is None else torch.cuda.stream(self.side)

    def __exit__(self, *_: object) -> None:
        if self.main is not None and self.side is not None:
            self.main.wait_stream(self.side)


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


def _are_all_of(whole: Tensor, parts: Sequence[Tensor]) -> bool:
    """Whether a tensor is its parts, one after the other."""
    starts = whole.is_contiguous() and whole.data_ptr() == parts[0].data_ptr()
    return starts and whole.numel() == len(parts) * parts[0].numel() and _follow_one_another(parts)


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
