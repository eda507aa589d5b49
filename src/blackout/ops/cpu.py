"""The operations of :mod:`blackout.ops.reference` on the CPU: PyTorch's matrix products, and
native code (csrc/engine) for everything between them.

Weights are float32 or bfloat16; matrix products run in ``product_dtype``; all other arithmetic is
float32. Arrays of a block live in buffers that are used again for the next block.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from blackout import _native
from blackout.ops import reference
from blackout.ops.reference import Objective, SampledGradients

_OBJECTIVES = {"blackout": 0, "blackout-noise": 1, "importance": 2, "nce": 3}
_ACTIVATIONS = {"sigmoid": 0, "tanh": 1, "relu": 2}
_SMALL = 1 << 16  # bytes below which the ordinary allocator is as good
_TILE = 2048  # words of the vocabulary whose logits are made together …
_CHUNK = 1024  # … for this many hidden states: the logits stay in cache


def buffer(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """An uninitialised tensor in memory that earlier blocks have used."""
    size = math.prod(shape) * dtype.itemsize
    if size < _SMALL:
        return torch.empty(shape, dtype=dtype)
    return torch.from_numpy(_native.buffer(size)).view(dtype).view(shape)


def _array(tensor: Tensor, dtype: torch.dtype) -> int:
    """The address of a contiguous array of that type; it must outlive the native call."""
    if tensor.dtype != dtype or not tensor.is_contiguous():
        raise ValueError(f"need a contiguous array of {dtype}, not {tensor.dtype}")
    return tensor.data_ptr()


def _floats(tensor: Tensor) -> int:
    return _array(tensor, torch.float32)


def _integers(tensor: Tensor) -> int:
    return _array(tensor, torch.int64)


def _numbers(tensor: Tensor) -> tuple[int, bool]:
    """Address and format (True for bfloat16) of an array of either kind."""
    half = tensor.dtype == torch.bfloat16
    return _array(tensor, torch.bfloat16 if half else torch.float32), half


def _words_below(words: Tensor, size: int, name: str) -> Tensor:
    """``words`` as a contiguous array, after checking that each names a row of a table."""
    words = words.contiguous()
    if words.numel():
        low, high = (int(x) for x in words.aminmax())
        if low < 0 or high >= size:
            raise IndexError(f"{name} {low if low < 0 else high} is not in 0 … {size - 1}")
    return words


def converted(values: Tensor, dtype: torch.dtype) -> Tensor:
    """``values``, contiguous, in another of the two formats; itself where it has it."""
    values = values.contiguous()
    if values.dtype == dtype:
        return values
    result = buffer(tuple(values.shape), dtype)
    _convert(values, result)
    return result


def _convert(values: Tensor, to: Tensor) -> None:
    threads = torch.get_num_threads()
    _native.convert(*_numbers(values), *_numbers(to), values.numel(), threads)


# ---------------------------------------------------------------------------- tables


def lookup(table: Tensor, rows: Tensor, dtype: torch.dtype) -> Tensor:
    """``table[rows]`` in ``dtype``."""
    rows = _words_below(rows, len(table), "row")
    result = buffer((*rows.shape, table.shape[1]), dtype)
    _native.gather(
        *_numbers(table),
        _integers(rows),
        rows.numel(),
        table.shape[1],
        *_numbers(result),
        torch.get_num_threads(),
    )
    return result


def draw_samples(
    threshold: Tensor, alias: Tensor, seed: int, step: int, groups: int, samples: int
) -> Tensor:
    """The same words as the reference draws."""
    result = torch.empty((groups, samples), dtype=torch.int64)
    _native.draw_samples(
        _array(threshold, torch.float64),
        _integers(alias),
        len(alias),
        seed % 2**64,
        step % 2**64,
        groups,
        samples,
        _integers(result),
        torch.get_num_threads(),
    )
    return result


# ---------------------------------------------------------------------------- sampled output layer


class SampledSaved(NamedTuple):
    """What the backward pass needs; rows of the targets are read from the table again."""

    hidden: Tensor  # (G, M, h)
    weight: Tensor  # (V, h)
    sample_rows: Tensor  # (G, K, h), in the dtype of the products
    d_target: Tensor  # (G, M)
    d_samples: Tensor  # (G, M, K), in the dtype of the products


def sampled_forward(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    log_z: Tensor | float,
    target: Tensor,
    samples: Tensor,
    log_q_target: Tensor,
    log_q_samples: Tensor,
    objective: Objective,
    keep_copies: bool,
    product_dtype: torch.dtype,
) -> tuple[Tensor, SampledSaved]:
    """J (G, M); the logits (G, M, K) are turned into derivatives where they lie."""
    groups, words, size = hidden.shape
    threads = torch.get_num_threads()
    states = converted(hidden, torch.float32)
    target = _words_below(target, len(weight), "target")
    sample_rows = lookup(weight, samples, product_dtype)
    logits = buffer((groups, words, samples.shape[1]), product_dtype)
    torch.bmm(converted(states, product_dtype), sample_rows.mT, out=logits)
    constant = 0.0 if objective != "nce" else math.log(samples.shape[1]) + float(log_z)
    target_offset = _offsets(log_q_target, bias, constant, target)
    sample_offset = _offsets(log_q_samples, bias, constant, samples)
    value, d_target = (torch.empty(groups, words) for _ in range(2))
    _native.words(
        _OBJECTIVES[objective],
        keep_copies,
        words,
        groups * words,
        samples.shape[1],
        size,
        _floats(states),
        *_numbers(weight),
        _integers(target),
        _floats(target_offset),
        _integers(samples),
        _floats(sample_offset),
        *_numbers(logits),
        _floats(value),
        _floats(d_target),
        threads,
    )
    return value, SampledSaved(states, weight, sample_rows, d_target, logits)


def _offsets(log_q: Tensor, bias: Tensor | None, constant: float, words: Tensor) -> Tensor:
    """What is subtracted from the logits of ``words``, which have this log Q."""
    if log_q.shape != words.shape:
        raise ValueError(f"log Q {tuple(log_q.shape)} for words {tuple(words.shape)}")
    log_q = log_q.double().contiguous()
    result = torch.empty(words.shape)
    biases = None if bias is None else converted(bias, torch.float32)
    _native.offsets(
        _array(log_q, torch.float64),
        0 if biases is None else _floats(biases),
        constant,
        _integers(words),
        words.numel(),
        _floats(result),
        torch.get_num_threads(),
    )
    return result


def sampled_backward(
    saved: SampledSaved,
    target: Tensor,
    samples: Tensor,
    grad: Tensor,
    logit_sums: bool = True,
    row_dtype: torch.dtype | None = None,
) -> SampledGradients:
    """The gradients of sum(grad * J); no pass over the (G, M, K) derivatives but the products."""
    hidden, weight, sample_rows, d_target, d_samples = saved
    groups, words, size = hidden.shape
    dtype, threads = sample_rows.dtype, torch.get_num_threads()
    grad, target = converted(grad, torch.float32), target.contiguous()

    row_dtype = row_dtype or weight.dtype
    row_values = buffer((samples.numel() + target.numel(), size), row_dtype)
    d_sample_rows = row_values[: samples.numel()].view(sample_rows.shape)
    d_target_rows = row_values[samples.numel() :]
    scaled = buffer((groups, words, size), dtype)
    _native.scale_hidden(
        groups * words,
        size,
        _floats(hidden),
        _floats(grad),
        _floats(d_target),
        *_numbers(scaled),
        *_numbers(d_target_rows),
        threads,
    )
    if dtype == row_dtype:
        torch.bmm(d_samples.mT, scaled, out=d_sample_rows)
    else:
        products = buffer(tuple(sample_rows.shape), dtype)
        torch.bmm(d_samples.mT, scaled, out=products)
        _convert(products, d_sample_rows)

    product = buffer((groups, words, size), dtype)
    torch.bmm(d_samples, sample_rows, out=product)
    d_hidden = product if dtype == torch.float32 else buffer((groups, words, size), torch.float32)
    _native.hidden_gradient(
        groups * words,
        size,
        *_numbers(product),
        *_numbers(weight),
        _integers(target),
        _floats(d_target),
        _floats(grad),
        _floats(d_hidden),
        threads,
    )
    rows = torch.cat([samples.flatten(), target.flatten()])
    if not logit_sums:
        return SampledGradients(d_hidden, rows, row_values, None, None)
    sums = reference.logit_gradients(d_target, d_samples.float(), grad)
    return SampledGradients(d_hidden, rows, row_values, *sums)


# ---------------------------------------------------------------------------- exact softmax


def target_log_prob(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    target: Tensor,
    product_dtype: torch.dtype,
) -> Tensor:
    """Exact log p(target | hidden), (N,)."""
    logit = target_logit(hidden, weight, bias, target)
    return logit - log_partition(hidden, weight, bias, product_dtype)


def target_logit(hidden: Tensor, weight: Tensor, bias: Tensor | None, target: Tensor) -> Tensor:
    """u of each target, (N,)."""
    states = converted(hidden, torch.float32)
    target = _words_below(target, len(weight), "target")
    logit = (states * lookup(weight, target, torch.float32)).sum(1)
    return logit if bias is None else logit + bias[target]


def log_partition(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, product_dtype: torch.dtype
) -> Tensor:
    """log of the sum of exp(u) over all words, (N,): a tile is converted once for all states."""
    states = converted(hidden, torch.float32)
    operand, threads = converted(states, product_dtype), torch.get_num_threads()
    biases = None if bias is None else converted(bias, torch.float32)
    maximum, total = torch.full((len(states),), -math.inf), torch.zeros(len(states))
    space = buffer((min(_CHUNK, len(states)) * _TILE,), product_dtype)
    for start in range(0, len(weight), _TILE):
        tile = converted(weight[start : start + _TILE], product_dtype)
        tile_bias = 0 if biases is None else _floats(biases[start:])
        for begin in range(0, len(states), _CHUNK):
            part = operand[begin : begin + _CHUNK]
            logits = space[: len(part) * len(tile)].view(len(part), len(tile))
            torch.mm(part, tile.mT, out=logits)
            _native.log_sum(
                *_numbers(logits),
                *logits.shape,
                tile_bias,
                _floats(maximum[begin:]),
                _floats(total[begin:]),
                threads,
            )
    return maximum + total.log()


# ---------------------------------------------------------------------------- row-sparse RMSProp


class RowGradient(NamedTuple):
    """A row-sparse gradient in place: row i is the sum of values order[start[i] : start[i + 1]]."""

    rows: Tensor  # (U,), distinct, ascending
    start: Tensor  # (U + 1,)
    order: Tensor  # (N,)
    values: Tensor  # (N, ...)

    @property
    def size(self) -> int:
        return self.values[:1].numel()

    def arguments(self) -> tuple[Any, ...]:
        return (
            self.size,
            _integers(self.rows),
            _integers(self.start),
            _array(self.order, torch.int32),
            *_numbers(self.values),
            len(self.rows),
        )


def collect_rows(rows: Tensor, values: Tensor, length: int) -> RowGradient:
    """The gradient of a table with ``length`` rows; the values stay where they are."""
    rows, values = _words_below(rows, length, "row"), values.contiguous()
    count = len(rows)
    distinct, start = (torch.empty(n, dtype=torch.int64) for n in (count, count + 1))
    order = torch.empty(count, dtype=torch.int32)
    found = _native.collect_rows(
        _integers(rows), count, _integers(distinct), _integers(start), order.data_ptr()
    )
    return RowGradient(distinct[:found], start[: found + 1], order, values)


def sum_duplicates(rows: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    """The distinct rows, ascending, and for each the sum of its values."""
    gradient = collect_rows(rows, values, int(rows.max()) + 1 if len(rows) else 0)
    sums = torch.empty(len(gradient.rows), *values.shape[1:])
    _native.sum_rows(*gradient.arguments(), _floats(sums), torch.get_num_threads())
    return gradient.rows, sums.to(values.dtype)


def squared_norm(gradient: RowGradient | Tensor) -> float:
    """The sum of the squares of a gradient, added up in one order whatever the threads."""
    if isinstance(gradient, Tensor):
        flat = gradient.contiguous()
        return _native.dense_squared_norm(*_numbers(flat), flat.numel(), torch.get_num_threads())
    return _native.squared_norm(*gradient.arguments(), torch.get_num_threads())


def exact_aging(touched: Tensor, rows: Tensor, step: int, beta: float) -> Tensor:
    """beta^(steps since the last update) of each row, (U,); marks the rows as updated."""
    agings = torch.empty(len(rows))
    _native.exact_aging(
        _array(touched, torch.int32),
        _integers(rows),
        len(rows),
        step,
        beta,
        _floats(agings),
        torch.get_num_threads(),
    )
    return agings


def rmsprop_rows(
    weight: Tensor,
    moment: Tensor,
    gradient: RowGradient,
    factor: float,
    aging: Tensor | float,
    lr: float,
    beta: float,
    damping: float,
    damping_inside: bool,
    rounding: int,
) -> None:
    """Updates the touched rows of ``weight`` and ``moment`` in place, in one pass."""
    one_aging, agings = (0.0, aging) if isinstance(aging, Tensor) else (aging, None)
    _native.update_rows(
        *gradient.arguments(),
        *_numbers(weight.detach()),
        _floats(moment),
        factor,
        lr,
        beta,
        damping,
        damping_inside,
        one_aging,
        0 if agings is None else _floats(agings),
        moment.shape != weight.shape,
        rounding % 2**64,
        torch.get_num_threads(),
    )


def rmsprop_dense(
    weight: Tensor,
    moment: Tensor,
    gradient: Tensor,
    factor: float,
    aging: Tensor | float,
    lr: float,
    beta: float,
    damping: float,
    damping_inside: bool,
    rounding: int,
) -> None:
    """Updates all of ``weight`` and ``moment`` in place."""
    settings = (lr, beta, damping, damping_inside)
    if weight.dtype != torch.float32 or isinstance(aging, Tensor) or moment.shape != weight.shape:
        reference.rmsprop_dense(weight, moment, gradient, factor, aging, *settings, rounding)
        return
    gradient = gradient.contiguous()
    _native.update_dense(
        weight.numel(),
        *_numbers(gradient),
        _floats(weight.detach()),
        _floats(moment),
        factor,
        *settings,
        aging,
        torch.get_num_threads(),
    )


# ---------------------------------------------------------------------------- recurrence


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
        x, s, p = _floats(inputs), _floats(outputs), _numbers(previous)[0]
        row, operand_row = streams * size * 4, streams * size * product_dtype.itemsize
        product_address, half = _numbers(product)
        k = 0 if keep is None else _floats(keep)
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
        k = 0 if keep is None else _floats(keep)
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
