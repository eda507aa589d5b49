"""The exact softmax in tiles of the vocabulary."""

from __future__ import annotations

import math

import torch
from torch import Tensor


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
    logit = (hidden * weight[target].to(hidden.dtype)).sum(1)
    return logit if bias is None else logit + bias[target]


def log_partition(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    product_dtype: torch.dtype,
    tile: int = 8192,
    chunk: int = 1024,
) -> Tensor:
    """log of the sum of exp(u) over all words, (N,): ``chunk`` × ``tile`` logits at once."""
    parts = [
        _log_partition(part, weight, bias, product_dtype, tile) for part in hidden.split(chunk)
    ]
    return torch.cat(parts)


def _log_partition(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, product_dtype: torch.dtype, tile: int
) -> Tensor:
    maximum = hidden.new_full((len(hidden),), -math.inf)
    total = hidden.new_zeros(len(hidden))
    operand = hidden.to(product_dtype)
    for start in range(0, len(weight), tile):
        logits = (operand @ weight[start : start + tile].to(product_dtype).mT).to(hidden.dtype)
        if bias is not None:
            logits = logits + bias[start : start + tile]
        higher = torch.maximum(maximum, logits.max(1).values)
        total = total * (maximum - higher).exp()
        total += logits.sub_(higher[:, None]).exp_().sum(1)
        maximum = higher
    return maximum + total.log()
