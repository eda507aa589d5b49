"""Where training ends: the objective's mean over targets and samples, enumerated word by word.

One context, its true distribution p, logits u = log p. An objective is consistent if the mean of
its gradient is 0 there. Given target and samples, the softmax of u - log Q is the posterior of
"which of these K + 1 places holds the target", so scores of that guess are consistent for every K
and every Q, as long as nothing is taken out of the sample set; taking copies of the target out
shifts the optimum.
"""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from torch import Tensor

from blackout.ops.reference import OBJECTIVES

TRUTH = torch.tensor([0.55, 0.25, 0.15, 0.05], dtype=torch.float64)
Q = torch.tensor([0.4, 0.3, 0.2, 0.1], dtype=torch.float64)


def mean_gradient(objective: str, samples: int, keep_copies: bool) -> Tensor:
    """The mean of dJ/du over all targets and all sample sets, at u = log p; (V,)."""
    words = range(len(TRUTH))
    cases = torch.tensor(list(itertools.product(words, repeat=samples + 1)))
    target, drawn = cases[:, 0], cases[:, 1:]
    chance = TRUTH[target] * Q[drawn].prod(-1)
    z = TRUTH.log() - Q.log() - (math.log(samples) if objective == "nce" else 0.0)
    z_samples = z[drawn]
    if not keep_copies:
        z_samples.masked_fill_(drawn == target[:, None], -math.inf)
    _, d_target, d_samples = OBJECTIVES[objective](z[target], z_samples)
    total = torch.zeros_like(TRUTH).index_add_(0, target, chance * d_target)
    return total.index_add_(0, drawn.flatten(), (chance[:, None] * d_samples).flatten())


@pytest.mark.parametrize("objective", ["blackout", "sampled", "nce"])
@pytest.mark.parametrize("samples", [1, 2, 5])
def test_consistent_with_copies(objective: str, samples: int) -> None:
    gradient = mean_gradient(objective, samples, keep_copies=True)
    torch.testing.assert_close(gradient, torch.zeros_like(gradient), rtol=0, atol=1e-14)


@pytest.mark.parametrize("objective", ["blackout", "blackout-noise", "sampled"])
def test_without_copies_the_likeliest_word_ends_too_high(objective: str) -> None:
    gradient = mean_gradient(objective, 5, keep_copies=False)
    assert float(gradient[0]) > 0.02
    assert float(gradient[1:].max()) < 0
