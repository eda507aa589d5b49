"""Proposals other than Q_alpha: their draws have the densities they state, in every loss."""

import itertools
import math

import pytest
import torch

from blackout import NCE, BlackOut, Sampled
from blackout.errors import UserError
from blackout.ops.reference import root_mean_square_prob
from blackout.proposals import (
    PROPOSALS,
    BatchProposal,
    BigramProposal,
    Groups,
    ModelProposal,
    UnigramProposal,
)

V, H, K = 23, 6, 7
COUNTS = torch.arange(1, V + 1)
LOSSES = {
    "blackout": BlackOut,
    "sampled": Sampled,
    "nce": lambda *a, **o: NCE(*a, log_z="learned", **o),
}


def pairs(n=400):
    """A text's neighbours; word 22 is never a context."""
    generator = torch.Generator().manual_seed(0)
    words = (torch.rand(n, generator=generator) ** 2 * (V - 1)).long()
    words[7] = V - 1
    return words[:-1][words[:-1] < V - 1], words[1:][words[:-1] < V - 1]


def make(kind, counts=COUNTS, alpha=0.4):
    proposal = PROPOSALS[kind](counts, alpha)
    if kind == "bigram":
        proposal.read_text(*pairs())
    if kind == "model":
        proposal.adapt(torch.linspace(1, 5, len(counts)) ** 3)
    if kind == "lsh":
        proposal.see_rows(torch.randn(V, H, generator=torch.Generator().manual_seed(4)), 0)
    return proposal


def words_of(shape, seed=1):
    return torch.randint(V, shape, generator=torch.Generator().manual_seed(seed))


def plausible(words, probability):
    """Chi-square of draws against probabilities, within 5 standard deviations."""
    observed = torch.bincount(words.flatten(), minlength=len(probability)).double()
    expected = probability * words.numel()
    assert not (observed[expected == 0] > 0).any()
    observed, expected = observed[expected > 0], expected[expected > 0]
    degrees = len(observed) - 1
    statistic = float(((observed - expected) ** 2 / expected).sum())
    return abs(statistic - degrees) < 5 * math.sqrt(2 * degrees)


@pytest.mark.parametrize("kind", ["unigram", "bigram", "model"])
@pytest.mark.parametrize("group_size", [1, 4])
def test_draws_of_a_group_have_its_density(kind, group_size):
    proposal = make(kind)
    target, context = words_of((3, group_size)), words_of((3, group_size), 2)
    context[0, 0] = V - 1  # never seen
    drawn = proposal.draw(5, 9, target, 200_000, history=context[..., None])
    everything = torch.arange(V).expand(3, V)
    density = proposal.log_density(everything, Groups(target, context[..., None])).exp()  # (G, V)
    torch.testing.assert_close(density.sum(1), torch.ones(3, dtype=torch.float64))
    for samples, own in zip(drawn.samples, density, strict=True):
        assert plausible(samples, own)
    assert torch.equal(drawn.log_q_samples, density.log().gather(1, drawn.samples))
    assert torch.equal(drawn.log_q_target, density.log().gather(1, target))


def test_bigram_density_is_the_mixture_counted_by_hand():
    proposal = make("bigram")
    before, after = (x.tolist() for x in pairs())
    target, context = words_of((2, 3)), torch.tensor([[0, 3, 0], [5, V - 1, 9]])
    found = proposal.log_density(
        torch.arange(V).expand(2, V), Groups(target, context[..., None])
    ).exp()
    q = UnigramProposal(COUNTS, 0.4).log_q.exp()
    for g, w in itertools.product(range(2), range(V)):
        follows = []
        for x in context[g].tolist():
            there = [b for a, b in zip(before, after, strict=True) if a == x]
            follows.append(there.count(w) / len(there) if there else float(q[w]))
        expected = 0.5 * float(q[w]) + 0.5 * sum(follows) / 3
        assert float(found[g, w]) == pytest.approx(expected, rel=1e-12)
    assert (found >= 0.5 * q * (1 - 1e-12)).all()


def test_batch_draws_are_the_block_s_targets():
    proposal = make("batch")
    target = words_of((4, 5))
    share = torch.bincount(target.flatten(), minlength=V).double() / 20
    drawn = proposal.draw(5, 9, target, 100_000)
    for samples in drawn.samples:
        assert plausible(samples, share)
    unigram = (COUNTS / COUNTS.sum()).double().log()
    torch.testing.assert_close(drawn.log_q_samples, unigram[drawn.samples], rtol=1e-6, atol=0)
    torch.testing.assert_close(drawn.log_q_target, unigram[target], rtol=1e-6, atol=0)
    mask = target > 10
    assert drawn.samples.min() <= 10
    assert proposal.draw(5, 9, target, 1000, mask=mask).samples.min() > 10
    none = torch.zeros_like(mask)
    assert proposal.draw(5, 9, target, 30, mask=none).samples.shape == (4, 30)


def test_batch_draws_follow_the_unigram_distribution_if_the_targets_do():
    proposal = BatchProposal(COUNTS)
    target = UnigramProposal(COUNTS, 1.0).words(
        1, 0, 100, 20_000
    )  # many more than are drawn of them
    drawn = proposal.draw(2, 0, target, 200)
    assert plausible(drawn.samples, proposal.marginal())


def test_what_a_bigram_draw_is_on_average():
    """Over contexts as the text has them: half Q_alpha, half the words that follow."""
    before, after = pairs()
    proposal = BigramProposal(torch.bincount(after, minlength=V).clamp(min=1), 0.4)
    proposal.read_text(before, after)
    density = proposal.log_density(
        torch.arange(V).expand(1, V), Groups(after[None], before[None, :, None])
    ).exp()
    torch.testing.assert_close(density[0], proposal.marginal(), rtol=1e-12, atol=0)


def test_the_model_s_proposal_is_the_root_mean_square_of_its_probabilities():
    layer = BlackOut(H, V, K, counts=COUNTS, proposal="model", bias=True, init_range=1.0).double()
    torch.nn.init.normal_(layer.bias, generator=torch.Generator().manual_seed(1))
    hidden = torch.randn(50, H, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    everything, none = torch.arange(V)[None], Groups(torch.zeros(1, 1))
    q = UnigramProposal(COUNTS, 1.0).log_q.exp()
    torch.testing.assert_close(layer.proposal.log_density(everything, none)[0].exp(), q)
    layer.follow_states(hidden)
    p = layer.log_prob(hidden).exp().square().mean(0).sqrt().detach()
    torch.testing.assert_close(
        layer.proposal.log_density(everything, none)[0].exp(), 0.9 * p / p.sum() + 0.1 * q
    )
    partition = layer.logits(hidden).logsumexp(1)
    for tile in (1, 5, 23, 100):
        found = root_mean_square_prob(hidden, layer.weight, layer.bias, partition, tile)
        torch.testing.assert_close(found, p)


def test_no_other_static_proposal_has_a_smaller_variance():
    """Of the estimate of sum_w p(w | s) f(w), f of mean square 1, on average over s: sum E p²/q."""
    generator = torch.Generator().manual_seed(2)
    p = (torch.randn(50, V, generator=generator, dtype=torch.float64) * 2).softmax(1)

    def variance(q):
        return float((p.square().mean(0) / q).sum())

    best = p.square().mean(0).sqrt()
    best /= best.sum()
    for _ in range(100):
        other = best * (0.3 * torch.randn(V, generator=generator, dtype=torch.float64)).exp()
        assert variance(other / other.sum()) > variance(best)


def test_a_cast_of_the_layer_keeps_every_word_within_reach():
    """A cumulative table in float32 would lose words; here it is made of integers."""
    vocab = 100_000
    layer = BlackOut(2, vocab, 5, proposal="model").half().float()
    layer.proposal.adapt(torch.arange(vocab) < 3)
    share = layer.proposal.marginal()
    torch.testing.assert_close(share[3:], torch.full((vocab - 3,), 0.1 / vocab, dtype=share.dtype))
    assert layer.state_dict()["proposal.edges"].dtype == torch.int64


@pytest.mark.parametrize("kind", PROPOSALS)
def test_draws_are_a_pure_function_of_seed_and_step(kind):
    proposal = make(kind)
    target, context = words_of((4, 6)), words_of((4, 6), 2)
    given = {"history": context[..., None], "states": torch.rand(4, 6, H)}

    def draw(seed, step):
        return proposal.draw(seed, step, target, 50, **given).samples

    assert torch.equal(draw(1, 2), draw(1, 2))
    assert not torch.equal(draw(1, 2), draw(1, 3))
    assert not torch.equal(draw(1, 2), draw(2, 2))
    assert len({tuple(row.tolist()) for row in draw(1, 2)}) == 4


def make_layer(loss, kind, **options):
    torch.manual_seed(3)
    layer = LOSSES[loss](
        H, V, K, counts=COUNTS, proposal=kind, init_range=0.8, bias=True, **options
    )
    if kind == "bigram":
        layer.proposal.read_text(*pairs())
    return layer


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("kind", PROPOSALS)
@pytest.mark.parametrize("sharing", ["step", "block", "word"])
def test_every_loss_with_every_proposal(loss, kind, sharing):
    """Gradients of the whole layer against finite differences, and native against reference."""
    hidden = torch.randn(3, 2, H, generator=torch.Generator().manual_seed(1))
    target, context = words_of((3, 2)), words_of((3, 2), 2)
    options = {"sharing": sharing, "always_sample": (1, 5)}
    layer = make_layer(loss, kind, sparse=False, **options).double()
    names = [name for name, _ in layer.named_parameters()]

    def objective(states, *values):
        layer.step.zero_()
        given = dict(zip(names, values, strict=True))
        arguments = (states, target, None, context)
        return torch.func.functional_call(layer, given, arguments).output

    parameters = [p.detach().clone().requires_grad_() for p in layer.parameters()]
    given = (hidden.double().requires_grad_(), *parameters)
    assert torch.autograd.gradcheck(objective, given, fast_mode=True)  # along one direction

    losses, gradients = [], []
    for impl in ("native", "reference"):
        single = make_layer(loss, kind, impl=impl, **options)
        leaf = hidden.clone().requires_grad_()
        value = single(leaf, target, history=context).loss
        value.backward()
        losses.append(value.detach())
        gradients.append([leaf.grad, *(p.grad.to_dense() for p in single.parameters())])
    torch.testing.assert_close(*losses, rtol=1e-5, atol=1e-6)
    for got, want in zip(*gradients, strict=True):
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("kind", ["unigram", "bigram", "model"])
@pytest.mark.parametrize("collisions", ["keep", "remove"])
def test_what_importance_sampling_estimates_whatever_the_proposal(kind, collisions):
    """With K samples: log p - log(K Q), p the exact one; without copies log p / (1 - p) instead."""
    samples, options = 200_000, {"counts": COUNTS, "collisions": collisions, "init_range": 0.8}
    layer = Sampled(H, V, samples, proposal=kind, **options).double()
    hidden = torch.randn(20, H, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    target, context = words_of((20,)), words_of((20,), 2)
    if kind == "bigram":
        layer.proposal.read_text(*pairs())
    if kind == "model":
        layer.follow_states(hidden)
    sampled = layer(hidden, target, history=context).output.detach()
    groups = Groups(target[None], context[None, :, None])
    log_q = layer.proposal.log_density(target[None], groups)[0]
    log_p = layer.eval()(hidden, target).output
    estimated = log_p if collisions == "keep" else log_p - torch.log1p(-log_p.exp())
    expected = estimated - math.log(samples) - log_q
    torch.testing.assert_close(sampled, expected, rtol=0, atol=0.02)


def test_what_is_missing_is_said():
    layer = BlackOut(H, V, K, counts=COUNTS, proposal="bigram")
    hidden, target = torch.randn(4, H), words_of((4,))
    with pytest.raises(UserError, match="proposal bigram has no counts"):
        layer(hidden, target, history=target)
    layer.proposal.read_text(*pairs())
    with pytest.raises(UserError, match="proposal bigram needs the input words"):
        layer(hidden, target)
    layer(hidden, target, history=target)
    with pytest.raises(ValueError, match=r"history \(3,\) must be target \(4,\)"):
        layer(hidden, target, history=target[:3])
    layer.eval()(hidden, target)  # evaluation needs neither
    with pytest.raises(UserError, match="proposal is 'trigram'"):
        BlackOut(H, V, K, proposal="trigram")
    with pytest.raises(UserError, match="only a layer with proposal model"):
        layer.follow_states(hidden)
    assert isinstance(BlackOut(H, V, K, proposal="model").proposal, ModelProposal)
