"""BlackOut: a discriminative loss over the target and K weighted samples (paper eqs. 6-11).

>>> layer = BlackOut(16, 1000, samples=20)
>>> hidden, target = torch.randn(8, 16, requires_grad=True), torch.randint(1000, (8,))
>>> output, loss = layer(hidden, target)
>>> loss.backward()
>>> layer.weight.grad.is_sparse, layer.predict(hidden).shape
(True, torch.Size([8]))
"""

from __future__ import annotations

from typing import Any, Literal

import torch  # noqa: F401  (the example above)

from blackout.output.options import require_one_of, takes_options_of
from blackout.output.sampled import Sampled


class BlackOut(Sampled):
    """J = log p_i + sum_j log(1 - p_j), p the softmax of u - log Q over target and samples.

    The sampled softmax with a second term.
    """

    @takes_options_of(Sampled)
    def __init__(
        self,
        in_features: int,
        n_classes: int,
        samples: int,
        *,
        negatives: Literal["softmax", "nce"] = "softmax",
        **options: Any,
    ) -> None:
        """``negatives``: "nce" compares each negative with the samples alone (paper 2.2)."""
        super().__init__(in_features, n_classes, samples, **options)
        require_one_of("negatives", negatives, ("softmax", "nce"))
        self.ranks.require_same({"negatives": negatives})
        self.negatives = negatives
        self.objective_name = "blackout" if negatives == "softmax" else "blackout-noise"
