"""One time step of a recurrence, all but its matrix product: activations, states, gradients.

Each kernel has a program for a stream and some of its units. ``keep`` (B,) says whether a stream
uses the state before the step; what the next step will multiply is masked here already.
"""

from __future__ import annotations

import triton
import triton.language as tl

from blackout.ops.triton.numbers import tanh

SIMPLE = {"sigmoid": 0, "tanh": 1, "relu": 2}


@triton.jit
def activation(x, CELL: tl.constexpr):
    if CELL == 0:
        value = tl.sigmoid(x)
    elif CELL == 1:
        value = tanh(x)
    else:
        value = tl.maximum(x, 0.0)
    return value


@triton.jit
def slope(s, CELL: tl.constexpr):
    """The derivative of the activation where its value is s."""
    if CELL == 0:
        value = s * (1.0 - s)
    elif CELL == 1:
        value = 1.0 - s * s
    else:
        value = (s > 0).to(tl.float32)
    return value


@triton.jit
def _kept(keep, stream, WITH_KEEP: tl.constexpr):
    value = 1.0
    if WITH_KEEP:
        value = tl.load(keep + stream).to(tl.float32)
    return value


@triton.jit
def simple_forward(
    inputs, words, product, bias, keep_next, outputs, slopes, operand_next, length, size,
    CELL: tl.constexpr, LOOKUP: tl.constexpr, WITH_BIAS: tl.constexpr, WITH_KEEP: tl.constexpr,
    NEXT: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """s = f(x + W s_before); x of the table's row where ``LOOKUP``.

    The slope of f is kept, not found from s on the way back: in 16 bits a saturated s is 1, its
    slope would be 0 and the unit could never leave there.
    """
    stream = tl.program_id(0).to(tl.int64)
    c = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    there = c < size
    place = stream * size + c
    row, known = stream, stream >= 0
    if LOOKUP:
        row = tl.load(words + stream).to(tl.int64)
        known = (row >= 0) & (row < length)
    x = tl.load(inputs + row * size + c, mask=there & known, other=float("nan")).to(tl.float32)
    x += tl.load(product + place, mask=there, other=0.0).to(tl.float32)
    if WITH_BIAS:
        x += tl.load(bias + c, mask=there, other=0.0)
    s = activation(x, CELL)
    tl.store(slopes + place, slope(s, CELL).to(slopes.dtype.element_ty), mask=there)
    tl.store(outputs + place, s.to(outputs.dtype.element_ty), mask=there)
    if NEXT:
        s *= _kept(keep_next, stream, WITH_KEEP)
        tl.store(operand_next + place, s.to(operand_next.dtype.element_ty), mask=there)


@triton.jit
def simple_backward(
    grad, back, keep_next, slopes, delta, targets, table, d_target, length, size,
    WITH_TARGETS: tl.constexpr, WITH_KEEP: tl.constexpr, LAST: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """``back``: the gradient by the operand of the step after this one."""
    stream = tl.program_id(0).to(tl.int64)
    c = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    there = c < size
    place = stream * size + c
    d = tl.load(grad + place, mask=there, other=0.0).to(tl.float32)
    if WITH_TARGETS:
        y = tl.load(targets + stream).to(tl.int64)
        known = there & (y >= 0) & (y < length)
        row = tl.load(table + y * size + c, mask=known, other=0.0).to(tl.float32)
        d += tl.load(d_target + stream) * row
    if not LAST:
        kept = _kept(keep_next, stream, WITH_KEEP)
        d += kept * tl.load(back + place, mask=there, other=0.0).to(tl.float32)
    slope = tl.load(slopes + place, mask=there, other=0.0).to(tl.float32)
    tl.store(delta + place, (d * slope).to(delta.dtype.element_ty), mask=there)


@triton.jit
def _gate(inputs, product, bias, stream, c, there, size, GATE, GATES, WITH_BIAS: tl.constexpr):
    """x + W s + b of one gate."""
    place = stream * GATES * size + GATE * size + c
    x = tl.load(inputs + place, mask=there, other=0.0).to(tl.float32)
    x += tl.load(product + place, mask=there, other=0.0).to(tl.float32)
    if WITH_BIAS:
        x += tl.load(bias + GATE * size + c, mask=there, other=0.0)
    return x


@triton.jit
def lstm_forward(
    inputs, product, bias, keep_next, before, gates, inner, outputs, operand_next, before_next,
    size, WITH_BIAS: tl.constexpr, WITH_KEEP: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """c = f c_before + i g and s = o tanh(c); the last step's ``before_next`` are the cells."""
    stream = tl.program_id(0).to(tl.int64)
    c = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    there = c < size
    place = stream * size + c
    i = tl.sigmoid(_gate(inputs, product, bias, stream, c, there, size, 0, 4, WITH_BIAS))
    f = tl.sigmoid(_gate(inputs, product, bias, stream, c, there, size, 1, 4, WITH_BIAS))
    g = tanh(_gate(inputs, product, bias, stream, c, there, size, 2, 4, WITH_BIAS))
    o = tl.sigmoid(_gate(inputs, product, bias, stream, c, there, size, 3, 4, WITH_BIAS))
    cell = f * tl.load(before + place, mask=there, other=0.0) + i * g
    squashed = tanh(cell)
    s = o * squashed
    quad = stream * 4 * size + c
    kind = gates.dtype.element_ty
    tl.store(gates + quad, i.to(kind), mask=there)
    tl.store(gates + quad + size, f.to(kind), mask=there)
    tl.store(gates + quad + 2 * size, g.to(kind), mask=there)
    tl.store(gates + quad + 3 * size, o.to(kind), mask=there)
    tl.store(inner + place, squashed, mask=there)
    tl.store(outputs + place, s.to(outputs.dtype.element_ty), mask=there)
    kept = _kept(keep_next, stream, WITH_KEEP)
    tl.store(before_next + place, kept * cell, mask=there)
    tl.store(operand_next + place, (kept * s).to(operand_next.dtype.element_ty), mask=there)


@triton.jit
def lstm_backward(
    grad, back, carry, keep_next, gates, before, inner, delta, size,
    WITH_KEEP: tl.constexpr, LAST: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """``carry``: the gradient by the cells that the step after began with, then by those before."""
    stream = tl.program_id(0).to(tl.int64)
    c = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    there = c < size
    place = stream * size + c
    quad = stream * 4 * size + c
    i = tl.load(gates + quad, mask=there, other=0.0).to(tl.float32)
    f = tl.load(gates + quad + size, mask=there, other=0.0).to(tl.float32)
    g = tl.load(gates + quad + 2 * size, mask=there, other=0.0).to(tl.float32)
    o = tl.load(gates + quad + 3 * size, mask=there, other=0.0).to(tl.float32)
    squashed = tl.load(inner + place, mask=there, other=0.0)
    d = tl.load(grad + place, mask=there, other=0.0).to(tl.float32)
    d_later = tl.zeros([BLOCK], tl.float32)
    if not LAST:
        kept = _kept(keep_next, stream, WITH_KEEP)
        d += kept * tl.load(back + place, mask=there, other=0.0).to(tl.float32)
        d_later = kept * tl.load(carry + place, mask=there, other=0.0)
    d_cell = d * o * (1.0 - squashed * squashed) + d_later
    kind = delta.dtype.element_ty
    earlier = tl.load(before + place, mask=there, other=0.0)
    tl.store(delta + quad, (d_cell * g * (i * (1.0 - i))).to(kind), mask=there)
    tl.store(delta + quad + size, (d_cell * earlier * (f * (1.0 - f))).to(kind), mask=there)
    tl.store(delta + quad + 2 * size, (d_cell * i * (1.0 - g * g)).to(kind), mask=there)
    tl.store(delta + quad + 3 * size, (d * squashed * (o * (1.0 - o))).to(kind), mask=there)
    tl.store(carry + place, d_cell * f, mask=there)


@triton.jit
def gru_forward(
    inputs, product, bias, keep_next, before, gates, inner, outputs, operand_next, before_next,
    size, WITH_BIAS: tl.constexpr, WITH_KEEP: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """s = (1 - z) n + z s_before, with n = tanh(x_n + r (W_n s_before + b_n))."""
    stream = tl.program_id(0).to(tl.int64)
    c = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    there = c < size
    place = stream * size + c
    triple = stream * 3 * size + c
    r = tl.sigmoid(_gate(inputs, product, bias, stream, c, there, size, 0, 3, WITH_BIAS))
    z = tl.sigmoid(_gate(inputs, product, bias, stream, c, there, size, 1, 3, WITH_BIAS))
    candidate = tl.load(product + triple + 2 * size, mask=there, other=0.0).to(tl.float32)
    if WITH_BIAS:
        candidate += tl.load(bias + 2 * size + c, mask=there, other=0.0)
    x_n = tl.load(inputs + triple + 2 * size, mask=there, other=0.0).to(tl.float32)
    n = tanh(x_n + r * candidate)
    s = (1.0 - z) * n + z * tl.load(before + place, mask=there, other=0.0)
    kind = gates.dtype.element_ty
    tl.store(gates + triple, r.to(kind), mask=there)
    tl.store(gates + triple + size, z.to(kind), mask=there)
    tl.store(gates + triple + 2 * size, n.to(kind), mask=there)
    tl.store(inner + place, candidate, mask=there)
    tl.store(outputs + place, s.to(outputs.dtype.element_ty), mask=there)
    kept = _kept(keep_next, stream, WITH_KEEP)
    tl.store(before_next + place, kept * s, mask=there)
    tl.store(operand_next + place, (kept * s).to(operand_next.dtype.element_ty), mask=there)


@triton.jit
def gru_backward(
    grad, back, carry, keep_next, gates, before, inner, delta, d_product, size,
    WITH_KEEP: tl.constexpr, LAST: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """``carry``: what reaches the state before besides the product, then of the step before."""
    stream = tl.program_id(0).to(tl.int64)
    c = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    there = c < size
    place = stream * size + c
    triple = stream * 3 * size + c
    r = tl.load(gates + triple, mask=there, other=0.0).to(tl.float32)
    z = tl.load(gates + triple + size, mask=there, other=0.0).to(tl.float32)
    n = tl.load(gates + triple + 2 * size, mask=there, other=0.0).to(tl.float32)
    candidate = tl.load(inner + place, mask=there, other=0.0)
    d = tl.load(grad + place, mask=there, other=0.0).to(tl.float32)
    if not LAST:
        later = tl.load(back + place, mask=there, other=0.0).to(tl.float32)
        later += tl.load(carry + place, mask=there, other=0.0)
        d += _kept(keep_next, stream, WITH_KEEP) * later
    earlier = tl.load(before + place, mask=there, other=0.0)
    d_n = d * (1.0 - z) * (1.0 - n * n)
    d_r = d_n * candidate * (r * (1.0 - r))
    d_z = d * (earlier - n) * (z * (1.0 - z))
    kind = delta.dtype.element_ty
    tl.store(delta + triple, d_r.to(kind), mask=there)
    tl.store(delta + triple + size, d_z.to(kind), mask=there)
    tl.store(delta + triple + 2 * size, d_n.to(kind), mask=there)
    kind = d_product.dtype.element_ty
    tl.store(d_product + triple, d_r.to(kind), mask=there)
    tl.store(d_product + triple + size, d_z.to(kind), mask=there)
    tl.store(d_product + triple + 2 * size, (d_n * r).to(kind), mask=there)
    tl.store(carry + place, d * z, mask=there)
