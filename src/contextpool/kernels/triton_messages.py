"""What the kernels of aggregation share (messages, what is accumulated of them, their gradients), and the backward
pass in a fixed order.

Tiles are [E, D]: E edges, or one edge each of E targets; D columns, padded to a power of two.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _larger(one, other):
    return tl.maximum(one, other, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def _smaller(one, other):
    return tl.minimum(one, other, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def _composed(state, weight, MESSAGE: tl.constexpr):
    """Messages: products (distmult) or sums (transe)."""
    if MESSAGE == 0:
        return state * weight
    else:
        return state + weight


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
def _rows(state, weight, source, weight_place, member, columns, column_ok, dim):
    """States and relation weights [E, D] of edges."""
    ok = member[:, None] & column_ok[None, :]
    place = state + source.to(tl.int64)[:, None] * dim
    weight_row = weight + weight_place[:, None]
    sent = tl.load(place + columns[None, :], mask=ok, other=0.0).to(tl.float32)
    along = tl.load(weight_row + columns[None, :], mask=ok, other=0.0).to(tl.float32)
    return sent, along, ok


@triton.jit
def _absorbed(
    total, squares, largest, at_largest, smallest, at_smallest, message, ok,
    AT_SUM: tl.constexpr, AT_MEAN: tl.constexpr, AT_MAX: tl.constexpr, AT_MIN: tl.constexpr, AT_STD: tl.constexpr,
    KEEP_TIES: tl.constexpr,
):  # fmt: skip
    """What is accumulated [E, D] with one more message in every lane that is ok."""
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
    return total, squares, largest, at_largest, smallest, at_smallest


@triton.jit
def _shares(back, sent, along, MESSAGE: tl.constexpr):
    """What the state and the weight of a message get of its gradient `back`."""
    if MESSAGE == 0:
        return back * along, back * sent
    else:
        return back, back


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


@triton.jit
def _sent_along(
    state, weight, edge_weight, edge, source, weight_place, member, columns, column_ok, dim,
    MESSAGE: tl.constexpr, HAS_EDGE_WEIGHT: tl.constexpr,
):  # fmt: skip
    """Messages [E, D] of E edges, and which of their numbers are real."""
    sent, along, ok = _rows(state, weight, source, weight_place, member, columns, column_ok, dim)
    message = _composed(sent, along, MESSAGE)
    if HAS_EDGE_WEIGHT:
        message = message * tl.load(edge_weight + edge, mask=member, other=0.0).to(tl.float32)[:, None]
    return message, ok


@triton.jit
def _passed_back(
    state, weight, edge_weight, grad_state, grad_edge_weight, edge, source, weight_place, member, columns, column_ok,
    dim, constant, slope, largest, to_max, smallest, to_min,
    MESSAGE: tl.constexpr, HAS_EDGE_WEIGHT: tl.constexpr,
    AT_MAX: tl.constexpr, AT_MIN: tl.constexpr, AT_STD: tl.constexpr,
):  # fmt: skip
    """The gradients of the relation weights [E, D] of E edges, and which are real; adds those of what they came from
    and of their own weights, atomically. Coefficients as `_coefficients` has them, or one row of them for all edges.
    """
    sent, along, ok = _rows(state, weight, source, weight_place, member, columns, column_ok, dim)
    bare = _composed(sent, along, MESSAGE)
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
    to_state, to_weight = _shares(back, sent, along, MESSAGE)
    at_state = grad_state + source.to(tl.int64)[:, None] * dim
    tl.atomic_add(at_state + columns[None, :], to_state, mask=ok, sem="relaxed")
    return to_weight, ok


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
    """One group of edges a program (those of one source, or of one relation weight): sums in a fixed order.

    Tiles are [S, E, D] with S streams.
    """
    group = tl.program_id(0).to(tl.int64)
    start = tl.load(group_start + group)
    end = tl.load(group_start + group + 1)
    columns = tl.arange(0, D_PAD)
    column_ok = columns < dim
    streams = tl.arange(0, S_PAD)
    stream_ok = streams < num_streams
    views = tl.load(stream_view + streams)
    own = tl.zeros([S_PAD, BLOCK_E, D_PAD], dtype=tl.float32)
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
        bare = _composed(sent, along, MESSAGE)
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
        to_source, to_weight = _shares(back, sent, along, MESSAGE)
        if BY_SOURCE:
            own += to_source
        else:
            own += to_weight
        first += BLOCK_E
    if BY_SOURCE:
        place = group * dim + columns
        tl.store(grad_own + place, tl.sum(tl.sum(own, axis=1), axis=0), mask=column_ok)
    else:
        row = (streams.to(tl.int64) * num_groups + group)[:, None] * dim + columns[None, :]
        ok = stream_ok[:, None] & column_ok[None, :]
        tl.store(grad_own + row, tl.sum(own, axis=1), mask=ok)
