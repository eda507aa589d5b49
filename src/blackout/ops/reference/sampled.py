"""The sampled output layer: from hidden states and words to J, and back to gradients."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from blackout.ops.engine import Added, Objective, SampledGradients, Scalar
from blackout.ops.reference.objectives import OBJECTIVES, ObjectiveFunction


class SampledSaved(NamedTuple):
    """What the backward pass of the sampled output layer needs."""

    hidden: Tensor  # (G, M, h)
    sample_rows: Tensor  # (G, K, h), in the dtype of the products
    target_rows: Tensor  # (G, M, h)
    d_target: Tensor  # (G, M)
    d_samples: Tensor  # (G, M, K), the sum over copies where these are merged


class Without(NamedTuple):
    """An objective for which some samples of some words do not count."""

    objective: Objective | ObjectiveFunction
    left_out: Tensor  # (G, M, K), bool


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
    objective: Objective | ObjectiveFunction | Without,
    keep_copies: bool,
    product_dtype: torch.dtype,
    added: Added | None = None,
) -> tuple[Tensor, SampledSaved]:
    """J (G, M) of the words of a block, and what :func:`sampled_backward` needs.

    Besides the objectives of all engines this one takes any function of z, and any objective
    without some of the samples (:class:`Without`).

    ``log_q_target`` (G, M) and ``log_q_samples`` (G, K) are log Q of the words there. Copies of the
    target among its samples count where ``keep_copies`` says so. With ``multiplicity`` (G, K) a
    sample stands for as many copies of itself.
    """
    left_out = None
    if isinstance(objective, Without):
        objective, left_out = objective
    work = torch.promote_types(hidden.dtype, torch.float32)  # logits are never kept in 16 bits
    target_rows = weight[target]  # (G, M, h)
    sample_rows = weight[samples].to(product_dtype)  # (G, K, h)
    u_target = (hidden.to(work) * target_rows).sum(-1)
    u_samples = torch.bmm(hidden.to(product_dtype), sample_rows.mT).to(work)  # (G, M, K)
    if bias is not None:
        u_target = u_target + bias[target]
        u_samples = u_samples + bias[samples][:, None, :]
    if added is not None:
        u_target = u_target + added.target
        u_samples = u_samples + added.samples
    constant = 0.0 if objective != "nce" else _log_draws(samples, multiplicity) + log_z
    z_target = u_target - (log_q_target + constant).to(work)
    z_samples = u_samples - (log_q_samples + constant).to(work)[:, None, :]
    if not keep_copies:
        z_samples.masked_fill_(samples[:, None, :] == target[:, :, None], -math.inf)
    if left_out is not None:
        z_samples.masked_fill_(left_out, -math.inf)
    copies = None if multiplicity is None else multiplicity.to(work)[:, None, :]
    function = OBJECTIVES[objective] if isinstance(objective, str) else objective
    value, d_target, d_samples = function(z_target, z_samples, copies)
    return value, SampledSaved(hidden, sample_rows, target_rows, d_target, d_samples)


def _log_draws(samples: Tensor, multiplicity: Tensor | None) -> Scalar:
    """log K: how many words were drawn for each group."""
    if multiplicity is None:
        return math.log(samples.shape[1])
    return multiplicity[0].double().sum().log()


def sampled_backward(
    saved: SampledSaved,
    target: Tensor,
    samples: Tensor,
    grad: Tensor,
    logit_sums: bool,
    row_dtype: torch.dtype,
) -> SampledGradients:
    """The gradients of sum(grad * J); ``grad`` (G, M); bias and log Z only with ``logit_sums``.

    Values of rows stay as computed, whatever ``row_dtype``. The factors ``grad`` go into the small
    arrays, the hidden states, not into the (G, M, K) ones.
    """
    hidden, sample_rows, target_rows, d_target, d_samples = saved
    dtype, work, size = sample_rows.dtype, d_samples.dtype, hidden.shape[-1]
    scaled = hidden * grad[..., None]  # (G, M, h)
    d_products = d_samples.to(dtype)
    d_hidden = torch.bmm(d_products, sample_rows).to(work)
    d_hidden = (d_hidden + d_target[..., None] * target_rows) * grad[..., None]
    d_sample_rows = torch.bmm(d_products.mT, scaled.to(dtype)).to(work)  # (G, K, h)
    d_target_rows = d_target[..., None] * scaled  # (G, M, h)
    sums = logit_gradients(d_target, d_samples, grad) if logit_sums else (None, None)
    return SampledGradients(
        d_hidden.to(hidden.dtype),
        torch.cat([samples.flatten(), target.flatten()]),
        torch.cat([d_sample_rows.reshape(-1, size), d_target_rows.reshape(-1, size)]),
        *sums,
    )


def logit_gradients(d_target: Tensor, d_samples: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients by the biases of samples and targets, (G*K + G*M,), and by log Z."""
    d_u_samples = torch.einsum("gmk,gm->gk", d_samples, grad)
    d_u_target = d_target * grad
    return (
        torch.cat([d_u_samples.flatten(), d_u_target.flatten()]),
        -(d_u_samples.sum() + d_u_target.sum()),
    )
