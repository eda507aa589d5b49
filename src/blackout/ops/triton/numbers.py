"""Random bits and careful functions, as parts of kernels.

The bits are those of :mod:`blackout.ops.reference.sampling`: splitmix64 on unsigned numbers here,
the same bit patterns there.
"""

from __future__ import annotations

import triton
import triton.language as tl

GOLDEN = tl.constexpr(0x9E3779B97F4A7C15)
_MIX1 = tl.constexpr(0xBF58476D1CE4E5B9)
_MIX2 = tl.constexpr(0x94D049BB133111EB)


@triton.jit
def mix64(x):
    """The splitmix64 finaliser."""
    x = (x ^ (x >> 30)) * _MIX1
    x = (x ^ (x >> 27)) * _MIX2
    return x ^ (x >> 31)


@triton.jit
def unsigned(x):
    """The bit pattern of a signed number of any width, as 64 bits."""
    return x.to(tl.int64).to(tl.uint64, bitcast=True)


@triton.jit
def whole(given, ON_DEVICE: tl.constexpr):
    """A whole number: the argument itself, or what lies there on the device."""
    value = given
    if ON_DEVICE:
        value = tl.load(given)
    return value.to(tl.int64)


@triton.jit
def real(given, ON_DEVICE: tl.constexpr):
    """Likewise a float32 number."""
    value = given
    if ON_DEVICE:
        value = tl.load(given).to(tl.float32)
    return value


@triton.jit
def log1p(x):
    """log(1 + x) for -1/2 <= x <= 1; near 0, where 1 + x rounds x away, by its series."""
    series = x * (1.0 - x * (0.5 - x * (0.33333334 - x * (0.25 - x * 0.2))))
    return tl.where(tl.abs(x) < 0.01, series, tl.log(1.0 + x))


@triton.jit
def tanh(x):
    return 2.0 * tl.sigmoid(2.0 * x) - 1.0


@triton.jit
def rounded(values, row, group, lane, groups, key):
    """float32 values as bfloat16, up or down at random so that the mean is exact.

    Bits as :func:`blackout.ops.reference.rounded` adds them: a draw for each ``group`` of four
    columns, ``groups`` of them in a row; ``lane`` (0 … 3) is a column's place in its group.
    """
    place = unsigned(row * groups + group + 1)
    noise = (mix64(place * GOLDEN + key) >> (16 * lane).to(tl.uint64)) & 0xFFFF
    pattern = values.to(tl.int32, bitcast=True)
    up = (pattern + noise.to(tl.int32)) & -65536
    finite = (pattern & 0x7F800000) != 0x7F800000
    return tl.where(finite, up.to(tl.float32, bitcast=True), values).to(tl.bfloat16)
