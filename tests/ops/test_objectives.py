"""Losses and gradients against naive formulas, autograd and finite differences."""

import math

import pytest
import torch
from torch import Tensor

from blackout.ops.reference import OBJECTIVES, sampled_backward, sampled_forward

NAMES = list(OBJECTIVES)


def naive_objective(
    name: str,
    u: Tensor,
    target: int,
    samples: list[int],
    log_q: Tensor,
    log_q_target: Tensor,
    keep_copies: bool,
) -> Tensor:
    """J of one word straight from its formula; autograd-able; u are the logits of all words."""
    kept = samples if keep_copies else [j for j in samples if j != target]
    if name == "nce":
        noise = math.log(len(samples)) + log_q
        value = torch.log(torch.sigmoid(u[target] - math.log(len(samples)) - log_q_target))
        for j in kept:
            value = value + torch.log(torch.sigmoid(-(u[j] - noise[j])))
        return value
    weight = (u - log_q).exp()
    target_weight = (u[target] - log_q_target).exp()
    total = target_weight + sum(weight[j] for j in kept)
    value = torch.log(target_weight / total)
    if name == "sampled":
        return value
    noise_total = sum(weight[j] for j in kept)
    for j in kept:
        p = weight[j] / (total if name == "blackout" else weight[j] + noise_total)
        value = value + torch.log(1 - p)
    return value


def case(vocab: int, k: int, groups: int = 3, words: int = 4, size: int = 5, seed: int = 0):
    generator = torch.Generator().manual_seed(seed)
    hidden = torch.randn(groups, words, size, generator=generator, dtype=torch.float64)
    weight = torch.randn(vocab, size, generator=generator, dtype=torch.float64)
    target = torch.randint(vocab, (groups, words), generator=generator)
    samples = torch.randint(vocab, (groups, k), generator=generator)
    log_q = torch.rand(vocab, generator=generator, dtype=torch.float64).softmax(0).log()
    return hidden, weight, target, samples, log_q


SHAPES = [(50, 7), (6, 9), (3, 40), (5, 1), (2, 1)]  # (V, K): repeats, target sampled, K > V, K = 1


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("vocab", "k"), SHAPES)
@pytest.mark.parametrize("own_weight", [True, False])
@pytest.mark.parametrize("keep_copies", [True, False])
def test_value_and_all_gradients_equal_autograd_of_the_naive_formula(
    name, vocab, k, own_weight, keep_copies
):
    """With the target's own log Q, and with 0 in its place: q_i = 1 of the paper's footnote 1."""
    hidden, weight, target, samples, log_q = case(vocab, k)
    log_q_target = log_q[target] if own_weight else torch.zeros_like(log_q[target])
    leaf_hidden, leaf_weight = hidden.clone().requires_grad_(), weight.clone().requires_grad_()
    u = leaf_hidden @ leaf_weight.mT  # (G, M, V)
    factors = torch.rand(target.shape, dtype=torch.float64)
    naive = torch.stack(
        [
            torch.stack(
                [
                    naive_objective(
                        name,
                        u[g, m],
                        i,
                        samples[g].tolist(),
                        log_q,
                        log_q_target[g, m],
                        keep_copies,
                    )
                    for m, i in enumerate(target[g].tolist())
                ]
            )
            for g in range(target.shape[0])
        ]
    )
    (naive * factors).sum().backward()

    value, saved = sampled_forward(
        hidden,
        weight,
        None,
        0.0,
        target,
        samples,
        None,
        log_q_target,
        log_q[samples],
        name,
        keep_copies,
        torch.float64,
    )
    gradients = sampled_backward(saved, target, samples, factors, False, torch.float64)
    d_weight = torch.zeros_like(weight).index_add_(0, gradients.rows, gradients.row_values)
    torch.testing.assert_close(value, naive.detach(), rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(gradients.hidden, leaf_hidden.grad, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(d_weight, leaf_weight.grad, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", NAMES)
def test_derivatives_equal_finite_differences(name):
    generator = torch.Generator().manual_seed(1)
    z_target = torch.randn(2, 3, generator=generator, dtype=torch.float64)
    z_samples = torch.randn(2, 3, 6, generator=generator, dtype=torch.float64) * 3
    z_samples[0, 0, 2] = -math.inf
    objective, step = OBJECTIVES[name], 1e-6
    _, d_target, d_samples = objective(z_target, z_samples)
    slope = (
        objective(z_target + step, z_samples).value - objective(z_target - step, z_samples).value
    ) / (2 * step)
    torch.testing.assert_close(d_target, slope, rtol=1e-6, atol=1e-8)
    for k in range(6):
        nudge = torch.zeros(6, dtype=torch.float64)
        nudge[k] = step
        slope = (
            objective(z_target, z_samples + nudge).value
            - objective(z_target, z_samples - nudge).value
        ) / (2 * step)
        torch.testing.assert_close(d_samples[..., k], slope, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("scale", [1.0, 30.0, 1e4])
def test_float32_stays_finite_and_near_float64_whatever_the_logits(name, scale):
    """Logits up to ±1e4, tiny proposal probabilities, a sample that takes all the mass."""
    generator = torch.Generator().manual_seed(2)
    z_target = (torch.rand(40, 5, generator=generator, dtype=torch.float64) * 2 - 1) * scale
    z_samples = (torch.rand(40, 5, 9, generator=generator, dtype=torch.float64) * 2 - 1) * scale
    z_samples[0] += 1e4  # one group where the samples win by far
    z_target[1] += 1e4  # and one where the target does
    z_samples[2, :, 1:] = -math.inf  # one sample left
    z_samples[3] = -math.inf  # none left
    z_samples[4, :, 3] = z_samples[4, :, 7] = z_samples[4].max() + 50  # two equal winners
    z_target, z_samples = z_target.float().double(), z_samples.float().double()
    exact = OBJECTIVES[name](z_target, z_samples)
    single = OBJECTIVES[name](z_target.float(), z_samples.float())
    for got, want in zip(single, exact, strict=True):
        assert got.isfinite().all()
        torch.testing.assert_close(got.double(), want, rtol=2e-6, atol=2e-6)
    assert (single.d_target.abs() <= 2 + 1e-5).all()


def test_gradients_equal_the_papers_closed_forms():
    """Equations 9 and 10 as printed, with n the samples that remain."""
    generator = torch.Generator().manual_seed(3)
    z_target = torch.randn(1, 4, generator=generator, dtype=torch.float64)
    z_samples = torch.randn(1, 4, 8, generator=generator, dtype=torch.float64)
    _, d_target, d_samples = OBJECTIVES["blackout"](z_target, z_samples)
    p = torch.cat([z_target[..., None], z_samples], -1).softmax(-1)
    p_i, p_j, n = p[..., 0], p[..., 1:], 8
    inverse = 1 / (1 - p_j)
    torch.testing.assert_close(d_target, 1 - (n + 1 - inverse.sum(-1)) * p_i)
    others = inverse.sum(-1, keepdim=True) - inverse
    torch.testing.assert_close(d_samples, -(n + 1 - others) * p_j)


def test_importance_sampling_of_every_word_once_is_the_exact_softmax():
    """With each other word sampled once and a uniform Q, p is the softmax over V."""
    hidden, weight, *_ = case(7, 1)
    target = torch.full((3, 4), 2)
    samples = torch.tensor([[0, 1, 3, 4, 5, 6]]).expand(3, -1)
    log_q = torch.full((7,), -math.log(7), dtype=torch.float64)
    offsets = log_q[target], log_q[samples]
    value, _ = sampled_forward(
        hidden, weight, None, 0.0, target, samples, None, *offsets, "sampled", False, torch.float64
    )
    exact = (hidden @ weight.mT).log_softmax(-1)[..., 2]
    torch.testing.assert_close(value, exact)
