"""What all output layers share: the table of word vectors, exact evaluation, one signature.

Shaped like ``torch.nn.AdaptiveLogSoftmaxWithLoss``: ``layer(hidden, target) → (output, loss)``,
``layer.log_prob(hidden)``, ``layer.predict(hidden)``. ``output`` is the objective of each example
and ``loss`` its negated mean. While training the objective is the layer's own; after ``.eval()``
it is the exact log-probability, whatever the training loss.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import ModuleType
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from blackout.errors import UserError
from blackout.ops.dispatch import operations
from blackout.ops.tables import STORAGE, empty_table, fill_uniform

PRODUCT_DTYPES = {"fp32": None, "bf16": torch.bfloat16}


class OutputWithLoss(NamedTuple):
    """``output``: the objective of each example, shaped like the target; ``loss``: a scalar."""

    output: Tensor
    loss: Tensor


class OutputLayer(nn.Module):
    """A table of ``n_classes`` word vectors, scored against hidden states.

    ``sparse``: whether the table's gradient is row-sparse (``torch.sparse_coo``) or dense.
    ``precision``: the number format of the matrix products, "fp32" or "bf16".
    ``storage``: the number format of the table, "fp32" or "bf16".
    ``impl``: which version of the arithmetic to use (:mod:`blackout.ops.dispatch`).
    """

    def __init__(
        self,
        in_features: int,
        n_classes: int,
        *,
        bias: bool = False,
        sparse: bool = True,
        init_range: float = 0.08,
        precision: Literal["fp32", "bf16"] = "fp32",
        storage: Literal["fp32", "bf16"] = "fp32",
        impl: str = "auto",
    ) -> None:
        super().__init__()
        if n_classes < 2:
            raise UserError(f"n_classes is {n_classes}, must be at least 2")
        require_one_of("precision", precision, PRODUCT_DTYPES)
        self.in_features = in_features
        self.n_classes = n_classes
        self.sparse = sparse
        self.init_range = init_range
        self.precision = precision
        self.impl = impl
        self.weight = nn.Parameter(empty_table(n_classes, in_features, dtype=STORAGE[storage]))
        self.bias = nn.Parameter(torch.empty(n_classes)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        fill_uniform(self.weight, self.init_range)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def extra_repr(self) -> str:
        return f"{self.in_features}, {self.n_classes}, bias={self.bias is not None}"

    @property
    def product_dtype(self) -> torch.dtype:
        """The dtype of the matrix products."""
        return PRODUCT_DTYPES[self.precision] or torch.promote_types(
            self.weight.dtype, torch.float32
        )

    # ------------------------------------------------------------------ training

    def forward(
        self,
        hidden: Tensor,
        target: Tensor,
        mask: Tensor | None = None,
        context: Tensor | None = None,
    ) -> OutputWithLoss:
        """The objective of each example and the loss.

        ``hidden`` (N, h) or (T, B, h); ``target`` and ``mask`` (N,) or (T, B): examples where
        ``mask`` is False count for nothing. ``context``, shaped like ``target``: the input words,
        for proposals that look at them.
        """
        if hidden.shape[:-1] != target.shape or hidden.shape[-1] != self.in_features:
            raise ValueError(
                f"hidden {tuple(hidden.shape)} must be target {tuple(target.shape)} "
                f"and a last dimension of {self.in_features}"
            )
        if context is not None and context.shape != target.shape:
            raise ValueError(
                f"context {tuple(context.shape)} must be shaped like target {tuple(target.shape)}"
            )
        if self.training:
            output = self.objective(hidden, target, mask, context)
        else:
            output = self.target_log_prob(hidden, target)
        if mask is None:
            return OutputWithLoss(output, -output.mean())
        output = output * mask
        return OutputWithLoss(output, -output.sum() / mask.sum())

    def objective(
        self,
        hidden: Tensor,
        target: Tensor,
        mask: Tensor | None = None,
        context: Tensor | None = None,
    ) -> Tensor:
        """J of each example, with gradients; what training maximises."""
        raise NotImplementedError  # each loss is one subclass

    # ------------------------------------------------------------------ exact evaluation

    def target_log_prob(self, hidden: Tensor, target: Tensor) -> Tensor:
        """Exact log p(target | hidden), shaped like ``target``, in bounded memory; no gradients."""
        ops = self.operations(hidden)
        flat = hidden.detach().reshape(-1, self.in_features)
        with torch.no_grad():
            log_prob: Tensor = ops.target_log_prob(
                flat, self.weight, self.bias, target.reshape(-1), self.product_dtype
            )
        return log_prob.view(target.shape)

    def pair_log_prob(self, hidden: Tensor, row: Tensor, target: Tensor) -> Tensor:
        """Exact log p(target | hidden[row]) of pairs (N,), for hidden states (M, h); no gradients.

        Several words may follow one state: its sum over the vocabulary is made once.
        """
        ops = self.operations(hidden)
        states = hidden.detach()
        with torch.no_grad():
            partition = ops.log_partition(states, self.weight, self.bias, self.product_dtype)
            logit: Tensor = ops.target_logit(states[row], self.weight, self.bias, target)
            return logit - partition[row]

    def operations(self, hidden: Tensor) -> ModuleType:
        """The arithmetic for these hidden states and this table."""
        dtypes = [hidden.dtype, self.weight.dtype]
        if self.bias is not None:
            dtypes.append(self.bias.dtype)
        return operations(self.impl, hidden.device, *dtypes)

    def logits(self, hidden: Tensor) -> Tensor:
        """<theta, s> + bias of all classes, (..., n_classes)."""
        return nn.functional.linear(hidden, self.weight.to(hidden.dtype), self.bias)

    def log_prob(self, hidden: Tensor) -> Tensor:
        """Exact log-probabilities of all classes, (..., n_classes)."""
        return torch.log_softmax(self.logits(hidden), -1)

    def predict(self, hidden: Tensor) -> Tensor:
        """The most probable class of each example, without holding all probabilities at once."""
        flat = hidden.reshape(-1, self.in_features)
        with torch.no_grad():
            chunks = [
                self.logits(part).argmax(-1) for part in flat.split(max(1, 2**24 // self.n_classes))
            ]
        return torch.cat(chunks).view(hidden.shape[:-1])


def require_one_of(name: str, value: object, known: Iterable[str]) -> None:
    """Refuses an option that is none of those known."""
    if value not in (names := list(known)):
        raise UserError(f"{name} is {value!r}, must be one of {', '.join(names)}")
