"""The simple recurrence over a block, and rows of a table."""

from __future__ import annotations

import torch
from torch import Tensor

ACTIVATIONS = {"sigmoid": torch.sigmoid, "tanh": torch.tanh, "relu": torch.relu}


def recurrence(
    inputs: Tensor,
    state: Tensor,
    weight: Tensor,
    keep: Tensor | None,
    activation: str,
    product_dtype: torch.dtype,
) -> Tensor:
    """s_t = f(x_t + W s_{t-1}) over a block: inputs (T, B, h), state (B, h) → (T, B, h).

    ``keep`` (T, B, 1) is 0 where the state before the step must not be used, else 1.
    """
    function, matrix = ACTIVATIONS[activation], weight.to(product_dtype).mT
    outputs = []
    for t, x in enumerate(inputs):
        previous = state if keep is None else state * keep[t]
        state = function(x + torch.mm(previous.to(product_dtype), matrix).to(x.dtype))
        outputs.append(state)
    return torch.stack(outputs)


def lookup(table: Tensor, rows: Tensor, dtype: torch.dtype) -> Tensor:
    """``table[rows]`` in ``dtype``."""
    return table[rows].to(dtype)
