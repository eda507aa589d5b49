"""Noise contrastive estimation with noise Q and K samples."""

from __future__ import annotations

import math
from typing import Any, Literal

import torch
from torch import nn

from blackout.errors import UserError
from blackout.ops.engine import Scalar
from blackout.output.sampling import SamplingLayer


class NCE(SamplingLayer):
    """J = log sigma(d_i) + sum_j log sigma(-d_j) with d = u - log Z - log(K Q).

    ``log_z`` is a constant, or "learned": a parameter that starts at 0.
    """

    objective_name = "nce"

    def __init__(
        self,
        in_features: int,
        n_classes: int,
        samples: int,
        *,
        log_z: float | Literal["learned"] = 0.0,
        **options: Any,
    ) -> None:
        super().__init__(in_features, n_classes, samples, **options)
        self.log_z: nn.Parameter | float
        if log_z == "learned":
            self.log_z = nn.Parameter(torch.zeros(()))
        elif isinstance(log_z, float | int) and math.isfinite(log_z):
            self.log_z = float(log_z)
        else:
            raise UserError(f'log_z is {log_z!r}, must be a number or "learned"')

    def log_normaliser(self) -> Scalar:
        return self.log_z
