"""Draws near the hidden states: their known chances, and that near means near."""

import pytest
import torch

from blackout.errors import UserError
from blackout.output import BlackOut, Sampled
from blackout.proposals import Groups, LshProposal

V, H = 60, 5


def made(alpha=1.0, seed=0):
    generator = torch.Generator().manual_seed(seed)
    proposal = LshProposal(torch.arange(1, V + 1), alpha)
    rows = torch.randn(V, H, generator=generator)
    proposal.see_rows(rows, 0)
    states = torch.rand(2, 3, H, generator=generator)
    return proposal, rows, Groups(torch.tensor([[1, 2, 3], [4, 5, 6]]), states=states)


@pytest.mark.parametrize("alpha", [0.0, 1.0])
def test_chances_sum_to_one_and_are_those_of_draws(alpha):
    """By chi-square, at one in a thousand."""
    proposal, _, groups = made(alpha)
    chances = proposal.log_density(torch.arange(V).expand(2, -1), groups).exp()
    assert chances.sum(1) == pytest.approx(1, abs=1e-12)
    assert not torch.allclose(chances[0], chances[1])
    draws = proposal.sample(7, 3, groups, 200_000, "auto")
    for group in range(2):
        seen = torch.bincount(draws[group], minlength=V).double()
        expected = 200_000 * chances[group]
        chi_square = ((seen - expected).square() / expected).sum()
        assert chi_square < 98.3  # 0.1 % of chi-square with 59 degrees of freedom


def test_chances_are_the_definitions():
    """One word, one table, one state at a time."""
    proposal, rows, groups = made()
    centre, states = rows.mean(0), groups.states - groups.states.mean((0, 1))
    planes = torch.randn(H, 64, generator=torch.Generator().manual_seed(1_234_567))
    sides = lambda vectors: (vectors @ planes > 0).unflatten(-1, (8, 8))  # noqa: E731
    of_words, of_states = sides(rows - centre), sides(states)
    q = proposal.log_q.exp()
    for group in range(2):
        expected = 0.5 * q
        for state in of_states[group]:
            for table in range(8):
                inside = (of_words[:, table] == state[table]).all(1)
                part = q * inside / q[inside].sum() if inside.any() else q
                expected = expected + 0.5 * part / 24
        found = proposal.log_density(torch.arange(V).expand(2, -1), groups).exp()[group]
        torch.testing.assert_close(found, expected)


def test_near_words_are_likelier():
    generator = torch.Generator().manual_seed(1)
    rows = torch.randn(2000, 16, generator=generator)
    proposal = LshProposal(torch.ones(2000), 1.0)
    proposal.see_rows(rows, 0)
    states = torch.randn(8, 1, 16, generator=generator)
    groups = Groups(torch.zeros(8, 1, dtype=torch.int64), states=states)
    chances = proposal.log_density(torch.arange(2000).expand(8, -1), groups).exp()
    best = (states[:, 0] @ rows.mT).topk(20).indices
    assert chances.gather(1, best).mean() > 3 / 2000


def test_tables_follow_the_rows():
    proposal, rows, groups = made()
    words = torch.arange(V).expand(2, -1)
    before = proposal.log_density(words, groups)
    proposal.see_rows(-rows, 199)
    assert torch.equal(proposal.log_density(words, groups), before)
    proposal.see_rows(-rows, 200)
    assert not torch.allclose(proposal.log_density(words, groups), before)
    other = LshProposal(torch.arange(1, V + 1), 1.0)
    other.load_state_dict(proposal.state_dict())
    assert torch.equal(
        other.sample(1, 2, groups, 50, "auto"), proposal.sample(1, 2, groups, 50, "auto")
    )


def test_the_mean_gradient_is_the_softmax_own():
    """Importance sampling with its weights: over many samples the exact softmax's gradient."""
    torch.manual_seed(2)
    layer = Sampled(H, V, 4000, counts=torch.arange(1, V + 1), proposal="lsh", dtype=torch.float64)
    hidden = torch.rand(3, H, dtype=torch.float64, requires_grad=True)
    target = torch.tensor([5, 1, 40])
    (found,) = torch.autograd.grad(
        sum(layer(hidden, target).output.sum() for _ in range(40)) / 40, hidden
    )
    exact = layer.log_prob(hidden).gather(1, target[:, None]).sum()
    (expected,) = torch.autograd.grad(exact, hidden)
    torch.testing.assert_close(found, expected, rtol=0.05, atol=0.02)


def test_bad_input():
    layer = BlackOut(H, V, 5, proposal="lsh")
    with pytest.raises(UserError, match="proposal lsh looks at the hidden states"):
        layer.draw(torch.tensor([1, 2]))
    with pytest.raises(UserError, match="proposal lsh has no tables yet"):
        LshProposal(torch.ones(V), 1.0).log_density(
            torch.tensor([[1]]), Groups(torch.tensor([[1]]), states=torch.zeros(1, 1, H))
        )
