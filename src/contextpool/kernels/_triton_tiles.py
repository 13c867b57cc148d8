"""The kernels behind `kernels.triton.aggregate` for rows of few edges: T targets a program, one edge of each at a time.

Nothing is reduced across threads and results leave as they lie, so a short row costs little more than its messages.
Programs take targets in the order of `Hop.order`, which puts rows of like length side by side; rows of more than
`longest` edges are left to `_triton_aggregate`. Names and shapes as there.
"""

from __future__ import annotations

import triton
import triton.language as tl

from contextpool.kernels._triton_messages import (
    _absorbed,
    _coefficients,
    _composed,
    _members_of,
    _message_gradient,
    _rows,
    _send_back,
    _shares,
)


@triton.jit
def _tile(order, row_start, node_query, last, longest, BLOCK_T: tl.constexpr):
    """The targets of this program, the edges start:end of each, its query, and whether it is one to work at."""
    slot = tl.program_id(0).to(tl.int64) * BLOCK_T + tl.arange(0, BLOCK_T)
    inside = slot < last
    target = tl.load(order + slot, mask=inside, other=0).to(tl.int64)
    start = tl.load(row_start + target, mask=inside, other=0)
    end = tl.load(row_start + target + 1, mask=inside, other=0)
    query = tl.load(node_query + target, mask=inside, other=0)
    taken = inside & (end - start <= longest)
    return target, start, tl.where(taken, end, start), query, taken


@triton.jit
def _long_row(hubs, row_start, node_query, last, longest, BLOCK_T: tl.constexpr):
    """The same for one target of a list, T times: each has an equal share of its edges."""
    target = tl.load(hubs + tl.program_id(0)).to(tl.int64) + tl.zeros([BLOCK_T], dtype=tl.int64)
    inside = target < last
    start = tl.load(row_start + target, mask=inside, other=0)
    end = tl.load(row_start + target + 1, mask=inside, other=0)
    query = tl.load(node_query + target, mask=inside, other=0)
    taken = inside & (end - start > longest)
    share = tl.where(taken, (end - start + BLOCK_T - 1) // BLOCK_T, 0)
    start += tl.arange(0, BLOCK_T) * share
    return target, start, tl.minimum(start + share, end), query, taken


@triton.jit(do_not_specialize=["num_targets", "longest"])
def member_masks(
    row_start,
    edge_source,
    edge_views,
    stream_view,
    masks,  # [S, M] int64
    degree,  # [S, M] int64
    sizes,
    num_targets,
    longest,  # at most 64
    HAS_BOUNDARY: tl.constexpr,
    HAS_VIEW: tl.constexpr,
    NUM_STREAMS: tl.constexpr,
    BLOCK_T: tl.constexpr,
):
    """Which edges of a short row take part in each stream, bit k for the k-th, and how many messages arrive."""
    target = (tl.program_id(0) * BLOCK_T + tl.arange(0, BLOCK_T)).to(tl.int64)
    inside = target < tl.load(sizes + 1)
    start = tl.load(row_start + target, mask=inside, other=0)
    end = tl.load(row_start + target + 1, mask=inside, other=0)
    taken = inside & (end - start <= longest)
    lanes = tl.arange(0, 64)
    edge = start[:, None] + lanes[None, :]
    present = taken[:, None] & (edge < end[:, None])
    walked = tl.load(edge_source + edge, mask=present, other=2147483647) < tl.load(sizes)
    bits = tl.zeros([BLOCK_T, 64], dtype=tl.int32)
    if HAS_VIEW:
        bits = tl.load(edge_views + edge, mask=present, other=0).to(tl.int32)
    one = tl.full([64], 1, dtype=tl.int64) << lanes.to(tl.int64)
    for stream in range(NUM_STREAMS):
        view = tl.load(stream_view + stream)
        member = walked & ((view < 0) | (((bits >> tl.maximum(view, 0)) & 1) != 0))
        row = stream * num_targets + target
        tl.store(masks + row, tl.sum(tl.where(member, one[None, :], 0), axis=1), mask=taken)
        count = tl.sum(member.to(tl.int32), axis=1) + HAS_BOUNDARY
        tl.store(degree + row, count.to(tl.int64), mask=taken)


@triton.jit
def _lowest(mask):
    """[T] int64 which is the lowest bit set, 0 where none is: the exponent of that bit as a float."""
    exponent = (mask & -mask).to(tl.float32).to(tl.int32, bitcast=True) >> 23
    return tl.maximum((exponent & 255) - 127, 0).to(tl.int64)


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
    degree,  # BY_MASK: filled by `member_masks`, as are
    masks,
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
    NUM_STREAMS: tl.constexpr,
    HAS_VIEW: tl.constexpr,
    KEEP_TIES: tl.constexpr,
    LEAVE_OUT: tl.constexpr,
    APART: tl.constexpr,  # a program for every stream
    BY_MASK: tl.constexpr,
    BLOCK_T: tl.constexpr,
    D_PAD: tl.constexpr,
):
    """All reductions in one pass, for one stream after the other; a stream without edges here costs its result.

    Streams in one pass would share what they gather, but hold so many numbers that fewer warps fit: slower.
    """
    num_sources = tl.load(sizes)
    last = tl.load(sizes + 1)
    target, start, end, query, taken = _tile(order, row_start, node_query, last, longest, BLOCK_T)
    steps = tl.max(end - start, axis=0)
    columns = tl.arange(0, D_PAD)
    column_ok = columns < dim
    half = dim // 2
    is_real = (columns < half)[None, :]
    other_columns = tl.where(columns < half, columns + half, columns - half)
    stored = taken[:, None] & column_ok[None, :]
    own = tl.zeros([BLOCK_T, D_PAD], dtype=tl.float32)
    if HAS_BOUNDARY:
        has_own = stored & (target < num_boundary)[:, None]
        at_own = boundary + target[:, None] * dim + columns[None, :]
        own = tl.load(at_own, mask=has_own, other=0.0).to(tl.float32)
    edge = start
    left = tl.zeros([BLOCK_T], dtype=tl.int64)
    if not BY_MASK:
        first_source, first_relation = _edge(edge_source, edge_relation, start, end)
    seen = tl.zeros([BLOCK_T], dtype=tl.int32)
    for turn in range(1 if APART else NUM_STREAMS):
        stream = tl.program_id(1) + turn
        view = tl.load(stream_view + stream)
        row = stream * num_targets + target
        total = tl.zeros([BLOCK_T, D_PAD], dtype=tl.float32)
        squares = tl.zeros([BLOCK_T, D_PAD], dtype=tl.float32)
        largest = tl.zeros([BLOCK_T, D_PAD], dtype=tl.float32) - float("inf")
        smallest = tl.zeros([BLOCK_T, D_PAD], dtype=tl.float32) + float("inf")
        at_largest = tl.zeros([BLOCK_T, D_PAD], dtype=tl.int32)
        at_smallest = tl.zeros([BLOCK_T, D_PAD], dtype=tl.int32)
        received = tl.zeros([BLOCK_T], dtype=tl.int32) + HAS_BOUNDARY  # the boundary is one more message
        if HAS_BOUNDARY:
            total = own
            squares = own * own
            largest = own
            smallest = own
            at_largest += 1
            at_smallest += 1
        if BY_MASK:
            left = tl.load(masks + row, mask=taken, other=0)
            received = tl.load(degree + row, mask=taken, other=0).to(tl.int32)
            steps = (tl.max(received, axis=0) - HAS_BOUNDARY).to(tl.int64)
        walks = steps > 0
        if NUM_STREAMS > 1 and not BY_MASK and not APART:
            if stream > 0:
                walks = walks & ((view < 0) | (tl.max((seen >> tl.maximum(view, 0)) & 1, axis=0) != 0))
        if walks:
            along_query = stream * weight_stream_stride + query * weight_query_stride
            if BY_MASK:
                edge = start + _lowest(left)
                source, relation = _edge(edge_source, edge_relation, edge, tl.where(left != 0, end, start))
            else:
                edge = start
                source = first_source
                relation = first_relation
            step = steps * 0
            while step < steps:
                if BY_MASK:
                    member = left != 0
                    left = left & (left - 1)
                    following = start + _lowest(left)
                    next_end = tl.where(left != 0, end, start)
                    next_source, next_relation = _edge(edge_source, edge_relation, following, next_end)
                else:
                    following = edge + 1
                    next_source, next_relation = _edge(edge_source, edge_relation, following, end)
                    member, bits = _members_of(edge, source, edge_views, view, num_sources, HAS_VIEW)
                    seen |= bits
                sent, sent_other, along, along_other, ok = _rows(
                    state, weight, source, along_query + relation.to(tl.int64) * dim, member, columns,
                    other_columns, column_ok, dim, MESSAGE,
                )  # fmt: skip
                message = _composed(sent, sent_other, along, along_other, is_real, MESSAGE)
                if HAS_EDGE_WEIGHT:
                    factor = tl.load(edge_weight + edge, mask=member, other=0.0).to(tl.float32)
                    message = message * factor[:, None]
                if not BY_MASK:
                    received += member.to(tl.int32)
                total, squares, largest, at_largest, smallest, at_smallest = _absorbed(
                    total, squares, largest, at_largest, smallest, at_smallest, message, ok,
                    AT_SUM, AT_MEAN, AT_MAX, AT_MIN, AT_STD, KEEP_TIES,
                )  # fmt: skip
                source = next_source
                relation = next_relation
                edge = following
                step += 1

        some = (received > 0)[:, None]
        number = tl.maximum(received, 1).to(tl.float32)[:, None]
        place = out + row[:, None] * (NUM_OUT * dim) + columns[None, :]
        tie = ties + row[:, None] * (2 * dim) + columns[None, :]
        if not BY_MASK:
            tl.store(degree + row, received.to(tl.int64), mask=taken)
        written = stored
        if LEAVE_OUT:
            written = stored & ((received > HAS_BOUNDARY) | (target < num_boundary))[:, None]
        if AT_SUM >= 0:
            tl.store(place + AT_SUM * dim, total, mask=written)
        if AT_MEAN >= 0:
            mean = total / number
            tl.store(place + AT_MEAN * dim, mean, mask=written)
            if AT_STD >= 0:
                variance = squares / number - mean * mean
                variance = tl.where(variance < epsilon, epsilon, variance)  # a NaN stays one
                tl.store(place + AT_STD * dim, tl.where(some, tl.sqrt(variance), 0.0), mask=written)
        if AT_MAX >= 0:
            tl.store(place + AT_MAX * dim, tl.where(some, largest, 0.0), mask=written)
            if KEEP_TIES:
                tl.store(tie, at_largest.to(tl.int16), mask=written)
        if AT_MIN >= 0:
            tl.store(place + AT_MIN * dim, tl.where(some, smallest, 0.0), mask=written)
            if KEEP_TIES:
                tl.store(tie + dim, at_smallest.to(tl.int16), mask=written)


@triton.jit
def _add_run(grad_weight, run, along_query, relation, ends, columns, column_ok, dim):
    """Adds the runs [T, D] that end here to the weights of their relations [T], -1 where none has begun."""
    over = (ends & (relation >= 0))[:, None] & column_ok[None, :]
    place = along_query + relation.to(tl.int64) * dim
    tl.atomic_add(grad_weight + place[:, None] + columns[None, :], run, mask=over, sem="relaxed")


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
    order,  # or, FROM_LIST, [H] targets
    stream_view,
    out,
    degree,
    masks,
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
    NUM_STREAMS: tl.constexpr,
    HAS_VIEW: tl.constexpr,
    FROM_LIST: tl.constexpr,
    APART: tl.constexpr,
    BY_MASK: tl.constexpr,
    IN_RUNS: tl.constexpr,  # distmult and transe: edges of like relation, one after the other, add to its weight once
    BLOCK_T: tl.constexpr,
    D_PAD: tl.constexpr,
):
    """Adds to what the edges of the targets read, atomically."""
    num_sources = tl.load(sizes)
    last = tl.load(sizes + 1)
    if FROM_LIST:
        target, start, end, query, taken = _long_row(order, row_start, node_query, last, longest, BLOCK_T)
    else:
        target, start, end, query, taken = _tile(order, row_start, node_query, last, longest, BLOCK_T)
    steps = tl.max(end - start, axis=0)
    columns = tl.arange(0, D_PAD)
    column_ok = columns < dim
    half = dim // 2
    is_real = (columns < half)[None, :]
    other_columns = tl.where(columns < half, columns + half, columns - half)
    stored = taken[:, None] & column_ok[None, :]
    own = tl.zeros([BLOCK_T, D_PAD], dtype=tl.float32)
    to_own = tl.zeros([BLOCK_T, D_PAD], dtype=tl.float32)
    has_own = stored & (target < num_boundary)[:, None]
    if FROM_LIST:
        has_own = has_own & (tl.arange(0, BLOCK_T) == 0)[:, None]
    at_own = target[:, None] * dim + columns[None, :]
    if HAS_BOUNDARY:
        own = tl.load(boundary + at_own, mask=has_own, other=0.0).to(tl.float32)
    edge = start
    left = tl.zeros([BLOCK_T], dtype=tl.int64)
    if not BY_MASK:
        first_source, first_relation = _edge(edge_source, edge_relation, start, end)
    for turn in range(1 if APART else NUM_STREAMS):
        stream = tl.program_id(1) + turn
        row = stream * num_targets + target
        received = tl.load(degree + row, mask=taken, other=0)
        at_work = tl.max(received, axis=0) > HAS_BOUNDARY
        if HAS_BOUNDARY:
            at_work = at_work | (tl.min(target, axis=0) < num_boundary)
        if at_work:
            sends = stored & ((received > HAS_BOUNDARY) | (target < num_boundary))[:, None]
            constant, slope, largest, to_max, smallest, to_min = _coefficients(
                grad, out, ties, row[:, None], received[:, None], columns[None, :], sends, dim,
                epsilon, AT_SUM, AT_MEAN, AT_MAX, AT_MIN, AT_STD, NUM_OUT,
            )  # fmt: skip
            if HAS_BOUNDARY:
                to_own += _message_gradient(
                    own, constant, slope, largest, to_max, smallest, to_min, AT_MAX, AT_MIN, AT_STD
                )
            view = tl.load(stream_view + stream)
            along_query = stream * weight_stream_stride + query * weight_query_stride
            if BY_MASK:
                left = tl.load(masks + row, mask=taken, other=0)
                steps = tl.max(received, axis=0) - HAS_BOUNDARY
                edge = start + _lowest(left)
                source, relation = _edge(edge_source, edge_relation, edge, tl.where(left != 0, end, start))
            else:
                edge = start
                source = first_source
                relation = first_relation
            if IN_RUNS:
                run = tl.zeros([BLOCK_T, D_PAD], dtype=tl.float32)
                run_relation = relation * 0 - 1
            step = steps * 0
            while step < steps:
                if BY_MASK:
                    member = left != 0
                    left = left & (left - 1)
                    following = start + _lowest(left)
                    next_end = tl.where(left != 0, end, start)
                    next_source, next_relation = _edge(edge_source, edge_relation, following, next_end)
                else:
                    following = edge + 1
                    next_source, next_relation = _edge(edge_source, edge_relation, following, end)
                    member, _ = _members_of(edge, source, edge_views, view, num_sources, HAS_VIEW)
                along_place = along_query + relation.to(tl.int64) * dim
                sent, sent_other, along, along_other, ok = _rows(
                    state, weight, source, along_place, member, columns, other_columns, column_ok, dim, MESSAGE
                )  # fmt: skip
                bare = _composed(sent, sent_other, along, along_other, is_real, MESSAGE)
                message = bare
                if HAS_EDGE_WEIGHT:
                    factor = tl.load(edge_weight + edge, mask=member, other=0.0).to(tl.float32)[:, None]
                    message = bare * factor
                back = _message_gradient(
                    message, constant, slope, largest, to_max, smallest, to_min, AT_MAX, AT_MIN, AT_STD
                )
                back = tl.where(ok, back, 0.0)
                if HAS_EDGE_WEIGHT:
                    share = tl.sum(back * bare, axis=1)
                    tl.atomic_add(grad_edge_weight + edge, share, mask=member, sem="relaxed")
                    back = back * factor
                at_state = grad_state + source.to(tl.int64)[:, None] * dim
                if IN_RUNS:
                    to_state, to_weight = _shares(back, sent, along, MESSAGE)
                    tl.atomic_add(at_state + columns[None, :], to_state, mask=ok, sem="relaxed")
                    ends = member & (relation != run_relation)  # [T]
                    _add_run(grad_weight, run, along_query, run_relation, ends, columns, column_ok, dim)
                    run = tl.where(ends[:, None], 0.0, run) + to_weight
                    run_relation = tl.where(member, relation, run_relation)
                else:
                    at_weight = grad_weight + along_place[:, None]
                    _send_back(
                        back, sent, sent_other, along, along_other, is_real, at_state, at_weight, columns,
                        other_columns, ok, MESSAGE,
                    )  # fmt: skip
                source = next_source
                relation = next_relation
                edge = following
                step += 1
            if IN_RUNS:
                _add_run(grad_weight, run, along_query, run_relation, taken, columns, column_ok, dim)
    if HAS_BOUNDARY:
        if APART:
            tl.atomic_add(grad_boundary + at_own, to_own, mask=has_own, sem="relaxed")
        else:
            tl.store(grad_boundary + at_own, to_own, mask=has_own)
