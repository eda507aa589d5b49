"""The sampled softmax with the log Q correction: the paper's importance sampling (2.1)."""

from __future__ import annotations

from typing import Any, get_args

from blackout.errors import UserError
from blackout.ops.engine import Objective as ObjectiveName
from blackout.output.divided.refusals import refuse_line_up
from blackout.output.objective import Objective
from blackout.output.options import require_one_of, takes_options_of
from blackout.output.sampling import Collisions, SamplingLayer, TargetWeight


class Sampled(SamplingLayer):
    """J = log p_i, p the softmax of u - log Q over target and samples."""

    objective_name: ObjectiveName = "sampled"

    @takes_options_of(SamplingLayer)
    def __init__(
        self,
        in_features: int,
        n_classes: int,
        samples: int,
        *,
        target_weight: TargetWeight = "proposal",
        collisions: Collisions = "keep",
        objective: Objective | None = None,
        **options: Any,
    ) -> None:
        """``target_weight``: "one" sets q_i = 1 for the target, not 1 / Q_i (paper, footnote 1).
        ``collisions``: "remove" takes copies of the target out of its samples, as the paper does.
        ``objective``: a :class:`blackout.Objective` of yours, trained instead.
        """
        super().__init__(in_features, n_classes, samples, **options)
        require_one_of("target_weight", target_weight, get_args(TargetWeight))
        require_one_of("collisions", collisions, get_args(Collisions))
        self.target_weight = target_weight
        self.collisions = collisions
        if not isinstance(objective, Objective | None):
            kind = type(objective).__name__
            raise UserError(f"objective is a {kind}, must be an instance of blackout.Objective")
        if objective is not None:
            self.own_objective = objective
        refuse_line_up(self)
        self.ranks.require_same({"target_weight": target_weight, "collisions": collisions})
