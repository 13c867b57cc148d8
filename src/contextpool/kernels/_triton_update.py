"""The Triton kernels behind `kernels.update`: product, degree scalers, layer norm, relu and short-cut in one pass.

States have D columns, what a node received W = reductions * D, both powers of two.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _scale_of(degree, log_degree, smallest):
    """PNA's scaler and the inverse one, per row."""
    scale = tl.log(tl.maximum(degree, 1).to(tl.float32)) / log_degree
    return scale, 1.0 / tl.maximum(scale, smallest)


@triton.jit
def _normalised(update, dim: tl.constexpr, eps):
    """Rows with mean 0 and variance 1, and 1 / their deviation."""
    mean = tl.sum(update, axis=1) / dim
    centred = update - mean[:, None]
    inverse = 1.0 / tl.sqrt(tl.sum(centred * centred, axis=1) / dim + eps)
    return centred * inverse[:, None], inverse


@triton.jit
def _is_written(degree, rows, num_boundary, least):
    """Whether aggregation wrote a row: it had a message beyond the `least` that every row has, or is a head's."""
    return (degree > least) | (rows < num_boundary)


@triton.jit
def _unwritten(wide, deviation, AT_STD: tl.constexpr, D: tl.constexpr):
    """[1, W] what a row that was not written stands for: zeros, and the deviation of a single message."""
    of_std = (wide >= AT_STD * D) & (wide < (AT_STD + 1) * D)
    return tl.where(of_std, deviation, 0.0)[None, :]


@triton.jit(do_not_specialize=["num_rows", "num_boundary", "least"])
def update_forward(
    state,  # [num_sources, D]
    received,  # [S, M, W], W = reductions * D
    degree,  # [S, M] int64
    own_weight,  # [D, D]
    own_bias,  # [D]
    weight,  # [S, SCALERS * D, W]
    norm_weight,
    norm_bias,
    log_degree,
    update,  # [M, D] what is normalised, for the backward pass
    result,  # [M, D]
    sizes,  # [2] int64: how many rows of the state and of the result there really are; the others become 0
    num_rows,
    eps,
    smallest,
    num_boundary,  # LEFT_OUT: rows from here on with at most `least` messages were not written
    least,
    deviation,
    NUM_STREAMS: tl.constexpr,
    SCALERS: tl.constexpr,
    HAS_NORM: tl.constexpr,
    SHORT_CUT: tl.constexpr,
    KEEP: tl.constexpr,
    LEFT_OUT: tl.constexpr,
    AT_STD: tl.constexpr,
    BLOCK: tl.constexpr,
    D: tl.constexpr,
    W: tl.constexpr,
    PRECISION: tl.constexpr,
):
    rows = (tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)).to(tl.int64)
    num_sources = tl.load(sizes)
    row_ok = (rows < tl.load(sizes + 1))[:, None]
    columns = tl.arange(0, D)
    wide = tl.arange(0, W)
    place = rows[:, None] * D + columns[None, :]
    before = tl.load(state + place, mask=row_ok & (rows < num_sources)[:, None], other=0.0).to(tl.float32)
    # a product with a weight [out, in] reads it as [in, out]
    total = tl.dot(
        before, tl.load(own_weight + columns[None, :] * D + columns[:, None]), input_precision=PRECISION
    )
    total += tl.load(own_bias + columns)[None, :]
    log_mean = tl.load(log_degree)
    for stream in range(NUM_STREAMS):
        stream_rows = rows + stream * num_rows
        at_part = received + stream_rows[:, None] * W + wide[None, :]
        degrees = tl.load(degree + stream_rows, mask=rows < num_rows, other=1)
        if LEFT_OUT:
            written = _is_written(degrees, rows, num_boundary, least)[:, None]
            empty = _unwritten(wide, deviation, AT_STD, D)
            part = tl.where(written, tl.load(at_part, mask=row_ok & written, other=0.0), empty)
        else:
            part = tl.load(at_part, mask=row_ok, other=0.0)
        matrix = weight + stream * SCALERS * D * W + columns[None, :] * W + wide[:, None]
        total = tl.dot(part, tl.load(matrix), total, input_precision=PRECISION)
        if SCALERS == 3:
            scale, inverse = _scale_of(degrees, log_mean, smallest)
            total += scale[:, None] * tl.dot(part, tl.load(matrix + D * W), input_precision=PRECISION)
            total += inverse[:, None] * tl.dot(part, tl.load(matrix + 2 * D * W), input_precision=PRECISION)
    if KEEP:
        tl.store(update + place, total, mask=row_ok)
    after = total
    if HAS_NORM:
        normal, _ = _normalised(total, D, eps)
        after = normal * tl.load(norm_weight + columns)[None, :] + tl.load(norm_bias + columns)[None, :]
    after = tl.where(after < 0, 0.0, after)  # a NaN stays one
    if SHORT_CUT:
        after += before
    tl.store(result + place, tl.where(row_ok, after, 0.0), mask=(rows < num_rows)[:, None])


@triton.jit
def _before_norm(
    passed, total, row_ok, norm_weight, norm_bias, columns, eps, HAS_NORM: tl.constexpr, D: tl.constexpr
):
    """Gradient [BLOCK, D] of what is normalised, and what it adds [D] to those of the norm's weight and bias."""
    if HAS_NORM:
        normal, inverse = _normalised(total, D, eps)
        gamma = tl.load(norm_weight + columns)[None, :]
        after = normal * gamma + tl.load(norm_bias + columns)[None, :]
        back = tl.where(after > 0, passed, 0.0)
        to_weight = tl.sum(back * normal, axis=0)
        to_bias = tl.sum(back, axis=0)
        inner = back * gamma
        along_ones = tl.sum(inner, axis=1) / D
        along_normal = tl.sum(inner * normal, axis=1) / D
        back = inverse[:, None] * (inner - along_ones[:, None] - normal * along_normal[:, None])
        back = tl.where(row_ok, back, 0.0)
    else:
        back = tl.where(total > 0, passed, 0.0)
        to_weight = tl.zeros([D], dtype=tl.float32)
        to_bias = tl.zeros([D], dtype=tl.float32)
    return back, to_weight, to_bias


@triton.jit(do_not_specialize=["num_rows", "num_boundary", "least"])
def update_backward(
    grad,  # [M, D]
    update,
    degree,
    own_weight,
    weight,
    norm_weight,
    norm_bias,
    log_degree,
    grad_update,  # [M, D]
    grad_state,  # [num_sources, D]
    grad_received,  # [S, M, W]
    parts,  # [programs, 3, D] of the gradients of own_bias, norm_weight, norm_bias
    sizes,
    num_rows,
    eps,
    smallest,
    num_boundary,
    least,
    NUM_STREAMS: tl.constexpr,
    SCALERS: tl.constexpr,
    HAS_NORM: tl.constexpr,
    SHORT_CUT: tl.constexpr,
    LEFT_OUT: tl.constexpr,
    BLOCK: tl.constexpr,
    D: tl.constexpr,
    W: tl.constexpr,
    PRECISION: tl.constexpr,
):
    program = tl.program_id(0)
    columns = tl.arange(0, D)
    wide = tl.arange(0, W)
    log_mean = tl.load(log_degree)
    num_sources = tl.load(sizes)
    last_row = tl.load(sizes + 1)
    to_bias = tl.zeros([D], dtype=tl.float32)
    to_norm_weight = tl.zeros([D], dtype=tl.float32)
    to_norm_bias = tl.zeros([D], dtype=tl.float32)
    block = program
    while block * BLOCK < last_row:
        rows = (block * BLOCK + tl.arange(0, BLOCK)).to(tl.int64)
        row_ok = (rows < last_row)[:, None]
        place = rows[:, None] * D + columns[None, :]
        passed = tl.load(grad + place, mask=row_ok, other=0.0).to(tl.float32)
        total = tl.load(update + place, mask=row_ok, other=0.0)
        back, to_this_weight, to_this_bias = _before_norm(
            passed, total, row_ok, norm_weight, norm_bias, columns, eps, HAS_NORM, D
        )
        to_norm_weight += to_this_weight
        to_norm_bias += to_this_bias
        to_bias += tl.sum(back, axis=0)
        tl.store(grad_update + place, back, mask=row_ok)
        to_state = tl.dot(  # a weight [out, in], as it lies
            back, tl.load(own_weight + columns[:, None] * D + columns[None, :]), input_precision=PRECISION
        )
        if SHORT_CUT:
            to_state += passed
        tl.store(grad_state + place, to_state, mask=row_ok & (rows < num_sources)[:, None])
        for stream in range(NUM_STREAMS):
            stream_rows = rows + stream * num_rows
            matrix = weight + stream * SCALERS * D * W + columns[:, None] * W + wide[None, :]
            part = tl.dot(back, tl.load(matrix), input_precision=PRECISION)
            degrees = tl.load(degree + stream_rows, mask=rows < last_row, other=1)
            wanted = row_ok
            if LEFT_OUT:
                wanted = row_ok & _is_written(degrees, rows, num_boundary, least)[:, None]
            if SCALERS == 3:
                scale, inverse_scale = _scale_of(degrees, log_mean, smallest)
                part = tl.dot(back * scale[:, None], tl.load(matrix + D * W), part, input_precision=PRECISION)
                part = tl.dot(
                    back * inverse_scale[:, None],
                    tl.load(matrix + 2 * D * W),
                    part,
                    input_precision=PRECISION,
                )
            tl.store(grad_received + stream_rows[:, None] * W + wide[None, :], part, mask=wanted)
        block += tl.num_programs(0)
    goal = parts + program * 3 * D + columns
    tl.store(goal, to_bias)
    tl.store(goal + D, to_norm_weight)
    tl.store(goal + 2 * D, to_norm_bias)


@triton.jit(do_not_specialize=["num_rows", "num_boundary", "least"])
def update_weights(
    grad_update,  # [M, D]
    state,  # [num_sources, D]
    received,  # [S, M, W]
    degree,
    log_degree,
    parts,  # [programs, width]: own_weight [D, D], weight [S, SCALERS * D, W]
    sizes,
    num_rows,
    part_width,
    smallest,
    num_boundary,
    least,
    deviation,
    NUM_STREAMS: tl.constexpr,
    SCALERS: tl.constexpr,
    LEFT_OUT: tl.constexpr,
    AT_STD: tl.constexpr,
    BLOCK: tl.constexpr,
    D: tl.constexpr,
    W: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Part of a sum over rows for one stream, or for the state: transposed gradients times what was read."""
    program = tl.program_id(0)
    stream = tl.program_id(1)
    columns = tl.arange(0, D)
    wide = tl.arange(0, W)
    log_mean = tl.load(log_degree)
    goal = parts + program.to(tl.int64) * part_width
    block = program
    if stream == NUM_STREAMS:
        last_row = tl.load(sizes)
        own = tl.zeros([D, D], dtype=tl.float32)
        while block * BLOCK < last_row:
            rows = (block * BLOCK + tl.arange(0, BLOCK)).to(tl.int64)
            row_ok = (rows < last_row)[:, None]
            place = rows[:, None] * D + columns[None, :]
            back = tl.load(grad_update + place, mask=row_ok, other=0.0)
            before = tl.load(state + place, mask=row_ok, other=0.0).to(tl.float32)
            own = tl.dot(tl.trans(back), before, own, input_precision=PRECISION)
            block += tl.num_programs(0)
        tl.store(goal + columns[:, None] * D + columns[None, :], own)
    else:
        last_row = tl.load(sizes + 1)
        plain = tl.zeros([D, W], dtype=tl.float32)
        amplified = tl.zeros([D, W], dtype=tl.float32)
        damped = tl.zeros([D, W], dtype=tl.float32)
        while block * BLOCK < last_row:
            rows = (block * BLOCK + tl.arange(0, BLOCK)).to(tl.int64)
            row_ok = (rows < last_row)[:, None]
            stream_rows = rows + stream.to(tl.int64) * num_rows
            back = tl.load(grad_update + rows[:, None] * D + columns[None, :], mask=row_ok, other=0.0)
            at_part = received + stream_rows[:, None] * W + wide[None, :]
            degrees = tl.load(degree + stream_rows, mask=rows < last_row, other=1)
            if LEFT_OUT:
                written = _is_written(degrees, rows, num_boundary, least)[:, None]
                empty = _unwritten(wide, deviation, AT_STD, D)
                part = tl.where(written, tl.load(at_part, mask=row_ok & written, other=0.0), empty)
            else:
                part = tl.load(at_part, mask=row_ok, other=0.0)
            plain = tl.dot(tl.trans(back), part, plain, input_precision=PRECISION)
            if SCALERS == 3:
                scale, inverse = _scale_of(degrees, log_mean, smallest)
                amplified = tl.dot(
                    tl.trans(back * scale[:, None]), part, amplified, input_precision=PRECISION
                )
                damped = tl.dot(tl.trans(back * inverse[:, None]), part, damped, input_precision=PRECISION)
            block += tl.num_programs(0)
        place = goal + D * D + stream * SCALERS * D * W + columns[:, None] * W + wide[None, :]
        tl.store(place, plain)
        if SCALERS == 3:
            tl.store(place + D * W, amplified)
            tl.store(place + 2 * D * W, damped)


@triton.jit(do_not_specialize=["num_rows", "num_boundary", "least"])
def update_backward_merged(
    grad,  # [M, D]
    update,  # [M, D]
    state,  # [num_sources, D]
    received,  # [S, M, W]
    degree,  # [S, M]
    own_weight,
    weight,  # [S, SCALERS * D, W]
    norm_weight,
    norm_bias,
    log_degree,
    grad_state,  # [num_sources, D]
    grad_received,  # [S, M, W]
    parts,  # [programs, width]: own_bias, norm_weight, norm_bias [3, D], own_weight [D, D], weight [S, SCALERS * D, W]
    sizes,
    num_rows,
    part_width,
    eps,
    smallest,
    num_boundary,
    least,
    deviation,
    SCALERS: tl.constexpr,
    HAS_NORM: tl.constexpr,
    SHORT_CUT: tl.constexpr,
    LEFT_OUT: tl.constexpr,
    AT_STD: tl.constexpr,
    BLOCK: tl.constexpr,
    STAGES: tl.constexpr,
    SHARES: tl.constexpr,
    D: tl.constexpr,
    W: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Program (p, c): every so many-th block of rows, for the c-th share of the columns [S, W] of what was received.

    The first share also does what belongs to no stream. Weights stay in shared memory, their gradients in registers:
    shares are for these to fit.
    """
    program = tl.program_id(0)
    stream = tl.program_id(1) // SHARES
    is_first = tl.program_id(1) == 0
    columns = tl.arange(0, D)
    wide = tl.program_id(1) % SHARES * (W // SHARES) + tl.arange(0, W // SHARES)
    log_mean = tl.load(log_degree)
    num_sources = tl.load(sizes)
    last_row = tl.load(sizes + 1)
    empty = _unwritten(wide, deviation, AT_STD, D)
    matrix = weight + stream * SCALERS * D * W + columns[:, None] * W + wide[None, :]
    direct = tl.load(own_weight + columns[:, None] * D + columns[None, :])
    of_plain = tl.load(matrix)
    of_amplified = of_plain
    of_damped = of_plain
    if SCALERS == 3:
        of_amplified = tl.load(matrix + D * W)
        of_damped = tl.load(matrix + 2 * D * W)
    to_bias = tl.zeros([D], dtype=tl.float32)
    to_norm_weight = tl.zeros([D], dtype=tl.float32)
    to_norm_bias = tl.zeros([D], dtype=tl.float32)
    own = tl.zeros([D, D], dtype=tl.float32)
    plain = tl.zeros([D, W // SHARES], dtype=tl.float32)
    amplified = tl.zeros([D, W // SHARES], dtype=tl.float32)
    damped = tl.zeros([D, W // SHARES], dtype=tl.float32)
    num_blocks = tl.cdiv(last_row, BLOCK).to(tl.int32)
    for block in tl.range(program, num_blocks, tl.num_programs(0), num_stages=STAGES):
        rows = (block * BLOCK + tl.arange(0, BLOCK)).to(tl.int64)
        row_ok = (rows < last_row)[:, None]
        place = rows[:, None] * D + columns[None, :]
        stream_rows = rows + stream.to(tl.int64) * num_rows
        at_part = stream_rows[:, None] * W + wide[None, :]
        passed = tl.load(grad + place, mask=row_ok, other=0.0).to(tl.float32)
        total = tl.load(update + place, mask=row_ok, other=0.0)
        degrees = tl.load(degree + stream_rows, mask=rows < last_row, other=1)
        written = row_ok
        if LEFT_OUT:
            written = row_ok & _is_written(degrees, rows, num_boundary, least)[:, None]
        part = tl.load(received + at_part, mask=written, other=0.0)
        if LEFT_OUT:
            part = tl.where(written, part, empty)
        back, to_this_weight, to_this_bias = _before_norm(
            passed, total, row_ok, norm_weight, norm_bias, columns, eps, HAS_NORM, D
        )
        if is_first:
            to_norm_weight += to_this_weight
            to_norm_bias += to_this_bias
            to_bias += tl.sum(back, axis=0)
            from_state = row_ok & (rows < num_sources)[:, None]
            before = tl.load(state + place, mask=from_state, other=0.0).to(tl.float32)
            own = tl.dot(tl.trans(back), before, own, input_precision=PRECISION)
            to_state = tl.dot(back, direct, input_precision=PRECISION)
            if SHORT_CUT:
                to_state += passed
            tl.store(grad_state + place, to_state, mask=from_state)
        to_part = tl.dot(back, of_plain, input_precision=PRECISION)
        plain = tl.dot(tl.trans(back), part, plain, input_precision=PRECISION)
        if SCALERS == 3:
            scale, inverse = _scale_of(degrees, log_mean, smallest)
            scaled = back * scale[:, None]
            to_part = tl.dot(scaled, of_amplified, to_part, input_precision=PRECISION)
            amplified = tl.dot(tl.trans(scaled), part, amplified, input_precision=PRECISION)
            scaled = back * inverse[:, None]
            to_part = tl.dot(scaled, of_damped, to_part, input_precision=PRECISION)
            damped = tl.dot(tl.trans(scaled), part, damped, input_precision=PRECISION)
        tl.store(grad_received + at_part, to_part, mask=written)
    goal = parts + program.to(tl.int64) * part_width
    if is_first:
        tl.store(goal + columns, to_bias)
        tl.store(goal + D + columns, to_norm_weight)
        tl.store(goal + 2 * D + columns, to_norm_bias)
        tl.store(goal + 3 * D + columns[:, None] * D + columns[None, :], own)
    goal += 3 * D + D * D + stream * SCALERS * D * W
    at_matrix = goal + columns[:, None] * W + wide[None, :]
    tl.store(at_matrix, plain)
    if SCALERS == 3:
        tl.store(at_matrix + D * W, amplified)
        tl.store(at_matrix + 2 * D * W, damped)
