"""The kernels behind `kernels.triton.aggregate` for rows of few edges: T targets a program, one edge of each at a time.

Nothing is reduced across threads and results leave as they lie, so a short row costs little more than its messages.
Programs take targets in the order of `Hop.order`, which puts rows of like length side by side; rows of more than
`longest` edges are left to `triton_rows`. Names and shapes as there. Every stream has programs of its own: in one
pass they would share what they gather, but hold so many numbers that fewer warps fit, which is slower.
"""

from __future__ import annotations

import triton
import triton.language as tl

from contextpool.kernels.triton_messages import (
    _absorbed,
    _coefficients,
    _members_of,
    _message_gradient,
    _passed_back,
    _sent_along,
)


@triton.jit
def _tile(order, tile, row_start, node_query, last, longest, BLOCK_T: tl.constexpr):
    """The targets of a tile, with their edges start:end, their queries, and whether each is taken."""
    slot = tile.to(tl.int64) * BLOCK_T + tl.arange(0, BLOCK_T)
    inside = slot < last
    target = tl.load(order + slot, mask=inside, other=0).to(tl.int64)
    start = tl.load(row_start + target, mask=inside, other=0)
    end = tl.load(row_start + target + 1, mask=inside, other=0)
    query = tl.load(node_query + target, mask=inside, other=0)
    taken = inside & (end - start <= longest)
    return target, start, tl.where(taken, end, start), query, taken


@triton.jit
def _add_run(grad_weight, run, along_query, relation, ends, columns, column_ok, dim):
    """Adds the runs [T, D] that end here to the weights of their relations [T], -1 where none has begun."""
    over = (ends & (relation >= 0))[:, None] & column_ok[None, :]
    place = along_query + relation.to(tl.int64) * dim
    tl.atomic_add(grad_weight + place[:, None] + columns[None, :], run, mask=over, sem="relaxed")


@triton.jit
def _edge(edge_source, edge_relation, edge, end):
    """Source and relation of one edge a target; past a row's end a source that no layer has."""
    source = tl.load(edge_source + edge, mask=edge < end, other=2147483647)
    relation = tl.load(edge_relation + edge, mask=edge < end, other=0)
    return source, relation


@triton.jit(do_not_specialize=["num_targets", "num_boundary", "longest"])
def forward_tiles(
    state,
    weight,
    row_start,
    edge_source,
    edge_relation,
    edge_views,
    edge_weight,
    node_query,
    boundary,
    order,  # [M] int32
    stream_view,
    out,
    degree,
    ties,
    sizes,
    num_targets,
    num_boundary,
    dim,
    weight_stream_stride,
    weight_query_stride,
    epsilon,
    longest,
    MESSAGE: tl.constexpr,
    HAS_EDGE_WEIGHT: tl.constexpr,
    HAS_BOUNDARY: tl.constexpr,
    AT_SUM: tl.constexpr,
    AT_MEAN: tl.constexpr,
    AT_MAX: tl.constexpr,
    AT_MIN: tl.constexpr,
    AT_STD: tl.constexpr,
    NUM_OUT: tl.constexpr,
    HAS_VIEW: tl.constexpr,
    KEEP_TIES: tl.constexpr,
    BLOCK_T: tl.constexpr,
    D_PAD: tl.constexpr,
):
    """All reductions in one pass."""
    stream = tl.program_id(1).to(tl.int64)
    view = tl.load(stream_view + stream)
    num_sources = tl.load(sizes)
    last = tl.load(sizes + 1)
    columns = tl.arange(0, D_PAD)
    column_ok = columns < dim
    tile = tl.program_id(0)
    while tile * BLOCK_T < last:
        target, start, end, query, taken = _tile(order, tile, row_start, node_query, last, longest, BLOCK_T)
        steps = tl.max(end - start, axis=0)
        stored = taken[:, None] & column_ok[None, :]
        own = tl.zeros([BLOCK_T, D_PAD], dtype=tl.float32)
        if HAS_BOUNDARY:
            has_own = stored & (target < num_boundary)[:, None]
            at_own = boundary + target[:, None] * dim + columns[None, :]
            own = tl.load(at_own, mask=has_own, other=0.0).to(tl.float32)
        row = stream * num_targets + target
        total = tl.zeros([BLOCK_T, D_PAD], dtype=tl.float32)
        squares = tl.zeros([BLOCK_T, D_PAD], dtype=tl.float32)
        largest = tl.zeros([BLOCK_T, D_PAD], dtype=tl.float32) - float("inf")
        smallest = tl.zeros([BLOCK_T, D_PAD], dtype=tl.float32) + float("inf")
        at_largest = tl.zeros([BLOCK_T, D_PAD], dtype=tl.int32)
        at_smallest = tl.zeros([BLOCK_T, D_PAD], dtype=tl.int32)
        received = tl.zeros([BLOCK_T], dtype=tl.int32)
        if HAS_BOUNDARY:  # one more message
            received += 1
            total = own
            squares = own * own
            largest = own
            smallest = own
            at_largest += 1
            at_smallest += 1
        along_query = stream * weight_stream_stride + query * weight_query_stride
        edge = start
        source, relation = _edge(edge_source, edge_relation, start, end)
        step = steps * 0
        while step < steps:
            next_source, next_relation = _edge(edge_source, edge_relation, edge + 1, end)
            member, _ = _members_of(edge, source, edge_views, view, num_sources, HAS_VIEW)
            message, ok = _sent_along(
                state, weight, edge_weight, edge, source, along_query + relation.to(tl.int64) * dim,
                member, columns, column_ok, dim, MESSAGE, HAS_EDGE_WEIGHT,
            )  # fmt: skip
            received += member.to(tl.int32)
            total, squares, largest, at_largest, smallest, at_smallest = _absorbed(
                total, squares, largest, at_largest, smallest, at_smallest, message, ok,
                AT_SUM, AT_MEAN, AT_MAX, AT_MIN, AT_STD, KEEP_TIES,
            )  # fmt: skip
            source = next_source
            relation = next_relation
            edge += 1
            step += 1

        some = (received > 0)[:, None]
        number = tl.maximum(received, 1).to(tl.float32)[:, None]
        place = out + row[:, None] * (NUM_OUT * dim) + columns[None, :]
        tie = ties + row[:, None] * (2 * dim) + columns[None, :]
        tl.store(degree + row, received.to(tl.int64), mask=taken)
        if AT_SUM >= 0:
            tl.store(place + AT_SUM * dim, total, mask=stored)
        if AT_MEAN >= 0:
            mean = total / number
            tl.store(place + AT_MEAN * dim, mean, mask=stored)
            if AT_STD >= 0:
                variance = squares / number - mean * mean
                variance = tl.where(variance < epsilon, epsilon, variance)  # a NaN stays one
                tl.store(place + AT_STD * dim, tl.where(some, tl.sqrt(variance), 0.0), mask=stored)
        if AT_MAX >= 0:
            tl.store(place + AT_MAX * dim, tl.where(some, largest, 0.0), mask=stored)
            if KEEP_TIES:
                tl.store(tie, at_largest.to(tl.int16), mask=stored)
        if AT_MIN >= 0:
            tl.store(place + AT_MIN * dim, tl.where(some, smallest, 0.0), mask=stored)
            if KEEP_TIES:
                tl.store(tie + dim, at_smallest.to(tl.int16), mask=stored)
        tile += tl.num_programs(0)


@triton.jit(do_not_specialize=["num_targets", "num_boundary", "longest"])
def backward_tiles(
    grad,
    state,
    weight,
    row_start,
    edge_source,
    edge_relation,
    edge_views,
    edge_weight,
    node_query,
    boundary,
    order,
    stream_view,
    out,
    degree,
    ties,
    grad_state,
    grad_weight,
    grad_edge_weight,
    grad_boundary,
    sizes,
    num_targets,
    num_boundary,
    dim,
    weight_stream_stride,
    weight_query_stride,
    epsilon,
    longest,
    MESSAGE: tl.constexpr,
    HAS_EDGE_WEIGHT: tl.constexpr,
    HAS_BOUNDARY: tl.constexpr,
    AT_SUM: tl.constexpr,
    AT_MEAN: tl.constexpr,
    AT_MAX: tl.constexpr,
    AT_MIN: tl.constexpr,
    AT_STD: tl.constexpr,
    NUM_OUT: tl.constexpr,
    HAS_VIEW: tl.constexpr,
    BLOCK_T: tl.constexpr,
    D_PAD: tl.constexpr,
):
    """Adds to what the edges of the targets read, atomically; where edges of one relation follow one another, to its
    weight once.
    """
    stream = tl.program_id(1).to(tl.int64)
    view = tl.load(stream_view + stream)
    num_sources = tl.load(sizes)
    last = tl.load(sizes + 1)
    columns = tl.arange(0, D_PAD)
    column_ok = columns < dim
    tile = tl.program_id(0)
    while tile * BLOCK_T < last:
        target, start, end, query, taken = _tile(order, tile, row_start, node_query, last, longest, BLOCK_T)
        steps = tl.max(end - start, axis=0)
        stored = taken[:, None] & column_ok[None, :]
        own = tl.zeros([BLOCK_T, D_PAD], dtype=tl.float32)
        has_own = stored & (target < num_boundary)[:, None]
        at_own = target[:, None] * dim + columns[None, :]
        if HAS_BOUNDARY:
            own = tl.load(boundary + at_own, mask=has_own, other=0.0).to(tl.float32)
        row = stream * num_targets + target
        received = tl.load(degree + row, mask=taken, other=0)
        at_work = tl.max(received, axis=0) > HAS_BOUNDARY
        if HAS_BOUNDARY:
            at_work = at_work | (tl.min(tl.where(taken, target, num_boundary), axis=0) < num_boundary)
        if at_work:
            asked = stored
            if HAS_BOUNDARY:  # a row that received nothing else has nobody to pass its gradients to
                asked = stored & ((received > 1)[:, None] | has_own)
            constant, slope, largest, to_max, smallest, to_min = _coefficients(
                grad, out, ties, row[:, None], received[:, None], columns[None, :], asked, dim,
                epsilon, AT_SUM, AT_MEAN, AT_MAX, AT_MIN, AT_STD, NUM_OUT,
            )  # fmt: skip
            if HAS_BOUNDARY:
                to_own = _message_gradient(
                    own, constant, slope, largest, to_max, smallest, to_min, AT_MAX, AT_MIN, AT_STD
                )
                tl.atomic_add(grad_boundary + at_own, to_own, mask=has_own, sem="relaxed")
            along_query = stream * weight_stream_stride + query * weight_query_stride
            edge = start
            source, relation = _edge(edge_source, edge_relation, start, end)
            run = tl.zeros([BLOCK_T, D_PAD], dtype=tl.float32)
            run_relation = relation * 0 - 1
            step = steps * 0
            while step < steps:
                next_source, next_relation = _edge(edge_source, edge_relation, edge + 1, end)
                member, _ = _members_of(edge, source, edge_views, view, num_sources, HAS_VIEW)
                along_place = along_query + relation.to(tl.int64) * dim
                to_weight, _ = _passed_back(
                    state, weight, edge_weight, grad_state, grad_edge_weight, edge, source, along_place,
                    member, columns, column_ok, dim, constant, slope, largest, to_max, smallest, to_min,
                    MESSAGE, HAS_EDGE_WEIGHT, AT_MAX, AT_MIN, AT_STD,
                )  # fmt: skip
                ends = member & (relation != run_relation)
                _add_run(grad_weight, run, along_query, run_relation, ends, columns, column_ok, dim)
                run = tl.where(ends[:, None], 0.0, run) + to_weight
                run_relation = tl.where(member, relation, run_relation)
                source = next_source
                relation = next_relation
                edge += 1
                step += 1
            _add_run(grad_weight, run, along_query, run_relation, taken, columns, column_ok, dim)
        tile += tl.num_programs(0)
