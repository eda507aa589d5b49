"""The recurrences over a block: native code for all cells, simple ones without a bias."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from blackout import _native
from blackout.ops import reference
from blackout.ops.cpu.arrays import buffer, converted, floats, numbers
from blackout.ops.cpu.factor import Factor
from blackout.ops.cpu.gated import CELLS, GatedSaved, gated_backward, gated_forward
from blackout.ops.cpu.products import matrix_product
from blackout.ops.engine import RecurrenceGradients, Saved

ACTIVATIONS = {"sigmoid": 0, "tanh": 1, "relu": 2}


class SimpleSaved(NamedTuple):
    """What the way back of a simple cell needs."""

    outputs: Tensor  # (T, B, h)
    operands: Tensor  # (T, B, h), what each step multiplied, in the dtype of the products
    weight: Tensor  # (h, h), in the same
    keep: Tensor | None  # (T, B)


def recurrence_forward(
    cell: str,
    inputs: Tensor,
    state: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    keep: Tensor | None,
    product_dtype: torch.dtype,
) -> tuple[Tensor, Tensor | None, Saved]:
    """Each step of a simple cell is one product and one native call."""
    if cell in CELLS:
        return gated_forward(cell, inputs, state, weight, bias, keep, product_dtype)
    if bias is not None:
        return reference.recurrence_forward(cell, inputs, state, weight, bias, keep, product_dtype)
    steps, streams, size = inputs.shape
    threads, code = torch.get_num_threads(), ACTIVATIONS[cell]
    inputs = converted(inputs, torch.float32)
    matrix = converted(weight, product_dtype)
    if keep is not None:
        keep = converted(keep, torch.float32).view(steps, streams)
    outputs = buffer((steps, streams, size), torch.float32)
    operands = buffer((steps, streams, size), product_dtype)
    operands[0] = state[0] if keep is None else state[0] * keep[0][:, None]
    product = buffer((streams, size), product_dtype)
    factor, each_operand = Factor(matrix, transposed=True), operands.unbind()
    x, s, p = floats(inputs), floats(outputs), numbers(operands)[0]
    row, operand_row = streams * size * 4, streams * size * product_dtype.itemsize
    product_address, half = numbers(product)
    k = 0 if keep is None else floats(keep)
    for t in range(steps):
        factor.multiply(each_operand[t], product)
        last = t + 1 == steps
        _native.step_forward(
            code,
            streams,
            size,
            product_address,
            half,
            x + t * row,
            0 if last or not k else k + (t + 1) * streams * 4,
            s + t * row,
            0 if last else p + (t + 1) * operand_row,
            threads,
        )
    return outputs, None, SimpleSaved(outputs, operands, matrix, keep)


def recurrence_backward(
    cell: str, saved: Saved, grad: Tensor, state_gradient: bool
) -> RecurrenceGradients:
    """Likewise back; the gradient of the recurrent matrix is one product at the end."""
    if isinstance(saved, GatedSaved):
        return gated_backward(cell, saved, grad, state_gradient)
    if not isinstance(saved, SimpleSaved):
        return reference.recurrence_backward(cell, saved, grad, state_gradient)
    outputs, operands, matrix, keep = saved
    steps, streams, size = outputs.shape
    dtype, threads = matrix.dtype, torch.get_num_threads()
    grad = converted(grad, torch.float32)
    delta = buffer((steps, streams, size), torch.float32)
    half = dtype == torch.bfloat16
    operand = buffer((steps, streams, size), dtype) if half else delta
    carry, factor = buffer((streams, size), dtype), Factor(matrix, transposed=False)
    g, s, d, o, c = (a.data_ptr() for a in (grad, outputs, delta, operand, carry))
    row, operand_row = streams * size * 4, streams * size * dtype.itemsize
    k = 0 if keep is None else floats(keep)
    each_operand = operand.unbind()
    for t in reversed(range(steps)):
        last = t + 1 == steps
        _native.step_backward(
            ACTIVATIONS[cell],
            streams,
            size,
            0 if last else c,
            half,
            g + t * row,
            s + t * row,
            0 if last or not k else k + (t + 1) * streams * 4,
            d + t * row,
            o + t * operand_row if half else 0,
            threads,
        )
        if t or state_gradient:
            factor.multiply(each_operand[t], carry)
    d_state = None
    if state_gradient:
        d_state = carry.float() if keep is None else carry.float() * keep[0][:, None]
    d_weight = matrix_product(operand.view(-1, size).mT, operands.view(-1, size))
    return RecurrenceGradients(
        delta, None if d_state is None else d_state[None], d_weight.float(), None
    )
