"""What an engine must know of a model to provide its training step whole: tensors and settings.

A model, its output layer and its optimiser describe themselves so, each where it can; None where
what they do is more than the description says. The tensors are the parameters themselves, to be
changed in place.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from torch import Tensor

from blackout.ops.engine import Objective
from blackout.ops.tree import Tree


class LayerPlan(NamedTuple):
    """A recurrent layer with G gates, in the order of :meth:`Engine.recurrence_forward`."""

    input: Tensor | None  # (G*h, h); None: inputs are what a step adds
    recurrent: Tensor  # (G*h, h)
    input_bias: Tensor | None  # (G*h,)
    recurrent_bias: Tensor | None  # (G*h,), beside the product with the state


class OutputPlan(NamedTuple):
    """A sampled output layer that draws from an alias table."""

    objective: Objective
    weight: Tensor  # (V, h)
    bias: Tensor | None  # (V,)
    log_z: Tensor | float
    keep_copies: bool
    target_one: bool  # the target weighs 1 instead of 1 / Q
    sharing: Literal["step", "block", "word"]
    samples: int
    always: tuple[int, ...]
    merge: bool
    product_dtype: torch.dtype
    threshold: Tensor  # (V,) float64
    alias: Tensor  # (V,) int64
    log_q: Tensor  # (V,) float64
    seed: int
    step: Tensor  # (), counted on by one a block


class TreePlan(NamedTuple):
    """An output layer over a tree; it draws nothing."""

    weight: Tensor  # (V - 1, h)
    bias: Tensor | None  # (V - 1,)
    tree: Tree
    product_dtype: torch.dtype

    @property
    def log_z(self) -> float:
        """None is learned."""
        return 0.0


class NetworkPlan(NamedTuple):
    """Embedding, recurrent layers, output layer, dropout around the layers, nothing else."""

    cell: str
    embedding: Tensor  # (V, h)
    layers: list[LayerPlan]
    forget: bool  # the state is not used where the input word is the sentence end, 0
    product_dtype: torch.dtype
    output: OutputPlan | TreePlan
    dropout: float  # chance to drop an input, a value between layers or an output
