"""The simple recurrence over a block."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from blackout import _native
from blackout.ops.cpu.arrays import buffer, converted, floats, numbers

_ACTIVATIONS = {"sigmoid": 0, "tanh": 1, "relu": 2}


def recurrence(
    inputs: Tensor,
    state: Tensor,
    weight: Tensor,
    keep: Tensor | None,
    activation: str,
    product_dtype: torch.dtype,
) -> Tensor:
    """s_t = f(x_t + W s_{t-1}) over a block: inputs (T, B, h), state (B, h) → (T, B, h)."""
    outputs: Tensor = _Recurrence.apply(inputs, state, weight, keep, activation, product_dtype)
    return outputs


class _Recurrence(torch.autograd.Function):
    """Each step is one product and one native call; W's gradient is one product at the end."""

    @staticmethod
    def forward(
        ctx: Any,
        inputs: Tensor,
        state: Tensor,
        weight: Tensor,
        keep: Tensor | None,
        activation: str,
        product_dtype: torch.dtype,
    ) -> Tensor:
        steps, streams, size = inputs.shape
        threads, code = torch.get_num_threads(), _ACTIVATIONS[activation]
        inputs = converted(inputs, torch.float32)
        matrix = converted(weight, product_dtype)
        if keep is not None:
            keep = converted(keep, torch.float32).view(steps, streams)
        outputs = buffer((steps, streams, size), torch.float32)
        previous = buffer((steps, streams, size), product_dtype)  # what each step multiplies
        previous[0] = state if keep is None else state * keep[0][:, None]
        product = buffer((streams, size), product_dtype)
        transposed, operands = matrix.mT, previous.unbind()
        x, s, p = floats(inputs), floats(outputs), numbers(previous)[0]
        row, operand_row = streams * size * 4, streams * size * product_dtype.itemsize
        product_address, half = numbers(product)
        k = 0 if keep is None else floats(keep)
        for t in range(steps):
            torch.mm(operands[t], transposed, out=product)
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
        ctx.save_for_backward(outputs, previous, matrix, keep)
        ctx.code = code
        return outputs

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        outputs, previous, matrix, keep = ctx.saved_tensors
        steps, streams, size = outputs.shape
        dtype, threads = matrix.dtype, torch.get_num_threads()
        grad = converted(grad, torch.float32)
        delta = buffer((steps, streams, size), torch.float32)
        half = dtype == torch.bfloat16
        operand = buffer((steps, streams, size), dtype) if half else delta
        carry = buffer((streams, size), dtype)
        g, s, d, o, c = (a.data_ptr() for a in (grad, outputs, delta, operand, carry))
        row, operand_row = streams * size * 4, streams * size * dtype.itemsize
        k = 0 if keep is None else floats(keep)
        operands = operand.unbind()
        for t in reversed(range(steps)):
            last = t + 1 == steps
            _native.step_backward(
                ctx.code,
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
            if t or ctx.needs_input_grad[1]:
                torch.mm(operands[t], matrix, out=carry)
        d_state = None
        if ctx.needs_input_grad[1]:
            d_state = carry.float() if keep is None else carry.float() * keep[0][:, None]
        d_weight = torch.mm(operand.view(-1, size).mT, previous.view(-1, size))
        return delta, d_state, d_weight.float(), None, None, None
