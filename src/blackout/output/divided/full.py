"""The exact softmax over a table divided over ranks: every class is on one of them."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from blackout.ops.autograd import first_derivatives_only
from blackout.output.divided.block import FULL, Block
from blackout.output.divided.layer import whole_targets
from blackout.ranks import Division, Ranks


class Settings(NamedTuple):
    """What the loss is besides its operands."""

    ranks: Ranks
    division: Division
    smoothing: float
    product_dtype: torch.dtype


class _DividedSoftmax(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, states: Tensor, weight: Tensor, bias: Tensor | None, target: Tensor, to: Settings
    ) -> Tensor:
        block = Block(to.ranks, 1, len(states), FULL)
        words = whole_targets(block, target, None, to.division.n_rows)[0]
        hidden = block.gather(states.to(to.product_dtype)[None], "states")[0]
        logits = torch.mm(hidden, weight.to(to.product_dtype).mT).to(states.dtype)  # (N, rows here)
        if bias is not None:
            logits += bias
        own = (to.division.owner(words) == to.ranks.rank).nonzero()[:, 0]
        place = to.division.local(words[own])
        of_target = torch.zeros(len(words), dtype=logits.dtype, device=logits.device)
        of_target[own] = logits[own, place]
        total = logits.sum(1) if to.smoothing else torch.zeros_like(of_target)
        here = torch.stack([logits.logsumexp(1), of_target, total])
        parts = to.ranks.gather(here, "round one")
        log_total = torch.stack([part[0] for part in parts]).logsumexp(0)
        u_target, sums = (torch.stack([part[i] for part in parts]).sum(0) for i in (1, 2))
        p = logits.sub_(log_total[:, None]).exp_()
        ctx.save_for_backward(hidden, weight, p, own, place)
        ctx.block, ctx.to = block, to
        smoothed = to.smoothing * (u_target - sums / to.division.n_rows)
        return block.mine((u_target - log_total - smoothed)[None])[0]

    @staticmethod
    @first_derivatives_only
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        hidden, weight, p, own, place = ctx.saved_tensors
        block, to = ctx.block, ctx.to
        factor = block.factors(grad[None]).whole()[0]
        d = -p
        if to.smoothing:
            d += to.smoothing / to.division.n_rows
        d[own, place] += 1 - to.smoothing
        d *= factor[:, None]
        products = d.to(hidden.dtype)
        d_hidden = torch.mm(products, weight.to(hidden.dtype)).to(grad.dtype)
        size = to.ranks.size
        d_weight = torch.mm(products.mT, hidden).to(weight.dtype) / size
        d_bias = d.sum(0) / size if ctx.needs_input_grad[2] else None
        back = block.add_mine(d_hidden[None], "state gradients")[0]
        return back, d_weight, d_bias, None, None


def softmax_value(
    states: Tensor, weight: Tensor, bias: Tensor | None, target: Tensor, to: Settings
) -> Tensor:
    """log p(target | state), label smoothing taken off, (N,), for this rank's states (N, h)."""
    value: Tensor = _DividedSoftmax.apply(states, weight, bias, target, to)
    return value
