"""The Triton kernels behind `kernels.triton.aggregate`; shapes and names as in `reference.aggregate`.

Tiles are [E, D], or [S, E, D] in the kernel that sums groups in order: S streams, E edges, D columns, padded to powers
of two; `dim` and `num_streams` say what is real. Counts that change from batch to batch are not specialized: another
batch must not mean another compilation.
"""

from __future__ import annotations

import triton
import triton.language as tl

DISTMULT = tl.constexpr(0)
TRANSE = tl.constexpr(1)
ROTATE = tl.constexpr(2)


@triton.jit
def _larger(one, other):
    return tl.maximum(one, other, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def _smaller(one, other):
    return tl.minimum(one, other, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def _composed(state, state_other, weight, weight_other, is_real, MESSAGE: tl.constexpr):
    """Messages; `_other` are the columns of the other half, read for rotate alone."""
    if MESSAGE == 0:
        return state * weight
    elif MESSAGE == 1:
        return state + weight
    else:
        turned = state * weight - state_other * weight_other
        return tl.where(is_real, turned, state_other * weight + state * weight_other)


@triton.jit
def _members(views, edge_views, walked):
    """[S, E] whether each edge takes part in each stream; view -1 is the full stream."""
    bit = (edge_views[None, :] >> tl.maximum(views, 0)[:, None]) & 1
    return walked[None, :] & ((views[:, None] == -1) | ((views[:, None] >= 0) & (bit != 0)))


@triton.jit
def _members_of(edge, source, edge_views, view, num_sources, HAS_VIEW: tl.constexpr):
    """Which of E edges take part in a stream, and their view bits."""
    member = source < num_sources
    bits = (source * 0).to(tl.int32)
    if HAS_VIEW:
        bits = tl.load(edge_views + edge, mask=member, other=0).to(tl.int32)
        member = member & ((view < 0) | (((bits >> tl.maximum(view, 0)) & 1) != 0))
    return member, bits


@triton.jit
def _rows(
    state, weight, source, weight_place, member, columns, other_columns, column_ok, dim, MESSAGE: tl.constexpr
):
    """States and relation weights [E, D] of edges, and for rotate those of the columns of the other half."""
    ok = member[:, None] & column_ok[None, :]
    place = state + source.to(tl.int64)[:, None] * dim
    weight_row = weight + weight_place[:, None]
    sent = tl.load(place + columns[None, :], mask=ok, other=0.0).to(tl.float32)
    along = tl.load(weight_row + columns[None, :], mask=ok, other=0.0).to(tl.float32)
    sent_other = sent
    along_other = along
    if MESSAGE == 2:
        sent_other = tl.load(place + other_columns[None, :], mask=ok, other=0.0).to(tl.float32)
        along_other = tl.load(weight_row + other_columns[None, :], mask=ok, other=0.0).to(tl.float32)
    return sent, sent_other, along, along_other, ok


@triton.jit(do_not_specialize=["num_targets", "num_boundary", "longest"])
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
    longest,  # rows with more edges are left to the programs of the list
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
    if (target >= last) | (end - start > longest):
        return
    columns = tl.arange(0, D_PAD)
    column_ok = columns < dim
    half = dim // 2
    is_real = (columns < half)[None, :]
    other_columns = tl.where(columns < half, columns + half, columns - half)
    lanes = tl.arange(0, BLOCK_E)
    first_source = tl.load(edge_source + start + lanes, mask=start + lanes < end, other=2147483647)
    first_relation = tl.load(edge_relation + start + lanes, mask=start + lanes < end, other=0)
    own = tl.zeros([D_PAD], dtype=tl.float32)
    if HAS_BOUNDARY:
        if target < num_boundary:
            own = tl.load(boundary + target * dim + columns, mask=column_ok, other=0.0).to(tl.float32)
    row_bits = tl.zeros([BLOCK_E], dtype=tl.int32)
    for turn in range(1 if FROM_LIST else NUM_STREAMS):
        stream = tl.program_id(1) + turn
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
                sent, sent_other, along, along_other, ok = _rows(
                    state,
                    weight,
                    source,
                    weight_base + relation.to(tl.int64) * dim,
                    member,
                    columns,
                    other_columns,
                    column_ok,
                    dim,
                    MESSAGE,
                )
                message = _composed(sent, sent_other, along, along_other, is_real, MESSAGE)
                if HAS_EDGE_WEIGHT:
                    message = (
                        message * tl.load(edge_weight + edge, mask=member, other=0.0).to(tl.float32)[:, None]
                    )
                count += member.to(tl.int32)
                if AT_SUM >= 0 or AT_MEAN >= 0:
                    total += tl.where(ok, message, 0.0)
                if AT_STD >= 0:
                    squares += tl.where(ok, message * message, 0.0)
                if AT_MAX >= 0:
                    candidate = tl.where(ok, message, -float("inf"))
                    if KEEP_TIES:
                        kept = tl.where(candidate > largest, 0, at_largest)
                        at_largest = kept + (ok & (candidate >= largest)).to(tl.int32)
                    largest = _larger(largest, candidate)
                if AT_MIN >= 0:
                    candidate = tl.where(ok, message, float("inf"))
                    if KEEP_TIES:
                        kept = tl.where(candidate < smallest, 0, at_smallest)
                        at_smallest = kept + (ok & (candidate <= smallest)).to(tl.int32)
                    smallest = _smaller(smallest, candidate)
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


@triton.jit
def _coefficients(
    grad, out, ties, row, received, columns, ok, dim, epsilon,
    AT_SUM: tl.constexpr, AT_MEAN: tl.constexpr, AT_MAX: tl.constexpr, AT_MIN: tl.constexpr, AT_STD: tl.constexpr,
    NUM_OUT: tl.constexpr,
):  # fmt: skip
    """What a message m of a target row gets: constant + slope * m + (m == largest) * to_max + (m == smallest) * to_min.

    `row` [..., 1] are rows of [S, M]; all results have the shape of `ok`.
    """
    place = row * (NUM_OUT * dim) + columns
    zero = tl.where(ok, 0.0, 0.0)
    constant = zero
    slope = zero
    largest = zero
    smallest = zero
    to_max = zero
    to_min = zero
    number = tl.maximum(received, 1).to(tl.float32)
    if AT_SUM >= 0:
        constant += tl.load(grad + place + AT_SUM * dim, mask=ok, other=0.0).to(tl.float32)
    if AT_MEAN >= 0:
        constant += tl.load(grad + place + AT_MEAN * dim, mask=ok, other=0.0).to(tl.float32) / number
    if AT_STD >= 0:
        mean = tl.load(out + place + AT_MEAN * dim, mask=ok, other=0.0)
        deviation = tl.load(out + place + AT_STD * dim, mask=ok, other=1.0)
        passed = tl.load(grad + place + AT_STD * dim, mask=ok, other=0.0).to(tl.float32)
        spread = deviation * deviation > epsilon * 1.000001
        slope = tl.where(spread, passed / (number * tl.where(spread, deviation, 1.0)), 0.0)
        constant -= slope * mean
    tie = ties + row * (2 * dim) + columns
    if AT_MAX >= 0:
        largest = tl.load(out + place + AT_MAX * dim, mask=ok, other=0.0)
        attained = tl.maximum(tl.load(tie, mask=ok, other=1).to(tl.float32), 1.0)
        to_max = tl.load(grad + place + AT_MAX * dim, mask=ok, other=0.0).to(tl.float32) / attained
    if AT_MIN >= 0:
        smallest = tl.load(out + place + AT_MIN * dim, mask=ok, other=0.0)
        attained = tl.maximum(tl.load(tie + dim, mask=ok, other=1).to(tl.float32), 1.0)
        to_min = tl.load(grad + place + AT_MIN * dim, mask=ok, other=0.0).to(tl.float32) / attained
    return constant, slope, largest, to_max, smallest, to_min


@triton.jit
def _message_gradient(
    message, constant, slope, largest, to_max, smallest, to_min,
    AT_MAX: tl.constexpr, AT_MIN: tl.constexpr, AT_STD: tl.constexpr,
):  # fmt: skip
    result = constant + message * 0.0
    if AT_STD >= 0:
        result += slope * message
    if AT_MAX >= 0:
        result += tl.where(message == largest, to_max, 0.0)
    if AT_MIN >= 0:
        result += tl.where(message == smallest, to_min, 0.0)
    return result


@triton.jit(do_not_specialize=["num_targets", "num_boundary", "longest"])
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
    longest,  # rows with more edges are left to the programs of the list
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
    if (target >= last) | (end - start > longest):
        return
    columns = tl.arange(0, D_PAD)
    column_ok = columns < dim
    half = dim // 2
    is_real = (columns < half)[None, :]
    other_columns = tl.where(columns < half, columns + half, columns - half)
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
        stream = tl.program_id(1) + turn
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
                    sent, sent_other, along, along_other, ok = _rows(
                        state, weight, source, weight_place, member, columns, other_columns, column_ok, dim, MESSAGE
                    )  # fmt: skip
                    bare = _composed(sent, sent_other, along, along_other, is_real, MESSAGE)
                    message = bare
                    if HAS_EDGE_WEIGHT:
                        factor = tl.load(edge_weight + edge, mask=member, other=0.0).to(tl.float32)[:, None]
                        message = bare * factor
                    back = _message_gradient(
                        message, constant[None, :], slope[None, :], largest[None, :], to_max[None, :],
                        smallest[None, :], to_min[None, :], AT_MAX, AT_MIN, AT_STD,
                    )  # fmt: skip
                    back = tl.where(ok, back, 0.0)
                    if HAS_EDGE_WEIGHT:
                        share = tl.sum(back * bare, axis=1)
                        tl.atomic_add(grad_edge_weight + edge, share, mask=member, sem="relaxed")
                        back = back * factor
                    at_state = grad_state + source.to(tl.int64)[:, None] * dim
                    at_weight = grad_weight + weight_place[:, None]
                    if MESSAGE == 0:
                        tl.atomic_add(at_state + columns[None, :], back * along, mask=ok, sem="relaxed")
                        tl.atomic_add(at_weight + columns[None, :], back * sent, mask=ok, sem="relaxed")
                    elif MESSAGE == 1:
                        tl.atomic_add(at_state + columns[None, :], back, mask=ok, sem="relaxed")
                        tl.atomic_add(at_weight + columns[None, :], back, mask=ok, sem="relaxed")
                    else:
                        to_state = back * tl.where(is_real, along, along_other)
                        to_state_other = back * tl.where(is_real, -along_other, along)
                        to_weight = back * tl.where(is_real, sent, sent_other)
                        to_weight_other = back * tl.where(is_real, -sent_other, sent)
                        tl.atomic_add(at_state + columns[None, :], to_state, mask=ok, sem="relaxed")
                        tl.atomic_add(
                            at_state + other_columns[None, :], to_state_other, mask=ok, sem="relaxed"
                        )
                        tl.atomic_add(at_weight + columns[None, :], to_weight, mask=ok, sem="relaxed")
                        tl.atomic_add(
                            at_weight + other_columns[None, :], to_weight_other, mask=ok, sem="relaxed"
                        )
                    source = next_source
                    relation = next_relation
                    first += BLOCK_E
    if HAS_BOUNDARY:
        at_own = grad_boundary + target * dim + columns
        if FROM_LIST:
            tl.atomic_add(at_own, to_own, mask=column_ok & has_own, sem="relaxed")
        else:
            tl.store(at_own, to_own, mask=column_ok & has_own)


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
        if BY_SOURCE:
            if MESSAGE == 0:
                own += back * along
            elif MESSAGE == 1:
                own += back
            else:
                own += back * tl.where(is_real, along, along_other)
                other += back * tl.where(is_real, -along_other, along)
        else:
            if MESSAGE == 0:
                own += back * sent
            elif MESSAGE == 1:
                own += back
            else:
                own += back * tl.where(is_real, sent, sent_other)
                other += back * tl.where(is_real, -sent_other, sent)
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
