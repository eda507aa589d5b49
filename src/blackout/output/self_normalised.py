"""Self-normalised softmax: the logit itself comes to be the log-probability.

    J = log p_i - gamma (log Z)²,   Z = sum over all classes of exp(u)

The penalty draws log Z to 0 (Devlin et al. 2014, Andreas and Klein 2015): after training u_i stands
for log p_i at the cost of one product, O(h), with an error that is log Z. Exact scoring is as for
every flat softmax.

Over all classes Z is exact (:class:`SelfNormalisedFull`). Over samples it is estimated from those
that the loss has looked at anyway,

    Ẑ = exp(u_i) + 1/K · sum over the samples j ≠ i of exp(u_j) / Q_j,

whose mean is Z whatever Q; log Ẑ lies below log Z by its variance's share. Nothing but J itself is
needed for it: with p̃_i = exp(J) and c copies of the target among the samples their sum is
(1/p̃_i - 1 - c) exp(u_i) / Q_i.

>>> layer = SelfNormalised(16, 1000, samples=20)
>>> hidden, target = torch.randn(8, 16), torch.randint(1000, (8,))
>>> layer(hidden, target).loss.backward()
>>> layer.unnormalised_log_prob(hidden, None, target).shape
torch.Size([8])
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import softplus

from blackout.errors import UserError
from blackout.ops.autograd import SampledWords
from blackout.output.contract import LayerSpec, OutputLayer
from blackout.output.full import Full
from blackout.output.labels import Labels
from blackout.output.options import takes_options_of
from blackout.output.sampling import SamplingLayer
from blackout.proposals import Groups

GAMMA = 0.1


class SelfNormalised(SamplingLayer):
    """The sampled softmax and a penalty on the estimated log Z."""

    objective_name = "sampled"
    self_normalised = True
    divisible = False

    @takes_options_of(SamplingLayer)
    def __init__(
        self,
        in_features: int,
        n_classes: int,
        samples: int,
        *,
        gamma: float = GAMMA,
        **options: Any,
    ) -> None:
        """``gamma``: the weight of the penalty (log Z)²."""
        super().__init__(in_features, n_classes, samples, **options)
        if self.sampling == "strata":
            raise UserError("self-normalised: not with strata")
        self.gamma = checked_gamma(gamma)

    @classmethod
    def from_spec(cls, spec: LayerSpec) -> OutputLayer:  # type: ignore[override]
        """Over samples, or over all classes where the setting ``normalise_over`` says so."""
        settings = dict(spec.settings)
        if settings.pop("normalise_over", "samples") == "samples":
            return super().from_spec(dataclasses.replace(spec, settings=settings))
        kept = {name: settings[name] for name in ("gamma", "maxent", "maxent_bits")}
        return SelfNormalisedFull(spec.in_features, spec.n_classes, **kept, **spec.common)

    def _penalised(
        self, value: Tensor, states: Tensor, words: SampledWords, given: Groups
    ) -> Tensor:
        log_z = self._estimate(value, states, words, given)
        return value - self.gamma * log_z.square()

    def _estimate(
        self, value: Tensor, states: Tensor, words: SampledWords, given: Groups
    ) -> Tensor:
        """log Ẑ (G, M), with gradients by way of J and of the target's logit."""
        target, samples, multiplicity, log_q, _ = words
        copies = (samples[:, None, :] == target[:, :, None]).to(value.dtype)  # (G, M, K)
        if multiplicity is None:
            copies, draws = copies.sum(-1), samples.new_full((1,), samples.shape[1])
        else:
            copies = (copies * multiplicity.to(value.dtype)[:, None, :]).sum(-1)
            draws = multiplicity.sum(-1)
        # log(1/p - 1 - c): 1 + c is at most 1/p, but for rounding, and then the rest is nothing
        own = ((1 + copies) * value.exp()).clamp(max=1 - 1e-6)
        rest = -value + torch.log1p(-own)
        offset = (log_q + draws.double().log()[:, None]).to(value.dtype)
        return self._target_logits(states, given) + softplus(rest - offset)

    def _target_logits(self, states: Tensor, given: Groups) -> Tensor:
        logit = (states * self.geometry.vectors(self.table(given.target))).sum(-1)
        if self.biases is not None:
            logit = logit + self.biases(given.target)
        if self.features is not None:
            logit = logit + self.features.at(given.history, given.target)
        return logit

    def objective_of_labels(self, *given: Any, **options: Any) -> Tensor:
        raise UserError("several classes an example: not with a self-normalised layer")


class SelfNormalisedFull(Full):
    """The exact softmax and a penalty on log Z. Its gradient touches every row: O(V h) a word."""

    self_normalised = True
    divisible = False

    @takes_options_of(Full)
    def __init__(
        self, in_features: int, n_classes: int, *, gamma: float = GAMMA, **options: Any
    ) -> None:
        """``gamma``: the weight of the penalty (log Z)²."""
        super().__init__(in_features, n_classes, **options)
        self.gamma = checked_gamma(gamma)

    def objective(
        self,
        hidden: Tensor,
        target: Tensor,
        mask: Tensor | None = None,
        history: Tensor | None = None,
    ) -> Tensor:
        """log Z is u_i - log p_i: by way of both its gradient is that of all classes."""
        value = super().objective(hidden, target, mask, history).view(-1)
        words, states = target.reshape(-1), self.states(hidden)
        exact = value
        if self.label_smoothing:
            past = None if history is None else history.reshape(len(words), -1)
            exact = self._log_softmax(hidden, words, past)
        logit = (states * self.geometry.vectors(self.weight[words])).sum(1)
        if self.bias is not None:
            logit = logit + self.bias[words]
        if self.features is not None:
            past = None if history is None else history.reshape(len(words), -1)
            logit = logit + self.features.at(past, words)
        return (value - self.gamma * (logit - exact).square()).view(target.shape)

    def objective_of_labels(
        self, hidden: Tensor, labels: Labels, history: Tensor | None = None
    ) -> Tensor:
        raise UserError("several classes an example: not with a self-normalised layer")


def checked_gamma(gamma: float) -> float:
    """Refuses a weight that would reward what it should punish."""
    if not 0 <= gamma < math.inf:
        raise UserError(f"gamma is {gamma}, must be 0 or more")
    return float(gamma)
