"""Every operation in plain PyTorch: easy to read, and the truth for every faster version.

Notation of the paper: u = <theta, s> is a logit, Q the proposal, z = u - log Q. Objectives J are
maximised; each function returns J together with its closed-form derivatives, so nothing of size
(G, M, K) is recorded for autograd but the derivatives themselves.
"""

import torch
from torch import Tensor, nn

from blackout.ops.engine import BlockShape
from blackout.ops.reference.adam import adam_dense, adam_rows, adam_update
from blackout.ops.reference.objectives import OBJECTIVES, ObjectiveFunction, Objectives
from blackout.ops.reference.paths import (
    PathSaved,
    path_backward,
    path_forward,
    path_log_prob,
)
from blackout.ops.reference.recurrent import (
    ACTIVATIONS,
    RecurrenceSaved,
    recurrence_backward,
    recurrence_forward,
)
from blackout.ops.reference.rmsprop import (
    RowGradient,
    collect_rows,
    exact_aging,
    rmsprop_dense,
    rmsprop_rows,
    rmsprop_update,
    rounded,
    rounding_key,
    squared_norm,
    sum_duplicates,
)
from blackout.ops.reference.sampled import (
    SampledSaved,
    Without,
    logit_gradients,
    sampled_backward,
    sampled_forward,
)
from blackout.ops.reference.sampling import (
    draw_samples,
    merge_copies,
    mix64,
    mixed,
    random_below,
    random_bits,
)
from blackout.ops.reference.softmax import (
    log_partition,
    logits,
    root_mean_square_prob,
    softmax_backward,
    softmax_forward,
    target_logit,
)
from blackout.ops.reference.tables import fill_uniform, lookup
from blackout.ops.reference.windows import (
    add_window_gradient,
    add_windows,
    window_gradient,
    window_values,
)

name: str = "reference"


def matrix_product(left: Tensor, right: Tensor) -> Tensor:
    """``left @ right``."""
    return torch.matmul(left, right)


def whole_step(model: nn.Module, optimizer: torch.optim.Optimizer, shape: BlockShape) -> None:
    """None: a step is composed of the operations."""


__all__ = [
    "ACTIVATIONS",
    "OBJECTIVES",
    "ObjectiveFunction",
    "Objectives",
    "PathSaved",
    "RecurrenceSaved",
    "RowGradient",
    "SampledSaved",
    "Without",
    "adam_dense",
    "adam_rows",
    "adam_update",
    "add_window_gradient",
    "add_windows",
    "collect_rows",
    "draw_samples",
    "exact_aging",
    "fill_uniform",
    "log_partition",
    "logit_gradients",
    "logits",
    "lookup",
    "matrix_product",
    "merge_copies",
    "mix64",
    "mixed",
    "name",
    "path_backward",
    "path_forward",
    "path_log_prob",
    "random_below",
    "random_bits",
    "recurrence_backward",
    "recurrence_forward",
    "rmsprop_dense",
    "rmsprop_rows",
    "rmsprop_update",
    "root_mean_square_prob",
    "rounded",
    "rounding_key",
    "sampled_backward",
    "sampled_forward",
    "softmax_backward",
    "softmax_forward",
    "squared_norm",
    "sum_duplicates",
    "target_logit",
    "whole_step",
    "window_gradient",
    "window_values",
]
