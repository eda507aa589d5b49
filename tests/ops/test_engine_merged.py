"""Merged copies: a sample drawn m times is one column that counts m times, with the same result."""

import math

import pytest
import torch
from torch import Tensor

from blackout.ops import reference
from blackout.output import NCE, BlackOut, Sampled
from blackout.proposals import UnigramProposal

NAMES = list(reference.OBJECTIVES)


def by_word(words: Tensor, values: Tensor, vocab: int) -> Tensor:
    """The sum of the values of each word."""
    size = values.shape[1:]
    sums = torch.zeros(vocab, *size, dtype=torch.float64)
    return sums.index_add_(0, words.flatten(), values.double())


@pytest.mark.parametrize(("vocab", "draws"), [(1, 3), (5, 40), (300, 7), (900, 1000)])
def test_each_word_of_a_group_once(engine, vocab, draws, threads):
    samples = torch.randint(vocab, (6, draws), generator=torch.Generator().manual_seed(draws))
    samples[2] = samples[2, 0]  # one word only
    words, multiplicity = engine.merge_copies(samples)
    assert words.shape == multiplicity.shape
    assert multiplicity.dtype == torch.float32
    assert words.shape[1] <= draws
    for group, merged, counts in zip(samples, words, multiplicity, strict=True):
        real = merged[counts > 0]
        assert len(real) == len(real.unique())
        assert set(merged.tolist()) == set(group.tolist()), "no word that was not drawn"
        expected = torch.bincount(group, minlength=vocab)[real]
        assert torch.equal(counts[counts > 0].long(), expected)


@pytest.mark.parametrize("objective", NAMES)
@pytest.mark.parametrize("keep_copies", [True, False])
@pytest.mark.parametrize("target_weight", ["proposal", "one"])
@pytest.mark.parametrize(("vocab", "k", "words"), [(6, 40, 3), (50, 33, 5), (2, 9, 1), (900, 3, 2)])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_losses_and_gradients_are_those_of_the_drawn_set(
    engine, objective, keep_copies, target_weight, vocab, k, words, dtype
):
    """With biases and log Z; the drawn set in float64 is the truth."""
    if dtype == torch.float64 and engine.name != "reference":
        pytest.skip("native code computes float32 and bfloat16")
    generator = torch.Generator().manual_seed(vocab + k)
    hidden = torch.randn(4, words, 7, generator=generator, dtype=torch.float64)
    weight = torch.randn(vocab, 7, generator=generator, dtype=torch.float64)
    bias = torch.randn(vocab, generator=generator, dtype=torch.float64)
    target = torch.randint(vocab, (4, words), generator=generator)
    samples = torch.randint(vocab, (4, k), generator=generator)
    samples[0] = samples[0, 0]
    log_q = torch.rand(vocab, generator=generator, dtype=torch.float64).softmax(0).log()
    factors = torch.rand(4, words, generator=generator, dtype=torch.float64)
    log_q_target = log_q[target] if target_weight == "proposal" else log_q.new_zeros(target.shape)

    def run(which, columns, multiplicity, wide, product):
        value, saved = which.sampled_forward(
            hidden.to(wide),
            weight.to(wide),
            bias.to(wide),
            0.5,
            target,
            columns,
            multiplicity,
            log_q_target,
            log_q[columns],
            objective,
            keep_copies,
            product,
        )
        found = which.sampled_backward(saved, target, columns, factors.to(wide), True, wide)
        rows = by_word(found.rows, found.row_values, vocab)
        biases = by_word(found.rows, found.bias_values, vocab)
        return [value.double(), found.hidden.double(), rows, biases, found.log_z.double()]

    wide = torch.float64 if dtype == torch.float64 else torch.float32
    merged = run(engine, *engine.merge_copies(samples), wide, dtype)
    truth = run(reference, samples, None, torch.float64, torch.float64)
    tolerance = {torch.float64: 1e-12, torch.float32: 5e-6, torch.bfloat16: 3e-2}[dtype]
    for got, want in zip(merged, truth, strict=True):
        scale = float(want.abs().max()) + 1
        torch.testing.assert_close(got, want, rtol=tolerance, atol=tolerance * scale)


@pytest.mark.parametrize("objective", NAMES)
@pytest.mark.parametrize("scale", [1.0, 30.0, 1e4])
@pytest.mark.parametrize("keep_copies", [False, True])
def test_extreme_logits_stay_finite_and_right(engine, objective, scale, keep_copies):
    """A winner with one copy and with several, none left, only copies of the target."""
    generator = torch.Generator().manual_seed(2)
    weight = torch.eye(40)[:, :12].clone()  # word w < 12 has the logit hidden[w]
    hidden = torch.zeros(6, 1, 12)
    hidden[:, 0, :6] = (torch.rand(6, 6, generator=generator) * 2 - 1) * scale
    hidden[0, 0, 3] = 1e4  # a sample wins that was drawn once
    hidden[1, 0, 2] = 1e4  # and one that was drawn three times
    hidden[2, 0, 0] = 1e4  # the target wins
    target = torch.zeros(6, 1, dtype=torch.long)
    samples = torch.tensor([[1, 2, 3, 2, 5, 2]]).repeat(6, 1)
    samples[3] = 0  # only copies of the target
    samples[4, 1:] = 0  # one sample left
    samples[5] = 4  # one word, drawn six times
    log_q = torch.full((40,), -30.0, dtype=torch.float64)
    words, multiplicity = engine.merge_copies(samples)

    def forward(which, columns, multiplicity, dtype):
        return which.sampled_forward(
            hidden.to(dtype),
            weight.to(dtype),
            None,
            0.0,
            target,
            columns,
            multiplicity,
            log_q[target],
            log_q[columns],
            objective,
            keep_copies,
            dtype,
        )

    value, saved = forward(engine, words, multiplicity, torch.float32)
    wanted, truth = forward(reference, samples, None, torch.float64)
    d_samples = torch.stack(
        [by_word(words[g], saved.d_samples[g, 0], 40) for g in range(len(samples))]
    )
    d_truth = torch.stack(
        [by_word(samples[g], truth.d_samples[g, 0], 40) for g in range(len(samples))]
    )
    for ours, theirs in [
        (value.double(), wanted),
        (saved.d_target.double(), truth.d_target),
        (d_samples, d_truth),
    ]:
        assert ours.isfinite().all()
        torch.testing.assert_close(ours, theirs, rtol=6e-6, atol=6e-6)


@pytest.mark.parametrize("objective", NAMES)
def test_derivatives_equal_finite_differences(objective):
    generator = torch.Generator().manual_seed(1)
    z_target = torch.randn(2, 3, generator=generator, dtype=torch.float64)
    z_samples = torch.randn(2, 3, 6, generator=generator, dtype=torch.float64) * 3
    copies = torch.tensor([[1, 3, 0, 2, 1, 7], [4, 1, 1, 0, 0, 1]]).double()[:, None]

    def value(nudge: Tensor) -> Tensor:
        return reference.OBJECTIVES[objective](z_target, z_samples + nudge, copies).value

    d_samples = reference.OBJECTIVES[objective](z_target, z_samples, copies).d_samples
    for k in range(6):
        nudge = torch.zeros(6, dtype=torch.float64)
        nudge[k] = 1e-6
        slope = (value(nudge) - value(-nudge)) / 2e-6
        torch.testing.assert_close(d_samples[..., k], slope, rtol=1e-6, atol=1e-8)


def test_the_expected_share_of_different_words():
    """Against the mean over draws, and against SPEC's figures for counts that fall as 1/rank."""
    proposal = UnigramProposal(torch.arange(1, 40), alpha=0.7)
    drawn = proposal.words(1, 0, 4000, 25)
    mean = sum(len(set(row)) for row in drawn.tolist()) / drawn.numel()
    assert proposal.distinct_share(25) == pytest.approx(mean, abs=0.002)
    zipf = UnigramProposal(1 / torch.arange(1, 64001), alpha=1.0)
    assert round(500 * zipf.distinct_share(500)) == 331


@pytest.mark.parametrize("kind", [BlackOut, Sampled, NCE])
@pytest.mark.parametrize("impl", ["native", "reference"])
def test_layers_merge_where_it_pays_and_train_the_same(kind, impl, monkeypatch):
    """The words of ``always_sample`` are copies like others."""
    counts = 1 / torch.arange(1, 2001)
    generator = torch.Generator().manual_seed(0)
    hidden, target = (
        torch.randn(4, 5, 12, generator=generator),
        torch.randint(2000, (4, 5), generator=generator),
    )
    found = []
    for merges in (True, False):
        layer = kind(
            12,
            2000,
            200,
            counts=counts,
            always_sample=(1, 5),
            sharing="step",
            seed=3,
            impl=impl,
        )
        layer.table.reset_parameters(7)
        assert layer.proposal.distinct_share(200) < 0.7
        if not merges:
            monkeypatch.setattr(type(layer.proposal), "distinct_share", lambda *_: 1.0)
        leaf = hidden.clone().requires_grad_()
        loss = layer(leaf, target).loss
        loss.backward()
        columns = len(layer.weight.grad._indices()[0]) - target.numel()
        assert (columns < 0.7 * 4 * 202) == merges
        found.append([loss.detach(), leaf.grad, layer.weight.grad.to_dense()])
    for merged, drawn in zip(*found, strict=True):
        torch.testing.assert_close(merged, drawn, rtol=1e-5, atol=1e-7)
    assert math.isfinite(float(found[0][0]))
