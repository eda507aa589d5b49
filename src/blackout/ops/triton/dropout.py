"""Dropout as part of a block: what stays is a function of a key and of each number's place.

The bits are those of :func:`blackout.ops.reference.dropout.kept`; they are made where they are
used, on the way there and once more on the way back.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from blackout.ops.reference.dropout import kept_of
from blackout.ops.triton.launch import launch, tiles
from blackout.ops.triton.numbers import GOLDEN, mix64, unsigned

_BLOCK = 1024


@triton.jit
def _drop(values, out, key, numbers, scale, kept, BLOCK: tl.constexpr):
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    there = place < numbers
    bits = mix64(unsigned(place // 4) * GOLDEN + unsigned(tl.load(key)))
    part = (bits >> (16 * (place % 4)).to(tl.uint64)) & 0xFFFF
    factor = tl.where(part.to(tl.int32) < kept, scale, 0.0)
    value = tl.load(values + place, mask=there, other=0.0).to(tl.float32)
    tl.store(out + place, (value * factor).to(out.dtype.element_ty), mask=there)


def drop(values: Tensor, key: Tensor, chance: float) -> Tensor:
    """``values`` without those that are dropped, the others larger; ``key`` () lies there too."""
    out = torch.empty_like(values)
    fixed = values.numel(), 1 / (1 - chance), kept_of(chance), _BLOCK
    launch(_drop, (tiles(values.numel(), _BLOCK),), (values, out, key), fixed)
    return out
