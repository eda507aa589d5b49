"""BlackOut: a discriminative loss over the target and K weighted samples (paper eqs. 6-11).

>>> layer = BlackOut(16, 1000, samples=20)
>>> hidden, target = torch.randn(8, 16, requires_grad=True), torch.randint(1000, (8,))
>>> output, loss = layer(hidden, target)
>>> loss.backward()
>>> layer.weight.grad.is_sparse, layer.predict(hidden).shape
(True, torch.Size([8]))
"""

from __future__ import annotations

from typing import Any, Literal, get_args

import torch  # noqa: F401  (the example above)

from blackout.output.layer import require_one_of
from blackout.output.sampled_layer import Collisions, SampledOutputLayer, TargetWeight


class BlackOut(SampledOutputLayer):
    """J = log p_i + sum_j log(1 - p_j), p the softmax of u - log Q over target and samples.

    ``negatives="nce"`` compares each negative with the samples alone (paper 2.2);
    ``discriminative=False`` keeps the first term only, which is importance sampling;
    ``target_weight="one"`` sets q_i = 1 for the target instead of 1 / Q_i (paper, footnote 1);
    ``collisions="remove"`` takes copies of the target out of its samples, as the paper does.
    """

    def __init__(
        self,
        in_features: int,
        n_classes: int,
        samples: int,
        *,
        negatives: Literal["softmax", "nce"] = "softmax",
        discriminative: bool = True,
        target_weight: TargetWeight = "proposal",
        collisions: Collisions = "keep",
        **options: Any,
    ) -> None:
        super().__init__(in_features, n_classes, samples, **options)
        require_one_of("negatives", negatives, ("softmax", "nce"))
        require_one_of("target_weight", target_weight, get_args(TargetWeight))
        require_one_of("collisions", collisions, get_args(Collisions))
        self.negatives = negatives
        self.discriminative = discriminative
        self.target_weight = target_weight
        self.collisions = collisions

    @property
    def objective_name(self) -> str:
        if not self.discriminative:
            return "importance"
        return "blackout" if self.negatives == "softmax" else "blackout-noise"
