"""The global norm over dense and row-sparse gradients together, and clipping by it.

>>> table = torch.nn.Embedding(5, 3, sparse=True)
>>> table(torch.tensor([1, 1, 4])).sum().backward()
>>> float(clip_grad_norm_(table.parameters(), max_norm=1.0))  # rows 2, 2, 2 and 1, 1, 1
3.8729...
>>> round(float(global_norm([table.weight.grad])), 6)
1.0
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn

from blackout.ops.dispatch import engine_for
from blackout.ops.engine import Scalar


def sum_rows(gradient: Tensor, impl: str = "auto") -> Tensor:
    """A row-sparse gradient with each row once, ascending; a dense gradient as it is."""
    if not gradient.is_sparse or gradient.is_coalesced():
        return gradient
    engine = engine_for(impl, gradient.device, gradient.dtype)
    rows, values = engine.sum_duplicates(gradient._indices()[0], gradient._values())
    return torch.sparse_coo_tensor(
        rows[None], values, gradient.shape, check_invariants=False, is_coalesced=True
    )


def stored_values(gradient: Tensor) -> Tensor:
    """The numbers of a gradient: all of a dense one, the rows of a summed row-sparse one."""
    return gradient._values() if gradient.is_sparse else gradient


def global_norm(gradients: Iterable[Tensor]) -> Tensor:
    """The 2-norm of all gradients together, repeated rows summed first."""
    norms = [
        torch.linalg.vector_norm(stored_values(sum_rows(g)), dtype=torch.float64) for g in gradients
    ]
    if not norms:
        return torch.zeros((), dtype=torch.float64)
    return torch.linalg.vector_norm(torch.stack([n.to(norms[0].device) for n in norms]))


def norm_of_squares(squares: Sequence[Scalar]) -> Scalar:
    """The 2-norm whose square is the sum of these; a tensor where one of them is."""
    device = next((s.device for s in squares if isinstance(s, Tensor)), None)
    if device is None:
        return math.sqrt(sum(squares))
    return torch.stack([torch.as_tensor(s).to(device, torch.float64) for s in squares]).sum().sqrt()


def clip_factor(norm: Scalar, max_norm: float) -> Scalar:
    """What to multiply gradients of that global norm with, at most 1."""
    if isinstance(norm, Tensor):
        return (max_norm / norm.clamp(min=torch.finfo(norm.dtype).tiny)).clamp(max=1.0)
    return min(1.0, max_norm / max(norm, sys.float_info.min))


def clip_grad_norm_(parameters: Iterable[nn.Parameter], max_norm: float) -> Tensor:
    """Scales all gradients down to a global norm of ``max_norm``; returns the norm before.

    Like ``torch.nn.utils.clip_grad_norm_``, which refuses sparse gradients.
    """
    touched = [(p, sum_rows(p.grad)) for p in parameters if p.grad is not None]
    norm = global_norm([gradient for _, gradient in touched])
    factor = torch.as_tensor(clip_factor(norm, max_norm))
    for p, gradient in touched:
        stored_values(gradient).mul_(factor.to(gradient.dtype))
        p.grad = gradient
    return norm
