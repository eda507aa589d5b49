"""log of the sum of exp(u) over all words, tile by tile: a matrix product and one pass over it."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from blackout.ops import reference
from blackout.ops.engine import Windows
from blackout.ops.half import half_product
from blackout.ops.triton.launch import block_of, launch, tiles

_WORDS = 8192  # hidden states scored together …
_TILE = 8192  # … against so many words


@triton.jit(do_not_specialize=["start"])
def _add_tile(
    logits, bias, highest, total, start, columns,
    WITH_BIAS: tl.constexpr, PARTS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Takes a tile of logits into a running maximum and the sum of exp(u - maximum)."""
    n = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, BLOCK)
    before = tl.load(highest + n)
    sum_before = tl.load(total + n)
    most = before
    each = tl.zeros([BLOCK], tl.float32)
    for part in range(PARTS):
        column = part * BLOCK + c
        there = column < columns
        u = tl.load(logits + n * columns + column, mask=there, other=float("-inf")).to(tl.float32)
        if WITH_BIAS:
            u += tl.load(bias + start + column, mask=there, other=0.0).to(tl.float32)
        higher = tl.maximum(most, tl.max(u, 0))
        each = each * tl.exp(most - higher) + tl.exp(u - higher)
        most = higher
    tl.store(highest + n, most)
    tl.store(total + n, sum_before * tl.exp(before - most) + tl.sum(each, 0))


def log_partition(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    product_dtype: torch.dtype,
    windows: Windows | None = None,
    first: int = 0,
) -> Tensor:
    """log of the sum of exp(u) over all words, (N,), in bounded memory."""
    if windows is not None:
        return reference.log_partition(hidden, weight, bias, product_dtype, windows, first)
    parts = [_of_some(some, weight, bias, product_dtype) for some in hidden.split(_WORDS)]
    return torch.cat(parts).to(hidden.dtype)


def _of_some(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, product_dtype: torch.dtype
) -> Tensor:
    operand = hidden.to(product_dtype)
    bias = None if bias is None else bias.contiguous()
    words, vocab, device = len(hidden), len(weight), hidden.device
    highest = torch.full((words,), -torch.finfo(torch.float32).max, device=device)
    total = torch.zeros(words, device=device)
    block = block_of(min(vocab, _TILE), 2048)
    for start in range(0, vocab, _TILE):
        rows = weight[start : start + _TILE]
        if product_dtype == torch.bfloat16:
            logits = half_product(operand, rows)
        else:
            logits = torch.mm(operand, rows.to(product_dtype).mT)
        launch(
            _add_tile,
            (words,),
            (logits, logits if bias is None else bias, highest, total, start),
            (len(rows), bias is not None, tiles(len(rows), block), block),
            num_warps=8,
        )
    return highest + total.log()
