"""The Triton kernels behind `kernels.triton.aggregate`; shapes and names as in `reference.aggregate`.

Tiles are [E, D]: E edges, D columns, padded to powers of two; `dim` and the number of edges say what is real. Counts
that change from batch to batch are not specialized: another batch must not mean another compilation.
"""

from __future__ import annotations

import triton
import triton.language as tl

from contextpool.kernels.triton_messages import (
    _absorbed,
    _coefficients,
    _larger,
    _members_of,
    _message_gradient,
    _passed_back,
    _sent_along,
    _smaller,
)


@triton.jit(do_not_specialize=["num_targets", "num_boundary", "longest", "shortest"])
def aggregate_forward(
    state,  # [num_sources, dim]
    weight,  # [S, B or 1, num_directed, dim]
    row_start,
    edge_source,
    edge_relation,
    edge_views,
    edge_weight,
    node_query,
    boundary,  # [num_boundary, dim]
    hubs,  # [H] targets, for FROM_LIST
    stream_view,  # [S] int32, -1 full
    out,  # [S, M, NUM_OUT, dim]
    degree,  # [S, M] int64
    ties,  # [S, M, 2, dim] int16, how many messages attain the max and the min
    sizes,  # [2] int64: how many sources and targets there really are
    num_targets,
    num_boundary,
    dim,
    weight_stream_stride,
    weight_query_stride,
    epsilon,
    longest,  # rows with more edges are left to the programs of the list,
    shortest,  # those with as few are not theirs
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
    FROM_LIST: tl.constexpr,
    HAS_VIEW: tl.constexpr,  # whether some stream is not over all edges
    KEEP_TIES: tl.constexpr,
    BLOCK_E: tl.constexpr,
    D_PAD: tl.constexpr,
):
    """One target a program: E edges at a time, all reductions in one pass; for one stream after the other.

    The first stream sees all edges and learns which views they have; a stream without edges costs its result alone.
    Targets from a list have a program for every stream.
    """
    num_sources = tl.load(sizes)
    last = tl.load(sizes + 1)
    target = tl.program_id(0).to(tl.int64)
    if FROM_LIST:
        target = tl.load(hubs + target).to(tl.int64)
    exists = target < num_targets
    start = tl.load(row_start + target, mask=exists, other=0)  # what depends on nothing is asked for at once
    end = tl.load(row_start + target + 1, mask=exists, other=0)
    query = tl.load(node_query + target, mask=exists, other=0)
    if (target >= last) | (end - start > longest) | (end - start <= shortest):
        return
    columns = tl.arange(0, D_PAD)
    column_ok = columns < dim
    lanes = tl.arange(0, BLOCK_E)
    first_source = tl.load(edge_source + start + lanes, mask=start + lanes < end, other=2147483647)
    first_relation = tl.load(edge_relation + start + lanes, mask=start + lanes < end, other=0)
    own = tl.zeros([D_PAD], dtype=tl.float32)
    if HAS_BOUNDARY:
        if target < num_boundary:
            own = tl.load(boundary + target * dim + columns, mask=column_ok, other=0.0).to(tl.float32)
    row_bits = tl.zeros([BLOCK_E], dtype=tl.int32)
    for turn in range(1 if FROM_LIST else NUM_STREAMS):
        stream = (tl.program_id(1) + turn).to(tl.int64)
        view = tl.load(stream_view + stream)
        row = stream * num_targets + target
        place = out + row * (NUM_OUT * dim) + columns
        tie = ties + row * (2 * dim) + columns
        walks = end > start
        if NUM_STREAMS > 1 and not FROM_LIST:
            if stream > 0:
                walks = walks & ((view < 0) | (tl.max((row_bits >> tl.maximum(view, 0)) & 1, axis=0) != 0))
        if walks:
            weight_base = stream * weight_stream_stride + query * weight_query_stride
            total = tl.zeros([BLOCK_E, D_PAD], dtype=tl.float32)
            squares = tl.zeros([BLOCK_E, D_PAD], dtype=tl.float32)
            largest = tl.zeros([BLOCK_E, D_PAD], dtype=tl.float32) - float("inf")
            smallest = tl.zeros([BLOCK_E, D_PAD], dtype=tl.float32) + float("inf")
            at_largest = tl.zeros([BLOCK_E, D_PAD], dtype=tl.int32)
            at_smallest = tl.zeros([BLOCK_E, D_PAD], dtype=tl.int32)
            count = tl.zeros([BLOCK_E], dtype=tl.int32)
            first = start
            source = first_source
            relation = first_relation
            while first < end:
                edge = first + lanes
                following = edge + BLOCK_E  # the next indices are on their way while these edges are at work
                next_source = tl.load(edge_source + following, mask=following < end, other=2147483647)
                next_relation = tl.load(edge_relation + following, mask=following < end, other=0)
                member, bits = _members_of(edge, source, edge_views, view, num_sources, HAS_VIEW)
                row_bits |= bits
                message, ok = _sent_along(
                    state, weight, edge_weight, edge, source, weight_base + relation.to(tl.int64) * dim,
                    member, columns, column_ok, dim, MESSAGE, HAS_EDGE_WEIGHT,
                )  # fmt: skip
                count += member.to(tl.int32)
                total, squares, largest, at_largest, smallest, at_smallest = _absorbed(
                    total, squares, largest, at_largest, smallest, at_smallest, message, ok,
                    AT_SUM, AT_MEAN, AT_MAX, AT_MIN, AT_STD, KEEP_TIES,
                )  # fmt: skip
                source = next_source
                relation = next_relation
                first += BLOCK_E

            received = tl.sum(count, axis=0)
            if HAS_BOUNDARY:
                received += 1
            some = received > 0
            number = tl.maximum(received, 1).to(tl.float32)
            tl.store(degree + row, received.to(tl.int64))
            if AT_SUM >= 0 or AT_MEAN >= 0:
                sums = tl.sum(total, axis=0) + own
                mean = sums / number
                if AT_SUM >= 0:
                    tl.store(place + AT_SUM * dim, sums, mask=column_ok)
                if AT_MEAN >= 0:
                    tl.store(place + AT_MEAN * dim, mean, mask=column_ok)
                if AT_STD >= 0:
                    variance = (tl.sum(squares, axis=0) + own * own) / number - mean * mean
                    variance = tl.where(variance < epsilon, epsilon, variance)  # a NaN stays one
                    tl.store(place + AT_STD * dim, tl.where(some, tl.sqrt(variance), 0.0), mask=column_ok)
            if AT_MAX >= 0:
                best = tl.reduce(largest, axis=0, combine_fn=_larger)  # [D]
                if HAS_BOUNDARY:
                    best = _larger(best, own)
                if KEEP_TIES:
                    attained = tl.sum(tl.where(largest == best[None, :], at_largest, 0), axis=0)
                    if HAS_BOUNDARY:
                        attained += (own == best).to(tl.int32)
                    tl.store(tie, tl.minimum(attained, 32767).to(tl.int16), mask=column_ok)
                tl.store(place + AT_MAX * dim, tl.where(some, best, 0.0), mask=column_ok)
            if AT_MIN >= 0:
                best = tl.reduce(smallest, axis=0, combine_fn=_smaller)
                if HAS_BOUNDARY:
                    best = _smaller(best, own)
                if KEEP_TIES:
                    attained = tl.sum(tl.where(smallest == best[None, :], at_smallest, 0), axis=0)
                    if HAS_BOUNDARY:
                        attained += (own == best).to(tl.int32)
                    tl.store(tie + dim, tl.minimum(attained, 32767).to(tl.int16), mask=column_ok)
                tl.store(place + AT_MIN * dim, tl.where(some, best, 0.0), mask=column_ok)
        else:
            tl.store(degree + row, (target * 0 + HAS_BOUNDARY).to(tl.int64))
            if AT_SUM >= 0:
                tl.store(place + AT_SUM * dim, own, mask=column_ok)
            if AT_MEAN >= 0:
                tl.store(place + AT_MEAN * dim, own, mask=column_ok)
            if AT_STD >= 0:
                deviation = own * 0.0
                if HAS_BOUNDARY:
                    deviation = tl.sqrt(epsilon + own * 0.0)
                tl.store(place + AT_STD * dim, deviation, mask=column_ok)
            one = (columns * 0 + 1).to(tl.int16)
            if AT_MAX >= 0:
                tl.store(place + AT_MAX * dim, own, mask=column_ok)
                if KEEP_TIES:
                    tl.store(tie, one, mask=column_ok)
            if AT_MIN >= 0:
                tl.store(place + AT_MIN * dim, own, mask=column_ok)
                if KEEP_TIES:
                    tl.store(tie + dim, one, mask=column_ok)


@triton.jit(do_not_specialize=["num_targets", "num_boundary", "longest", "shortest"])
def aggregate_backward(
    grad,  # [S, M, NUM_OUT, dim]
    state,
    weight,
    row_start,
    edge_source,
    edge_relation,
    edge_views,
    edge_weight,
    node_query,
    boundary,
    hubs,  # [H] targets, for FROM_LIST
    stream_view,
    out,
    degree,
    ties,
    grad_state,  # [num_sources, dim] float32
    grad_weight,  # [S, B or 1, num_directed, dim] float32
    grad_edge_weight,  # [K] float32
    grad_boundary,  # [num_boundary, dim] float32
    sizes,
    num_targets,
    num_boundary,
    dim,
    weight_stream_stride,
    weight_query_stride,
    epsilon,
    longest,  # rows with more edges are left to the programs of the list,
    shortest,  # those with as few are not theirs
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
    FROM_LIST: tl.constexpr,
    HAS_VIEW: tl.constexpr,  # whether some stream is not over all edges
    BLOCK_E: tl.constexpr,
    D_PAD: tl.constexpr,
    TO_EDGES: tl.constexpr = True,  # false: the boundary's gradient alone
):
    """One target a program, as forward; adds to what its edges read, atomically."""
    num_sources = tl.load(sizes)
    last = tl.load(sizes + 1)
    target = tl.program_id(0).to(tl.int64)
    if FROM_LIST:
        target = tl.load(hubs + target).to(tl.int64)
    exists = target < num_targets
    start = tl.load(row_start + target, mask=exists, other=0)
    end = tl.load(row_start + target + 1, mask=exists, other=0)
    query = tl.load(node_query + target, mask=exists, other=0)
    if (target >= last) | (end - start > longest) | (end - start <= shortest):
        return
    columns = tl.arange(0, D_PAD)
    column_ok = columns < dim
    lanes = tl.arange(0, BLOCK_E)
    first_source = tl.load(edge_source + start + lanes, mask=start + lanes < end, other=2147483647)
    first_relation = tl.load(edge_relation + start + lanes, mask=start + lanes < end, other=0)
    has_own = HAS_BOUNDARY & (target < num_boundary)
    own = tl.zeros([D_PAD], dtype=tl.float32)
    to_own = tl.zeros([D_PAD], dtype=tl.float32)
    if HAS_BOUNDARY:
        if has_own:
            own = tl.load(boundary + target * dim + columns, mask=column_ok, other=0.0).to(tl.float32)
    for turn in range(1 if FROM_LIST else NUM_STREAMS):
        stream = (tl.program_id(1) + turn).to(tl.int64)
        row = stream * num_targets + target
        received = tl.load(degree + row)
        messages = received
        if HAS_BOUNDARY:
            messages = received - 1
        if (messages > 0) | has_own:
            constant, slope, largest, to_max, smallest, to_min = _coefficients(
                grad, out, ties, row, received, columns, column_ok, dim,
                epsilon, AT_SUM, AT_MEAN, AT_MAX, AT_MIN, AT_STD, NUM_OUT,
            )  # fmt: skip
            if HAS_BOUNDARY:
                to_own += _message_gradient(
                    own, constant, slope, largest, to_max, smallest, to_min, AT_MAX, AT_MIN, AT_STD
                )
            if TO_EDGES:
                view = tl.load(stream_view + stream)
                weight_base = stream * weight_stream_stride + query * weight_query_stride
                first = start
                source = first_source
                relation = first_relation
                while first < end:
                    edge = first + lanes
                    following = edge + BLOCK_E
                    next_source = tl.load(edge_source + following, mask=following < end, other=2147483647)
                    next_relation = tl.load(edge_relation + following, mask=following < end, other=0)
                    member, _ = _members_of(edge, source, edge_views, view, num_sources, HAS_VIEW)
                    weight_place = weight_base + relation.to(tl.int64) * dim
                    to_weight, ok = _passed_back(
                        state, weight, edge_weight, grad_state, grad_edge_weight, edge, source, weight_place,
                        member, columns, column_ok, dim, constant[None, :], slope[None, :], largest[None, :],
                        to_max[None, :], smallest[None, :], to_min[None, :],
                        MESSAGE, HAS_EDGE_WEIGHT, AT_MAX, AT_MIN, AT_STD,
                    )  # fmt: skip
                    at_weight = grad_weight + weight_place[:, None]
                    tl.atomic_add(at_weight + columns[None, :], to_weight, mask=ok, sem="relaxed")
                    source = next_source
                    relation = next_relation
                    first += BLOCK_E
    if HAS_BOUNDARY:
        at_own = grad_boundary + target * dim + columns
        if FROM_LIST:
            tl.atomic_add(at_own, to_own, mask=column_ok & has_own, sem="relaxed")
        else:
            tl.store(at_own, to_own, mask=column_ok & has_own)
