"""The flat softmax: one vector for each class, p(w | s) proportional to exp(<theta_w, s> + b_w).

What the losses over it share: the table of word vectors, and exact evaluation in tiles of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import torch
from torch import Tensor, nn

from blackout.ops.dispatch import engine_for
from blackout.ops.engine import Engine
from blackout.output.contract import OutputLayer, TopK, best_of_tiles, require_one_of
from blackout.tables import STORAGE, Table

PRODUCT_DTYPES = {"fp32": None, "bf16": torch.bfloat16}
_TILE = 8192  # classes whose logits are made together …
_LOGITS = 1 << 24  # … for so many hidden states that there are this many at a time


class FlatSoftmax(OutputLayer):
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
        super().__init__(in_features, n_classes)
        require_one_of("precision", precision, PRODUCT_DTYPES)
        require_one_of("storage", storage, STORAGE)
        self.precision = precision
        self.impl = impl
        self.table = Table(
            n_classes,
            in_features,
            init_range=init_range,
            storage=STORAGE[storage],
            sparse=sparse,
            impl=impl,
        )
        self.biases = (
            Table(n_classes, None, init_range=0.0, sparse=sparse, impl=impl) if bias else None
        )

    def extra_repr(self) -> str:
        return f"{self.in_features}, {self.n_classes}, bias={self.bias is not None}"

    @property
    def weight(self) -> nn.Parameter:
        """The word vectors, (n_classes, in_features)."""
        return self.table.weight

    @property
    def bias(self) -> nn.Parameter | None:
        """(n_classes,)"""
        return None if self.biases is None else self.biases.weight

    @property
    def sparse(self) -> bool:
        return self.table.sparse

    @property
    def product_dtype(self) -> torch.dtype:
        """The dtype of the matrix products."""
        return PRODUCT_DTYPES[self.precision] or torch.promote_types(
            self.table.weight.dtype, torch.float32
        )

    def engine(self, hidden: Tensor) -> Engine:
        """The arithmetic for these hidden states and this table."""
        weight, bias = self.weight, self.bias
        more = () if bias is None else (bias.dtype,)
        return engine_for(self.impl, hidden.device, hidden.dtype, weight.dtype, *more)

    def expect_blocks(self, unigram: Tensor, steps: int, streams: int) -> None:
        rate = self.update_rate(unigram, steps, streams)
        self.table.update_rate = rate
        if self.biases is not None:
            self.biases.update_rate = rate

    def update_rate(self, unigram: Tensor, steps: int, streams: int) -> Tensor:
        """How often a block is expected to touch the row of each class, (V,)."""
        return unigram * (streams * steps)

    # ------------------------------------------------------------------ exact scoring

    @torch.no_grad()
    def target_log_prob(
        self, hidden: Tensor, target: Tensor, history: Tensor | None = None
    ) -> Tensor:
        flat = hidden.detach().reshape(-1, self.in_features)
        return self._log_prob(flat, None, target.reshape(-1)).view(target.shape)

    @torch.no_grad()
    def pair_log_prob(
        self, hidden: Tensor, row: Tensor, target: Tensor, history: Tensor | None = None
    ) -> Tensor:
        """The sum over the vocabulary is made once for each state."""
        return self._log_prob(hidden.detach(), row, target)

    def _log_prob(self, states: Tensor, row: Tensor | None, target: Tensor) -> Tensor:
        engine = self.engine(states)
        partition = engine.log_partition(states, self.weight, self.bias, self.product_dtype)
        if row is not None:
            states, partition = states[row], partition[row]
        return engine.target_logit(states, self.weight, self.bias, target) - partition

    def logits(self, hidden: Tensor) -> Tensor:
        """<theta, s> + bias of all classes, (..., n_classes)."""
        return self.engine(hidden).logits(hidden, self.weight, self.bias)

    def log_prob(self, hidden: Tensor, history: Tensor | None = None) -> Tensor:
        """Exact log-probabilities of all classes, (..., n_classes), with gradients."""
        return torch.log_softmax(self.logits(hidden), -1)

    def log_prob_tiles(
        self, hidden: Tensor, history: Tensor | None = None
    ) -> Iterator[tuple[int, Tensor]]:
        engine = self.engine(hidden)
        with torch.no_grad():
            partition = engine.log_partition(hidden, self.weight, self.bias, self.product_dtype)
        for first, logits in self._logit_tiles(hidden):
            yield first, logits - partition[:, None]

    @torch.no_grad()
    def topk(self, hidden: Tensor, k: int, history: Tensor | None = None) -> TopK:
        values, indices = self._top_logits(hidden, k)
        flat = hidden.reshape(-1, self.in_features)
        partition = self.engine(hidden).log_partition(
            flat, self.weight, self.bias, self.product_dtype
        )
        return TopK(values - partition.view(*hidden.shape[:-1], 1), indices)

    @torch.no_grad()
    def predict(self, hidden: Tensor, history: Tensor | None = None) -> Tensor:
        return self._top_logits(hidden, 1).indices[..., 0]

    def _top_logits(self, hidden: Tensor, k: int) -> TopK:
        flat = hidden.reshape(-1, self.in_features)
        some = max(1, _LOGITS // min(_TILE, self.n_classes))
        found = [best_of_tiles(self._logit_tiles(part), k) for part in flat.split(some)]
        values, indices = (torch.cat(parts) for parts in zip(*found, strict=True))
        shape = (*hidden.shape[:-1], k)
        return TopK(values.view(shape), indices.view(shape))

    def _logit_tiles(self, hidden: Tensor) -> Iterator[tuple[int, Tensor]]:
        """(first class, logits (N, n)) in the type of the hidden states, tile by tile."""
        engine = self.engine(hidden)
        for first in range(0, self.n_classes, _TILE):
            bias = None if self.bias is None else self.bias[first : first + _TILE]
            yield first, engine.logits(hidden, self.weight[first : first + _TILE], bias)
