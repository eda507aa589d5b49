"""The exact softmax as a training loss: what the sampled ones are measured against."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from blackout.output.layer import OutputLayer


class Full(OutputLayer):
    """J = log softmax(u)_i over all classes. Its gradient touches every row: O(V h) a word."""

    def objective(
        self,
        hidden: Tensor,
        target: Tensor,
        mask: Tensor | None = None,
        context: Tensor | None = None,
    ) -> Tensor:
        dtype = self.product_dtype
        flat = hidden.reshape(-1, self.in_features)
        logits = torch.mm(flat.to(dtype), self.weight.to(dtype).mT).to(hidden.dtype)
        if self.bias is not None:
            logits = logits + self.bias
        return -cross_entropy(logits, target.reshape(-1), reduction="none").view(target.shape)
