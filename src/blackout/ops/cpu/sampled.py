"""The sampled output layer around its matrix products."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from blackout import _native
from blackout.ops import reference
from blackout.ops.cpu.arrays import (
    array,
    buffer,
    converted,
    floats,
    integers,
    numbers,
    words_below,
)
from blackout.ops.cpu.products import matrix_product
from blackout.ops.cpu.tables import lookup
from blackout.ops.engine import Added, Objective, SampledGradients, Scalar

OBJECTIVES = {"blackout": 0, "blackout-noise": 1, "sampled": 2, "nce": 3}


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
    log_z: Scalar,
    target: Tensor,
    samples: Tensor,
    multiplicity: Tensor | None,
    log_q_target: Tensor,
    log_q_samples: Tensor,
    objective: Objective,
    keep_copies: bool,
    product_dtype: torch.dtype,
    added: Added | None = None,
) -> tuple[Tensor, SampledSaved]:
    """J (G, M); the logits (G, M, K) are turned into derivatives where they lie."""
    groups, words, size = hidden.shape
    threads = torch.get_num_threads()
    states = converted(hidden, torch.float32)
    target = words_below(target, len(weight), "target")
    sample_rows = lookup(weight, samples, product_dtype)
    logits = buffer((groups, words, samples.shape[1]), product_dtype)
    matrix_product(converted(states, product_dtype), sample_rows.mT, logits)
    constant = 0.0
    if objective == "nce":
        draws = samples.shape[1] if multiplicity is None else float(multiplicity[0].sum())
        constant = math.log(draws) + float(log_z)
    target_offset = _offsets(log_q_target, bias, constant, target)
    sample_offset = _offsets(log_q_samples, bias, constant, samples)
    if added is not None:
        target_offset = target_offset - added.target
        logits += added.samples
    value, d_target = (states.new_empty(groups, words) for _ in range(2))
    _native.words(
        OBJECTIVES[objective],
        keep_copies,
        words,
        groups * words,
        samples.shape[1],
        size,
        floats(states),
        *numbers(weight),
        integers(target),
        floats(target_offset),
        integers(samples),
        floats(sample_offset),
        0 if multiplicity is None else floats(_like(multiplicity, samples)),
        *numbers(logits),
        floats(value),
        floats(d_target),
        threads,
    )
    return value, SampledSaved(states, weight, sample_rows, d_target, logits)


def _like(multiplicity: Tensor, samples: Tensor) -> Tensor:
    if multiplicity.shape != samples.shape:
        shapes = tuple(multiplicity.shape), tuple(samples.shape)
        raise ValueError(f"multiplicity {shapes[0]} for samples {shapes[1]}")
    return multiplicity


def _offsets(log_q: Tensor, bias: Tensor | None, constant: float, words: Tensor) -> Tensor:
    """What is subtracted from the logits of ``words``, which have this log Q."""
    if log_q.shape != words.shape:
        raise ValueError(f"log Q {tuple(log_q.shape)} for words {tuple(words.shape)}")
    log_q = log_q.double().contiguous()
    result = words.new_empty(words.shape, dtype=torch.float32)
    biases = None if bias is None else converted(bias, torch.float32)
    _native.offsets(
        array(log_q, torch.float64),
        0 if biases is None else floats(biases),
        constant,
        integers(words),
        words.numel(),
        floats(result),
        torch.get_num_threads(),
    )
    return result


def sampled_backward(
    saved: SampledSaved,
    target: Tensor,
    samples: Tensor,
    grad: Tensor,
    logit_sums: bool,
    row_dtype: torch.dtype,
) -> SampledGradients:
    """The gradients of sum(grad * J); no pass over the (G, M, K) derivatives but the products."""
    hidden, weight, sample_rows, d_target, d_samples = saved
    groups, words, size = hidden.shape
    dtype, threads = sample_rows.dtype, torch.get_num_threads()
    grad, target = converted(grad, torch.float32), target.contiguous()

    row_values = buffer((samples.numel() + target.numel(), size), row_dtype)
    d_sample_rows = row_values[: samples.numel()].view(sample_rows.shape)
    d_target_rows = row_values[samples.numel() :]
    scaled = buffer((groups, words, size), dtype)
    _native.scale_hidden(
        groups * words,
        size,
        floats(hidden),
        floats(grad),
        floats(d_target),
        *numbers(scaled),
        *numbers(d_target_rows),
        threads,
    )
    matrix_product(d_samples.mT, scaled, d_sample_rows)
    product = matrix_product(d_samples, sample_rows)
    d_hidden = product if dtype == torch.float32 else buffer((groups, words, size), torch.float32)
    _native.hidden_gradient(
        groups * words,
        size,
        *numbers(product),
        *numbers(weight),
        integers(target),
        floats(d_target),
        floats(grad),
        floats(d_hidden),
        threads,
    )
    rows = torch.cat([samples.flatten(), target.flatten()])
    if not logit_sums:
        return SampledGradients(d_hidden, rows, row_values, None, None)
    sums = reference.logit_gradients(d_target, d_samples.float(), grad)
    return SampledGradients(d_hidden, rows, row_values, *sums)
