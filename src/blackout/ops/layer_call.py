"""What an engine must know of a sampled layer's training call to compute it whole, and back.

Composed of the engine's operations such a call is forty launches on a GPU, each cheaper for it than
for Python. An engine may have it in a few; :func:`whole_layer` finds it.
"""

from __future__ import annotations

import importlib
from typing import Any, NamedTuple, Protocol, cast

import torch
from torch import Tensor

from blackout.ops.engine import Engine, Objective, Scalar


class LayerCall(NamedTuple):
    """A flat softmax without biases whose samples come from an alias table."""

    objective: Objective
    log_z: float
    keep_copies: bool
    target_one: bool  # the target weighs 1 instead of 1 / Q
    samples: int  # K
    groups: int  # G, sample sets in this call
    total: bool  # the loss is a sum, not a mean
    ignore: int | None  # a target that counts for nothing
    product_dtype: torch.dtype
    row_dtype: torch.dtype
    threshold: Tensor  # (V,) float64
    alias: Tensor  # (V,) int64
    log_q: Tensor  # (V,) float64
    seed: int
    step: Tensor  # (), counted on by one where samples are drawn


class LayerValue(NamedTuple):
    """What a call gives; examples that do not count have the objective 0."""

    output: Tensor  # shaped like the target
    loss: Tensor  # ()
    fine: Tensor  # (1,), 0 where a target that counts is not a class
    samples: Tensor  # (G, K)
    log_q_samples: Tensor  # (G, K)
    log_q_target: Tensor  # (N,)
    saved: Any


class LayerGradients(NamedTuple):
    """Row i of the table's gradient belongs to word ``rows[i]``."""

    hidden: Tensor
    rows: Tensor  # (G*K + N,)
    row_values: Tensor  # (G*K + N, h)


class WholeLayer(Protocol):
    """The call and its way back."""

    def layer_forward(
        self,
        hidden: Tensor,
        weight: Tensor,
        target: Tensor,
        mask: Tensor | None,
        given: Tensor | None,
        divisor: Scalar | None,
        call: LayerCall,
    ) -> LayerValue:
        """Objectives and loss of examples (..., h) with these targets (...), contiguous.

        ``given`` (G, K): samples, in place of those that would be drawn. ``divisor``: of the mean,
        None for the number of those that count.
        """

    def layer_backward(
        self,
        hidden: Tensor,
        weight: Tensor,
        saved: Any,
        grad_output: Tensor | None,
        grad_loss: Tensor | None,
        row_dtype: torch.dtype,
    ) -> LayerGradients:
        """The gradients of sum(grad_output * output) + grad_loss * loss."""


def whole_layer(engine: Engine, samples: int) -> WholeLayer | None:
    """That engine's, for sets of so many samples; None where it composes such a call."""
    if engine.name != "triton":
        return None
    found = importlib.import_module("blackout.ops.triton.layer")
    return cast(WholeLayer, found) if samples <= found.MOST_COLUMNS else None
