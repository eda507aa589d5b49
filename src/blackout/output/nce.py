"""Noise contrastive estimation with noise Q and K samples."""

from __future__ import annotations

import math
from typing import Any, Literal

import torch
from torch import nn

from blackout.errors import UserError
from blackout.ops.engine import Scalar
from blackout.output.options import takes_options_of
from blackout.output.sampling import SamplingLayer
from blackout.ranks.division import mark_complete


class NCE(SamplingLayer):
    """J = log sigma(d_i) + sum_j log sigma(-d_j) with d = u - log Z - log(K Q)."""

    objective_name = "nce"
    self_normalised = True

    @takes_options_of(SamplingLayer)
    def __init__(
        self,
        in_features: int,
        n_classes: int,
        samples: int,
        *,
        log_z: float | Literal["learned"] = "learned",
        **options: Any,
    ) -> None:
        """``log_z``: a constant, or "learned": a parameter that starts at log V, the normaliser of
        scores that are 0.
        """
        super().__init__(in_features, n_classes, samples, **options)
        self.ranks.require_same({"log_z": log_z})
        self.log_z: nn.Parameter | float
        if log_z == "learned":
            number = torch.empty((), dtype=options.get("dtype"), device=self.weight.device)
            self.log_z = nn.Parameter(number.fill_(math.log(n_classes)))
            if self.divided:
                mark_complete(self.log_z, self.ranks)
        elif isinstance(log_z, float | int) and math.isfinite(log_z):
            self.log_z = float(log_z)
        else:
            raise UserError(f'log_z is {log_z!r}, must be a number or "learned"')

    def reset_parameters(self) -> None:
        super().reset_parameters()
        if isinstance(self.log_z, nn.Parameter):
            nn.init.constant_(self.log_z, math.log(self.n_classes))

    @property
    def log_z_goal(self) -> Scalar:
        return self.log_normaliser()

    def log_normaliser(self) -> Scalar:
        if isinstance(self.log_z, float):
            return self.log_z
        return self.log_z.to(torch.promote_types(self.log_z.dtype, torch.float32))
