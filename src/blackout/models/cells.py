"""Recurrent layers over a block of time steps, with a state that is carried or forgotten.

Each layer takes inputs (T, B, n), a state and ``keep`` (T, B, 1) or None: where ``keep`` is 0 the
state before that step is not used and no gradient flows past it. It gives outputs (T, B, h) and
the state after the block. A state is a tensor (S, B, h), S = 2 for the LSTM, else 1.

``precision`` is the number format of the matrix products; all else is computed in float32.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from blackout.config import Cell
from blackout.ops.autograd import linear, recurrence
from blackout.ops.dispatch import engine_for
from blackout.ops.engine import Engine
from blackout.ops.plan import LayerPlan

Precision = Literal["fp32", "bf16"]


def product_dtype(precision: Precision, weight: Tensor) -> torch.dtype:
    """The type that products with ``weight`` are computed in."""
    return torch.bfloat16 if precision == "bf16" else weight.dtype


class Linear(nn.Linear):
    """W x without a bias, the product in ``precision``."""

    def __init__(
        self, in_features: int, out_features: int, precision: Precision, impl: str = "auto"
    ) -> None:
        super().__init__(in_features, out_features, bias=False)
        self.precision, self.impl = precision, impl

    def forward(self, inputs: Tensor) -> Tensor:
        dtype = product_dtype(self.precision, self.weight)
        engine = engine_for(self.impl, inputs.device, inputs.dtype, dtype)
        return linear(inputs, self.weight, dtype, engine)


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
        precision: Precision = "fp32",
        impl: str = "auto",
    ) -> None:
        super().__init__()
        self.cell = cell
        self.precision: Precision = precision
        self.impl = impl
        self.input = Linear(in_features, hidden, precision, impl) if in_features else None
        self.recurrent = nn.Parameter(torch.empty(hidden, hidden))
        self.bias = nn.Parameter(torch.empty(hidden)) if bias else None

    def reset_parameters(self, init_range: float | None) -> None:
        limit = init_range or len(self.recurrent) ** -0.5
        for p in self.parameters():
            nn.init.uniform_(p, -limit, limit)
        if self.input is not None and self.cell == "sigmoid" and init_range is None:
            # The states of the layer below lie within about a tenth of one half.
            nn.init.uniform_(self.input.weight, -10 * limit, 10 * limit)
        if self.bias is not None:
            nn.init.zeros_(self.bias)
        if self.cell == "relu":
            nn.init.eye_(self.recurrent)

    def plan(self) -> LayerPlan:
        """Its weights, for engines that provide a whole training step."""
        matrix = None if self.input is None else self.input.weight
        return LayerPlan(matrix, self.recurrent, self.bias, None)

    def forward(self, inputs: Tensor, state: Tensor, keep: Tensor | None) -> tuple[Tensor, Tensor]:
        if self.input is not None:
            inputs = self.input(inputs)
        if self.bias is not None:
            inputs = inputs + self.bias
        dtype = product_dtype(self.precision, self.recurrent)
        engine = engine_for(self.impl, inputs.device, inputs.dtype, dtype)
        return recurrence(self.cell, inputs, state, self.recurrent, None, keep, dtype, engine)


class GatedLayer(nn.Module):
    """An LSTM or GRU layer: the engine's recurrence where it is native code or has bf16 products.

    Elsewhere PyTorch's, which is fused; in runs between the steps where states are forgotten.
    """

    def __init__(
        self,
        cell: Cell,
        in_features: int,
        hidden: int,
        bias: bool,
        precision: Precision = "fp32",
        impl: str = "auto",
    ) -> None:
        super().__init__()
        self.cell = cell
        self.precision: Precision = precision
        self.impl = impl
        self.state_parts = 2 if cell == "lstm" else 1
        kind = nn.LSTM if cell == "lstm" else nn.GRU
        self.rnn: nn.RNNBase = kind(in_features, hidden, bias=bias)

    def reset_parameters(self, init_range: float | None) -> None:
        limit = init_range or self.rnn.hidden_size**-0.5
        for name, p in self.rnn.named_parameters():
            nn.init.uniform_(p, -limit, limit)
            if name.startswith("bias"):
                nn.init.zeros_(p)
        if self.cell == "lstm" and self.rnn.bias:
            hidden = self.rnn.hidden_size
            with torch.no_grad():  # the forget gate starts open, or nothing is remembered at first
                self.rnn.get_parameter("bias_ih_l0")[hidden : 2 * hidden] = 1.0

    def plan(self) -> LayerPlan:
        """Its weights, for engines that provide a whole training step."""
        of = self.rnn.get_parameter
        matrices = of("weight_ih_l0"), of("weight_hh_l0")
        if not self.rnn.bias:
            return LayerPlan(*matrices, None, None)
        return LayerPlan(*matrices, of("bias_ih_l0"), of("bias_hh_l0"))

    def forward(self, inputs: Tensor, state: Tensor, keep: Tensor | None) -> tuple[Tensor, Tensor]:
        engine = engine_for(self.impl, inputs.device, inputs.dtype)
        if self.precision == "bf16" or engine.name == "native":
            return self._by_the_engine(inputs, state, keep, engine)
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

    def _by_the_engine(
        self, inputs: Tensor, state: Tensor, keep: Tensor | None, engine: Engine
    ) -> tuple[Tensor, Tensor]:
        """The products with the inputs are one for all steps; the engine does the others."""
        of = self.rnn.get_parameter
        recurrent, bias = of("weight_hh_l0"), None
        dtype = product_dtype(self.precision, recurrent)
        given = linear(inputs, of("weight_ih_l0"), dtype, engine)
        if self.rnn.bias:
            given = given + of("bias_ih_l0")
            bias = of("bias_hh_l0")
        return recurrence(self.cell, given, state, recurrent, bias, keep, dtype, engine)
