"""What layers give: objectives and their loss, the best classes, columns of tiles."""

from __future__ import annotations

from collections.abc import Iterable
from operator import index
from typing import Literal, NamedTuple, SupportsIndex

import torch
from torch import Tensor

from blackout.errors import UserError
from blackout.ops.engine import Scalar
from blackout.output.targets import require_tensor

Reduction = Literal["mean", "sum", "none"]


class OutputWithLoss(NamedTuple):
    """``output``: the objective of each example, shaped like the target; ``loss``: a scalar.

    With reduction "none" the loss has the shape of the target too.
    """

    output: Tensor
    loss: Tensor


class TopK(NamedTuple):
    """The most probable classes (..., k), the best first, like ``torch.topk``."""

    values: Tensor
    indices: Tensor


def reduced(
    output: Tensor,
    mask: Tensor | None,
    weights: Tensor | None,
    divisor: Scalar | None,
    reduction: Reduction,
) -> OutputWithLoss:
    """The objectives and their loss; those that do not count are 0.

    A mean over nothing is 0, as is its gradient: a batch without examples teaches nothing.
    """
    if mask is not None:
        output = output.masked_fill(~mask, 0)
    weighted, counted = output, mask
    if weights is not None:
        counted = _checked_weights(weights, output)
        if mask is not None:
            counted = counted.masked_fill(~mask, 0)
        weighted = output * counted
    if reduction == "none":
        return OutputWithLoss(output, -weighted)
    if reduction == "sum":
        return OutputWithLoss(output, -weighted.sum())
    if divisor is None:
        if counted is None:
            divisor = max(output.numel(), 1)
        else:
            divisor = counted.sum()
            divisor = torch.where(divisor == 0, 1, divisor)
    return OutputWithLoss(output, weighted.sum() / -divisor)


def _checked_weights(weights: Tensor, output: Tensor) -> Tensor:
    require_tensor("weights", weights)
    if weights.shape != output.shape:
        raise UserError(f"weights {tuple(weights.shape)} must be target {tuple(output.shape)}")
    if weights.device != output.device:
        raise UserError(f"weights is on {weights.device}, hidden on {output.device}")
    return weights.to(output.dtype)


def columns_of_tiles(tiles: Iterable[tuple[int, Tensor]], columns: Tensor) -> Tensor:
    """Some columns (N, n), those of each row, of tiles (first column, (N, m))."""
    found: Tensor | None = None
    for first, tile in tiles:
        place = columns - first
        inside = (place >= 0) & (place < tile.shape[1])
        here = tile.gather(1, place.clamp(0, tile.shape[1] - 1))
        found = here if found is None else torch.where(inside, here, found)
    assert found is not None
    return found


def best_of_all(values: Tensor, k: int, classes: Tensor | None) -> TopK:
    """The k largest of values (..., n), the best first; column j is class j, or classes[..., j]."""
    if not 0 <= whole(k) <= values.shape[-1]:
        raise _none_such(k)
    best = values.topk(k, -1)
    if classes is None:
        return TopK(best.values, best.indices)
    return TopK(best.values, classes.expand_as(values).gather(-1, best.indices))


def whole(k: object) -> int:
    """How many classes are asked for."""
    if not isinstance(k, SupportsIndex):
        raise UserError(f"k is {k!r}, must be a whole number")
    return index(k)


def _none_such(k: int) -> UserError:
    return UserError(f"k is {k}, " + ("less than none" if k < 0 else "more than there are classes"))


def best_of_tiles(tiles: Iterable[tuple[int, Tensor]], k: int) -> TopK:
    """The k largest of tiles (first column, (N, n)), the best first."""
    if whole(k) < 0:
        raise _none_such(k)
    best: TopK | None = None
    for first, tile in tiles:
        some = tile.topk(min(k, tile.shape[1]), 1)
        here = TopK(some.values, some.indices + first)
        if best is not None:
            here = TopK(*(torch.cat(pair, 1) for pair in zip(best, here, strict=True)))
            order = here.values.topk(min(k, here.values.shape[1]), 1).indices
            here = TopK(here.values.gather(1, order), here.indices.gather(1, order))
        best = here
    if best is None or best.values.shape[1] < k:
        raise _none_such(k)
    return best
