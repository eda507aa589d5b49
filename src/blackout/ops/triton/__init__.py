"""Triton kernels for GPUs; what Triton does no better is the reference's.

Imported only when a GPU computes (:mod:`blackout.ops.dispatch`): Triton is an extra. Where there is
no GPU, Triton's interpreter runs the same kernels for the tests (``TRITON_INTERPRET=1``).

Nothing in a training step waits for the device: numbers that only the device knows (how many rows
a block touches, the norm, the factor of clipping) stay on it, and arrays have room for the largest
number there can be.
"""

from __future__ import annotations

from blackout.ops.reference import (
    adam_dense,
    add_window_gradient,
    add_windows,
    logits,
    lookup,
    matrix_product,
    path_backward,
    path_forward,
    path_log_prob,
    root_mean_square_prob,
    softmax_backward,
    softmax_forward,
    target_logit,
    window_gradient,
    window_values,
)
from blackout.ops.triton.partition import log_partition
from blackout.ops.triton.recurrent import recurrence_backward, recurrence_forward
from blackout.ops.triton.sampled import SampledSaved, sampled_backward, sampled_forward
from blackout.ops.triton.sampling import draw_samples, merge_copies
from blackout.ops.triton.tables import fill_uniform
from blackout.ops.triton.update import (
    adam_rows,
    collect_rows,
    exact_aging,
    rmsprop_dense,
    rmsprop_rows,
    squared_norm,
    sum_duplicates,
)
from blackout.ops.triton.whole_step import whole_step

name: str = "triton"

__all__ = [
    "SampledSaved",
    "adam_dense",
    "adam_rows",
    "add_window_gradient",
    "add_windows",
    "collect_rows",
    "draw_samples",
    "exact_aging",
    "fill_uniform",
    "log_partition",
    "logits",
    "lookup",
    "matrix_product",
    "merge_copies",
    "name",
    "path_backward",
    "path_forward",
    "path_log_prob",
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
    "window_gradient",
    "window_values",
]
