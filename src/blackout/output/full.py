"""The exact softmax as a training loss: what the sampled ones are measured against."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from blackout.ops.autograd import softmax_objective
from blackout.output.flat import FlatSoftmax


class Full(FlatSoftmax):
    """J = log softmax(u)_i over all classes. Its gradient touches every row: O(V h) a word."""

    def __init__(self, in_features: int, n_classes: int, **options: Any) -> None:
        super().__init__(in_features, n_classes, **{**options, "sparse": False})

    def objective(
        self,
        hidden: Tensor,
        target: Tensor,
        mask: Tensor | None = None,
        history: Tensor | None = None,
    ) -> Tensor:
        value = softmax_objective(
            hidden.reshape(-1, self.in_features),
            self.weight,
            self.bias,
            target.reshape(-1),
            self.product_dtype,
            self.engine(hidden),
        )
        return value.view(target.shape)
