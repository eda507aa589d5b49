"""The engine on the CPU: native code (csrc/engine), and PyTorch's products where they are faster.

Weights are float32 or bfloat16; matrix products run in ``product_dtype``; all other arithmetic is
float32. Arrays of a block live in buffers that are used again for the next block. What native code
does not do better is the reference's.
"""

from blackout.ops.cpu.adam import adam_dense, adam_rows
from blackout.ops.cpu.arrays import buffer, converted
from blackout.ops.cpu.paths import PathSaved, path_backward, path_forward, path_log_prob
from blackout.ops.cpu.products import matrix_product
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
from blackout.ops.cpu.sampling import draw_samples, merge_copies
from blackout.ops.cpu.softmax import (
    log_partition,
    softmax_backward,
    softmax_forward,
    target_logit,
)
from blackout.ops.cpu.step import whole_step
from blackout.ops.cpu.tables import fill_uniform, lookup
from blackout.ops.cpu.windows import (
    add_window_gradient,
    add_windows,
    window_gradient,
    window_values,
)
from blackout.ops.reference import logits, root_mean_square_prob

name: str = "native"


__all__ = [
    "PathSaved",
    "RowGradient",
    "SampledSaved",
    "adam_dense",
    "adam_rows",
    "add_window_gradient",
    "add_windows",
    "buffer",
    "collect_rows",
    "converted",
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
