"""The recurrences over a block, forward and back: simple cells, LSTM, GRU.

The recurrent products of a step cannot be joined with those of another, but the gradient of the
recurrent matrix is one product over all steps.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from blackout.ops.engine import RecurrenceGradients

ACTIVATIONS = {"sigmoid": torch.sigmoid, "tanh": torch.tanh, "relu": torch.relu}


class RecurrenceSaved(NamedTuple):
    """What the way back needs; the simple cells have nothing in the last two."""

    gates: Tensor  # (T, B, G*h), after their activations; of simple cells, the outputs
    operands: Tensor  # (T, B, h), what each step multiplied, in the dtype of the products
    weight: Tensor  # (G*h, h), in the same
    keep: Tensor | None  # (T, B, 1)
    bias: Tensor | None  # (G*h,)
    before: Tensor | None  # (T, B, h): the kept cells (LSTM) or states (GRU) before each step
    inner: Tensor | None  # (T, B, h): tanh of the cells (LSTM), W_n s + b_n (GRU)


def recurrence_forward(
    cell: str,
    inputs: Tensor,
    state: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    keep: Tensor | None,
    product_dtype: torch.dtype,
) -> tuple[Tensor, Tensor | None, RecurrenceSaved]:
    """Outputs (T, B, h) of ``inputs`` (T, B, G*h) after ``state``, and the LSTM's cells (B, h)."""
    steps, streams = inputs.shape[:2]
    size = weight.shape[1]
    matrix = weight.to(product_dtype)
    outputs = inputs.new_empty(steps, streams, size)
    gates = outputs if cell in ACTIVATIONS else torch.empty_like(inputs)
    operands = inputs.new_empty(steps, streams, size, dtype=product_dtype)
    before, inner = (torch.empty_like(outputs) if cell in _GATED else None for _ in range(2))
    for t in range(steps):
        kept = state if keep is None else state * keep[t]
        operands[t] = kept[0]
        product = torch.mm(operands[t], matrix.mT).to(inputs.dtype)
        if bias is not None:
            product += bias
        if before is None or inner is None:
            state = ACTIVATIONS[cell](inputs[t] + product)[None]
        else:
            before[t] = kept[-1]
            state = _GATED[cell](inputs[t], product, before[t], gates[t], inner[t])
        outputs[t] = state[0]
    saved = RecurrenceSaved(gates, operands, matrix, keep, bias, before, inner)
    return outputs, state[1] if len(state) > 1 else None, saved


def _lstm_step(x: Tensor, product: Tensor, before: Tensor, gates: Tensor, inner: Tensor) -> Tensor:
    """(s, c): c = f c + i g and s = o tanh(c)."""
    size = before.shape[1]
    torch.add(x, product, out=gates)
    gates[:, : 2 * size].sigmoid_()
    gates[:, 2 * size : 3 * size].tanh_()
    gates[:, 3 * size :].sigmoid_()
    i, f, g, o = gates.chunk(4, 1)
    cells = torch.addcmul(f * before, i, g)
    torch.tanh(cells, out=inner)
    return torch.stack([o * inner, cells])


def _gru_step(x: Tensor, product: Tensor, before: Tensor, gates: Tensor, inner: Tensor) -> Tensor:
    """s = (1 - z) n + z s, with n = tanh(x_n + r (W_n s + b_n))."""
    size = before.shape[1]
    inner.copy_(product[:, 2 * size :])
    torch.add(x[:, : 2 * size], product[:, : 2 * size], out=gates[:, : 2 * size])
    gates[:, : 2 * size].sigmoid_()
    r, z, n = gates.chunk(3, 1)
    n.copy_(torch.addcmul(x[:, 2 * size :], r, inner).tanh_())
    return torch.lerp(n, before, z)[None]


_GATED = {"lstm": _lstm_step, "gru": _gru_step}


def recurrence_backward(
    cell: str, saved: RecurrenceSaved, grad: Tensor, state_gradient: bool
) -> RecurrenceGradients:
    """The gradients of sum(grad * outputs); the gradient of a state is its streams' only way."""
    gates, operands, matrix, keep, bias, before, inner = saved
    steps, dtype, work = len(gates), matrix.dtype, gates.dtype
    deltas = torch.empty_like(gates)  # by the inputs
    products = torch.empty_like(gates) if cell == "gru" else deltas  # by the products
    carry: Tensor | None = None  # by the state (S, B, h) that the step after began with
    for t in reversed(range(steps)):
        d_state = grad[t][None] if carry is None else _add_first(carry, grad[t])
        if before is None or inner is None:
            deltas[t] = d_state[0] * _slope(cell, gates[t])
            direct = None
        else:
            parts = gates[t], before[t], inner[t]
            direct = _GATED_BACK[cell](d_state, *parts, deltas[t], products[t])
        if t or state_gradient:
            back = torch.mm(products[t].to(dtype), matrix).to(work)
            carry = back[None] if direct is None else _add_first(direct, back)
            if keep is not None:
                carry = carry * keep[t]
    flat = products.flatten(0, 1)
    return RecurrenceGradients(
        deltas,
        carry if state_gradient else None,
        torch.mm(flat.to(dtype).mT, operands.flatten(0, 1)).to(work),
        None if bias is None else flat.sum(0),
    )


def _add_first(state: Tensor, more: Tensor) -> Tensor:
    """A state's gradient with ``more`` for its first part."""
    return torch.cat([(state[0] + more)[None], state[1:]])


def _slope(cell: str, s: Tensor) -> Tensor:
    """The derivative of the activation where its value is s."""
    if cell == "relu":
        return (s > 0).to(s.dtype)
    return 1 - s * s if cell == "tanh" else s * (1 - s)


def _lstm_back(
    d_state: Tensor, gates: Tensor, before: Tensor, inner: Tensor, delta: Tensor, _: Tensor
) -> Tensor:
    """Fills ``delta`` with the gates' gradients; gives the direct way to the state before."""
    i, f, g, o = gates.chunk(4, 1)
    d_output = d_state[0]
    d_cell = d_output * o * (1 - inner * inner)
    if len(d_state) > 1:
        d_cell = d_cell + d_state[1]
    size = before.shape[1]
    delta[:, :size] = d_cell * g * (i * (1 - i))
    delta[:, size : 2 * size] = d_cell * before * (f * (1 - f))
    delta[:, 2 * size : 3 * size] = d_cell * i * (1 - g * g)
    delta[:, 3 * size :] = d_output * inner * (o * (1 - o))
    return torch.stack([torch.zeros_like(d_cell), d_cell * f])


def _gru_back(
    d_state: Tensor, gates: Tensor, before: Tensor, inner: Tensor, delta: Tensor, product: Tensor
) -> Tensor:
    """Likewise; the candidate's product is behind the reset gate, so it has its own gradient."""
    r, z, n = gates.chunk(3, 1)
    d_output, size = d_state[0], before.shape[1]
    d_n = d_output * (1 - z) * (1 - n * n)
    delta[:, :size] = d_n * inner * (r * (1 - r))
    delta[:, size : 2 * size] = d_output * (before - n) * (z * (1 - z))
    delta[:, 2 * size :] = d_n
    product[:, : 2 * size] = delta[:, : 2 * size]
    product[:, 2 * size :] = d_n * r
    return (d_output * z)[None]


_GATED_BACK = {"lstm": _lstm_back, "gru": _gru_back}
