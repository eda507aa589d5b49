"""A time step of a simple cell as one kernel: the product, and all that follows from it.

A recurrent product of a hundred streams takes a GPU a few microseconds, and the launch of what is
done with it half as long again. Here a program has a tile of the product in its registers and goes
on with it: activation, slope, what the next step multiplies; on the way back the gradient.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from blackout.ops.triton.cells import SIMPLE, activation, slope
from blackout.ops.triton.launch import launch, tiles


class Tile(NamedTuple):
    """What a program computes, and how."""

    streams: int
    units: int
    depth: int  # of the pieces in which it goes through the product
    stages: int  # pieces under way at once
    warps: int


@triton.jit
def _product(
    left, right, stream, unit, streams, size, stride_unit, stride_depth,
    EVEN: tl.constexpr, STREAMS: tl.constexpr, UNITS: tl.constexpr, DEPTH: tl.constexpr,
    PIECES: tl.constexpr,
):  # fmt: skip
    """A tile (STREAMS, UNITS) of left (streams, size) times a matrix; places outside are any."""
    k = tl.arange(0, DEPTH)
    row = (stream % streams)[:, None] * size
    column = (unit % size)[None, :] * stride_unit
    total = tl.zeros([STREAMS, UNITS], tl.float32)
    for piece in range(PIECES):
        depth = piece * DEPTH + k
        if EVEN:
            a = tl.load(left + row + depth[None, :])
            b = tl.load(right + column + depth[:, None] * stride_depth)
        else:
            inside = depth < size
            a = tl.load(left + row + depth[None, :], mask=inside[None, :], other=0.0)
            place = column + depth[:, None] * stride_depth
            b = tl.load(right + place, mask=inside[:, None], other=0.0)
        total = tl.dot(a, b, total, input_precision="ieee")
    return total


@triton.jit
def _forward(
    operand, matrix, inputs, words, keep_next, outputs, slopes, operand_next, length, streams, size,
    CELL: tl.constexpr, LOOKUP: tl.constexpr, WITH_KEEP: tl.constexpr, NEXT: tl.constexpr,
    EVEN: tl.constexpr, STREAMS: tl.constexpr, UNITS: tl.constexpr, DEPTH: tl.constexpr,
    PIECES: tl.constexpr,
):  # fmt: skip
    """s = f(x + W s_before), as :func:`blackout.ops.triton.cells.simple_forward` goes on."""
    stream = tl.program_id(1) * STREAMS + tl.arange(0, STREAMS)
    unit = tl.program_id(0) * UNITS + tl.arange(0, UNITS)
    there = (stream < streams)[:, None] & (unit < size)[None, :]
    row, known = stream.to(tl.int64), stream < streams
    if LOOKUP:
        row = tl.load(words + stream, mask=known, other=0).to(tl.int64)
        known = known & (row >= 0) & (row < length)
    place = inputs + row[:, None] * size + unit[None, :]
    x = tl.load(place, mask=there & known[:, None], other=float("nan")).to(tl.float32)
    x += _product(
        operand, matrix, stream, unit, streams, size, size, 1,
        EVEN, STREAMS, UNITS, DEPTH, PIECES,
    )  # fmt: skip
    s = activation(x, CELL)
    place = stream[:, None] * size + unit[None, :]
    tl.store(slopes + place, slope(s, CELL).to(slopes.dtype.element_ty), mask=there)
    tl.store(outputs + place, s.to(outputs.dtype.element_ty), mask=there)
    if NEXT:
        if WITH_KEEP:
            s *= tl.load(keep_next + stream, mask=stream < streams).to(tl.float32)[:, None]
        tl.store(operand_next + place, s.to(operand_next.dtype.element_ty), mask=there)


@triton.jit
def _backward(
    delta_next, matrix, grad, keep_next, slopes, delta, targets, table, d_target, length, streams,
    size, WITH_TARGETS: tl.constexpr, WITH_KEEP: tl.constexpr,
    EVEN: tl.constexpr, STREAMS: tl.constexpr, UNITS: tl.constexpr, DEPTH: tl.constexpr,
    PIECES: tl.constexpr,
):  # fmt: skip
    """As :func:`blackout.ops.triton.cells.simple_backward` of a step that is not the last."""
    stream = tl.program_id(1) * STREAMS + tl.arange(0, STREAMS)
    unit = tl.program_id(0) * UNITS + tl.arange(0, UNITS)
    within = stream < streams
    there = within[:, None] & (unit < size)[None, :]
    place = stream[:, None] * size + unit[None, :]
    d = tl.load(grad + place, mask=there, other=0.0).to(tl.float32)
    steep = tl.load(slopes + place, mask=there, other=0.0).to(tl.float32)
    if WITH_TARGETS:
        y = tl.load(targets + stream, mask=within, other=0).to(tl.int64)
        known = there & ((y >= 0) & (y < length))[:, None]
        row = tl.load(table + y[:, None] * size + unit[None, :], mask=known, other=0.0)
        factor = tl.load(d_target + stream, mask=within, other=0.0)
        d += factor[:, None] * row.to(tl.float32)
    back = _product(
        delta_next, matrix, stream, unit, streams, size, 1, size,
        EVEN, STREAMS, UNITS, DEPTH, PIECES,
    )  # fmt: skip
    if WITH_KEEP:
        back *= tl.load(keep_next + stream, mask=within).to(tl.float32)[:, None]
    tl.store(delta + place, ((d + back) * steep).to(delta.dtype.element_ty), mask=there)


def tile_of(streams: int, matrix: Tensor) -> Tile | None:
    """How a step of so many streams is divided; None where the product is better alone."""
    size = len(matrix)
    on_units = matrix.is_cuda and matrix.dtype == torch.bfloat16
    if not on_units or streams > 256 or size > 2048 or size % 8:
        return None
    units = 32 if size > 1024 else 16
    return Tile(64 if streams > 32 else 16, units, 128 if size % 128 == 0 else 64, 4, 4)


def step_forward(
    cell: str,
    operand: Tensor,
    matrix: Tensor,
    inputs: Tensor,
    words: Tensor | None,
    keep_next: Tensor | None,
    outputs: Tensor,
    slopes: Tensor,
    operand_next: Tensor | None,
    tile: Tile,
) -> None:
    """Fills ``outputs``, ``slopes`` and, where there is a next step, ``operand_next`` (B, h)."""
    streams, size = operand.shape
    launch(
        _forward,
        (tiles(size, tile.units), tiles(streams, tile.streams)),
        (
            operand, matrix, inputs, operand if words is None else words,
            operand if keep_next is None else keep_next, outputs, slopes,
            outputs if operand_next is None else operand_next,
        ),
        (
            len(inputs), streams, size, SIMPLE[cell], words is not None, keep_next is not None,
            operand_next is not None, size % tile.depth == 0, *tile[:3], tiles(size, tile.depth),
        ),
        num_warps=tile.warps, num_stages=tile.stages,
    )  # fmt: skip


def step_backward(
    delta_next: Tensor,
    matrix: Tensor,
    grad: Tensor,
    keep_next: Tensor | None,
    slopes: Tensor,
    delta: Tensor,
    targets: tuple[Tensor, Tensor, Tensor] | None,
    tile: Tile,
) -> None:
    """Fills ``delta`` (B, h) from that of the step after; ``targets``: words, table, d_target."""
    streams, size = delta.shape
    words, table, d_target = (delta, delta, delta) if targets is None else targets
    launch(
        _backward,
        (tiles(size, tile.units), tiles(streams, tile.streams)),
        (
            delta_next, matrix, grad, delta if keep_next is None else keep_next, slopes, delta,
            words, table, d_target,
        ),
        (
            len(table), streams, size, targets is not None, keep_next is not None,
            size % tile.depth == 0, *tile[:3], tiles(size, tile.depth),
        ),
        num_warps=tile.warps, num_stages=tile.stages,
    )  # fmt: skip
