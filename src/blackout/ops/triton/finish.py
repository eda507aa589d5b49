"""The end of a block's gradients: their norm, the factor of clipping, and the loss."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from blackout.ops.triton.launch import launch, tiles

_BLOCK = 4096


@triton.jit
def _finish(
    squares, values, divisor, clip, factor, outcomes, slot, slots, words,
    SQUARES: tl.constexpr, WORDS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One program, so that everything is added in one order."""
    k = tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], tl.float64)
    for part in range(SQUARES):
        place = part * BLOCK + k
        total += tl.load(squares + place, mask=place < slots, other=0.0).to(tl.float64)
    value = tl.zeros([BLOCK], tl.float64)
    for part in range(WORDS):
        place = part * BLOCK + k
        value += tl.load(values + place, mask=place < words, other=0.0).to(tl.float64)
    count = tl.load(divisor)
    most = tl.load(clip)
    norm = tl.sqrt(tl.sum(total, 0)) / count
    limit = tl.where(norm > most, most / norm, 1.0)
    limit = tl.where(most > 0, limit, 1.0)
    limit = tl.where(norm == norm, limit, norm)  # a NaN is not hidden
    tl.store(factor, (-limit / count).to(tl.float32))
    place = outcomes + 2 * tl.load(slot)
    tl.store(place, -tl.sum(value, 0) / count)
    tl.store(place + 1, tl.where(most > 0, norm, 0.0))


def finish(
    squares: Tensor,
    values: Tensor,
    divisor: Tensor,
    clip: Tensor,
    factor: Tensor,
    outcomes: Tensor,
    slot: Tensor,
) -> None:
    """Fills ``factor`` (1,) and row ``slot`` of ``outcomes`` (n, 2): loss and norm, float64.

    ``squares``: partial sums of the squares of all gradients of sum(J); ``values``: J. The loss is
    -sum(J) / divisor; ``factor`` is what makes the clipped gradient of the loss out of that of J.
    ``divisor`` and ``clip`` () are float64.
    """
    slots, words = len(squares), values.numel()
    launch(
        _finish,
        (1,),
        (squares, values, divisor, clip, factor, outcomes, slot),
        (slots, words, tiles(slots, _BLOCK), tiles(words, _BLOCK), _BLOCK),
        num_warps=16,
    )
