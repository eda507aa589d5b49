"""The exact softmax: for training with all logits at once, else in tiles of the vocabulary."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import linear

from blackout.ops.engine import SoftmaxGradients, Windows
from blackout.ops.reference.windows import add_windows


class SoftmaxSaved(NamedTuple):
    """What the backward pass of the exact softmax needs."""

    hidden: Tensor  # (N, h), in the dtype of the products
    weight: Tensor  # (V, h)
    log_prob: Tensor  # (N, V)


def softmax_forward(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    target: Tensor,
    product_dtype: torch.dtype,
    added: Tensor | None = None,
) -> tuple[Tensor, SoftmaxSaved]:
    """log p(target | hidden) (N,), and what :func:`softmax_backward` needs."""
    operand = hidden.to(product_dtype)
    logits = torch.mm(operand, weight.to(product_dtype).mT).to(_wide(hidden))
    if bias is not None:
        logits = logits + bias
    if added is not None:
        logits = logits + added
    log_prob = logits.log_softmax(1)
    value = log_prob.gather(1, target[:, None])[:, 0]
    return value, SoftmaxSaved(operand, weight, log_prob)


def softmax_backward(saved: SoftmaxSaved, target: Tensor, grad: Tensor) -> SoftmaxGradients:
    """The gradients of sum(grad * log p): grad times (1 for the target, else 0) - p."""
    operand, weight, log_prob = saved
    dtype = operand.dtype
    d_value = torch.zeros_like(log_prob).scatter_(1, target[:, None], grad[:, None])
    d_logits = torch._log_softmax_backward_data(d_value, log_prob, 1, log_prob.dtype)
    products = d_logits.to(dtype)
    return SoftmaxGradients(
        torch.mm(products, weight.to(dtype)).to(grad.dtype),
        torch.mm(products.mT, operand).to(weight.dtype),
        d_logits.sum(0),
        d_logits,
    )


def target_logit(hidden: Tensor, weight: Tensor, bias: Tensor | None, target: Tensor) -> Tensor:
    """u of each target, (N,)."""
    work = _wide(hidden)
    logit = (hidden.to(work) * weight[target].to(work)).sum(1)
    return logit if bias is None else logit + bias[target]


def log_partition(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    product_dtype: torch.dtype,
    windows: Windows | None = None,
    first: int = 0,
    tile: int = 8192,
    chunk: int = 1024,
) -> Tensor:
    """log of the sum of exp(u) over all words, (N,): ``chunk`` × ``tile`` logits at once."""
    parts = []
    for begin in range(0, max(len(hidden), 1), chunk):
        some = slice(begin, begin + chunk)
        own = None if windows is None else windows.of(some)
        parts.append(_log_partition(hidden[some], weight, bias, product_dtype, tile, own, first))
    return torch.cat(parts)


def _log_partition(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    product_dtype: torch.dtype,
    tile: int,
    windows: Windows | None,
    first: int,
) -> Tensor:
    work = _wide(hidden)
    maximum = hidden.new_full((len(hidden),), -math.inf, dtype=work)
    total = hidden.new_zeros(len(hidden), dtype=work)
    operand = hidden.to(product_dtype)
    for start in range(0, len(weight), tile):
        logits = (operand @ weight[start : start + tile].to(product_dtype).mT).to(work)
        if bias is not None:
            logits = logits + bias[start : start + tile]
        if windows is not None:
            add_windows(logits, windows, first + start)
        higher = torch.maximum(maximum, logits.max(1).values)
        total = total * (maximum - higher).exp()
        total += logits.sub_(higher[:, None]).exp_().sum(1)
        maximum = higher
    return maximum + total.log()


def _wide(hidden: Tensor) -> torch.dtype:
    """The type for logits of these states: 16 bits can neither hold nor sum their exponentials."""
    return torch.promote_types(hidden.dtype, torch.float32)


def logits(hidden: Tensor, weight: Tensor, bias: Tensor | None, tile: int = 8192) -> Tensor:
    """u of all words, (N, V): a table of another type is converted tile by tile."""
    if weight.dtype == hidden.dtype:
        return linear(hidden, weight, None if bias is None else bias.to(hidden.dtype))
    parts = [linear(hidden, part.to(hidden.dtype)) for part in weight.split(tile)]
    joined = torch.cat(parts, -1)
    return joined if bias is None else joined + bias.to(hidden.dtype)


def root_mean_square_prob(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, log_partition: Tensor, tile: int = 4096
) -> Tensor:
    """sqrt(mean over hidden states (N, h) of p(w | s)²), (V,), ``tile`` words at once."""
    parts = []
    for start in range(0, len(weight), tile):
        some = hidden @ weight[start : start + tile].to(hidden.dtype).mT
        if bias is not None:
            some += bias[start : start + tile]
        parts.append(some.sub_(log_partition[:, None]).exp_().square_().mean(0).sqrt())
    return torch.cat(parts)
