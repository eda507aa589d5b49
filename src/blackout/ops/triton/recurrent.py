"""The recurrences over a block: a matrix product and one kernel for each step, both ways."""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
from torch import Tensor

from blackout.ops.engine import RecurrenceGradients
from blackout.ops.triton import cells
from blackout.ops.triton.launch import block_of, warps_of

_BLOCK = 512
_GATES = {"sigmoid": 1, "tanh": 1, "relu": 1, "gru": 3, "lstm": 4}


class RecurrenceSaved(NamedTuple):
    """What the way back needs; the simple cells have nothing in the last two."""

    gates: Tensor  # (T, B, G*h), after their activations; of simple cells, their slopes
    operands: Tensor  # (T, B, h), what each step multiplied, in the dtype of the products
    weight: Tensor  # (G*h, h), in the same
    keep: Tensor | None  # (T, B, …)
    bias: Tensor | None  # (G*h,)
    before: Tensor | None  # (T, B, h): the kept cells (LSTM) or states (GRU) before each step
    inner: Tensor | None  # (T, B, h): tanh of the cells (LSTM), W_n s + b_n (GRU)


class Forward(NamedTuple):
    """Outputs (T, B, h), and the cells of an LSTM (B, h) after the block."""

    outputs: Tensor
    cells: Tensor | None
    saved: RecurrenceSaved


def forward(
    cell: str,
    inputs: Tensor,
    state: Tensor,
    matrix: Tensor,
    bias: Tensor | None,
    keep: Tensor | None,
    dtype: torch.dtype,
    words: Tensor | None = None,
) -> Forward:
    """Outputs in ``dtype``; ``matrix`` is in the type of the products already.

    With ``words`` (T, B), for simple cells, ``inputs`` is the table whose rows are the inputs.
    """
    steps, streams = words.shape if words is not None else inputs.shape[:2]
    size, device = matrix.shape[1], matrix.device
    operands = torch.empty(steps + 1, streams, size, dtype=matrix.dtype, device=device)
    gated = cell not in cells.SIMPLE
    # where no state is forgotten, what a step gives is what the next one multiplies
    shared = not gated and keep is None and dtype == matrix.dtype
    outputs = operands[1:] if shared else operands.new_empty(operands[1:].shape, dtype=dtype)
    gates = operands.new_empty(
        (steps, streams, _GATES[cell] * size), dtype=torch.float32 if gated else dtype
    )
    before = torch.empty(steps + 1, streams, size, device=device) if gated else None
    inner = torch.empty(steps, streams, size, device=device) if gated else None
    first = state if keep is None else state * keep[0].reshape(1, -1, 1)
    operands[0].copy_(first[0])
    if before is not None:
        before[0].copy_(first[-1])
    block = block_of(size, _BLOCK)
    grid = (streams, triton.cdiv(size, block))
    product = torch.empty(streams, len(matrix), dtype=matrix.dtype, device=device)
    for t in range(steps):
        torch.mm(operands[t], matrix.mT, out=product)
        later = None if keep is None or t + 1 == steps else keep[t + 1]
        kept = product if later is None else later
        flags = (bias is not None, later is not None)
        if before is None or inner is None:
            cells.simple_forward[grid](
                inputs if words is not None else inputs[t],
                product if words is None else words[t],
                product, product if bias is None else bias, kept, outputs[t], gates[t],
                operands[t + 1], len(inputs), size, cells.SIMPLE[cell], words is not None, *flags,
                t + 1 < steps and not shared, block, num_warps=warps_of(block),
            )  # fmt: skip
        else:
            kernel = cells.lstm_forward if cell == "lstm" else cells.gru_forward
            kernel[grid](
                inputs[t], product, product if bias is None else bias, kept, before[t], gates[t],
                inner[t], outputs[t], operands[t + 1], before[t + 1], size, *flags,
                block, num_warps=warps_of(block),
            )  # fmt: skip
    saved = RecurrenceSaved(
        gates, operands[:steps], matrix, keep, bias, None if before is None else before[:steps],
        inner,
    )  # fmt: skip
    last = before[steps] if cell == "lstm" and before is not None else None
    return Forward(outputs, last, saved)


class Backward(NamedTuple):
    """Gradients by the inputs (T, B, G*h) and by the products, and what reaches the first state."""

    deltas: Tensor
    products: Tensor
    carry: Tensor | None  # (B, h), of gated cells, besides the product


class Targets(NamedTuple):
    """What the gradient of hidden states lacks: d_target times the target's row of a table."""

    words: Tensor  # (T, B)
    table: Tensor  # (V, h)
    d_target: Tensor  # (T, B)


def backward(
    cell: str,
    saved: RecurrenceSaved,
    grad: Tensor,
    dtype: torch.dtype,
    targets: Targets | None = None,
) -> Backward:
    """The way back through the steps; gradients by the inputs in ``dtype``.

    ``targets``, for simple cells: what is still to be added to ``grad``.
    """
    gates, _, matrix, keep, _, before, inner = saved
    steps, streams, width = gates.shape
    size = matrix.shape[1]
    deltas = torch.empty(gates.shape, dtype=dtype, device=gates.device)
    products = torch.empty_like(deltas) if cell == "gru" else deltas
    multiplied = (
        products
        if dtype == matrix.dtype
        else products.new_empty(streams, width, dtype=matrix.dtype)
    )
    carry = None if before is None else torch.empty_like(before[0])
    back = torch.empty(streams, size, dtype=matrix.dtype, device=gates.device)
    block = block_of(size, _BLOCK)
    grid = (streams, triton.cdiv(size, block))
    for t in reversed(range(steps)):
        last = t + 1 == steps
        if not last:
            if multiplied is products:
                torch.mm(products[t + 1], matrix, out=back)
            else:
                multiplied.copy_(products[t + 1])
                torch.mm(multiplied, matrix, out=back)
        later = None if keep is None or last else keep[t + 1]
        kept = back if later is None else later
        options = (later is not None, last, block)
        if before is None or inner is None or carry is None:
            words, table, d_target = (
                (back, back, back)
                if targets is None
                else (targets.words[t], targets.table, targets.d_target[t])
            )
            cells.simple_backward[grid](
                grad[t], back, kept, gates[t], deltas[t], words, table, d_target, len(table), size,
                targets is not None, *options, num_warps=warps_of(block),
            )  # fmt: skip
        elif cell == "lstm":
            cells.lstm_backward[grid](
                grad[t], back, carry, kept, gates[t], before[t], inner[t], deltas[t], size,
                *options, num_warps=warps_of(block),
            )  # fmt: skip
        else:
            cells.gru_backward[grid](
                grad[t], back, carry, kept, gates[t], before[t], inner[t], deltas[t], products[t],
                size, *options, num_warps=warps_of(block),
            )  # fmt: skip
    return Backward(deltas, products, carry)


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
    kept = None if keep is None else keep.contiguous()
    matrix = weight.to(product_dtype).contiguous()
    return forward(cell, inputs.contiguous(), state, matrix, bias, kept, inputs.dtype)


def recurrence_backward(
    cell: str, saved: RecurrenceSaved, grad: Tensor, state_gradient: bool
) -> RecurrenceGradients:
    """The gradients of sum(grad * outputs)."""
    deltas, products, carry = backward(cell, saved, grad.contiguous(), saved.gates.dtype)
    dtype, work = saved.weight.dtype, deltas.dtype
    flat = products.flatten(0, 1)
    by_state = _state_gradient(cell, saved, products[0], carry) if state_gradient else None
    return RecurrenceGradients(
        deltas,
        by_state,
        torch.mm(flat.to(dtype).mT, saved.operands.flatten(0, 1)).to(work),
        None if saved.bias is None else flat.sum(0),
    )


def _state_gradient(
    cell: str, saved: RecurrenceSaved, first: Tensor, carry: Tensor | None
) -> Tensor:
    """The gradient by the state (S, B, h) before the block."""
    by_output = torch.mm(first.to(saved.weight.dtype), saved.weight).to(first.dtype)
    if cell == "lstm" and carry is not None:
        parts = torch.stack([by_output, carry])
    else:
        parts = (by_output if carry is None else by_output + carry)[None]
    return parts if saved.keep is None else parts * saved.keep[0].reshape(1, -1, 1)
