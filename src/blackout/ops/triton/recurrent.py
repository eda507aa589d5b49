"""The recurrences over a block: a matrix product and one kernel for each step, both ways."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from blackout.ops.engine import RecurrenceGradients
from blackout.ops.triton import cells
from blackout.ops.triton.launch import block_of, launch, tiles, warps_of
from blackout.ops.triton.simple_steps import step_backward, step_forward, tile_of

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
    grid, warps = (streams, tiles(size, block)), warps_of(block)
    product = torch.empty(streams, len(matrix), dtype=matrix.dtype, device=device)
    transposed, added = matrix.mT, product if bias is None else bias
    # each step's piece of every array, taken apart at once: launched one by one, slices would cost
    # more than the launches
    operand, output, gate, keeps = (_steps(x, steps + 1) for x in (operands, outputs, gates, keep))
    given = _steps(inputs if words is None else words, steps)
    tile = None if gated or bias is not None else tile_of(streams, matrix)
    cell_before, inside = _steps(before, steps + 1), _steps(inner, steps)
    for t in range(steps):
        last = t + 1 == steps
        forgets = keep is not None and not last
        if tile is not None:
            step_forward(
                cell, operand[t], matrix, given[t] if words is None else inputs,
                None if words is None else given[t], keeps[t + 1] if forgets else None,
                output[t], gate[t], None if last or shared else operand[t + 1], tile,
            )  # fmt: skip
            continue
        torch.mm(operand[t], transposed, out=product)
        kept = keeps[t + 1] if forgets else product
        if gated:
            launch(
                cells.lstm_forward if cell == "lstm" else cells.gru_forward,
                grid,
                (
                    given[t], product, added, kept, cell_before[t], gate[t], inside[t], output[t],
                    operand[t + 1], cell_before[t + 1],
                ),
                (size, bias is not None, forgets, block),
                num_warps=warps,
            )  # fmt: skip
        else:
            launch(
                cells.simple_forward,
                grid,
                (
                    given[t] if words is None else inputs, product if words is None else given[t],
                    product, added, kept, output[t], gate[t], operand[t + 1],
                ),
                (
                    len(inputs), size, cells.SIMPLE[cell], words is not None, bias is not None,
                    forgets, not last and not shared, block,
                ),
                num_warps=warps,
            )  # fmt: skip
    saved = RecurrenceSaved(
        gates, operands[:steps], matrix, keep, bias, None if before is None else before[:steps],
        inner,
    )  # fmt: skip
    memory = before[steps] if cell == "lstm" and before is not None else None
    return Forward(outputs, memory, saved)


def _steps(values: Tensor | None, steps: int) -> Sequence[Any]:
    """The pieces (B, …) of an array (T, B, …); of none as many times nothing."""
    return (None,) * steps if values is None else values.unbind(0)


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
    grid, warps = (streams, tiles(size, block)), warps_of(block)
    grads, gate, delta, product = (x.unbind(0) for x in (grad, gates, deltas, products))
    keeps, cell_before, inside = (_steps(x, steps) for x in (keep, before, inner))
    words, table, d_target = (None, None, None) if targets is None else targets
    word, factor = _steps(words, steps), _steps(d_target, steps)
    tile = tile_of(streams, matrix) if carry is None and multiplied is products else None
    for t in reversed(range(steps)):
        last = t + 1 == steps
        if tile is not None and not last:
            step_backward(
                product[t + 1], matrix, grads[t], None if keep is None else keeps[t + 1], gate[t],
                delta[t], None if table is None else (word[t], table, factor[t]), tile,
            )  # fmt: skip
            continue
        if not last:
            if multiplied is products:
                torch.mm(product[t + 1], matrix, out=back)
            else:
                multiplied.copy_(product[t + 1])
                torch.mm(multiplied, matrix, out=back)
        forgets = keep is not None and not last
        kept = keeps[t + 1] if forgets else back
        options = (forgets, last, block)
        if carry is None:
            rows = (back, back, back) if table is None else (word[t], table, factor[t])
            launch(
                cells.simple_backward,
                grid,
                (grads[t], back, kept, gate[t], delta[t], *rows),
                (len(rows[1]), size, table is not None, *options),
                num_warps=warps,
            )
        else:
            places = (grads[t], back, carry, kept, gate[t], cell_before[t], inside[t], delta[t])
            if cell == "lstm":
                launch(cells.lstm_backward, grid, places, (size, *options), num_warps=warps)
            else:
                given = (*places, product[t])
                launch(cells.gru_backward, grid, given, (size, *options), num_warps=warps)
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
    added = None if bias is None else bias.contiguous()
    return forward(cell, inputs.contiguous(), state, matrix, added, kept, inputs.dtype)


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
