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
from torch import Tensor

from blackout.errors import UserError
from blackout.ops.dispatch import engine_for
from blackout.ops.engine import Scalar
from blackout.ranks import Ranks, division_of
from blackout.ranks.division import ranks_of
from blackout.ranks.group import add


def sum_rows(gradient: Tensor, impl: str = "auto") -> Tensor:
    """A row-sparse gradient with each row once, ascending; a dense gradient as it is."""
    if not gradient.is_sparse or gradient.is_coalesced():
        return gradient
    if gradient.sparse_dim() > 1:  # single numbers, not rows
        return gradient.coalesce()
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
    if len(squares) == 1:
        return torch.as_tensor(squares[0]).to(device, torch.float64).sqrt()
    return torch.stack([torch.as_tensor(s).to(device, torch.float64) for s in squares]).sum().sqrt()


def norm_over_ranks(
    squares: Sequence[Scalar], parameters: Sequence[Tensor], ranks: Ranks
) -> Scalar:
    """The 2-norm of a gradient some of whose parameters are divided over ranks.

    ``squares``: of each parameter's gradient. Rows count at their owners; what every rank has
    counts once, as rank 0 has it. Added in rank order: every rank has the same number.
    """
    sums = [torch.zeros((), dtype=torch.float64, device=ranks.device) for _ in range(2)]
    for square, parameter in zip(squares, parameters, strict=True):
        sums[division_of(parameter) is None] += torch.as_tensor(square)
    told = ranks.gather(torch.stack(sums), "norm")
    total = told[0][1] + add([part[0] for part in told])
    on_host = not any(isinstance(square, Tensor) for square in squares)
    return math.sqrt(float(total)) if on_host else total.sqrt()


def clip_factor(norm: Scalar, max_norm: float) -> Scalar:
    """What to multiply gradients of that global norm with, at most 1."""
    if isinstance(norm, Tensor):
        return (max_norm / norm).clamp(max=1.0)
    return min(1.0, max_norm / max(norm, sys.float_info.min))


def clip_grad_norm_(
    parameters: Tensor | Iterable[Tensor], max_norm: float, *, error_if_nonfinite: bool = False
) -> Tensor:
    """Scales all gradients down to a global norm of ``max_norm``; returns the norm before.

    Like ``torch.nn.utils.clip_grad_norm_``, which refuses sparse gradients; one parameter may stand
    for a list of one. Where some are divided over ranks, all ranks call it, and the norm is that
    over all of them. ``error_if_nonfinite``: whether a norm that is no number, or infinite, is an
    error; else the gradients become so.
    """
    if not max_norm >= 0:
        raise UserError(f"max_norm is {max_norm}, must be 0 or more")
    parameters = [parameters] if isinstance(parameters, Tensor) else list(parameters)
    touched = [(p, sum_rows(p.grad)) for p in parameters if p.grad is not None]
    ranks = ranks_of(parameters)
    if ranks is None:
        norm = global_norm([gradient for _, gradient in touched])
    else:
        squares = [global_norm([gradient]) ** 2 for _, gradient in touched]
        norm = torch.as_tensor(norm_over_ranks(squares, [p for p, _ in touched], ranks))
    if error_if_nonfinite and not bool(norm.isfinite()):
        raise UserError(f"the norm of the gradients is {float(norm)}; nothing was clipped")
    factor = torch.as_tensor(clip_factor(norm, max_norm))
    for p, gradient in touched:
        stored_values(gradient).mul_(factor.to(gradient.dtype))
        p.grad = gradient
    return norm
