"""The operations of :mod:`blackout.ops.reference` on the CPU: PyTorch's matrix products, and
native code (csrc/engine) for everything between them.

Weights are float32 or bfloat16; matrix products run in ``product_dtype``; all other arithmetic is
float32. Arrays of a block live in buffers that are used again for the next block.
"""

from blackout.ops.cpu.arrays import buffer, converted, lookup
from blackout.ops.cpu.recurrent import recurrence
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
from blackout.ops.cpu.softmax import log_partition, target_log_prob, target_logit

__all__ = [
    "RowGradient",
    "SampledSaved",
    "buffer",
    "collect_rows",
    "converted",
    "draw_samples",
    "exact_aging",
    "log_partition",
    "lookup",
    "recurrence",
    "rmsprop_dense",
    "rmsprop_rows",
    "sampled_backward",
    "sampled_forward",
    "squared_norm",
    "sum_duplicates",
    "target_log_prob",
    "target_logit",
]
