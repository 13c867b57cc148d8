"""Kernels of `_triton_build` that gather the edges of each view in rows of their own; two views a pass.

Of a pair of views the counts of the first are the low 32 bits of an int64, those of the second the high ones: both are
summed at once.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton import cdiv

from contextpool.pool.propagation import ViewRows

BLOCK = 256
GRAIN = 16
"""Rows of a table start where wide loads may: kernels are compiled for that once."""
LONGEST = 256
"""Rows of as many edges or more count as equally long."""


@triton.jit
def _before(sums, place, ok):
    """What was counted before a place, from inclusive sums."""
    return tl.load(sums + place - 1, mask=ok & (place > 0), other=0)


@triton.jit
def _half(packed, half: tl.constexpr):
    """The counts of one view of the pair."""
    return (packed >> (32 * half)) & 0xFFFFFFFF


@triton.jit(do_not_specialize=["view", "num_sources", "num_edges"])
def member_kernel(edge_source, edge_views, packed, view, num_sources, num_edges, BLOCK: tl.constexpr):
    """Packed [K] int64: whether each edge is walked in views `view` and `view + 1`."""
    edge = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    ok = edge < num_edges
    walked = tl.load(edge_source + edge, mask=ok, other=2147483647) < num_sources
    bits = tl.load(edge_views + edge, mask=ok, other=0).to(tl.int64) >> view
    found = (bits & 1) + (((bits >> 1) & 1) << 32)
    tl.store(packed + edge, tl.where(walked, found, 0), mask=ok)


@triton.jit(do_not_specialize=["num_edges", "width"])
def gather_kernel(
    edge_source,
    edge_relation,
    sums,  # [K] int64
    view_source,  # [2, width] int32
    view_relation,  # [2, width] int32
    num_edges,
    width,
    HALVES: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Every edge goes to its place in each view that has it."""
    edge = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    ok = edge < num_edges
    before = _before(sums, edge, ok)
    own = tl.load(sums + edge, mask=ok, other=0) - before
    some = ok & (own != 0)
    source = tl.load(edge_source + edge, mask=some, other=0)
    relation = tl.load(edge_relation + edge, mask=some, other=0)
    for half in tl.static_range(HALVES):
        place = half * width + _half(before, half)
        member = some & (_half(own, half) != 0)
        tl.store(view_source + place, source, mask=member)
        tl.store(view_relation + place, relation, mask=member)


@triton.jit(
    do_not_specialize=[
        "num_slots",
        "num_heads",
        "num_entities",
        "num_layers",
        "first_key",
        "of_hop",
        "span",
        "width",
    ]
)
def row_kernel(
    order,  # [B * N] int32
    place,  # [B * N] int64, node -> query * N + entity
    row_start,  # [B * N + 1] int64
    sums,  # [K] int64
    sizes,  # [L + 1] int64
    view_start,  # [2, width] int64
    keys,  # [2, B * N] int32 to sort the slots of a view by
    num_slots,
    num_heads,
    num_entities,
    num_layers,
    first_key,
    of_hop,  # keys of a hop
    span,  # keys of a view
    width,
    HALVES: tl.constexpr,
    LONGEST: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Rows of the views; keys go up by (view, first hop, query, fewer edges), the last one of a view is for no row.

    Heads always have a row.
    """
    slot = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    ok = slot < num_slots
    node = tl.load(order + slot, mask=ok, other=0).to(tl.int64)
    query = tl.load(place + node, mask=ok, other=0) // num_entities
    first = _before(sums, tl.load(row_start + node, mask=ok, other=0), ok)
    end = _before(sums, tl.load(row_start + node + 1, mask=ok, other=0), ok)
    hop = tl.zeros([BLOCK], dtype=tl.int64)
    layer = 0
    while layer < num_layers:
        hop += (slot >= tl.load(sizes + layer)).to(tl.int64)
        layer += 1
    for half in tl.static_range(HALVES):
        start, stop = _half(first, half), _half(end, half)
        tl.store(view_start + half * width + node, start, mask=ok)
        # where the next row starts: what its node writes there as well
        tl.store(view_start + half * width + node + 1, stop, mask=ok)
        fewer = LONGEST - 1 - tl.minimum(stop - start, LONGEST - 1)
        listed = (stop > start) | (node < num_heads)
        key = tl.where(listed, hop * of_hop + query * LONGEST + fewer, span - 1)
        tl.store(keys + half * num_slots + slot, (first_key + half * span + key).to(tl.int32), mask=ok)


def view_rows(
    num_views: int,
    *,
    edge_source: Tensor,
    edge_relation: Tensor,
    edge_views: Tensor,
    row_start: Tensor,
    order: Tensor,
    place: Tensor,
    sizes: Tensor,
    num_sources: int,
    num_heads: int,
    num_entities: int,
) -> ViewRows | None:
    """Fields as those of `Propagation`, row_start [B * N + 1]; None for more queries than there are keys for."""
    num_edges, num_slots, num_layers = len(edge_source), len(order), len(sizes) - 1
    of_hop = num_heads * LONGEST
    span = (num_layers + 1) * of_hop + 1
    if num_views * span >= 2**31:
        return None

    def table(width: int, dtype: torch.dtype) -> Tensor:
        return torch.empty(num_views, cdiv(width, GRAIN) * GRAIN, dtype=dtype, device=order.device)

    start, source = table(num_slots + 1, torch.int64), table(num_edges, torch.int32)
    relation = torch.empty_like(source)
    members = torch.empty(num_edges, dtype=torch.int64, device=order.device)
    keys = torch.empty(num_views, num_slots, dtype=torch.int32, device=order.device)
    edges, slots = (max(1, cdiv(num_edges, BLOCK)),), (cdiv(num_slots, BLOCK),)
    for view in range(0, num_views, 2):
        pair = {"HALVES": min(2, num_views - view), "BLOCK": BLOCK}
        member_kernel[edges](edge_source, edge_views, members, view, num_sources, num_edges, BLOCK=BLOCK)
        sums = members.cumsum(0)
        gather_kernel[edges](
            edge_source, edge_relation, sums, source[view:], relation[view:], num_edges, source.size(1), **pair
        )  # fmt: skip
        row_kernel[slots](
            order, place, row_start, sums, sizes, start[view:], keys[view:], num_slots, num_heads, num_entities,
            num_layers, view * span, of_hop, span, start.size(1), LONGEST=LONGEST, **pair,
        )  # fmt: skip
    ordered, slot = torch.sort(keys.view(-1))
    rows = order[slot % num_slots].view(num_views, num_slots)
    of_view = torch.arange(num_views, device=order.device)[:, None]
    ends = of_view * span + torch.arange(1, num_layers + 2, device=order.device) * of_hop  # [V, L + 1]
    listed = torch.searchsorted(ordered, ends.int()) - of_view * num_slots
    return ViewRows(start, source, relation, rows, listed, num_heads)
