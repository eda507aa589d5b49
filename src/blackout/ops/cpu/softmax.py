"""The exact softmax: a tile of the vocabulary for all hidden states, then the next.

Training keeps exp(u - m) of each tile, m the largest logit of a state in it. The way back then
needs no exponentials and no pass over the logits: the derivative of log p(i) by u_w is

    [w = i] - exp(u_w - m) exp(m - log sum_v exp(u_v)),

whose second factor, one number for a state and a tile, is multiplied into the states instead.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from blackout import _native
from blackout.ops import reference
from blackout.ops.cpu.arrays import buffer, converted, floats, numbers, words_below
from blackout.ops.cpu.products import matrix_product
from blackout.ops.cpu.tables import lookup
from blackout.ops.cpu.windows import add_windows
from blackout.ops.engine import Saved, SoftmaxGradients, Windows

_TILE = 2048  # words of the vocabulary whose logits are made together …
_CHUNK = 1024  # … for this many hidden states: the logits stay in cache
_TRAINED = 1 << 20  # logits that training makes together, at least …
_COLUMNS = 256  # … of so many words


class SoftmaxSaved(NamedTuple):
    """What the backward pass needs."""

    hidden: Tensor  # (N, h)
    weight: Tensor  # (V, h)
    bias: Tensor | None  # (V,)
    powers: Tensor  # (N V,): exp(u - peak), tile after tile
    peak: Tensor  # (tiles, N)
    partition: Tensor  # (N,)


def softmax_forward(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    target: Tensor,
    product_dtype: torch.dtype,
    added: Tensor | None = None,
) -> tuple[Tensor, Saved]:
    """log p(target | hidden) (N,), and what :func:`softmax_backward` needs."""
    types = {product_dtype, hidden.dtype, weight.dtype}
    if added is not None or types != {torch.float32} or not len(hidden):
        return reference.softmax_forward(hidden, weight, bias, target, product_dtype, added)
    powers = buffer((len(hidden) * len(weight),), torch.float32)
    peaks, sums = [], []
    for rows, tile in _tiles(powers, len(hidden), len(weight)):
        vectors = weight[rows].mT
        matrix_product(hidden, vectors, tile)
        if bias is not None:
            tile += bias[rows]
        peak = tile.amax(1).clamp_(min=torch.finfo(torch.float32).min)  # of a tile of -inf too
        sums.append(tile.sub_(peak[:, None]).exp_().sum(1))
        peaks.append(peak)
    peak = torch.stack(peaks)
    partition = (peak + torch.stack(sums).log_()).logsumexp(0)
    value = target_logit(hidden, weight, bias, target) - partition
    return value, SoftmaxSaved(hidden, weight, bias, powers, peak, partition)


def softmax_backward(saved: Saved, target: Tensor, grad: Tensor) -> SoftmaxGradients:
    """The gradients of sum(grad * log p)."""
    if not isinstance(saved, SoftmaxSaved):
        return reference.softmax_backward(saved, target, grad)
    hidden, weight, bias, powers, peak, partition = saved
    factors = (peak - partition).exp_().mul_(-grad)  # (tiles, N)
    own, d_hidden = grad[:, None], weight[target].mul_(grad[:, None])
    d_weight, d_bias = torch.empty_like(weight), None if bias is None else torch.empty_like(bias)
    for (rows, tile), factor in zip(_tiles(powers, len(hidden), len(weight)), factors, strict=True):
        d_hidden.addcmul_(matrix_product(tile, weight[rows]), factor[:, None])
        matrix_product(tile.mT, hidden * factor[:, None], d_weight[rows])
        if d_bias is not None:
            d_bias[rows] = torch.mv(tile.mT, factor)
    d_weight.index_add_(0, target, hidden * own)
    if d_bias is not None:
        d_bias.index_add_(0, target, grad.to(d_bias.dtype))
    return SoftmaxGradients(d_hidden, d_weight, d_bias, None)


def _tiles(logits: Tensor, states: int, words: int) -> Iterator[tuple[slice, Tensor]]:
    """The words of each tile, and its part (states, n) of an array of that many logits."""
    width = max(_COLUMNS, _TRAINED // states)
    for first in range(0, words, width):
        n = min(width, words - first)
        part = logits[first * states : (first + n) * states]
        yield slice(first, first + n), part.view(states, n)


def target_logit(hidden: Tensor, weight: Tensor, bias: Tensor | None, target: Tensor) -> Tensor:
    """u of each target, (N,)."""
    states = converted(hidden, torch.float32)
    target = words_below(target, len(weight), "target")
    logit = (states * lookup(weight, target, torch.float32)).sum(1)
    return logit if bias is None else logit + bias[target]


def log_partition(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    product_dtype: torch.dtype,
    windows: Windows | None = None,
    first: int = 0,
) -> Tensor:
    """log of the sum of exp(u) over all words, (N,): a tile is converted once for all states."""
    states = converted(hidden, torch.float32)
    operand, threads = converted(states, product_dtype), torch.get_num_threads()
    biases = None if bias is None else converted(bias, torch.float32)
    maximum, total = states.new_full((len(states),), -math.inf), states.new_zeros(len(states))
    space = buffer((min(_CHUNK, len(states)) * _TILE,), product_dtype)
    for start in range(0, len(weight), _TILE):
        tile = converted(weight[start : start + _TILE], product_dtype)
        tile_bias = 0 if biases is None else floats(biases[start:])
        for begin in range(0, len(states), _CHUNK):
            part = operand[begin : begin + _CHUNK]
            logits = space[: len(part) * len(tile)].view(len(part), len(tile))
            matrix_product(part, tile.mT, logits)
            if windows is not None:
                logits = converted(logits, torch.float32)
                add_windows(logits, windows.of(slice(begin, begin + _CHUNK)), first + start)
            _native.log_sum(
                *numbers(logits),
                *logits.shape,
                tile_bias,
                floats(maximum[begin:]),
                floats(total[begin:]),
                threads,
            )
    return maximum + total.log()
