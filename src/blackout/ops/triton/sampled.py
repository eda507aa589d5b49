"""The sampled output layer: gather, products, objective with derivatives in place, and back."""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from blackout.ops import reference
from blackout.ops.engine import Added, Objective, SampledGradients, Scalar
from blackout.ops.triton.launch import block_of, launch, tiles, warps_of
from blackout.ops.triton.objective import MOST_COLUMNS, objective_in_place
from blackout.ops.triton.tables import gather


class SampledSaved(NamedTuple):
    """What the backward pass of the sampled output layer needs."""

    hidden: Tensor  # (G, M, h)
    weight: Tensor  # (V, h), the table itself
    sample_rows: Tensor  # (G, C, h), in the dtype of the products
    d_target: Tensor  # (G, M)
    d_samples: Tensor  # (G, M, C), in the dtype of the products


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
) -> tuple[Tensor, SampledSaved | reference.SampledSaved]:
    """J (G, M) of the words of a block, and what :func:`sampled_backward` needs."""
    words = (target, samples, multiplicity, log_q_target, log_q_samples)
    plain = weight.is_contiguous() and (bias is None or bias.is_contiguous())
    if samples.shape[1] > MOST_COLUMNS or added is not None or not plain:
        return reference.sampled_forward(
            hidden, weight, bias, log_z, *words, objective, keep_copies, product_dtype, added
        )
    if product_dtype == torch.float32 and hidden.dtype == torch.bfloat16:
        hidden = hidden.float()
    samples = samples.contiguous()
    rows, _ = gather(weight, samples, product_dtype)
    logits = torch.bmm(hidden.to(product_dtype), rows.mT)  # (G, M, C)
    draws = samples.shape[1]
    if objective == "nce" and multiplicity is not None:
        log_z, draws = log_z + multiplicity[0].sum().log(), 1  # K may be more than C
    hidden = hidden.contiguous()
    looked_at = (
        target.contiguous(),
        samples,
        None if multiplicity is None else multiplicity.contiguous(),
        log_q_target.contiguous(),
        log_q_samples.contiguous(),
    )
    value, d_target = objective_in_place(
        logits, hidden, weight, bias, log_z, looked_at, objective, keep_copies, draws
    )
    return value, SampledSaved(hidden, weight, rows, d_target, logits)


@triton.jit
def _target_gradient(
    d_hidden, out, hidden, weight, target, d_target, factor, rows_out, length, size,
    WITH_FACTOR: tl.constexpr, WITH_ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    n = tl.program_id(0).to(tl.int64)
    c = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    there = c < size
    y = tl.load(target + n).to(tl.int64)
    known = (y >= 0) & (y < length)
    d = tl.load(d_target + n)
    scale = 1.0
    if WITH_FACTOR:
        scale = tl.load(factor + n)
    row = tl.load(weight + y * size + c, mask=there & known, other=0.0).to(tl.float32)
    before = tl.load(d_hidden + n * size + c, mask=there, other=0.0).to(tl.float32)
    after = (before + d * row) * scale
    tl.store(out + n * size + c, after.to(out.dtype.element_ty), mask=there)
    if WITH_ROWS:
        s = tl.load(hidden + n * size + c, mask=there, other=0.0).to(tl.float32)
        found = (d * scale * s).to(rows_out.dtype.element_ty)
        tl.store(rows_out + n * size + c, found, mask=there)


def add_target_gradient(
    d_hidden: Tensor,
    hidden: Tensor,
    weight: Tensor,
    target: Tensor,
    d_target: Tensor,
    factor: Tensor | None = None,
    rows_out: Tensor | None = None,
    out: Tensor | None = None,
) -> None:
    """Adds d_target θ_target to ``d_hidden``, scales it by ``factor``; fills the targets' rows.

    ``out`` takes the result, else ``d_hidden`` itself.
    """
    size = hidden.shape[-1]
    block = block_of(size, 1024)
    launch(
        _target_gradient,
        (target.numel(), tiles(size, block)),
        (
            d_hidden, d_hidden if out is None else out, hidden, weight, target, d_target,
            d_target if factor is None else factor, d_hidden if rows_out is None else rows_out,
        ),
        (len(weight), size, factor is not None, rows_out is not None, block),
        num_warps=warps_of(block),
    )  # fmt: skip


def sampled_backward(
    saved: SampledSaved | reference.SampledSaved,
    target: Tensor,
    samples: Tensor,
    grad: Tensor,
    logit_sums: bool,
    row_dtype: torch.dtype,
) -> SampledGradients:
    """The gradients of sum(grad * J); values of rows are in ``row_dtype`` or float32."""
    if isinstance(saved, reference.SampledSaved):
        return reference.sampled_backward(saved, target, samples, grad, logit_sums, row_dtype)
    hidden, weight, sample_rows, d_target, d_samples = saved
    dtype, size, drawn = sample_rows.dtype, hidden.shape[-1], samples.numel()
    grad = grad.to(torch.float32).contiguous()
    out = dtype if row_dtype == dtype else torch.float32
    values = torch.empty(drawn + target.numel(), size, dtype=out, device=hidden.device)
    scaled = torch.mul(hidden, grad[..., None], out=torch.empty_like(hidden, dtype=dtype))
    of_samples = values[:drawn].view(*samples.shape, size)
    if out == dtype:
        torch.bmm(d_samples.mT, scaled, out=of_samples)
    else:
        of_samples.copy_(torch.bmm(d_samples.mT, scaled))
    d_hidden = torch.empty_like(hidden)
    add_target_gradient(
        torch.bmm(d_samples, sample_rows), hidden, weight, target.contiguous(), d_target, grad,
        values[drawn:], d_hidden,
    )  # fmt: skip
    sums: tuple[Tensor | None, Tensor | None] = (None, None)
    if logit_sums:
        sums = reference.logit_gradients(d_target, d_samples.float(), grad)
    rows = torch.cat([samples.reshape(-1), target.reshape(-1)])
    return SampledGradients(d_hidden, rows, values, *sums)
