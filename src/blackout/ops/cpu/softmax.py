"""The exact softmax: a tile of the vocabulary for all hidden states, then the next."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from blackout import _native
from blackout.ops.cpu.arrays import buffer, converted, floats, numbers, words_below
from blackout.ops.cpu.tables import lookup
from blackout.ops.cpu.windows import add_windows
from blackout.ops.engine import Windows

_TILE = 2048  # words of the vocabulary whose logits are made together …
_CHUNK = 1024  # … for this many hidden states: the logits stay in cache


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
            torch.mm(part, tile.mT, out=logits)
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
