"""A sampled layer's training call as a whole, for networks that launch one thing after another.

Composed of the engine's operations a call and its way back are 40 launches, of which the GPU is
done long before Python has made the next. Here they are eight: one kernel draws the samples,
gathers their rows and looks at the examples; the product; the objective; the loss; and on the way
back two products around one kernel. Nothing waits for the device.

An example that does not count (``mask`` is False, its target is ``ignore_index``) is given a sample
as its target, so that no row is touched for it, and its state is read as zeros, whatever it holds.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from blackout.ops.engine import Scalar
from blackout.ops.layer_call import LayerCall, LayerGradients, LayerValue
from blackout.ops.triton.launch import block_of, launch, scalar, tiles, warps_of
from blackout.ops.triton.numbers import real
from blackout.ops.triton.objective import MOST_COLUMNS, objective_in_place
from blackout.ops.triton.sampling import drawn_words, draws_start, step_key

__all__ = ["MOST_COLUMNS", "LayerSaved", "layer_backward", "layer_forward"]

_WORDS = 4096  # objectives that are added up at once


class LayerSaved(NamedTuple):
    """What the way back needs."""

    words: Tensor  # (G*K + N,): the samples, then the targets
    rows: Tensor  # (G, K, h), of the samples, in the type of the products
    d_samples: Tensor  # (G, M, K), in the same
    d_target: Tensor  # (N,)
    counted: Tensor  # (N,), 1 or 0
    scale: Tensor  # (1,): the loss is the objectives' sum times this


@triton.jit(do_not_specialize=["start", "ignore", "vocab"])
def _begin(
    threshold, alias, start, step, given, table, log_q, hidden, target, mask, ignore,
    words, log_q_words, rows, operands, counted, wrong,
    vocab, drawn, samples, words_each, size,
    DRAW: tl.constexpr, WITH_MASK: tl.constexpr, WITH_IGNORE: tl.constexpr,
    TARGET_ONE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """A program for each sample, then one for each example: its word, log Q, row or state."""
    program = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < size
    first = tl.program_id(1) == 0
    is_sample = program < drawn
    example = tl.maximum(program - drawn, 0)
    group = tl.where(is_sample, program // samples, example // words_each)
    spot = tl.where(is_sample, program % samples, 0)
    if DRAW:
        key = step_key(start, step, True)
        word = drawn_words(threshold, alias, key, group, spot, vocab, program >= 0)
    else:
        word = tl.load(given + group * samples + spot).to(tl.int64)
    if is_sample:
        there = (word >= 0) & (word < vocab)
        row = tl.load(table + word * size + column, mask=inside & there, other=float("nan"))
        row_out = rows + program * size + column
        tl.store(row_out, row.to(rows.dtype.element_ty), mask=inside)
        tl.store(words + program, word, mask=first)
        tl.store(log_q_words + program, tl.load(log_q + word, mask=there), mask=first & there)
    else:
        own = tl.load(target + example).to(tl.int64)
        counts = example >= 0
        if WITH_MASK:
            counts = counts & (tl.load(mask + example) != 0)
        if WITH_IGNORE:
            counts = counts & (own != ignore)
        known = (own >= 0) & (own < vocab)
        word = tl.where(counts & known, own, word)
        chance = tl.load(log_q + word)
        if TARGET_ONE:
            chance = tl.zeros_like(chance)
        tl.store(words + program, word, mask=first)
        tl.store(log_q_words + program, chance, mask=first)
        tl.store(counted + example, counts.to(tl.float32), mask=first)
        tl.store(wrong + example, (counts & (known == 0)).to(tl.int32), mask=first)
        state = tl.load(hidden + example * size + column, mask=inside & counts, other=0.0)
        state_out = operands + example * size + column
        tl.store(state_out, state.to(tl.float32).to(operands.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["divisor"])
def _conclude(
    values, counted, wrong, divisor, loss, scale, step, words, pieces,
    KIND: tl.constexpr, ON_DEVICE: tl.constexpr, ADVANCE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One program, so that everything is added in one order. ``KIND``: what divides the sum:
    nothing, the number of those that count, ``divisor``."""
    k = tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], tl.float64)
    number = tl.zeros([BLOCK], tl.float32)
    bad = tl.zeros([BLOCK], tl.int32)
    part = 0
    while part < pieces:
        place = part * BLOCK + k
        there = place < words
        total += tl.load(values + place, mask=there, other=0.0).to(tl.float64)
        number += tl.load(counted + place, mask=there, other=0.0)
        bad += tl.load(wrong + place, mask=there, other=0)
        part += 1
    by = tl.sum(number, 0)
    by = tl.where(by == 0, 1.0, by)  # a mean over nothing is 0
    if KIND == 0:
        by = tl.zeros_like(by) + 1.0
    elif KIND == 2:
        by = tl.zeros_like(by) + real(divisor, ON_DEVICE)
    tl.store(loss, (-tl.sum(total, 0) / by.to(tl.float64)).to(tl.float32))
    tl.store(scale, -1.0 / by)
    tl.store(wrong + words, (tl.sum(bad, 0) == 0).to(tl.int32))
    if ADVANCE:
        tl.store(step, tl.load(step) + 1)


def layer_forward(
    hidden: Tensor,
    weight: Tensor,
    target: Tensor,
    mask: Tensor | None,
    given: Tensor | None,
    divisor: Scalar | None,
    call: LayerCall,
) -> LayerValue:
    """The objectives and the loss of a call, and what :func:`layer_backward` needs."""
    groups, samples, examples, size = call.groups, call.samples, target.numel(), hidden.shape[-1]
    each, drawn = examples // groups, groups * samples
    device, dtype = hidden.device, call.product_dtype
    words = torch.empty(drawn + examples, dtype=torch.int64, device=device)
    log_q = torch.empty(drawn + examples, dtype=torch.float64, device=device)
    rows = torch.empty(groups, samples, size, dtype=dtype, device=device)
    operands = torch.empty(groups, each, size, dtype=dtype, device=device)
    counted = torch.empty(examples, device=device)
    wrong = torch.empty(examples + 1, dtype=torch.int32, device=device)  # and whether none is
    block = block_of(size, 2048)
    launch(
        _begin,
        (drawn + examples, tiles(size, block)),
        (
            call.threshold, call.alias, draws_start(call.seed), call.step,
            words if given is None else given, weight, call.log_q, hidden, target,
            target if mask is None else mask, 0 if call.ignore is None else call.ignore,
            words, log_q, rows, operands, counted, wrong,
        ),
        (
            len(weight), drawn, samples, each, size,
            given is None, mask is not None, call.ignore is not None, call.target_one, block,
        ),
        num_warps=warps_of(block), enable_fp_fusion=False,
    )  # fmt: skip
    d_samples = torch.bmm(operands, rows.mT)
    of_samples, of_target = words.split_with_sizes([drawn, examples])
    log_q_samples, log_q_target = log_q.split_with_sizes([drawn, examples])
    output = torch.empty(target.shape, device=device)
    _, d_target = objective_in_place(
        d_samples, hidden, weight, None, call.log_z,
        (of_target, of_samples, None, log_q_target, log_q_samples),
        call.objective, call.keep_copies, samples, counted, value=output,
    )  # fmt: skip
    loss, scale = torch.empty((), device=device), torch.empty(1, device=device)
    by, on_device = scalar(1.0 if divisor is None else divisor)
    launch(
        _conclude,
        (1,),
        (output, counted, wrong, by if on_device else float(by), loss, scale, call.step),
        (
            examples, tiles(examples, _WORDS), 0 if call.total else 1 + (divisor is not None),
            on_device, given is None, _WORDS,
        ),
        num_warps=16,
    )  # fmt: skip
    saved = LayerSaved(words, rows, d_samples, d_target, counted, scale)
    return LayerValue(
        output, loss, wrong[examples:], of_samples.view(groups, samples),
        log_q_samples.view(groups, samples), log_q_target, saved,
    )  # fmt: skip


@triton.jit
def _end(
    products, hidden, table, words, d_target, counted, scale, grad_output, grad_loss,
    d_hidden, scaled, rows_out, vocab, drawn, size,
    WITH_OUTPUT: tl.constexpr, WITH_LOSS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """A program an example: all that its target adds, and its state times its weight."""
    n = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < size
    factor = 0.0
    if WITH_OUTPUT:
        factor += tl.load(grad_output + n).to(tl.float32)
    if WITH_LOSS:
        factor += tl.load(grad_loss).to(tl.float32) * tl.load(scale)
    counts = tl.load(counted + n) != 0
    factor = tl.where(counts, factor, 0.0)  # which may be anything where nothing counts
    read = tl.where(counts, size, 0)
    word = tl.load(words + drawn + n)
    known = inside & (word >= 0) & (word < vocab)
    d = tl.load(d_target + n)
    place = n * size + column
    row = tl.load(table + word * size + column, mask=known, other=0.0).to(tl.float32)
    before = tl.load(products + place, mask=inside, other=0.0).to(tl.float32)
    after = (before + d * row) * factor
    tl.store(d_hidden + place, after.to(d_hidden.dtype.element_ty), mask=inside)
    state = tl.load(hidden + place, mask=column < read, other=0.0).to(tl.float32) * factor
    tl.store(scaled + place, state.to(scaled.dtype.element_ty), mask=inside)
    of_target = (d * state).to(rows_out.dtype.element_ty)
    tl.store(rows_out + (drawn + n) * size + column, of_target, mask=inside)


def layer_backward(
    hidden: Tensor,
    weight: Tensor,
    saved: LayerSaved,
    grad_output: Tensor | None,
    grad_loss: Tensor | None,
    row_dtype: torch.dtype,
) -> LayerGradients:
    """The gradients of sum(grad_output * output) + grad_loss * loss; ``hidden`` contiguous."""
    words, rows, d_samples, d_target, counted, scale = saved
    groups, samples, size = rows.shape
    drawn, dtype, device = groups * samples, rows.dtype, hidden.device
    examples = d_target.numel()
    d_hidden = torch.empty_like(hidden)
    out = dtype if row_dtype == dtype else torch.float32
    values = torch.empty(len(words), size, dtype=out, device=device)
    scaled = torch.empty(*d_samples.shape[:2], size, dtype=dtype, device=device)
    products = torch.bmm(d_samples, rows)
    nothing = scale
    block = block_of(size, 1024)
    launch(
        _end,
        (examples, tiles(size, block)),
        (
            products, hidden, weight, words, d_target, counted, scale,
            nothing if grad_output is None else grad_output.contiguous(),
            nothing if grad_loss is None else grad_loss,
            d_hidden, scaled, values,
        ),
        (len(weight), drawn, size, grad_output is not None, grad_loss is not None, block),
        num_warps=warps_of(block),
    )  # fmt: skip
    of_samples = values[:drawn].view(groups, samples, size)
    if out == dtype:
        torch.bmm(d_samples.mT, scaled, out=of_samples)
    elif _wide_products(device.type):
        torch.bmm(d_samples.mT, scaled, out_dtype=out, out=of_samples)  # type: ignore[call-overload]
    else:
        of_samples.copy_(torch.bmm(d_samples.mT, scaled))
    return LayerGradients(d_hidden, words, values)


@functools.cache
def _wide_products(device: str) -> bool:
    """Whether this PyTorch gives products of bfloat16 on that device as float32."""
    if device != "cuda":
        return False
    one, wide = (
        torch.ones(1, 16, 16, dtype=dtype, device=device)
        for dtype in (torch.bfloat16, torch.float32)
    )
    try:
        torch.bmm(one, one, out_dtype=torch.float32, out=wide)  # type: ignore[call-overload]
    except (TypeError, RuntimeError):
        return False
    return True
