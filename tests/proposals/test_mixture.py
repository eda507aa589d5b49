"""Mixtures of proposals, and in-batch negatives whose frequencies are estimated on the way."""

import copy
import math

import pytest
import torch

from blackout import Sampled
from blackout.errors import UserError
from blackout.proposals import (
    BigramProposal,
    Groups,
    InBatchProposal,
    LshProposal,
    MixtureProposal,
    ModelProposal,
    UnigramProposal,
)

V = 23
COUNTS = torch.arange(1, V + 1)


def mixture():
    parts = [UnigramProposal(COUNTS, 1.0), UnigramProposal(COUNTS, 0.0), ModelProposal(COUNTS, 1.0)]
    parts[2].adapt(torch.linspace(5, 1, V) ** 3)
    return MixtureProposal(parts, [0.5, 0.2, 0.3])


def test_draws_have_the_density_they_state():
    proposal, target = mixture(), torch.zeros(2, 3, dtype=torch.int64)
    drawn = proposal.draw(5, 9, target, 100_000)
    everything = torch.arange(V).expand(2, V)
    density = proposal.log_density(everything, Groups(target)).exp()
    torch.testing.assert_close(density.sum(1), torch.ones(2, dtype=torch.float64))
    torch.testing.assert_close(density[0], proposal.marginal())
    for samples in drawn.samples:
        observed = torch.bincount(samples, minlength=V).double()
        expected = density[0] * 100_000
        statistic = float(((observed - expected) ** 2 / expected).sum())
        assert abs(statistic - (V - 1)) < 5 * math.sqrt(2 * (V - 1))
    assert not torch.equal(drawn.samples[0], drawn.samples[1])


def test_draws_of_the_parts_are_independent_of_which_is_taken():
    """Two parts with the same table: the mixture is that table too, draw by draw."""
    part = UnigramProposal(COUNTS, 1.0)
    both = MixtureProposal([part, UnigramProposal(COUNTS, 1.0)], [0.5, 0.5])
    drawn = both.draw(1, 0, torch.zeros(1, 1, dtype=torch.int64), 200_000).samples[0]
    share = torch.bincount(drawn, minlength=V).double() / 200_000
    torch.testing.assert_close(share, part.marginal(), rtol=0, atol=0.003)


def test_what_its_parts_want_it_wants():
    parts = [BigramProposal(COUNTS, 1.0), ModelProposal(COUNTS, 1.0)]
    proposal = MixtureProposal(parts, [0.5, 0.5])
    assert (proposal.history_words, proposal.reads_text, proposal.follows_model) == (1, True, True)
    text = torch.arange(V)
    proposal.read_text(text[:-1], text[1:])
    proposal.adapt(torch.ones(V))
    target = torch.zeros(1, 2, dtype=torch.int64)
    assert proposal.draw(1, 0, target, 7, history=target[..., None]).samples.shape == (1, 7)
    names = {"parts.0.pairs", "parts.0.log_q", "parts.1.edges", "parts.1.log_q"}
    assert names <= proposal.state_dict().keys()
    proposal.save_what_is_learned()
    assert proposal.state_dict().keys() == {"parts.1.edges"}


@pytest.mark.parametrize(
    ("parts", "shares", "said"),
    [
        ([], [], "0 proposals"),
        ([V], [0.5, 0.5], "1 proposals have 2 shares"),
        ([V, V + 1], [0.5, 0.5], "over the same words"),
        ([V, V], [0.5, 0.6], "add up to 1"),
        ([V, V], [1.0, 0.0], "above 0"),
    ],
)
def test_mixtures_that_are_none(parts, shares, said):
    with pytest.raises(UserError, match=said):
        MixtureProposal([UnigramProposal(torch.ones(n), 1.0) for n in parts], shares)


def test_parts_and_shares_of_other_kinds_are_named():
    part = UnigramProposal(COUNTS, 1.0)
    with pytest.raises(UserError, match="a part of a mixture is a str, no Proposal"):
        MixtureProposal([part, "batch"], [0.5, 0.5])
    with pytest.raises(UserError, match=r"the shares .* must be above 0 and add up to 1"):
        MixtureProposal([part, part], ["0.5", 0.5])


@pytest.mark.parametrize("sharing", ["block", "step", "word"])
def test_a_part_may_look_at_the_states(sharing):
    """The loss is that of the draw, whose density is the mixture's: against one by hand."""
    torch.manual_seed(0)
    near = LshProposal(COUNTS, 1.0)
    mixed = MixtureProposal([UnigramProposal(COUNTS, 0.0), near], [0.4, 0.6])
    layer = Sampled(6, V, 9, proposal=mixed, sharing=sharing)
    hidden, target = torch.randn(3, 4, 6), torch.randint(V, (3, 4))
    drawn = copy.deepcopy(layer).draw(target, states=hidden)
    torch.testing.assert_close(
        layer(hidden, target).output, layer(hidden, target, samples=drawn).output
    )
    groups = Groups(
        target.view(drawn.log_q_target.shape), states=hidden.view(*drawn.log_q_target.shape, 6)
    )
    every = torch.arange(V).expand(len(groups.target), -1)
    density = mixed.log_density(every, groups).exp()
    torch.testing.assert_close(density.sum(1), torch.ones(len(density), dtype=torch.float64))
    expected = 0.4 / V + 0.6 * near.log_density(every, groups).exp()
    torch.testing.assert_close(density, expected)


def test_words_of_ones_own_before_any_draw():
    torch.manual_seed(0)
    layer = Sampled(6, V, 9, counts=COUNTS, proposal="lsh")
    loss = layer(torch.randn(4, 6), torch.randint(V, (4,)), samples=torch.arange(5)).loss
    assert loss.isfinite()


@pytest.mark.parametrize("counts", [None, COUNTS])
@pytest.mark.parametrize("sharing", ["block", "step", "word"])
def test_blocks_without_targets_teach_in_batch_negatives_nothing(counts, sharing):
    layer = Sampled(6, V, 9, counts=counts, proposal="batch", sharing=sharing)
    unlabelled = torch.full((4, 2), -100)
    for hidden, target in (
        (torch.randn(0, 6), torch.zeros(0, dtype=torch.int64)),
        (torch.randn(3, 0, 6), torch.zeros(3, 0, dtype=torch.int64)),
        (torch.randn(4, 6), unlabelled),
    ):
        _, loss = layer(hidden.requires_grad_(), target)
        loss.backward()
        assert float(loss.detach()) == 0
        assert not hidden.grad.any()
        assert not layer.weight.grad.to_dense().any()


def blocks(share, steps, size, seed=0):
    generator = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        yield torch.multinomial(share, size, replacement=True, generator=generator)[None]


def test_the_estimated_frequencies_are_the_true_ones():
    """Within the error of so many occurrences; words that never came keep their share."""
    share = (1 / torch.arange(1, 101)).double()
    share[90:] = 0
    share /= share.sum()
    proposal = InBatchProposal(100, rate=0.002)
    for step, target in enumerate(blocks(share, 400, 64)):
        drawn = proposal.draw(1, step, target, 16)
        assert set(drawn.samples.flatten().tolist()) <= set(target.flatten().tolist())
    found = proposal.log_density(torch.arange(100)[None], Groups(target))[0].exp()
    seen = 400 * 64 * share[:90]
    error = (found[:90] / share[:90] - 1).abs()
    assert bool((error < 4 / seen.clamp(max=500).sqrt()).all())
    torch.testing.assert_close(found[90:], torch.full((10,), 0.01, dtype=torch.float64))


def test_they_follow_a_change():
    first, second = torch.tensor([0.8, 0.1, 0.1]), torch.tensor([0.1, 0.1, 0.8])
    proposal = InBatchProposal(3, rate=0.02)
    for share in (first, second):
        for step, target in enumerate(blocks(share, 200, 20)):
            proposal.draw(1, step, target, 4)
        found = proposal.log_density(torch.arange(3)[None], Groups(target))[0].exp()
        torch.testing.assert_close(found.float(), share, rtol=0.35, atol=0)


def test_masked_targets_are_neither_drawn_nor_counted():
    proposal = InBatchProposal(9)
    target, mask = torch.tensor([[1, 2, 3, 4]]), torch.tensor([[True, True, False, False]])
    assert set(proposal.draw(1, 0, target, 50, mask=mask).samples[0].tolist()) == {1, 2}
    assert proposal.seen.tolist() == [0, 1, 1, 0, 0, 0, 0, 0, 0]
    with pytest.raises(UserError, match="rate is 1"):
        InBatchProposal(9, rate=1)
