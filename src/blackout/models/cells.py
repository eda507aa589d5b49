"""Recurrent layers over a block of time steps, with a state that is carried or forgotten.

Each layer takes inputs (T, B, n), a state and ``keep`` (T, B, 1) or None: where ``keep`` is 0 the
state before that step is not used and no gradient flows past it. It gives outputs (T, B, h) and
the state after the block. A state is a tensor (S, B, h), S = 2 for the LSTM, else 1.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from blackout.config import Cell
from blackout.ops.dispatch import operations


class SimpleLayer(nn.Module):
    """s_t = f(x_t + W_r s_{t-1}), f sigmoid, tanh or relu (paper eq. 1).

    ``in_features`` 0 means that the inputs are already W_in[x_t], as in the first layer, whose
    input matrix is the embedding table itself; else a matrix W_in comes first.
    """

    state_parts = 1

    def __init__(
        self,
        cell: Cell,
        in_features: int,
        hidden: int,
        bias: bool,
        precision: Literal["fp32", "bf16"] = "fp32",
        impl: str = "auto",
    ) -> None:
        super().__init__()
        self.cell = cell
        self.precision = precision
        self.impl = impl
        self.input = nn.Linear(in_features, hidden, bias=False) if in_features else None
        self.recurrent = nn.Parameter(torch.empty(hidden, hidden))
        self.bias = nn.Parameter(torch.empty(hidden)) if bias else None

    def reset_parameters(self, init_range: float) -> None:
        for p in self.parameters():
            nn.init.uniform_(p, -init_range, init_range)
        if self.bias is not None:
            nn.init.zeros_(self.bias)
        if self.cell == "relu":
            nn.init.eye_(self.recurrent)

    def forward(self, inputs: Tensor, state: Tensor, keep: Tensor | None) -> tuple[Tensor, Tensor]:
        if self.input is not None:
            inputs = self.input(inputs)
        if self.bias is not None:
            inputs = inputs + self.bias
        dtype = torch.bfloat16 if self.precision == "bf16" else self.recurrent.dtype
        ops = operations(self.impl, inputs.device, inputs.dtype, dtype)
        outputs = ops.recurrence(inputs, state[0], self.recurrent, keep, self.cell, dtype)
        return outputs, outputs[-1:]


class GatedLayer(nn.Module):
    """An LSTM or GRU layer: PyTorch's, which is fused; step by step where states are forgotten."""

    def __init__(self, cell: Cell, in_features: int, hidden: int, bias: bool) -> None:
        super().__init__()
        self.cell = cell
        self.state_parts = 2 if cell == "lstm" else 1
        kind = nn.LSTM if cell == "lstm" else nn.GRU
        self.rnn: nn.RNNBase = kind(in_features, hidden, bias=bias)

    def reset_parameters(self, init_range: float) -> None:
        for name, p in self.rnn.named_parameters():
            nn.init.uniform_(p, -init_range, init_range)
            if name.startswith("bias"):
                nn.init.zeros_(p)
        if self.cell == "lstm" and self.rnn.bias:
            hidden = self.rnn.hidden_size
            with torch.no_grad():  # the forget gate starts open, or nothing is remembered at first
                self.rnn.get_parameter("bias_ih_l0")[hidden : 2 * hidden] = 1.0

    def forward(self, inputs: Tensor, state: Tensor, keep: Tensor | None) -> tuple[Tensor, Tensor]:
        if keep is not None:
            return self._segments(inputs, state, keep)
        packed = (state[:1], state[1:]) if self.cell == "lstm" else state
        outputs, last = self.rnn(inputs, packed)
        return outputs, torch.cat(last) if self.cell == "lstm" else last

    def _segments(self, inputs: Tensor, state: Tensor, keep: Tensor) -> tuple[Tensor, Tensor]:
        """Runs between the steps at which any stream forgets."""
        resets = (keep == 0).any(1).flatten().nonzero().flatten().tolist()
        starts = sorted({0, *resets})
        outputs = []
        for start, end in zip(starts, [*starts[1:], len(inputs)], strict=True):
            part, state = self(inputs[start:end], (state * keep[start]).contiguous(), None)
            outputs.append(part)
        return torch.cat(outputs), state
