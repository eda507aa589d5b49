"""The proposal: its probabilities, its alias table, its draws."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from blackout.errors import UserError
from blackout.proposals.unigram import UnigramProposal, alias_table


def zipf(vocab: int) -> torch.Tensor:
    return (1e7 / torch.arange(1, vocab + 1)).floor().clamp(min=1)


def table_probabilities(threshold: torch.Tensor, alias: torch.Tensor) -> torch.Tensor:
    """What an alias table draws: each column is hit with chance 1/V."""
    q = threshold.clone()
    q.index_add_(0, alias, 1 - threshold)
    return q / len(q)


def chi_square_is_plausible(observed: torch.Tensor, expected: torch.Tensor) -> bool:
    """Within 5 standard deviations of a chi-square with that many degrees of freedom."""
    degrees = len(observed) - 1
    statistic = float(((observed - expected) ** 2 / expected).sum())
    return abs(statistic - degrees) < 5 * math.sqrt(2 * degrees)


def test_alpha_0_is_exactly_uniform_and_alpha_1_exactly_unigram():
    counts = zipf(1000).double()
    torch.testing.assert_close(
        UnigramProposal(counts, 0.0).log_q.exp(),
        torch.full((1000,), 1e-3, dtype=torch.float64),
        rtol=1e-14,
        atol=0,
    )
    torch.testing.assert_close(
        UnigramProposal(counts, 1.0).log_q.exp(), counts / counts.sum(), rtol=1e-14, atol=0
    )


@given(
    st.lists(st.integers(1, 10**6), min_size=1, max_size=60),
    st.floats(0, 1),
)
@settings(max_examples=200, deadline=None)
def test_alias_table_holds_the_distribution(counts, alpha):
    q = UnigramProposal(torch.tensor(counts), alpha).log_q.exp()
    threshold, alias = alias_table(q)
    assert ((threshold >= 0) & (threshold <= 1)).all()
    torch.testing.assert_close(table_probabilities(threshold, alias), q, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("alpha", [0.0, 0.4, 1.0])
def test_alias_table_of_a_million_words_misses_none(alpha):
    proposal = UnigramProposal(zipf(1_000_000), alpha)
    q = table_probabilities(proposal.threshold, proposal.alias)
    torch.testing.assert_close(q, proposal.log_q.exp(), rtol=1e-9, atol=5e-12)
    assert (q > 0).all()


@pytest.mark.parametrize("alpha", [0.0, 0.4, 1.0])
def test_draws_follow_the_proposal_at_a_million_words(alpha):
    """Chi-square over bins of neighbouring ranks, each expecting hundreds of draws."""
    vocab, draws = 1_000_000, 2_000_000
    proposal = UnigramProposal(zipf(vocab), alpha)
    q = proposal.log_q.exp()
    bins = (q.cumsum(0) * 2000).long().clamp(max=1999)
    expected = torch.zeros(2000, dtype=torch.float64).index_add_(0, bins, q) * draws
    words = proposal.words(seed=7, step=3, groups=4, samples=draws // 4)
    observed = torch.bincount(bins[words.flatten()], minlength=2000).double()
    filled = expected > 5
    assert expected[~filled].sum() <= 5
    assert chi_square_is_plausible(observed[filled], expected[filled])


def test_draws_follow_the_proposal_word_by_word():
    proposal = UnigramProposal(torch.tensor([1, 5, 10, 50, 100, 1000]), 0.7)
    words = proposal.words(seed=1, step=0, groups=100, samples=10_000)
    observed = torch.bincount(words.flatten(), minlength=6).double()
    assert chi_square_is_plausible(observed, proposal.log_q.exp() * 1_000_000)


def test_draws_are_a_pure_function_of_seed_step_and_group():
    proposal = UnigramProposal(zipf(5000), 0.5)
    first = proposal.words(seed=3, step=11, groups=4, samples=50)
    assert torch.equal(first, proposal.words(seed=3, step=11, groups=4, samples=50))
    assert torch.equal(first[:2], proposal.words(seed=3, step=11, groups=2, samples=50))
    assert torch.equal(first[:, :20], proposal.words(seed=3, step=11, groups=4, samples=20))
    for seed, step in [(4, 11), (3, 12)]:
        assert not torch.equal(first, proposal.words(seed=seed, step=step, groups=4, samples=50))
    assert len({tuple(row.tolist()) for row in first}) == 4


@pytest.mark.parametrize("counts", [[3, 0, 1], [1.0, -2.0], [float("nan"), 1.0], []])
def test_a_word_without_a_count_is_refused(counts):
    with pytest.raises(UserError):
        UnigramProposal(torch.tensor(counts), 0.5)


@pytest.mark.parametrize("alpha", [-0.1, 1.1, float("nan")])
def test_alpha_outside_0_to_1_is_refused(alpha):
    with pytest.raises(UserError, match="alpha"):
        UnigramProposal(torch.ones(3), alpha)
