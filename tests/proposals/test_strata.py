"""Samples in strata: what is drawn, with which chance, and that the loss is exact with them."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
from torch import Tensor

import blackout
from blackout.errors import UserError
from blackout.proposals import StrataProposal

COUNTS = torch.tensor([50.0, 31, 20, 11, 7, 6, 5, 3, 2, 1, 1])


@pytest.mark.parametrize("by", ["mass", "equal"])
def test_draws_follow_q_within_each_stratum(by: Any) -> None:
    proposal = StrataProposal(COUNTS, 0.8, samples=10, strata=4, by=by)
    assert int(proposal.places.sum()) == 10
    assert int(proposal.places.min()) >= 1
    drawn = proposal.draw_strata(3, 5, groups=20_000, strata=range(4))
    observed = drawn.flatten().bincount(minlength=len(COUNTS)).double()
    expected = proposal.log_q.exp() * 20_000  # K_r Q_r draws of each word
    statistic = float(((observed - expected) ** 2 / expected).sum())
    degrees = len(COUNTS) - 4
    assert abs(statistic - degrees) < 5 * math.sqrt(2 * degrees)
    of_place = torch.arange(4).repeat_interleave(proposal.places)
    assert bool((drawn % 4 == of_place).all())
    torch.testing.assert_close(float(proposal.marginal().sum()), 1.0)


def test_places_follow_mass_as_far_as_each_has_one() -> None:
    proposal = StrataProposal(COUNTS, 1.0, samples=40, strata=4)
    mass = torch.stack([COUNTS[s::4].sum() for s in range(4)]) / COUNTS.sum()
    assert float((proposal.places - 40 * mass).abs().max()) < 1
    assert StrataProposal(COUNTS, 1.0, samples=4, strata=4).places.tolist() == [1] * 4


def test_a_part_of_the_strata_is_a_part_of_the_draw() -> None:
    """Line-ups are the same for every number of ranks: each draws for its own strata only."""
    proposal = StrataProposal(COUNTS, 1.0, samples=12, strata=4)
    whole = proposal.draw_strata(1, 2, 5, range(4))
    for own in ([0, 2], [1, 3], [3]):
        part = proposal.draw_strata(1, 2, 5, own)
        of_place = torch.arange(4).repeat_interleave(proposal.places)
        assert torch.equal(part, whole[:, torch.isin(of_place, torch.tensor(own))])
        ends = proposal.last_places(own)
        assert (part[:, ends] % 4 == torch.tensor(own)).all()
        assert len(part[0]) == int(ends[-1]) + 1
    assert not torch.equal(whole, proposal.draw_strata(1, 3, 5, range(4)))


class _AllLineUps(StrataProposal):
    """Every possible line-up once: group g has number g."""

    def draw_strata(self, seed: int, step: Any, groups: int, strata: Any) -> Tensor:
        return self.line_ups().repeat(groups // len(self.line_ups()), 1)

    def line_ups(self) -> Tensor:
        words = [range(s, self.n_words, self.strata) for s in range(self.strata)]
        pools = [words[s] for s in range(self.strata) for _ in range(int(self.places[s]))]
        return torch.tensor(list(itertools.product(*pools)))

    def chances(self) -> Tensor:
        within = self.log_q.exp() / self.places[torch.arange(self.n_words) % self.strata]
        return within[self.line_ups()].prod(1)


@pytest.mark.parametrize("samples", [3, 5])
@pytest.mark.parametrize("loss", ["blackout", "sampled", "nce"])
def test_the_mean_gradient_at_the_truth_is_zero(loss: str, samples: int) -> None:
    """By complete enumeration of line-ups and true words, whatever K_r and Q_r are."""
    truth = torch.tensor([0.31, 0.22, 0.19, 0.17, 0.11], dtype=torch.float64)
    counts = torch.tensor([2.0, 5, 1, 3, 3])
    kinds = {"blackout": blackout.BlackOut, "sampled": blackout.Sampled, "nce": blackout.NCE}
    options: dict[str, Any] = {"log_z": 0.0} if loss == "nce" else {}
    layer = kinds[loss](
        1,
        5,
        samples,
        counts=counts,
        sampling="strata",
        strata=2,
        sharing="word",
        bias=True,
        dtype=torch.float64,
        **options,
    )
    layer.proposal = every = _AllLineUps(counts, 1.0, samples, 2)
    with torch.no_grad():
        layer.bias.copy_(truth.log())
    sets = len(every.line_ups())
    target = torch.arange(5).repeat_interleave(sets)
    weights = (truth[:, None] * every.chances()).flatten()
    assert math.isclose(float(weights.sum()), 1.0, rel_tol=1e-12)
    _, loss_value = layer(torch.zeros(len(target), 1).double(), target, weights=weights, divisor=1)
    loss_value.backward()
    assert float(layer.bias.grad.to_dense().abs().max()) < 1e-14
    with torch.no_grad():
        layer.bias[0] += 0.5
    layer.bias.grad = None
    _, loss_value = layer(torch.zeros(len(target), 1).double(), target, weights=weights, divisor=1)
    loss_value.backward()
    assert float(layer.bias.grad.to_dense()[0]) > 1e-3  # away from the truth it leads back


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"proposal": "batch"}, 'proposal must be "unigram"'),
        ({"always_sample": (1,)}, "no place for always_sample"),
        ({"collisions": "remove"}, 'needs collisions "keep"'),
        ({"target_weight": "one"}, 'needs target_weight "proposal"'),
        ({"strata": 32}, "32 strata need as many samples and words, there are 20 and 100"),
    ],
)
def test_what_strata_cannot_do_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        blackout.BlackOut(4, 100, samples=20, sampling="strata", **options)
