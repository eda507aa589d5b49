"""Importance sampling, the sampled softmax with the log Q correction (paper 2.1)."""

from __future__ import annotations

from blackout.output.layer import SampledOutputLayer


class Sampled(SampledOutputLayer):
    """J = log p_i, p the softmax of u - log Q over target and samples."""

    @property
    def objective_name(self) -> str:
        return "importance"
