"""The engine on the CPU: PyTorch's matrix products, and native code (csrc/engine) between them.

Weights are float32 or bfloat16; matrix products run in ``product_dtype``; all other arithmetic is
float32. Arrays of a block live in buffers that are used again for the next block. What native code
does not do better is the reference's.
"""

import torch
from torch import nn

from blackout.ops.cpu.arrays import buffer, converted
from blackout.ops.cpu.recurrent import recurrence_backward, recurrence_forward
from blackout.ops.cpu.rmsprop import (
    RowGradient,
    collect_rows,
    exact_aging,
    rmsprop_dense,
    rmsprop_rows,
    squared_norm,
    sum_duplicates,
)
from blackout.ops.cpu.sampled import SampledSaved, sampled_backward, sampled_forward
from blackout.ops.cpu.sampling import draw_samples
from blackout.ops.cpu.softmax import log_partition, target_logit
from blackout.ops.cpu.tables import fill_uniform, lookup
from blackout.ops.engine import BlockShape
from blackout.ops.reference import (
    logits,
    root_mean_square_prob,
    softmax_backward,
    softmax_forward,
)

name: str = "native"


def whole_step(model: nn.Module, optimizer: torch.optim.Optimizer, shape: BlockShape) -> None:
    """None: a step is composed of the operations."""


__all__ = [
    "RowGradient",
    "SampledSaved",
    "buffer",
    "collect_rows",
    "converted",
    "draw_samples",
    "exact_aging",
    "fill_uniform",
    "log_partition",
    "logits",
    "lookup",
    "name",
    "recurrence_backward",
    "recurrence_forward",
    "rmsprop_dense",
    "rmsprop_rows",
    "root_mean_square_prob",
    "sampled_backward",
    "sampled_forward",
    "softmax_backward",
    "softmax_forward",
    "squared_norm",
    "sum_duplicates",
    "target_logit",
    "whole_step",
]
