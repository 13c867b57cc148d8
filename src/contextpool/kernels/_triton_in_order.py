"""The kernel behind `kernels.triton.aggregate` that sums gradients in a fixed order; names and shapes as in
`_triton_aggregate`. Tiles are [S, E, D]: S streams, E edges, D columns, padded to powers of two.
"""

from __future__ import annotations

import triton
import triton.language as tl

from contextpool.kernels._triton_messages import (
    _coefficients,
    _composed,
    _message_gradient,
)


@triton.jit
def _members(views, edge_views, walked):
    """[S, E] whether each edge takes part in each stream; view -1 is the full stream."""
    bit = (edge_views[None, :] >> tl.maximum(views, 0)[:, None]) & 1
    return walked[None, :] & ((views[:, None] == -1) | ((views[:, None] >= 0) & (bit != 0)))


@triton.jit(do_not_specialize=["num_sources", "num_targets", "num_groups", "num_streams"])
def aggregate_backward_in_order(
    grad,
    state,
    weight,
    group_start,  # [G + 1] int64
    group_edge,  # [K] int64, edges ordered by group
    edge_source,
    edge_target,
    edge_relation,
    edge_views,
    edge_weight,
    node_query,
    stream_view,
    out,
    degree,
    ties,
    grad_own,  # by source: [num_sources, dim]; by weight: [S, G, dim]
    grad_other,  # the same, for rotate: what belongs to the columns of the other half
    grad_edge_weight,
    num_sources,
    num_targets,
    num_groups,
    num_streams,
    dim,
    weight_stream_stride,
    weight_query_stride,
    epsilon,
    MESSAGE: tl.constexpr,
    HAS_EDGE_WEIGHT: tl.constexpr,
    AT_SUM: tl.constexpr,
    AT_MEAN: tl.constexpr,
    AT_MAX: tl.constexpr,
    AT_MIN: tl.constexpr,
    AT_STD: tl.constexpr,
    NUM_OUT: tl.constexpr,
    S_PAD: tl.constexpr,
    BLOCK_E: tl.constexpr,
    D_PAD: tl.constexpr,
    BY_SOURCE: tl.constexpr,
):
    """One group of edges a program (those of one source, or of one relation weight): sums in a fixed order."""
    group = tl.program_id(0).to(tl.int64)
    start = tl.load(group_start + group)
    end = tl.load(group_start + group + 1)
    columns = tl.arange(0, D_PAD)
    column_ok = columns < dim
    half = dim // 2
    is_real = (columns < half)[None, None, :]
    other_columns = tl.where(columns < half, columns + half, columns - half)
    streams = tl.arange(0, S_PAD)
    stream_ok = streams < num_streams
    views = tl.load(stream_view + streams)
    own = tl.zeros([S_PAD, BLOCK_E, D_PAD], dtype=tl.float32)
    other = tl.zeros([S_PAD, BLOCK_E, D_PAD], dtype=tl.float32)
    first = start
    while first < end:
        slot = first + tl.arange(0, BLOCK_E)
        inside = slot < end
        edge = tl.load(group_edge + slot, mask=inside, other=0)
        source = tl.load(edge_source + edge, mask=inside, other=num_sources).to(tl.int64)
        walked = inside & (source < num_sources)
        target = tl.load(edge_target + edge, mask=walked, other=0)
        query = tl.load(node_query + target, mask=walked, other=0)
        relation = tl.load(edge_relation + edge, mask=walked, other=0).to(tl.int64)
        bits = tl.load(edge_views + edge, mask=walked, other=0).to(tl.int32)
        member = _members(views, bits, walked)
        ok = member[:, :, None] & column_ok[None, None, :]
        place = state + source[:, None] * dim
        row_ok = walked[:, None] & column_ok[None, :]
        sent = tl.load(place + columns[None, :], mask=row_ok, other=0.0).to(tl.float32)[None, :, :]
        weight_row = (
            weight
            + streams.to(tl.int64)[:, None, None] * weight_stream_stride
            + (query * weight_query_stride + relation * dim)[None, :, None]
        )
        along = tl.load(weight_row + columns[None, None, :], mask=ok, other=0.0).to(tl.float32)
        if MESSAGE == 2:
            sent_other = tl.load(place + other_columns[None, :], mask=row_ok, other=0.0).to(tl.float32)[
                None, :, :
            ]
            along_other = tl.load(weight_row + other_columns[None, None, :], mask=ok, other=0.0).to(
                tl.float32
            )
        else:
            sent_other = sent
            along_other = along
        bare = _composed(sent, sent_other, along, along_other, is_real, MESSAGE)
        message = bare
        if HAS_EDGE_WEIGHT:
            factor = tl.load(edge_weight + edge, mask=walked, other=0.0).to(tl.float32)[None, :, None]
            message = bare * factor
        row = (streams.to(tl.int64)[:, None] * num_targets + target[None, :])[:, :, None]  # [S, E, 1]
        received = tl.load(
            degree + streams.to(tl.int64)[:, None] * num_targets + target[None, :], mask=member, other=0
        )
        constant, slope, largest, to_max, smallest, to_min = _coefficients(
            grad, out, ties, row, received[:, :, None], columns[None, None, :], ok, dim,
            epsilon, AT_SUM, AT_MEAN, AT_MAX, AT_MIN, AT_STD, NUM_OUT,
        )  # fmt: skip
        back = _message_gradient(
            message, constant, slope, largest, to_max, smallest, to_min, AT_MAX, AT_MIN, AT_STD
        )
        back = tl.where(ok, back, 0.0)
        if HAS_EDGE_WEIGHT:
            if BY_SOURCE:
                share = tl.sum(tl.sum(back * bare, axis=2), axis=0)
                tl.store(grad_edge_weight + edge, share, mask=walked)
            back = back * factor
        if BY_SOURCE:  # what the message was made of beside what this is the gradient of
            beside = along
            beside_other = along_other
        else:
            beside = sent
            beside_other = sent_other
        if MESSAGE == 0:
            own += back * beside
        elif MESSAGE == 1:
            own += back
        else:
            own += back * tl.where(is_real, beside, beside_other)
            other += back * tl.where(is_real, -beside_other, beside)
        first += BLOCK_E
    if BY_SOURCE:
        place = group * dim + columns
        tl.store(grad_own + place, tl.sum(tl.sum(own, axis=1), axis=0), mask=column_ok)
        if MESSAGE == 2:
            tl.store(grad_other + place, tl.sum(tl.sum(other, axis=1), axis=0), mask=column_ok)
    else:
        row = (streams.to(tl.int64) * num_groups + group)[:, None] * dim + columns[None, :]
        ok = stream_ok[:, None] & column_ok[None, :]
        tl.store(grad_own + row, tl.sum(own, axis=1), mask=ok)
        if MESSAGE == 2:
            tl.store(grad_other + row, tl.sum(other, axis=1), mask=ok)
