"""The spherical softmax in factors: the same as its dense form, whatever the number of updates."""

import copy

import pytest
import torch

from blackout.errors import UserError
from blackout.output import Spherical

V, H, N = 40, 5, 6


def log_prob(weight, hidden, epsilon):
    squares = (hidden @ weight.mT).square() + epsilon
    return squares.log() - squares.sum(-1, keepdim=True).log()


def made(dtype=torch.float64, **options):
    torch.manual_seed(4)
    return Spherical(H, V, dtype=dtype, lr=0.05, epsilon=0.02, **options)


def examples(number, dtype=torch.float64):
    """States that have much in common, as those of sigmoid units do."""
    generator = torch.Generator().manual_seed(number)
    hidden = torch.rand(N, H, dtype=torch.float64, generator=generator) + 0.5
    return hidden.to(dtype), torch.randint(V, (N,), generator=generator)


def test_probabilities_and_their_sum():
    layer = made().eval()
    hidden, target = examples(0)
    expected = log_prob(layer.weight, hidden, 0.02)
    found = layer.log_prob(hidden)
    assert found.exp().sum(1) == pytest.approx(1, abs=1e-12)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(
        layer.target_log_prob(hidden, target), expected.gather(1, target[:, None])[:, 0]
    )
    torch.testing.assert_close(layer.topk(hidden, 3).values, expected.topk(3).values)


def test_gradients_by_states_and_finite_differences():
    layer = made()
    hidden, target = examples(1)
    hidden.requires_grad_()
    dense = layer.weight.requires_grad_()
    truth = log_prob(dense, hidden, 0.02).gather(1, target[:, None]).mean()
    (expected,) = torch.autograd.grad(truth, hidden)
    (found,) = torch.autograd.grad(-layer(hidden, target).loss, hidden)
    torch.testing.assert_close(found, expected)
    layer = made().eval()
    for place in range(H):
        moved = torch.zeros(N, H, dtype=torch.float64)
        moved[:, place] = 1e-6
        up, down = (layer.target_log_prob(hidden.detach() + s * moved, target) for s in (1, -1))
        assert (up - down) / 2e-6 == pytest.approx(N * expected[:, place], abs=1e-7)


def test_a_second_derivative_is_refused_while_it_learns_and_right_after():
    layer = made()
    hidden, target = examples(1)
    hidden.requires_grad_()
    with pytest.raises(UserError, match="first derivatives only"):
        torch.autograd.grad(layer(hidden, target).loss, hidden, create_graph=True)
    layer.eval()

    def gradient(states):
        return torch.autograd.grad(layer(states, target).loss, states, create_graph=True)[0]

    assert torch.autograd.gradcheck(gradient, hidden)


def test_a_thousand_updates_are_those_of_the_dense_form():
    """In both precisions, beside one dense table of float64."""
    rough = made(torch.float32)
    fine = copy.deepcopy(rough).double()
    dense = rough.weight.double().clone().requires_grad_()
    for number in range(1000):
        hidden, target = examples(number, torch.float32)
        rough(hidden, target).loss.backward()
        hidden = hidden.double()
        fine(hidden, target).loss.backward()
        truth = -log_prob(dense, hidden, 0.02).gather(1, target[:, None]).mean()
        (gradient,) = torch.autograd.grad(truth, dense)
        with torch.no_grad():
            dense -= 0.05 * gradient
    dense = dense.detach()
    gram = dense.mT @ dense
    for layer, close in ((fine, 1e-10), (rough, 1e-3)):
        assert (layer.weight.double() - dense).norm() < close * dense.norm()
        assert (layer.gram - gram).norm() < close * gram.norm()
        values = torch.linalg.svdvals(layer.mix.double())
        assert float(values.min()) > 1 / 20
        assert float(values.max()) < 20
        layer.eval()
        total = layer.log_prob(hidden.to(layer.mix.dtype)).double().exp().sum(1)
        assert total == pytest.approx(1, abs=1e-5)


def test_balancing_leaves_the_table_as_it_is():
    layer = made()
    with torch.no_grad():
        layer.mix.copy_(torch.diag(torch.tensor([1e-4, 1.0, 1e3, 0.5, 2.0])))
    before = layer.weight.clone()
    assert layer.balance() == 2
    torch.testing.assert_close(layer.weight, before)
    values = torch.linalg.svdvals(layer.mix)
    assert values.tolist() == pytest.approx([2, 1, 1, 1, 0.5])


def test_no_step_turns_a_direction_round():
    layer = made()
    layer.set_rate(1e6)
    hidden, target = examples(3)
    layer(hidden, target).loss.backward()
    assert float(torch.linalg.eigvalsh(layer.mix).min()) >= 0.5 - 1e-9
    assert bool(layer.weight.isfinite().all())


def test_what_does_not_count_teaches_nothing():
    layer = made()
    hidden, target = examples(5)
    before = layer.weight.clone()
    layer(hidden, torch.full_like(target, -100)).loss.backward()
    torch.testing.assert_close(layer.weight, before, rtol=0, atol=0)
    layer.eval()
    layer(hidden.requires_grad_(), target)
    torch.testing.assert_close(layer.weight, before, rtol=0, atol=0)


def test_bad_input():
    with pytest.raises(UserError, match="spherical: lr is 0, must be above 0"):
        Spherical(H, V, lr=0)
    with pytest.raises(UserError, match="spherical: epsilon is -1"):
        Spherical(H, V, epsilon=-1)


def test_a_cast_leaves_the_sum_in_float64():
    """And right: probabilities of the table as it now is sum to one."""
    layer = made().float().eval()
    assert (layer.rows.dtype, layer.gram.dtype) == (torch.float32, torch.float64)
    logs = layer.log_prob(examples(0, torch.float32)[0])
    torch.testing.assert_close(logs.exp().sum(1), torch.ones(N), rtol=1e-5, atol=1e-5)


def test_evaluation_has_gradients_by_states_and_learns_nothing():
    layer = made().eval()
    hidden, target = examples(1)
    hidden.requires_grad_()
    truth = log_prob(layer.weight, hidden, 0.02).gather(1, target[:, None]).mean()
    (expected,) = torch.autograd.grad(truth, hidden)
    before = layer.weight.clone()
    (found,) = torch.autograd.grad(-layer(hidden, target).loss, hidden)
    torch.testing.assert_close(found, expected)
    assert torch.equal(layer.weight, before)


def test_a_bf16_table_has_probabilities_of_one():
    layer = made(torch.bfloat16).eval()
    hidden, target = examples(2, torch.bfloat16)
    found = layer.log_prob(hidden)
    assert found.dtype == torch.float32
    assert found.exp().sum(1) == pytest.approx(1, abs=1e-5)
    torch.testing.assert_close(layer(hidden, target).output, found.gather(1, target[:, None])[:, 0])
