"""What the sampled layers do with a process group: from a rank's examples to its objectives."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from blackout.errors import UserError
from blackout.output.divided.block import SAMPLED, Block
from blackout.output.divided.columns import Columns, drawn_columns
from blackout.output.divided.sampled import Local, divided_objective
from blackout.output.recompute import drawn_before, inside_backward, remember
from blackout.output.rows import gathered_rows

if TYPE_CHECKING:
    from blackout.output.flat import FlatSoftmax
    from blackout.output.sampling import SamplingLayer

_MOST_32 = 2**31


def sampled_value(
    layer: SamplingLayer, hidden: Tensor, target: Tensor, mask: Tensor | None
) -> Tensor:
    """J, shaped like ``target``, of this rank's examples; all ranks call together."""
    require_outside_ddp(layer)
    states = layer.geometry.states(hidden)
    steps = len(target) if target.ndim > 1 else 1
    columns = target[:1].numel() if target.ndim > 1 else target.numel()
    block = Block(layer.ranks, steps, columns, SAMPLED)
    words = whole_targets(block, target, mask, layer.n_classes)
    engine = layer.engine(states)
    drawn = _drawn(layer, words)
    own = (words >= 0) & (layer.division.owner(words) == layer.ranks.rank)
    own = own.flatten().nonzero()[:, 0]
    sample_rows = layer.division.local(drawn.samples)
    target_rows = layer.division.local(words.flatten()[own])
    table = gathered_rows(
        layer.table, layer.biases, target_rows, sample_rows, layer.geometry, layer.product_dtype
    )
    local = Local(
        block,
        drawn,
        own,
        table.samples,
        table.target,
        layer.collisions == "keep",
        layer.objective_name,
        layer.product_dtype,
        table.row_dtype,
        engine,
        table.gradients,
    )
    flat = states.reshape(steps, columns, layer.in_features)
    value = divided_objective(flat, table.weight, table.bias, layer.log_normaliser(), local)
    return value.reshape(target.shape)


def whole_targets(block: Block, target: Tensor, mask: Tensor | None, n_classes: int) -> Tensor:
    """The targets (T, B) of all ranks, -1 where there is none: four bytes each where they fit."""
    if block.known is not None:
        return block.known.words(block.steps)
    if mask is not None:
        target = target.masked_fill(~mask, -1)
    narrow = target.to(torch.int32) if n_classes < _MOST_32 else target
    return block.gather(narrow.reshape(block.steps, -1), "targets").to(torch.int64)


def _drawn(layer: SamplingLayer, words: Tensor) -> Columns:
    """This rank's samples for the words (T, B) of all ranks."""
    from blackout.output.sampling import grouped

    groups = grouped(words, None, words >= 0, layer.sharing)
    if inside_backward():
        return drawn_before(layer, groups.target)
    layer.proposal.follow(layer.weight.device)
    drawn = drawn_columns(
        layer.proposal,
        groups,
        layer.division,
        layer.engine(layer.weight),
        seed=layer.seed,
        step=layer.step,
        samples=layer.samples,
        always=layer.always_sample,
        impl=layer.impl,
        log_draws=layer.objective_name == "nce",
        replace=layer.objective_name != "nce",
    )
    if layer.target_weight == "one":
        drawn = drawn._replace(log_q_target=torch.zeros_like(drawn.log_q_target))
    layer.step += 1
    remember(layer, drawn)
    return drawn


def require_outside_ddp(layer: FlatSoftmax) -> None:
    """Refuses a divided layer inside DistributedDataParallel: it would average unlike rows."""
    around = getattr(DistributedDataParallel, "_active_ddp_module", None)
    if layer.divided and around is not None and layer in set(around.module.modules()):
        raise UserError(
            "a layer with process_group adds up its own gradients: leave it outside "
            "DistributedDataParallel"
        )
