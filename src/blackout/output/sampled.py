"""The sampled softmax with the log Q correction: the paper's importance sampling (2.1)."""

from __future__ import annotations

from typing import Any, get_args

from blackout.ops.engine import Objective
from blackout.output.contract import require_one_of
from blackout.output.sampling import Collisions, SamplingLayer, TargetWeight


class Sampled(SamplingLayer):
    """J = log p_i, p the softmax of u - log Q over target and samples.

    ``target_weight="one"`` sets q_i = 1 for the target instead of 1 / Q_i (paper, footnote 1);
    ``collisions="remove"`` takes copies of the target out of its samples, as the paper does.
    """

    objective_name: Objective = "sampled"

    def __init__(
        self,
        in_features: int,
        n_classes: int,
        samples: int,
        *,
        target_weight: TargetWeight = "proposal",
        collisions: Collisions = "keep",
        **options: Any,
    ) -> None:
        super().__init__(in_features, n_classes, samples, **options)
        require_one_of("target_weight", target_weight, get_args(TargetWeight))
        require_one_of("collisions", collisions, get_args(Collisions))
        self.target_weight = target_weight
        self.collisions = collisions
