"""A sampled loss over ranks: states gathered, two rounds of numbers, gradients on their way back.

Row gradients stay where the rows are. They are those of the mean of the ranks' losses, as
DistributedDataParallel makes them; the gradient of the states is that of the rank's own loss.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from blackout.ops.autograd import RowGradientMaker, first_derivatives_only
from blackout.ops.cpu.rounds import Rounds
from blackout.ops.engine import Engine, Scalar
from blackout.ops.reference.objectives import Objectives
from blackout.output.divided import native
from blackout.output.divided.block import Block
from blackout.output.divided.columns import Columns
from blackout.output.divided.rounds import ROUNDS


class Local(NamedTuple):
    """The part of the work that is this rank's: its columns, and the targets whose rows it has."""

    block: Block
    columns: Columns
    own: Tensor  # (n,), which of the G·M words have their target's row here
    sample_rows: Tensor  # (G, C), rows of the table given
    target_rows: Tensor  # (n,)
    keep_copies: bool
    objective: str
    product_dtype: torch.dtype
    row_dtype: torch.dtype
    engine: Engine
    gradients: tuple[RowGradientMaker, RowGradientMaker | None]


class _Divided(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, states: Tensor, weight: Tensor, bias: Tensor | None, log_z: Scalar, local: Local
    ) -> Tensor:
        columns, block = local.columns, local.block
        shape, dtype = columns.target.shape, local.product_dtype
        work = torch.promote_types(states.dtype, torch.float32)
        sent = states if states.itemsize < dtype.itemsize else states.to(dtype)
        hidden = block.gather(sent, "states").view(*shape, states.shape[-1])
        rows = local.engine.lookup(weight, local.sample_rows, dtype)  # (G, C, h)
        target_rows = local.engine.lookup(weight, local.target_rows, work)  # (n, h)
        own_states = hidden.flatten(0, 1)[local.own].to(work)
        u_target = (own_states * target_rows).sum(-1)
        logits = local.engine.matrix_product(hidden.to(dtype), rows.mT)  # (G, M, C)
        offset = columns.log_q_samples + (log_z if local.objective == "nce" else 0.0)
        if bias is not None:
            offset = offset - bias[local.sample_rows]
            u_target = u_target + bias[local.target_rows]
        if local.objective == "nce":
            u_target = u_target - log_z
        log_q_target = columns.log_q_target.flatten()[local.own].to(work)
        z_target = torch.where(columns.target < 0, 0.0, -math.inf).to(work).flatten()
        z_target[local.own] = (u_target - log_q_target).to(work)
        found = _found(local, z_target.view(shape), logits, offset)
        d_target = found.d_target.flatten()[local.own]
        ctx.save_for_backward(hidden, rows, target_rows, own_states, d_target, found.d_samples)
        ctx.local, ctx.work = local, work
        return block.mine(found.value.view(block.steps, block.width))

    @staticmethod
    @first_derivatives_only
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        hidden, rows, target_rows, own_states, d_target, d_samples = ctx.saved_tensors
        local, work = ctx.local, ctx.work
        block, dtype, size = local.block, rows.dtype, hidden.shape[-1]
        factors = block.factors(grad.to(work))
        each = factors.each.view(hidden.shape[:2])
        d_products = (d_samples * (each * factors.scale)[..., None]).to(dtype)
        d_target = d_target * factors.scale * each.flatten()[local.own]
        product = local.engine.matrix_product
        d_hidden = product(d_products, rows).to(work).view(-1, size)
        d_hidden.index_add_(0, local.own, d_target[:, None] * target_rows)
        d_hidden = d_hidden.view(block.steps, block.width, size)

        scale, d_target = factors.scale / block.ranks.size, d_target / block.ranks.size
        d_products /= block.ranks.size
        d_rows = product(d_products.mT, hidden.to(dtype)).view(-1, size)
        named = torch.cat([local.sample_rows.flatten(), local.target_rows])
        of_targets = d_target[:, None] * own_states
        values = torch.cat([part.to(local.row_dtype) for part in (d_rows, of_targets)])
        if not bool(local.columns.copies.any()):  # nothing drawn is here
            named, values = local.target_rows, values[len(d_rows) :]
        of_weight, of_bias = local.gradients
        d_weight = of_weight(named, values)
        d_bias = d_log_z = None
        if any(ctx.needs_input_grad[2:4]):
            sums = torch.einsum("gmk,gm->gk", d_samples.to(work), each * scale).flatten()
            of_logits = torch.cat([sums, d_target])[-len(named) :] if len(named) else sums[:0]
            if ctx.needs_input_grad[2]:
                d_bias = of_bias(named, of_logits)
            if ctx.needs_input_grad[3]:
                total = block.ranks.sum_in_order(of_logits.double().sum()[None], "log Z")
                d_log_z = -total[0].to(work)
        back = block.add_mine(d_hidden, "state gradients")
        return back, d_weight, d_bias, d_log_z, None


def _found(local: Local, z_target: Tensor, logits: Tensor, offset: Tensor) -> Objectives:
    """J and its derivatives: in native code where there is some for this loss."""
    columns, ranks, work = local.columns, local.block.ranks, z_target.dtype
    if local.engine.name == "native" and local.objective == "blackout" and local.keep_copies:
        rounds = Rounds(logits, offset, columns.copies, columns.replaced)
        return native.blackout(z_target, rounds, ranks)
    z = logits.to(work) - offset.to(work)[:, None, :]
    return ROUNDS[local.objective](z_target, z, _copies(local, work), ranks)


def _copies(local: Local, work: torch.dtype) -> Tensor:
    """How often each column counts for each word, (G, 1 or M, C)."""
    columns = local.columns
    copies = columns.copies.to(work)[:, None, :]
    if not local.keep_copies:
        return copies * (columns.samples[:, None, :] != columns.target[:, :, None])
    if columns.replaced is None:
        return copies
    here = (columns.replaced >= 0).to(work)[..., None]
    copies = copies.repeat(1, columns.target.shape[1], 1)
    return copies.scatter_add_(2, columns.replaced.clamp(min=0)[..., None], -here)


def divided_objective(
    states: Tensor, weight: Tensor, bias: Tensor | None, log_z: Scalar, local: Local
) -> Tensor:
    """J (T, b) of this rank's words, whose states are (T, b, h).

    ``weight`` and ``bias`` have the rows that ``local`` names.
    """
    value: Tensor = _Divided.apply(states, weight, bias, log_z, local)
    return value
