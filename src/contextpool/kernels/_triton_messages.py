"""What the kernels of aggregation share: messages, what is accumulated of them, and their gradients.

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
    """What the state and the weight of a message get of its gradient `back`; not for rotate."""
    if MESSAGE == 0:
        return back * along, back * sent
    else:
        return back, back


@triton.jit
def _send_back(
    back, sent, sent_other, along, along_other, is_real, at_state, at_weight, columns, other_columns, ok,
    MESSAGE: tl.constexpr,
):  # fmt: skip
    """Adds the gradients `back` [E, D] of messages to the states and weights that they were made of, atomically."""
    if MESSAGE != 2:
        to_state, to_weight = _shares(back, sent, along, MESSAGE)
        tl.atomic_add(at_state + columns[None, :], to_state, mask=ok, sem="relaxed")
        tl.atomic_add(at_weight + columns[None, :], to_weight, mask=ok, sem="relaxed")
    else:
        to_state = back * tl.where(is_real, along, along_other)
        to_state_other = back * tl.where(is_real, -along_other, along)
        to_weight = back * tl.where(is_real, sent, sent_other)
        to_weight_other = back * tl.where(is_real, -sent_other, sent)
        tl.atomic_add(at_state + columns[None, :], to_state, mask=ok, sem="relaxed")
        tl.atomic_add(at_state + other_columns[None, :], to_state_other, mask=ok, sem="relaxed")
        tl.atomic_add(at_weight + columns[None, :], to_weight, mask=ok, sem="relaxed")
        tl.atomic_add(at_weight + other_columns[None, :], to_weight_other, mask=ok, sem="relaxed")


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
