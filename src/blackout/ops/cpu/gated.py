"""The recurrences of LSTM and GRU over a block: a product and a native call for each step.

Of a network whose step is not provided whole; ``csrc/step`` has the same kernels in one call.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from blackout import _native
from blackout.ops.cpu.arrays import buffer, convert, converted, floats, numbers
from blackout.ops.cpu.factor import Factor
from blackout.ops.cpu.products import matrix_product
from blackout.ops.engine import RecurrenceGradients

CELLS = {"lstm": 3, "gru": 4}


class GatedSaved(NamedTuple):
    """What the way back of a gated cell needs."""

    gates: Tensor  # (T, B, G*h), after their activations
    operands: Tensor  # (T, B, h), what each step multiplied, in the dtype of the products
    weight: Tensor  # (G*h, h), in the same
    keep: Tensor | None  # (T, B)
    bias: Tensor | None  # (G*h,)
    before: Tensor  # (T + 1, B, h): the kept cells (LSTM) or states (GRU) before each step
    inner: Tensor  # (T, B, h): tanh of the cells (LSTM), W_n s + b_n (GRU)


def gated_forward(
    cell: str,
    inputs: Tensor,
    state: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    keep: Tensor | None,
    product_dtype: torch.dtype,
) -> tuple[Tensor, Tensor | None, GatedSaved]:
    """As :meth:`Engine.recurrence_forward` says."""
    steps, streams, width = inputs.shape
    size, threads = weight.shape[1], torch.get_num_threads()
    matrix = converted(weight, product_dtype)
    gates = buffer((steps, streams, width), torch.float32)  # begins as the inputs
    convert(converted(inputs, torch.float32), gates)
    if bias is not None:
        bias = converted(bias, torch.float32)
    if keep is not None:
        keep = converted(keep, torch.float32).view(steps, streams)
    shape = (steps, streams, size)
    outputs, inner = buffer(shape, torch.float32), buffer(shape, torch.float32)
    before = buffer((steps + 1, streams, size), torch.float32)
    operands = buffer(shape, product_dtype)
    kept = state if keep is None else state * keep[0][:, None]
    operands[0], before[0] = kept[0], kept[-1]
    product = buffer((streams, width), torch.float32)
    factor, each_operand = Factor(matrix, transposed=True), operands.unbind()
    addresses = [
        [floats(part) for part in array.unbind()] for array in (gates, before, inner, outputs)
    ]
    for t in range(steps):
        factor.multiply(each_operand[t], product)
        last = t + 1 == steps
        g, b, i, o = (array[t] for array in addresses)
        _native.cell_forward(
            CELLS[cell],
            streams,
            size,
            g,
            floats(product),
            0 if bias is None else floats(bias),
            0 if last or keep is None else floats(keep[t + 1]),
            b,
            addresses[1][t + 1],
            i,
            o,
            *((0, False) if last else numbers(each_operand[t + 1])),
            threads,
        )
    cells = before[steps].clone() if cell == "lstm" else None
    return outputs, cells, GatedSaved(gates, operands, matrix, keep, bias, before, inner)


def gated_backward(
    cell: str, saved: GatedSaved, grad: Tensor, state_gradient: bool
) -> RecurrenceGradients:
    """As :meth:`Engine.recurrence_backward` says."""
    gates, operands, matrix, keep, bias, before, inner = saved
    steps, streams, width = gates.shape
    size, dtype, threads = matrix.shape[1], matrix.dtype, torch.get_num_threads()
    grad = converted(grad, torch.float32)
    delta = buffer((steps, streams, width), dtype)  # by the inputs
    products = buffer((steps, streams, width), dtype) if cell == "gru" else delta
    carry, carry_cell = (torch.zeros(streams, size) for _ in range(2))
    factor = Factor(matrix, transposed=False)
    for t in reversed(range(steps)):
        last = t + 1 == steps
        _native.cell_backward(
            CELLS[cell],
            streams,
            size,
            last,
            floats(gates[t]),
            floats(before[t]),
            floats(inner[t]),
            floats(grad[t]),
            0 if last or keep is None else floats(keep[t + 1]),
            floats(carry),
            floats(carry_cell),
            numbers(delta[t])[0],
            numbers(products[t])[0],
            dtype == torch.bfloat16,
            threads,
        )
        if t or state_gradient:
            # a GRU has a direct way too, which is there already
            factor.multiply(products[t], carry, add=cell == "gru")
    d_state = None
    if state_gradient:
        d_state = carry[None] if cell == "gru" else torch.stack([carry, carry_cell])
        d_state = d_state if keep is None else d_state * keep[0][:, None]
    flat = products.view(-1, width)
    return RecurrenceGradients(
        converted(delta, torch.float32),
        d_state,
        matrix_product(flat.mT, operands.view(-1, size)).float(),
        None if bias is None else flat.sum(0, dtype=torch.float32),
    )
