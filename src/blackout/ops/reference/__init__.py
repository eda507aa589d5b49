"""Every operation in plain PyTorch: easy to read, and the truth for every faster version.

Words of a block come in G groups of M words; the words of a group share K samples. One group per
time step is the paper's layout (G = T, M = B); one group for the block (G = 1) and one for each
word (M = 1) are the two extremes. Shapes: hidden (G, M, h), target (G, M), samples (G, K).

Notation of the paper: u = <theta, s> is a logit, Q the proposal, z = u - log Q. Objectives J are
maximised; each function returns J together with its closed-form derivatives, so nothing of size
(G, M, K) is recorded for autograd but the derivatives themselves.
"""

from blackout.ops.reference.objectives import OBJECTIVES, Objective, Objectives
from blackout.ops.reference.recurrent import ACTIVATIONS, lookup, recurrence
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
    SampledGradients,
    SampledSaved,
    logit_gradients,
    sampled_backward,
    sampled_forward,
)
from blackout.ops.reference.sampling import draw_samples, mix64, random_below, random_bits
from blackout.ops.reference.softmax import log_partition, target_log_prob, target_logit

__all__ = [
    "ACTIVATIONS",
    "OBJECTIVES",
    "Objective",
    "Objectives",
    "RowGradient",
    "SampledGradients",
    "SampledSaved",
    "collect_rows",
    "draw_samples",
    "exact_aging",
    "log_partition",
    "logit_gradients",
    "lookup",
    "mix64",
    "random_below",
    "random_bits",
    "recurrence",
    "rmsprop_dense",
    "rmsprop_rows",
    "rmsprop_update",
    "rounded",
    "rounding_key",
    "sampled_backward",
    "sampled_forward",
    "squared_norm",
    "sum_duplicates",
    "target_log_prob",
    "target_logit",
]
